"""The program that comes with the package."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from ._errors import StreamdError


class ProgramError(StreamdError, ValueError):
    """The program has failed. The text is its own message."""


def find_program() -> str:
    """The path of the program that was installed with this package.

    Without that, for example in a checkout, it is the one on the path.
    """
    name = "streamd" + (sysconfig.get_config_var("EXE") or "")
    here = pathlib.Path(__file__).resolve().parent
    places: list[str | pathlib.Path] = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")),
        here.parent / "bin",  # pip install --target
        *(part / "bin" for part in here.parents if (part / "bin").is_dir()),  # pip install --prefix
        pathlib.Path(sys.executable).parent,
    ]
    for place in places:
        path = os.path.join(place, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    if found := shutil.which(name):
        return found
    raise StreamdError("the program streamd is not installed: the package's wheel brings it; another one may be on the path")


def _environment() -> dict[str, str]:
    # The program refuses variables that it does not know, and calls here name all settings.
    return {k: v for k, v in os.environ.items() if not k.startswith("STREAMD_")}


def _failure(status: int, stderr: bytes) -> ProgramError:
    lines = stderr.decode(errors="replace").strip().splitlines()
    # Warnings are for people who look on.
    said = [line.removeprefix("streamd: ") for line in lines if not line.startswith("streamd: warning: ")]
    return ProgramError("\n".join(said) or f"streamd ended with {status} and no message")


def run(*args: str | os.PathLike[str], stdin: Any = None) -> bytes:
    """Runs the program to its end, and returns its output. stdin is bytes, or a buffer of them."""
    done: subprocess.CompletedProcess[bytes] = subprocess.run([find_program(), *args], input=stdin, capture_output=True, env=_environment())
    if done.returncode != 0:
        raise _failure(done.returncode, done.stderr)
    return done.stdout


def lines(*args: str | os.PathLike[str], feed: Callable[[IO[bytes]], None]) -> Iterator[bytes]:
    """Runs the program, and yields the lines of its output.

    feed writes its input, in a thread, while the output is read: each end would wait for the other
    one otherwise. An error of feed is raised here, and ends the program.
    """
    with tempfile.TemporaryFile() as said:
        child: subprocess.Popen[bytes] = subprocess.Popen(
            [find_program(), *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=_environment()
        )
        faults: list[BaseException] = []

        def write() -> None:
            try:
                feed(child.stdin)
                child.stdin.close()
            except BrokenPipeError:  # the program has ended, and says why
                pass
            except BaseException as fault:
                faults.append(fault)
                child.kill()  # or it would take what has come for all

        feeder = threading.Thread(target=write, daemon=True)
        feeder.start()
        try:
            with child.stdout:
                yield from child.stdout
            child.wait()
        finally:
            child.kill()
            child.wait()
            feeder.join()
            try:
                child.stdin.close()
            except OSError:
                pass
        if faults:
            raise faults[0]
        if child.returncode != 0:
            said.seek(0)
            raise _failure(child.returncode, said.read())


class Service:
    """A program that goes on running, and what it says on the standard error."""

    _PATIENCE = 60.0  # s

    def __init__(self, *args: str) -> None:
        self._child = subprocess.Popen(
            [find_program(), *args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=_environment()
        )
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        self._said.extend(iter(self._child.stderr.readline, ""))

    def said(self, pattern: str) -> str:
        """Waits for a line, and returns the group of its pattern."""
        end = time.monotonic() + self._PATIENCE
        while time.monotonic() < end:
            ended = self._child.poll() is not None
            if ended:
                self._listener.join()
            for line in list(self._said):
                if found := re.search(pattern, line):
                    return found[1]
            if ended:
                raise _failure(self._child.returncode, "".join(self._said).encode())
            time.sleep(0.02)
        raise StreamdError(f"streamd has not said {pattern!r} within {self._PATIENCE:g} s:\n{''.join(self._said)}")

    def stop(self) -> None:
        """Ends it as a service is ended, and after a while as a process is."""
        self._child.terminate()
        try:
            self._child.wait(self._PATIENCE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._listener.join()
        self._child.stderr.close()


def flags_of(settings: Mapping[str, Any]) -> list[str]:
    """Settings as flags: block_rows=10 is --block-rows=10, and None is left out."""
    return [f"--{name.replace('_', '-')}={text_of(value)}" for name, value in settings.items() if value is not None]


def text_of(value: Any) -> str:
    """A value as the text of a flag: numbers with all digits, booleans in lower case, a list with commas."""
    if hasattr(value, "item"):  # of numpy
        value = value.item()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "__iter__") and not isinstance(value, str):
        return ",".join(map(text_of, value))
    return str(value)
