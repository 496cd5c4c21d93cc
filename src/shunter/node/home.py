"""The way home: frames posted to the server, answered with what it holds, so sending again is always safe.

A report is a list of frames. Each is a header (JSON, its length in four bytes before it) and, for a stream, its bytes:
`{"stream": "log", "offset": 0, "size": 12}`, `{"started": {...}}`, `{"outcome": {...}}`, `{"move": "outputs/a", ...}`.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time

from shunter.node import local_socket
from shunter.node.contract import read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    Frame = Tuple[Dict[str, Any], bytes]

CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 30.0


class Refused(Exception):
    """The server answered, and does not want this: `status` says why."""

    def __init__(self, status, body):
        # type: (int, bytes) -> None
        super().__init__("the server answered " + str(status))
        self.status = status
        self.body = body


class Home:
    """One kept connection to the server. Raises OSError when the server is away; the caller tries again later."""

    def __init__(self, launch_id, home):
        # type: (str, Dict[str, Any]) -> None
        self.path = "/api/v1/node/" + launch_id
        self.url = str(home.get("url") or "")
        self.endpoint_file = str(home.get("endpoint_file") or "")
        self.token = str(home["token"])
        self._socket = None  # type: Optional[socket.socket]
        self._unanswered = 0
        self._buffer = b""

    def post(self, frames):
        # type: (List[Frame]) -> Dict[str, Any]
        """Send a report and return the server's answer to it."""
        for last in (False, True):
            try:
                self.send(frames)
                return self.answer()
            except OSError:
                self.close()
                if last:
                    raise
                self._look_up()
        raise AssertionError

    def send(self, frames):
        # type: (List[Frame]) -> None
        """Send a report without waiting for the answer: nothing stands between a script and its start."""
        # Our clock may be hours off: the server compares it with its own and corrects the times we tell.
        body = encode([({"clock": time.time()}, b""), *frames])
        head = (
            "POST " + self.path + " HTTP/1.1\r\nHost: shunter\r\nAuthorization: Bearer " + self.token
            + "\r\nContent-Type: application/octet-stream\r\nContent-Length: " + str(len(body)) + "\r\n\r\n"
        )  # fmt: skip
        if self._socket is None:
            self._socket = self._connect()
        self._socket.sendall(head.encode() + body)
        self._unanswered += 1

    def answer(self):
        # type: () -> Dict[str, Any]
        """The answer to the newest report; those before it are read and dropped."""
        found = {}  # type: Dict[str, Any]
        while self._unanswered:
            status, body = self._read()
            self._unanswered -= 1
            if status != 200:
                raise self._refused(status, body)
            found = json.loads(body)
        return found

    def request(self, method, suffix, body=b"", content_type="application/octet-stream"):
        # type: (str, str, bytes, str) -> bytes
        """Any other call below this launch's path, and the body of its answer. Not mixed with unanswered reports."""
        for last in (False, True):
            try:
                if self._socket is None:
                    self._socket = self._connect()
                head = (
                    method + " " + self.path + suffix + " HTTP/1.1\r\nHost: shunter\r\nAuthorization: Bearer " + self.token
                    + "\r\nContent-Type: " + content_type + "\r\nContent-Length: " + str(len(body)) + "\r\n\r\n"
                )  # fmt: skip
                self._socket.sendall(head.encode() + body)
                status, found = self._read()
                if status != 200:
                    raise self._refused(status, found)
                return found
            except OSError:
                self.close()
                if last:
                    raise
                self._look_up()
        raise AssertionError

    def follow(self, before):
        # type: (Home) -> None
        """Go on with the connection of an earlier launch, when it leads to the same server."""
        if (before.url, before.endpoint_file) == (self.url, self.endpoint_file) and not before._unanswered:
            self._socket, before._socket = before._socket, None
        before.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._unanswered = 0
        self._buffer = b""

    def _connect(self):
        # type: () -> socket.socket
        if not self.url:
            self._look_up()
        if self.url.startswith("unix:"):
            return local_socket.connect(self.url[5:], TIMEOUT_SECONDS)
        scheme, _, rest = self.url.partition("://")
        host, _, port = rest.rstrip("/").rpartition(":")
        if not port.isdigit():
            host, port = rest.rstrip("/"), "443" if scheme == "https" else "80"
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if scheme == "https":
            import ssl

            return ssl.create_default_context().wrap_socket(connection, server_hostname=host)
        return connection

    def _refused(self, status, body):
        # type: (int, bytes) -> Exception
        """What is refused, when it is our server that refuses. After its end another may listen at its old port, such as the
        relay of another run: its word counts for nothing, and the way home is looked up again."""
        try:
            said = json.loads(body)
            if "code" in said["error"] and "message" in said["error"]:
                return Refused(status, body)
        except (ValueError, KeyError, TypeError):
            pass
        return ConnectionResetError("somebody else answers there (%d)" % status)

    def _look_up(self) -> None:
        """A restarted server writes where it is now into the endpoint file."""
        found = read_json(self.endpoint_file) if self.endpoint_file else None
        if found and found.get("url"):
            self.url = str(found["url"])

    def _read(self):
        # type: () -> Tuple[int, bytes]
        assert self._socket is not None
        data = self._buffer
        while b"\r\n\r\n" not in data:
            more = self._socket.recv(65536)
            if not more:
                raise ConnectionResetError("the server closed the connection")
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        length = 0
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length":
                length = int(value)
        held = bytearray(rest)
        while len(held) < length:
            more = self._socket.recv(1 << 18)
            if not more:
                raise ConnectionResetError("the server closed the connection")
            held += more
        self._buffer = bytes(held[length:])
        try:
            return int(lines[0].split()[1]), bytes(held[:length])
        except (IndexError, ValueError):
            raise ConnectionResetError("somebody else answers there") from None


def encode(frames):
    # type: (List[Frame]) -> bytes
    parts = []
    for header, payload in frames:
        text = json.dumps(header).encode()
        parts += [struct.pack(">I", len(text)), text, payload]
    return b"".join(parts)
