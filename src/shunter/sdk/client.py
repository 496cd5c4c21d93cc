"""One kept connection to the server; its errors come out as ours."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from shunter.errors import AuthError, ServerError, ServerUnreachable, from_wire

TIMEOUT_SECONDS = 90.0
LIVE_SECONDS = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    headers: Any


class Client:
    """Calls to one server. Safe to share between threads: each has its own connection."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self.token = token
        parts = urlsplit(self.url)
        self._host, self._port, self._tls = parts.hostname or "", parts.port, parts.scheme == "https"
        self._prefix = parts.path
        self._local = threading.local()
        self._kept: list[http.client.HTTPConnection] = []

    @property
    def is_loopback(self) -> bool:
        return self._host in ("127.0.0.1", "localhost", "::1")

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        return self.call("POST", path, body, query=query)

    def call(self, method: str, path: str, body: Any = None, *, query: dict[str, Any] | None = None) -> Any:
        """A call with JSON in and out."""
        data = None if body is None else json.dumps(body).encode()
        answer = self.raw(method, path, data, query=query, content_type="application/json")
        return json.loads(answer.body) if answer.body else None

    def raw(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None = None, *, query: dict[str, Any] | None = None,
        content_type: str = "application/octet-stream", timeout: float = TIMEOUT_SECONDS,
    ) -> Answer:  # fmt: skip
        """A call with bytes in and out. A kept connection that the server has closed meanwhile is opened again, once."""
        streaming = body is not None and not isinstance(body, bytes)
        for last in (False, True):
            connection, fresh = self._connection(timeout)
            try:
                response = self._send(connection, method, path, body, query, content_type)
                data = response.read()
                # Not left to its end: what comes up while a stream is finalized, a Ctrl-C too, is dropped without a word.
                response.close()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if last or fresh or streaming:
                    raise ServerUnreachable(
                        f"The server at {self.url} does not answer: {error or type(error).__name__}.",
                        hint="Is it running? `shunter server status` tells; `shunter server start` starts one here.",
                    ) from error
                continue
            if response.status >= 400:
                raise _error(response.status, data)
            return Answer(data, response.headers)
        raise AssertionError

    def stream(
        self, path: str, query: dict[str, Any] | None = None, size: int = 1 << 20, body: Any = None, live: bool = False
    ) -> Iterator[bytes]:
        """The body of a GET (or of a POST, with `body` as JSON), piece by piece, on a connection of its own.

        With `live` pieces are given as they come, however small, and nobody minds if none comes for long.
        """
        connection = self._open(LIVE_SECONDS if live else TIMEOUT_SECONDS)
        try:
            try:
                method, data = ("GET", None) if body is None else ("POST", json.dumps(body).encode())
                response = self._send(connection, method, path, data, query, "application/json")
            except (OSError, http.client.HTTPException) as error:
                raise ServerUnreachable(f"The server at {self.url} does not answer: {error}.") from error
            if response.status >= 400:
                raise _error(response.status, response.read())
            while piece := response.read1(size) if live or body is not None else response.read(size):
                yield piece
            response.close()
        finally:
            connection.close()

    def close(self) -> None:
        """Close this thread's connection; the next call opens a new one."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._kept.remove(connection)
            self._local.connection = None

    def __del__(self) -> None:
        for connection in getattr(self, "_kept", ()):
            connection.close()

    def _connection(self, timeout: float) -> tuple[http.client.HTTPConnection, bool]:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            return connection, False
        self._local.connection = connection = self._open(timeout)
        self._kept.append(connection)
        return connection, True

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        if self._tls:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any, query: dict[str, Any] | None,
        content_type: str,
    ) -> http.client.HTTPResponse:  # fmt: skip
        wanted = {k: v for k, v in (query or {}).items() if v is not None}
        target = self._prefix + path + ("?" + urlencode(wanted) if wanted else "")
        headers = {"Authorization": "Bearer " + self.token}
        if body is not None:
            headers["Content-Type"] = content_type
        chunked = body is not None and not isinstance(body, bytes)
        connection.request(method, target, body=body, headers=headers, encode_chunked=chunked)
        return connection.getresponse()


def part(text: str) -> str:
    """A name as one part of a path."""
    return quote(text, safe="")


def _error(status: int, data: bytes) -> Exception:
    try:
        found = json.loads(data)["error"]
    except (ValueError, KeyError, TypeError):
        if status == 401:
            return AuthError()
        return ServerError(f"The server answered {status}: {data[:200].decode('utf-8', 'replace')}")
    return from_wire(found)
