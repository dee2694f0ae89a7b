"""A broker and a daemon of the real program, for all tests."""

import importlib
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from streamd import Client, Local, push

PATIENCE = 60.0  # s, also on a slow machine


def need(name: str) -> Any:
    """A module that a test needs. Without it the test is skipped, but where all programs have to be."""
    if os.environ.get("STREAMD_REQUIRE_PROGRAMS"):
        return importlib.import_module(name)
    return pytest.importorskip(name)


class Daemon:
    """A daemon whose topic has a block for each customer, and that signs receipts."""

    def __init__(self, local: Local) -> None:
        self.url, self.broker, self.key = local.url, local.broker, local.key

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
def daemon() -> Iterator[Daemon]:
    need("confluent_kafka")
    with Local("customers", {"blocks.unit": "key"}) as local:
        it = Daemon(local)
        it.push(**{f"c{i}": customer(i) for i in range(8)})
        yield it


@pytest.fixture(scope="session")
def broker(daemon: Daemon) -> str:
    """The address of a broker."""
    return daemon.broker
