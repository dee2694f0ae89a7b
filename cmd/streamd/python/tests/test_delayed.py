"""Labels that come hours after the answers, or never: what is scored and learned is that of River's delayed evaluation."""

import datetime
import json
import random
import time
from typing import Any

import pytest
from conftest import PATIENCE, need
from streamd import Client, Local

need("river")
kafka = need("confluent_kafka")
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from river import metrics, stream  # noqa: E402

BEGAN = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def row(r: random.Random) -> tuple[dict, str]:
    label = r.choice(["bad", "good", "good"])
    return {"a": r.gauss(2 if label == "good" else 0, 1), "b": r.gauss(0, 1)}, label


def observations(r: random.Random, n: int) -> list[tuple[dict, Any]]:
    """Rows five minutes apart. Each has a label after 1 to 24 hours; one in 20 is resolved without one."""
    known = []
    for i in range(n):
        x, label = row(r)
        delay = datetime.timedelta(minutes=r.randint(60, 24 * 60))
        at = {"i": i, "x": x, "at": BEGAN + datetime.timedelta(minutes=5 * i), "delay": delay}
        known.append((at, None if r.random() < 0.05 else label))
    return known


def learned(daemon: Client, blocks: int) -> str:
    """The digest of the state when the model has so many blocks."""
    deadline, model = time.monotonic() + PATIENCE, daemon.wait(timeout=PATIENCE)
    while model["live_blocks"] < blocks:
        model = daemon.wait(after=model["fingerprint"], timeout=deadline - time.monotonic())
    assert model["live_blocks"] == blocks
    return model["state_digest"]


@pytest.mark.parametrize("seed", range(2))
def test_answers_are_scored_as_river_does(seed: int) -> None:
    r = random.Random(seed)
    first = [row(r) for _ in range(20)]
    settings = {"blocks.unit": "key", "format.features": "a,b"}
    confusion, waiting, joined = metrics.ConfusionMatrix(), 0, {}
    with Local("orders", settings | {"labels.topic": "outcomes", "predict.output": "orders"}) as daemon:
        admin = AdminClient({"bootstrap.servers": daemon.broker, "log_level": 0})
        admin.create_topics([NewTopic("outcomes", 2)])["outcomes"].result()
        producer = kafka.Producer({"bootstrap.servers": daemon.broker, "log_level": 0})

        def write(topic: str, key: str, value: Any) -> None:
            producer.produce(topic, None if value is None else json.dumps(value), key, headers={"content-type": "application/json"})

        for i, (x, label) in enumerate(first):  # without a model there is no answer
            write("orders", f"first-{i}", x)
            write("outcomes", f"first-{i}", {"label": label})
            joined[f"first-{i}"] = x | {"label": label}
        producer.flush()
        learned(daemon, len(first))

        # A record of the answers' stream is a question, or the label for an earlier one.
        answers: dict[int, str] = {}
        known = observations(r, 300)
        for i, record, label in stream.simulate_qa(iter(known), moment="at", delay=lambda record, _: record["delay"]):
            key = f"id-{i}"
            if label is None and i not in answers:
                answers[i] = daemon.predict([{"id": key} | record["x"]])[0]["label"]
            elif label is not None:
                confusion.update(label, answers[i])
                write("outcomes", key, {"label": label})
                joined[key] = record["x"] | {"label": label}
            else:
                waiting += 1
                if i % 2:  # it is said that there is none, or nothing
                    write("outcomes", key, None)
        producer.flush()
        assert waiting > 0 and confusion.n_samples + waiting == len(known)

        digest = learned(daemon, len(joined))
        given = daemon.prequential()["given"]
    assert given["rows"] == confusion.n_samples and given["waiting"] == waiting
    assert given["right"] == confusion.total_true_positives
    assert {(p["class"], p["answer"]): p["rows"] for p in given["pairs"]} == {
        (y, answer): n for y, row in confusion.data.items() for answer, n in row.items() if n
    }

    # It has learned from the rows whose label came, and from nothing else.
    with Local("joined", settings) as other:
        producer = kafka.Producer({"bootstrap.servers": other.broker, "log_level": 0})
        keys = list(joined)
        r.shuffle(keys)
        for key in keys:
            write("joined", key, joined[key])
        producer.flush()
        assert learned(other, len(joined)) == digest
