"""The client against a real daemon, and against servers that fail."""

import datetime
import http.server
import json
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import streamd
from conftest import PATIENCE, Daemon, customer, need
from streamd import APIError, Client, StreamdError, UnreachableError


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with Client(daemon.url) as c:
        while not (model := c.model()).get("calibration"):  # it follows the blocks
            c.wait(after=model["fingerprint"], timeout=PATIENCE)
        yield c


ROWS = [{"length": 10.0, "capitals": 3}, {"length": 400.0, "capitals": 3, "unknown": 1}]


def test_dicts_in_dicts_out(client: Client) -> None:
    answers = client.predict(ROWS)
    assert [a["label"] for a in answers] == ["ham", "spam"]
    probabilities = client.predict_proba(ROWS)
    assert probabilities == [a["probabilities"] for a in answers]
    assert all(abs(sum(p.values()) - 1) < 1e-12 for p in probabilities)
    assert client.predict([]) == []


def test_frames_in_frames_out(client: Client) -> None:
    pa, pd, pl = need("pyarrow"), need("pandas"), need("polars")
    want = client.predict(ROWS)
    labels, p = [a["label"] for a in want], [a["probabilities"]["spam"] for a in want]
    columns = {"length": [10.0, 400.0], "capitals": [3, 3]}

    table = client.predict(pa.table(columns))
    assert isinstance(table, pa.Table)
    assert table.column("label").to_pylist() == labels
    assert table.column("probability_spam").to_pylist() == p
    assert client.predict_proba(pa.table(columns)).column_names == ["ham", "spam"]

    frame = client.predict(pd.DataFrame(columns, index=["a", "b"]))
    assert isinstance(frame, pd.DataFrame)
    assert frame["label"].to_dict() == dict(zip("ab", labels, strict=True))
    assert list(client.predict_proba(pd.DataFrame(columns))["spam"]) == p

    answer = client.predict(pl.DataFrame(columns))
    assert isinstance(answer, pl.DataFrame)
    assert answer["label"].to_list() == labels
    assert client.predict_proba(pl.DataFrame(columns))["spam"].to_list() == p

    with pytest.raises(APIError, match="no rows"):
        client.predict(pd.DataFrame({"length": [], "capitals": []}))


def test_long_frames_go_in_pieces(client: Client) -> None:
    pa = need("pyarrow")
    n = 120_001
    table = pa.table({"length": [float(i % 500) for i in range(n)], "capitals": [i % 30 for i in range(n)]})
    answer = client.predict(table)
    assert answer.num_rows == n
    last = client.predict(table.slice(n - 1))
    assert answer.slice(n - 1).to_pylist() == last.to_pylist()


def test_missing_values_and_numbers_of_numpy(client: Client) -> None:
    np = need("numpy")
    assert client.predict([{"length": np.float64(400), "capitals": np.int8(3)}])[0]["label"] == "spam"
    with pytest.raises(APIError, match="missing") as e:
        client.predict([{"length": float("nan"), "capitals": 1}])
    assert (e.value.status, e.value.code) == (400, "bad_request")
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)
    with pytest.raises(TypeError, match="want a frame"):
        client.predict([1.0, 2.0])


def test_forgets_a_customer_with_a_receipt(client: Client, daemon: Daemon) -> None:
    before = client.model()["state_digest"]
    daemon.push(eve=customer(99))
    assert client.model()["state_digest"] != before
    forecast = client.retire(keys="eve", dry_run=True)
    assert forecast["blocks"] == 1
    answer = client.retire(keys=["eve"])
    assert (answer["blocks"], answer["rows"]) == (1, 100)
    assert answer["state_digest_after"] == before
    number = answer["receipts"][0]
    assert client.wait(receipts=number + 1, timeout=PATIENCE)["state_digest"] == before

    proof = client.receipts.proof(number)
    assert client.receipts.verify(proof, daemon.key)
    with pytest.raises(StreamdError):
        client.receipts.verify(proof.replace("c2sp.org", "c3sp.org"), daemon.key)
    assert client.receipts.checkpoint()
    with pytest.raises(APIError, match="not_found"):
        client.retire(keys=["eve"])
    with pytest.raises(ValueError, match="say which"):
        client.retire()


