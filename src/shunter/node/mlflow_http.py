"""As much HTTP as MLflow's client speaks: kept connections, a thread for each, bodies of any size."""

from __future__ import annotations

import json
import os
import socket
import time

from shunter.node import mlflow_words as words
from shunter.node.home import Home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    Answer = Tuple[int, bytes]

BLOCK = 1 << 20
MOST_HEAD_BYTES = 1 << 16
MOST_BODY_BYTES = 64 << 20
#: The server is away, or what it asks is: tried again.
AWAY = (502, 503, 504)


class Request:
    """One call. Its body stands in the connection until it is asked for; `left` of it are still there."""

    __slots__ = ("_body", "_connection", "_held", "answered", "headers", "left", "method", "target")

    def __init__(self, connection, method, target, headers, held):
        # type: (socket.socket, str, str, Dict[str, str], bytes) -> None
        self._connection = connection
        self.method = method
        self.target = target
        self.headers = headers
        self.left = int(headers.get("content-length") or 0)
        self._held = held
        self._body = b""
        self.answered = False

    def read(self, size):
        # type: (int) -> bytes
        size = min(size, self.left)
        if not size:
            return b""
        if self._held:
            data, self._held = self._held[:size], self._held[size:]
        else:
            data = self._connection.recv(size)
            if not data:
                raise ConnectionResetError("the caller went away")
        self.left -= len(data)
        return data

    def body(self):
        # type: () -> bytes
        """All of it; once read it is kept, as a call that is not answered here is passed on."""
        if self.left > MOST_BODY_BYTES:
            raise ValueError("more than " + str(MOST_BODY_BYTES) + " bytes")
        parts = []
        while self.left:
            parts.append(self.read(BLOCK))
        if parts:
            self._body = b"".join(parts)
        return self._body

    def json(self):
        # type: () -> Dict[str, Any]
        found = json.loads(self.body() or b"{}")
        if not isinstance(found, dict):
            raise ValueError("not an object")
        return found

    def rest(self):
        # type: () -> bytes
        """What came behind this call: the beginning of the next."""
        while self.left:
            self.read(BLOCK)
        return self._held

    def send(self, data):
        # type: (bytes) -> None
        self._connection.sendall(data)


class Listener:
    """Listens on the loopback from the start; a thread and the rest come with the first call."""

    def __init__(self, answer, port=0):
        # type: (Callable[[Request], Optional[Answer]], int) -> None
        self._answer = answer
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.bind(("127.0.0.1", port))
            self._socket.listen(64)
        except OSError:
            self._socket.close()
            raise
        self.port = int(self._socket.getsockname()[1])
        self.is_open = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def open_up(self) -> None:
        import threading

        self.is_open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def _accept(self) -> None:
        import threading

        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        # type: (socket.socket) -> None
        held = b""
        try:
            while True:
                found = read_request(connection, held)
                if found is None:
                    return
                answer = self._answer(found)
                if answer is not None:
                    connection.sendall(head(answer[0], len(answer[1])) + answer[1])
                elif not found.answered:
                    return  # passed on with an end that only closing tells
                held = found.rest()
        except (OSError, ValueError):
            pass  # a script that went away in the middle of a call, or something that is no HTTP
        finally:
            connection.close()


def read_request(connection, held):
    # type: (socket.socket, bytes) -> Optional[Request]
    """The next call on a connection, None when it was closed."""
    data = held
    while b"\r\n\r\n" not in data:
        if len(data) > MOST_HEAD_BYTES:
            raise ValueError("too long a head")
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    top, _, rest = data.partition(b"\r\n\r\n")
    lines = top.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if "transfer-encoding" in headers:
        rest = _unchunked(connection, rest)
        headers["content-length"] = str(len(rest))
    elif headers.get("expect", "").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    return Request(connection, method, target, headers, rest)


