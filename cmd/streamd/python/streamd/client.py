"""A client of a running daemon, with the standard library alone."""

import datetime
import gzip
import http.client
import json
import os
import random
import socket
import ssl
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from . import _frames, _program
from ._errors import APIError, UnreachableError

# One piece of a frame in a prediction. The daemon takes 100,000 rows and 16 MiB by default.
_PIECE_ROWS = 50_000
_PIECE_BYTES = 8 << 20
_PIECE_DICTS = 5_000

_LONGEST_WAIT = 50.0  # s; the daemon cuts a wait at a minute
_FIRST_PAUSE = 0.1  # s; each pause is twice the one before, and chance shortens it
_LONGEST_PAUSE = 5.0  # s

Moment = str | datetime.datetime | None


class Client:
    """Calls a daemon.

    Calls that change nothing are tried again, with growing pauses, when the daemon cannot be
    reached or says that it cannot answer now. A call that retires is tried once.

    A client belongs to one thread at a time: it keeps one connection.
    """

    _connection: http.client.HTTPConnection | None = None

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 5,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """url is by default that of STREAMD_URL, else http://127.0.0.1:8080. timeout is in seconds,
        on top of a wait. context has authorities and a certificate for https."""
        self.url = (url or os.environ.get("STREAMD_URL") or "http://127.0.0.1:8080").rstrip("/")
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url {self.url!r}: want an address such as http://127.0.0.1:8080")
        if token is not None and (not token or any(c.isspace() for c in token)):
            raise ValueError("token: want one token and nothing else, without a name and roles")
        if retries < 0:
            raise ValueError(f"retries {retries}: must be 0 or more")
        self._parts, self._token, self._timeout, self._retries = parts, token, timeout, retries
        self._context = context
        self.receipts = Receipts(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Another call opens a new one."""
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()

    # Models

    def model(self, *, from_: Moment = None, to: Moment = None, positions: str | None = None) -> dict[str, Any]:
        """The served model, or that of a window of the live blocks: the answer of GET /v1/model."""
        return self._json("GET", "/v1/model", _window(from_, to, positions))

    def wait(
        self,
        *,
        includes: str | Iterable[str] | None = None,
        receipts: int | None = None,
        after: str | None = None,
        timeout: float = 60.0,
    ) -> dict[str, Any]:
        """Waits for a model, and returns it.

        includes are positions TOPIC/PARTITION/OFFSET that its state must have read; receipts is
        the number of the first receipts whose changes it must have: 1 + the number of a receipt;
        after is the fingerprint of a model that it must not be. TimeoutError comes after timeout
        seconds.
        """
        query: dict[str, str] = {}
        if includes is not None:
            query["includes"] = ",".join(_listed(includes))
        if receipts is not None:
            query["receipts"] = str(receipts)
        end, pause = time.monotonic() + timeout, _FIRST_PAUSE
        while True:
            left = max(0.0, end - time.monotonic())
            patience = min(left, _LONGEST_WAIT)
            headers = {} if after is None else {"If-None-Match": f'W/"{after}"'}
            try:
                status, _, content = self._call(
                    "GET", "/v1/model", query | {"wait": f"{patience:.3f}s"}, headers=headers, wait=patience, retries=0
                )
                if status == 200:
                    return json.loads(content)
                missing = f"no model but {after}"
            except APIError as e:
                if e.code not in ("not_yet", "no_model", "unavailable"):
                    raise
                missing = e.message
            except UnreachableError as e:
                missing = str(e)
            if time.monotonic() + pause >= end:
                raise TimeoutError(f"there is {missing} within {timeout:g} s" if after else f"after {timeout:g} s: {missing}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    # Predictions

    def predict(self, rows: Any, *, from_: Moment = None, to: Moment = None, positions: str | None = None) -> Any:
        """Labels, values and probabilities of rows, by one model.

        A list of dicts gives a list of dicts with label, values and, where the model has a
        calibration, probabilities. A frame gives a frame of the same library, with the columns
        label, value_CLASS and probability_CLASS. Columns that the model does not have are ignored.
        """
        window = _window(from_, to, positions)
        if _frames.is_frame(rows):
            return _frames.like(self._predict_table(_frames.table_of(rows), window), rows)
        listed = list(rows)
        if not all(hasattr(row, "items") for row in listed):
            raise TypeError("rows: want a frame (anything with __arrow_c_stream__) or a list of dicts")
        return self._predict_dicts(listed, window)

    def predict_proba(self, rows: Any, *, from_: Moment = None, to: Moment = None, positions: str | None = None) -> Any:
        """Probabilities of rows: a list of dicts by class, or a frame with a column for each class."""
        answer = self.predict(rows, from_=from_, to=to, positions=positions)
        lacks = "the model has no probabilities: it has no calibration yet, or decides by values"
        if isinstance(answer, list):
            if not all("probabilities" in row for row in answer):
                raise ValueError(lacks)
            return [row["probabilities"] for row in answer]
        prefix = "probability_"
        names = [name for name in _column_names(answer) if name.startswith(prefix)]
        if not names:
            raise ValueError(lacks)
        chosen = answer.select(names) if hasattr(answer, "select") else answer[names]
        renamed = [name.removeprefix(prefix) for name in names]
        if hasattr(chosen, "rename_columns"):  # a table of Arrow
            return chosen.rename_columns(renamed)
        if hasattr(chosen, "set_axis"):  # pandas
            return chosen.set_axis(renamed, axis=1)
        return chosen.rename(dict(zip(names, renamed, strict=True)))

    def _predict_dicts(self, rows: _frames.Rows, window: dict[str, str]) -> list[dict[str, Any]]:
        if not rows:
            return []

        def piece(begin: int, end: int) -> tuple[str, list[dict[str, Any]]]:
            body = _frames.json_of(rows[begin:end])
            answer = self._json(
                "POST", "/v1/predict", window | {"form": "rows"}, body=body, headers={"Content-Type": _frames.JSON}
            )
            return answer["model"], answer["rows"]

        answers: list[dict[str, Any]] = []
        for part in self._of_one_model(len(rows), _PIECE_DICTS, piece):
            answers += part
        return answers

    def _predict_table(self, table: Any, window: dict[str, str]) -> Any:
        pa = _frames.pyarrow_module()

        def piece(begin: int, end: int) -> tuple[str, Any]:
            _, headers, content = self._call(
                "POST",
                "/v1/predict",
                window,
                body=_frames.stream_of(table.slice(begin, end - begin)),
                headers={"Content-Type": _frames.ARROW, "Accept": _frames.ARROW},
            )
            return headers["Streamd-Model"], _frames.read_stream(content)

        rows = table.num_rows
        per_row = max(1, table.nbytes // max(1, rows))
        at_most = max(1, min(_PIECE_ROWS, _PIECE_BYTES // per_row))
        parts = self._of_one_model(max(1, rows), at_most, piece)
        labels = [part.set_column(0, "label", part.column("label").cast(pa.string())) for part in parts]
        return pa.concat_tables(labels)

    def _of_one_model(self, rows: int, at_most: int, piece: Any) -> list[Any]:
        """The answers to all pieces by one model. When another one comes meanwhile, it begins anew.

        Pieces get smaller until the daemon takes them: its limits may be configured.
        """
        tries = 5
        while tries > 0:
            parts: list[Any] = []
            first = None
            try:
                for begin, end in _frames.pieces(rows, at_most):
                    model, part = piece(begin, end)
                    if model != (first := first or model):
                        tries -= 1
                        break
                    parts.append(part)
                else:
                    return parts
            except APIError as e:
                if e.code != "too_large" or at_most == 1:
                    raise
                at_most = max(1, min(at_most, rows) // 4)
        raise UnreachableError(
            f"{rows} rows take {-(-rows // at_most)} calls, and the model changed between them each time: send fewer at a time"
        )

    # Blocks

    def blocks(self, *, archived: bool = False) -> Iterator[dict[str, Any]]:
        """The live or the archived blocks, in the order of their event times."""
        query = {"limit": "1000"} | ({"archived": "true"} if archived else {})
        while True:
            page = self._json("GET", "/v1/blocks", query)
            yield from page["blocks"]
            if "next" not in page:
                return
            query["after"] = page["next"]

    def retire(
        self,
        *,
        keys: str | Iterable[str] | None = None,
        ids: str | Iterable[str] | None = None,
        headers: str | Iterable[str] | None = None,
        positions: str | Iterable[str] | None = None,
        between: tuple[Moment, Moment] | None = None,
        dry_run: bool = False,
        here: bool = False,
    ) -> dict[str, Any]:
        """Takes blocks out of the model, durably, and returns what the daemon says of it.

        Blocks are named by keys of their messages or by ids; headers, positions
        (TOPIC/PARTITION/FIRST-LAST) and between (event times from the first and before the second,
        either may be None) narrow the choice, or choose among all blocks. `receipts` in the answer
        are the numbers for Client.receipts. dry_run only says which blocks would go; here spares
        other replicas.
        """
        selector: dict[str, Any] = {}
        for name, value in (("keys", keys), ("ids", ids), ("headers", headers), ("positions", positions)):
            if value is not None:
                selector[name] = _listed(value)
        if between is not None:
            first, last = between
            selector |= {name: _moment(at) for name, at in (("from", first), ("to", last)) if at is not None}
        if not selector:
            raise ValueError("retire: say which blocks, by keys, ids, headers, positions or between")
        query = {name: "true" for name, on in (("dry_run", dry_run), ("here", here)) if on}
        return self._json(
            "POST",
            "/v1/retire",
            query,
            body=json.dumps(selector).encode(),
            headers={"Content-Type": _frames.JSON},
            retries=self._retries if dry_run else 0,
            wait=60.0,  # saving a large state takes its time
        )

    # What happens

    def prequential(self) -> dict[str, Any]:
        """How right the answers for arriving rows were, beside the baselines: the answer of GET /v1/prequential."""
        return self._json("GET", "/v1/prequential")

    def status(self) -> dict[str, Any]:
        """Problems, and what became of records and rows."""
        return self._json("GET", "/v1/status")

    def quality(self) -> dict[str, Any]:
        """How good the answers are, on held-out rows."""
        return self._json("GET", "/v1/quality")

    def events(self, *, last: str | None = None) -> Iterator[dict[str, Any]]:
        """Events as they happen, without an end: dicts with id, type, time, text and more.

        It begins with the latest 1000, or behind the event whose id is last. A connection that ends
        is opened again, and goes on where it was.
        """
        failures = 0
        while True:
            try:
                for event in self._stream(last):
                    failures, last = 0, event.get("id", last)
                    yield event
                failures = 0  # the daemon ends a stream after some minutes
            except APIError as e:
                if e.code != "unavailable" or failures >= self._retries:
                    raise
                failures += 1
            except UnreachableError:
                if failures >= self._retries:
                    raise
                failures += 1
            time.sleep(_pause(failures))

    def _stream(self, last: str | None) -> Iterator[dict[str, Any]]:
        headers = self._headers({"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {}))
        connection = self._open(self._timeout)  # a comment comes every 15 s
        try:
            connection.request("GET", self._path("/v1/events", {}), headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise _error(answer.status, answer.read())
            event: dict[str, Any] = {}
            name = None
            while line := answer.readline():
                field, _, value = line.decode().rstrip("\r\n").partition(": ")
                if field == "id":
                    name = value
                elif field == "data":
                    event = json.loads(value)
                elif not field and event:
                    yield event if name is None else {"id": name, **event}
                    event, name = {}, None
        except (OSError, http.client.HTTPException) as e:
            raise UnreachableError(f"{self.url}: {e or type(e).__name__}") from e
        finally:
            connection.close()

    # Calls

    def _json(self, method: str, path: str, query: dict[str, str] | None = None, **how: Any) -> Any:
        return json.loads(self._call(method, path, query, **how)[2])

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        wait: float = 0.0,
        retries: int | None = None,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body of an answer. retries=0 tries once."""
        failures, most = 0, self._retries if retries is None else retries
        while True:
            try:
                return self._once(method, self._path(path, query or {}), body, self._headers(headers or {}), self._timeout + wait)
            except APIError as e:
                if e.code != "unavailable" or failures >= most:
                    raise
            except UnreachableError:
                if failures >= most:
                    raise
            failures += 1
            time.sleep(_pause(failures))

    def _once(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        fresh = self._connection is None or self._connection.sock is None or _closed(self._connection.sock)
        if fresh:
            self._disconnect()
            self._connection = self._open(timeout)
        connection = self._connection
        assert connection is not None
        try:
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
            if answer.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
        except (OSError, EOFError, http.client.HTTPException) as e:
            self._disconnect()
            raise UnreachableError(f"{self.url}: {e or type(e).__name__}") from e
        except BaseException:  # an interrupt: the rest of the answer would be taken for the next one
            self._disconnect()
            raise
        if answer.status >= 400:
            raise _error(answer.status, content)
        if 300 <= answer.status < 400 and answer.status != 304:
            raise UnreachableError(f"{self.url}: it answers {answer.status} {answer.reason}: is this the daemon's address?")
        return answer.status, answer.headers, content

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _path(self, path: str, query: dict[str, str]) -> str:
        return self._parts.path + path + ("?" + urllib.parse.urlencode(query) if query else "")

    def _headers(self, more: dict[str, str]) -> dict[str, str]:
        headers = {"Accept-Encoding": "gzip", "User-Agent": "streamd-python"} | more
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers


class Receipts:
    """The daemon's log of receipts: signed proofs of what was retired."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def proof(self, number: int) -> str:
        """The receipt with a number, with its proof: the text of a file for verify."""
        return self._text(f"/v1/receipts/proof/{int(number)}")

    def checkpoint(self) -> str:
        """The signed tree head of the log."""
        return self._text("/v1/receipts/checkpoint")

    @staticmethod
    def verify(proof: str, key: str | os.PathLike[str]) -> dict[str, Any]:
        """Checks a receipt offline, by the program, with the file of the log's public key.

        It returns the program's report. A receipt that does not hold is a ProgramError.
        """
        out = _program.run("receipts", "verify", "-", "--key", os.fspath(key), "--json", stdin=proof.encode())
        return json.loads(out.decode().strip().splitlines()[-1])

    def _text(self, path: str) -> str:
        return self._client._call("GET", path)[2].decode()


def _error(status: int, content: bytes) -> APIError | UnreachableError:
    try:
        detail = json.loads(content)["error"]
        return APIError(status, detail["code"], detail["message"])
    except (ValueError, KeyError, TypeError):
        # A proxy answers for a daemon that it cannot reach.
        text = " ".join(content.decode(errors="replace").split())[:200]
        if status in (502, 503, 504):
            return UnreachableError(f"status {status}: {text}")
        return APIError(status, "unknown", f"status {status}, and no error of streamd: {text}")


def _closed(sock: socket.socket) -> bool:
    """Whether the daemon has closed an idle connection. Then a call need not fail."""
    try:
        sock.settimeout(0)
        if isinstance(sock, ssl.SSLSocket):
            return bool(sock.pending()) or not _silent(sock)
        return not _silent(sock)
    except OSError:
        return True


def _silent(sock: socket.socket) -> bool:
    import select

    readable, _, _ = select.select([sock], [], [], 0)
    return not readable


def _pause(failures: int) -> float:
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**failures)
    return longest * random.uniform(0.5, 1.0)


def _listed(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else [str(x) for x in value]


def _moment(at: str | datetime.datetime) -> str:
    if isinstance(at, datetime.datetime):
        if at.tzinfo is None:
            raise ValueError(f"{at}: want a time with a time zone")
        return at.isoformat()
    return at


def _window(from_: Moment, to: Moment, positions: str | None) -> dict[str, str]:
    query = {name: _moment(at) for name, at in (("from", from_), ("to", to)) if at is not None}
    return query | ({"positions": positions} if positions is not None else {})


def _column_names(frame: Any) -> list[str]:
    names = getattr(frame, "column_names", None)
    return [str(name) for name in (names if names is not None else frame.columns)]
