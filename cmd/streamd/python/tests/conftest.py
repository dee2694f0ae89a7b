"""A broker and a daemon of the real program, for all tests."""

import importlib
import os
import pathlib
import random
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from streamd import Client, find_program, push

PATIENCE = 60.0  # s, also on a slow machine


def need(name: str) -> Any:
    """A module that a test needs. Without it the test is skipped, but where all programs have to be."""
    if os.environ.get("STREAMD_REQUIRE_PROGRAMS"):
        return importlib.import_module(name)
    return pytest.importorskip(name)


class Program:
    """A program that goes on running. What it says is kept for the errors of tests."""

    def __init__(self, *args: str) -> None:
        # The program refuses variables that it does not know, and a test's settings are in its flags.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("STREAMD_")}
        self._child = subprocess.Popen(
            [find_program(), *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        )
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        self._said.extend(iter(self._child.stderr.readline, ""))

    def said(self, pattern: str) -> str:
        """Waits for a line, and returns the group of its pattern."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for line in list(self._said):
                if found := re.search(pattern, line):
                    return found[1]
            if self._child.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in:\n{''.join(self._said)}")

    def stop(self) -> None:
        self._child.terminate()
        try:
            self._child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._listener.join()
        self._child.stderr.close()


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """The address of a broker: that of a demo."""
    demo = Program("demo", "--rows", "20000", "--rate", "0", "--listen", "127.0.0.1:0")
    yield demo.said(r"broker on (\S+),")
    demo.stop()


class Daemon:
    def __init__(self, url: str, broker: str, key: pathlib.Path) -> None:
        self.url, self.broker, self.key = url, broker, key

    def push(self, **customers: list[dict]) -> None:
        """Writes a message for each customer, and waits until the model has them."""
        rows = [{"customer": name, **row} for name, mail in customers.items() for row in mail]
        positions = push(rows, "customers", key="customer", brokers=self.broker)
        with Client(self.url) as client:
            client.wait(includes=positions, timeout=PATIENCE)


def customer(seed: int, rows: int = 100) -> list[dict]:
    """Rows of one customer, of two classes that a plane separates but for some."""
    r = random.Random(seed)
    mail = []
    for i in range(rows):
        label = ("ham", "spam")[i % 2]
        mail.append({"label": label, "length": r.gauss(50 if label == "ham" else 200, 60), "capitals": r.randrange(30)})
    return mail


@pytest.fixture(scope="session")
def daemon(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon whose topic has a block for each customer, and that signs receipts."""
    need("confluent_kafka")
    folder = tmp_path_factory.mktemp("daemon")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    # A file without rows makes the topic, and is an error then.
    (rows := folder / "none.csv").write_text("label,length\n")
    replay = [find_program(), "replay", "file", str(rows), "--brokers", broker, "--topic", "customers"]
    subprocess.run(replay, capture_output=True, env={})
    run = Program(
        "run", "--kafka.brokers", broker, "--kafka.topic", "customers", "--blocks.unit", "key", "--http.listen", listen,
        "--snapshot.file", str(folder / "state.db"), "--receipts.key_file", str(folder / "log.key"),
    )  # fmt: skip
    it = Daemon(f"http://{listen}", broker, folder / "log.key.pub")
    it.push(**{f"c{i}": customer(i) for i in range(8)})
    yield it
    run.stop()