def head(status, size, kind="application/json"):
    # type: (int, int, str) -> bytes
    return ("HTTP/1.1 %d -\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (status, kind, size)).encode()


def receive_file(request, folder):
    # type: (Request, str) -> str
    """The body in a file of its own beside what is whole; the caller moves or removes it."""
    import uuid

    os.makedirs(os.path.join(folder, "uploads.part"), exist_ok=True)
    path = os.path.join(folder, "uploads.part", "mlflow." + uuid.uuid4().hex)
    try:
        with open(path, "wb") as file:
            while request.left:
                file.write(request.read(BLOCK))
    except OSError:
        os.unlink(path)
        raise
    return path


def pass_on(request, job, data, held, until):
    # type: (Request, Dict[str, Any], bytes, Optional[str], float) -> int
    """Send the call to the server and its answer to the caller, as long as the server needs to be there. The status."""
    pause = 0.05
    while True:
        home = Home(job["id"], job["home"])
        upstream = None  # type: Optional[socket.socket]
        try:
            upstream = home._connect()
            upstream.settimeout(max(1.0, until - time.monotonic()))
            _send(upstream, home, request, data, held)
            top, rest = _head(upstream)
        except OSError as error:
            top, rest, status = b"", b"", 503
            trouble = str(error)
        else:
            status = int(top.split(None, 2)[1])
            trouble = "it answered " + str(status)
        if status in AWAY and time.monotonic() + pause < until:
            if upstream is not None:
                upstream.close()
            time.sleep(pause)
            pause = min(pause * 2, 2.0)
            continue
        if upstream is None or not top:
            said = words.refusal("The server does not answer: " + trouble, "TEMPORARILY_UNAVAILABLE")
            request.send(head(503, len(said)) + said)
            request.answered = True
            return 503
        try:
            _forward(upstream, request, top, rest)
        finally:
            upstream.close()
        return status


def _send(upstream, home, request, data, held):
    # type: (socket.socket, Home, Request, bytes, Optional[str]) -> None
    size = os.path.getsize(held) if held else len(data)
    kind = request.headers.get("content-type", "application/octet-stream")
    # HTTP 1.0: the answer ends with the connection, and is never sent in chunks.
    top = "%s %s/mlflow%s HTTP/1.0\r\nHost: shunter\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n" % (
        request.method, home.path, request.target, home.token, kind, size)  # fmt: skip
    if request.headers.get("range"):
        top += "Range: " + request.headers["range"] + "\r\n"
    upstream.sendall(top.encode("latin-1") + b"\r\n" + data)
    if held:
        with open(held, "rb") as file:
            while True:
                block = file.read(BLOCK)
                if not block:
                    return
                upstream.sendall(block)


def _head(upstream):
    # type: (socket.socket) -> Tuple[bytes, bytes]
    data = b""
    while b"\r\n\r\n" not in data:
        more = upstream.recv(65536)
        if not more:
            raise ConnectionResetError("the server closed the connection")
        data += more
    top, _, rest = data.partition(b"\r\n\r\n")
    return top, rest


def _forward(upstream, request, top, rest):
    # type: (socket.socket, Request, bytes, bytes) -> None
    lines = top.split(b"\r\n")
    kept = [line for line in lines[1:] if line.partition(b":")[0].strip().lower() not in (b"connection", b"transfer-encoding")]
    sized = any(line.lower().startswith(b"content-length:") for line in kept)
    status = lines[0].split(None, 2)[1]
    if not sized:
        kept.append(b"Connection: close")
    request.send(b"\r\n".join([b"HTTP/1.1 " + status + b" -", *kept]) + b"\r\n\r\n" + rest)
    while True:
        block = upstream.recv(BLOCK)
        if not block:
            break
        request.send(block)
    request.answered = sized


def _unchunked(connection, held):
    # type: (socket.socket, bytes) -> bytes
    found = []  # type: List[bytes]
    while True:
        while b"\r\n" not in held:
            held += _more(connection)
        line, _, held = held.partition(b"\r\n")
        size = int(line.split(b";")[0], 16)
        while len(held) < size + 2:
            held += _more(connection)
        if not size:
            return b"".join(found)
        found.append(held[:size])
        held = held[size + 2 :]
        if sum(map(len, found)) > MOST_BODY_BYTES:
            raise ValueError("too large")


def _more(connection):
    # type: (socket.socket) -> bytes
    more = connection.recv(65536)
    if not more:
        raise ConnectionResetError("the caller went away")
    return more
