"""The program that comes with the package."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

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


def run(*args: str | os.PathLike[str], stdin: Any = None) -> bytes:
    """Runs the program to its end, and returns its output. stdin is bytes, or a buffer of them."""
    # The program refuses variables that it does not know, and calls here name all settings.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STREAMD_")}
    done: subprocess.CompletedProcess[bytes] = subprocess.run([find_program(), *args], input=stdin, capture_output=True, env=environment)
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        # Warnings are for people who look on.
        said = [line.removeprefix("streamd: ") for line in lines if not line.startswith("streamd: warning: ")]
        raise ProgramError("\n".join(said) or f"streamd ended with {done.returncode} and no message")
    return done.stdout
