"""Calls to the MLflow process over its socket: small ones whole, answers of any size in pieces."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from shunter.errors import NotFound, ServerError, UsageError
from shunter.server.tracking.process import MlflowProcess

PIECE_BYTES = 1 << 18
#: Headers that belong to one connection, or that our own server sets.
_NOT_PASSED = {"connection", "keep-alive", "transfer-encoding", "upgrade", "server", "date", "content-length", "te", "trailer"}
#: What a caller's headers may tell MLflow. Its token, cookies and origin are our matter.
_PASSED = ("content-type", "accept", "range", "if-none-match", "if-modified-since", "x-requested-with")


@dataclass(frozen=True)
class Reply:
    status: int
    headers: list[tuple[str, str]]
    pieces: Iterator[bytes]

    def body(self) -> bytes:
        return b"".join(self.pieces)


class _Connection(http.client.HTTPConnection):
    def __init__(self, process: MlflowProcess) -> None:
        super().__init__("localhost", timeout=600)
        self._process = process

    def connect(self) -> None:
        self.sock = self._process.connect()
        self.sock.settimeout(600)


def call(process: MlflowProcess, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
    """One call. MLflow that died in the middle is started again, and the call repeated once when it only reads."""
    for last in (False, True):
        process.ready()
        connection = _Connection(process)
        passed = {k: headers[k] for k in _PASSED if k in headers}
        try:
            connection.request(method, target, body=body or None, headers=passed)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            process.stop()
            if last or method not in ("GET", "HEAD"):
                raise MlflowDied(f"MLflow died in the middle of a call: {error}.", hint="The next call starts it.") from error
            continue
        kept = [(k, v) for k, v in response.getheaders() if k.lower() not in _NOT_PASSED]
        return Reply(response.status, kept, _pieces(connection, response))
    raise AssertionError


class MlflowDied(ServerError):
    """MLflow died in the middle of a call."""

    code = "mlflow_died"
    http_status = 503


def ask(process: MlflowProcess, method: str, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> dict[str, Any]:
    """A call of our own with JSON in and out; MLflow's errors come out as ours."""
    target = "/api/2.0/mlflow/" + path + ("?" + urlencode(query, doseq=True) if query else "")
    data = b"" if body is None else json.dumps(body).encode()
    reply = call(process, method, target, {"content-type": "application/json"}, data)
    text = reply.body()
    try:
        found: dict[str, Any] = json.loads(text or b"{}")
    except ValueError:
        found = {"message": text[:300].decode("utf-8", "replace")}
    if reply.status < 400:
        return found
    words = str(found.get("message", "it gave no reason"))
    if found.get("error_code") == "RESOURCE_DOES_NOT_EXIST":
        raise NotFound(words)
    if reply.status < 500:
        raise UsageError(words)
    raise ServerError(f"MLflow answered {reply.status}: {words}")


def _pieces(connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while piece := response.read(PIECE_BYTES):
            yield piece
    finally:
        connection.close()
