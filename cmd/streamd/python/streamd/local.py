"""A broker and a daemon of this machine, for notebooks and tests."""

import pathlib
import tempfile
from collections.abc import Mapping

from . import _program
from .client import Client


class Local(Client):
    """A client of a daemon that it starts, beside a broker in memory with an empty topic.

        with Local("orders", {"blocks.unit": "key"}) as daemon:
            push(frame, "orders", key="customer", brokers=daemon.broker)

    settings are keys of the daemon's configuration. broker is the address of the broker, and key the
    file of the public key of the log of receipts. Nothing is left behind by close.
    """

    def __init__(self, topic: str = "orders", settings: Mapping[str, object] | None = None) -> None:
        self._services: list[_program.Service] = []
        self._folder = tempfile.TemporaryDirectory(prefix="streamd-")
        try:
            folder = pathlib.Path(self._folder.name)
            beside = self._start("demo", "--rows=2000", "--rate=0", "--listen=127.0.0.1:0", f"--topics={topic}")
            self.broker = beside.said(r"broker on (\S+),")
            self.key = folder / "log.key.pub"
            given = {
                "kafka.brokers": self.broker, "kafka.topic": topic, "http.listen": "127.0.0.1:0",
                "snapshot.file": folder / "state.db", "receipts.key_file": folder / "log.key",
            }  # fmt: skip
            run = self._start("run", *(f"--{name}={_program.text_of(value)}" for name, value in (given | dict(settings or {})).items()))
            super().__init__("http://" + run.said(r'"address":"([^"]+)".*serving HTTP'))
        except BaseException:
            self._stop()
            raise

    def _start(self, *args: str) -> _program.Service:
        service = _program.Service(*args)
        self._services.append(service)
        return service

    def close(self) -> None:
        """Ends the daemon and the broker."""
        super().close()
        self._stop()

    def _stop(self) -> None:
        while self._services:
            self._services.pop().stop()
        self._folder.cleanup()