def test_retires_by_id_and_by_time(client: Client, daemon: Daemon) -> None:
    daemon.push(one=customer(21), two=customer(22))
    of = {b["id"]: b for b in client.blocks()}
    assert len(of) >= 10 and "key:one" in of
    at = datetime.datetime.fromisoformat(of["key:one"]["time"])
    soon = datetime.timedelta(seconds=1)
    assert client.retire(between=(at, at + soon), dry_run=True)["blocks"] >= 1
    with pytest.raises(APIError, match="not_found"):
        client.retire(between=(None, datetime.datetime(1990, 1, 1, tzinfo=datetime.UTC)))
    with pytest.raises(ValueError, match="time zone"):
        client.retire(between=(datetime.datetime(1990, 1, 1), None))
    assert client.retire(ids=["key:one", "key:two"])["blocks"] == 2


def test_events_and_waits(client: Client, daemon: Daemon) -> None:
    daemon.push(late=customer(31))
    seen = []
    with Client(daemon.url) as other:
        events = other.events()
        thread = threading.Thread(target=lambda: seen.extend(e for e in [next(e for e in events if e["type"] == "receipt")]), daemon=True)
        thread.start()
        client.retire(keys="late")
        thread.join(PATIENCE)
    assert seen and seen[0]["id"] and seen[0]["receipts"]["size"] >= 1
    fingerprint = client.model()["fingerprint"]
    with pytest.raises(TimeoutError):
        client.wait(after=fingerprint, timeout=0.2)
    with pytest.raises(TimeoutError):
        client.wait(includes="customers/0/100000", timeout=0.2)
    with pytest.raises(APIError, match="does not read topic"):
        client.wait(includes="orders/0/1", timeout=5)
    assert "problems" in client.status()


# Servers that fail


class Script(http.server.BaseHTTPRequestHandler):
    """Answers by a list of functions, one for each request."""

    protocol_version = "HTTP/1.1"
    acts: list[Callable[["Script"], None]] = []
    requests: list[str] = []

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        type(self).requests.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
        type(self).acts.pop(0)(self)

    do_POST = do_GET

    def log_message(self, *args: object) -> None:
        pass

    def say(self, status: int, body: object, **headers: str) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def unavailable(s: Script) -> None:
    s.say(503, {"error": {"code": "unavailable", "message": "wait a little"}})


def hang_up(s: Script) -> None:
    s.close_connection = True


@pytest.fixture
def script() -> Iterator[tuple[str, type[Script]]]:
    handler = type("Handler", (Script,), {"acts": [], "requests": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", handler
    server.shutdown()
    server.server_close()


def test_safe_calls_are_tried_again(script: tuple[str, type[Script]]) -> None:
    url, handler = script
    handler.acts += [unavailable, hang_up, lambda s: s.say(200, {"fingerprint": "f"})]
    with Client(url, token="secret") as client:
        assert client.model()["fingerprint"] == "f"
    assert handler.requests == ["GET /v1/model Bearer secret"] * 3
    handler.acts += [unavailable] * 2
    with pytest.raises(APIError, match="wait a little"):
        Client(url, retries=1).model()


def test_retirements_are_tried_once(script: tuple[str, type[Script]]) -> None:
    url, handler = script
    for act, error in ((unavailable, APIError), (hang_up, UnreachableError)):
        handler.acts[:], handler.requests[:] = [act], []
        with pytest.raises(error):
            Client(url).retire(keys="x")
        assert len(handler.requests) == 1


def test_answers_of_one_model(script: tuple[str, type[Script]]) -> None:
    url, handler = script

    def answer(model: str) -> Callable[[Script], None]:
        return lambda s: s.say(200, {"model": model, "rows": [{"label": model}] * 4000})

    handler.acts += [answer("a"), answer("b"), answer("b"), answer("b")]
    with Client(url) as client:
        assert {row["label"] for row in client.predict([{"x": 1}] * 8000)} == {"b"}


def test_a_connection_that_was_closed_meanwhile(script: tuple[str, type[Script]]) -> None:
    url, handler = script

    def last(s: Script) -> None:
        s.close_connection = True
        s.say(200, {})

    handler.acts += [last, lambda s: s.say(200, {"blocks": 1})]
    client = Client(url)
    client.status()
    time.sleep(0.1)
    assert client.retire(keys="x") == {"blocks": 1}


def test_clear_errors() -> None:
    with pytest.raises(ValueError, match="want an address"):
        Client("localhost:8080")
    with pytest.raises(ValueError, match="token"):
        Client(token="alice reader secret")
    with pytest.raises(UnreachableError, match="127.0.0.1:9"):
        Client("http://127.0.0.1:9", retries=0).model()


def test_the_command_comes_with_the_package() -> None:
    out = subprocess.run([sys.executable, "-m", "streamd", "--version"], capture_output=True, text=True, check=True).stdout
    assert out.startswith("streamd ")
    assert all(hasattr(streamd, name) for name in streamd.__all__ if name != "Classifier")
