"""The launcher's ear on the node: a script asks here what needs an answer, and the launcher asks the server.

A listening socket costs a run some microseconds; the rest (a thread, an HTTP server) comes with the first call.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import time

from shunter.node.home import Home, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Tuple

    from shunter.node.spool import Spool

    Answer = Tuple[int, bytes]

SOCKET = "relay"
MOST_BYTES = 16 << 20


class Relay:
    """Listens from the start, works from the first call on. `wake` asks for a push at once."""

    def __init__(self, folder, job, spool, wake):
        # type: (str, Dict[str, Any], Spool, Callable[[], None]) -> None
        self.job = job
        self.spool = spool
        self.wake = wake
        self.folder = folder
        self._listener = None  # type: Optional[socket.socket]
        self._server = None  # type: Optional[Any]

    def listen(self) -> None:
        """Be there for the script. Called when it is on its way: its client tries until we are."""
        self._listener = listen(self.folder)

    def fileno(self) -> int:
        assert self._listener is not None
        return self._listener.fileno()

    @property
    def is_open(self) -> bool:
        return self._server is not None

    def open_up(self) -> None:
        """Somebody calls: serve, in threads, until `close`."""
        import threading

        assert self._listener is not None
        self._server = _server(self._listener, self.answer)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
        if self._listener is not None:
            self._listener.close()

    def answer(self, path, token, body):
        # type: (str, str, Dict[str, Any]) -> Answer
        """The answer to one call, as status and JSON text."""
        if not hmac.compare_digest(token.encode(), str(self.job["home"]["token"]).encode()):
            return 401, _words("The token is not the one of this run.")
        name = path[9:] if path.startswith("/shunter/") else ""
        until = time.monotonic() + min(float(body.get("timeout_seconds") or 60.0), 3600.0)
        if name == "flush":
            if self.flush(until):
                return 200, b"{}"
            return 504, _words("Not everything is home yet; nothing is lost.")
        if not name.isidentifier():
            return 404, _words("There is nothing at " + path + ".")
        return self._pass_on(name, body, until)

    def flush(self, until):
        # type: (float) -> bool
        """Wait until the spool, as it is now, is home."""
        aim = self.spool.extent()
        while not self.spool.has_reached(aim):
            if time.monotonic() >= until:
                return False
            self.wake()
            time.sleep(0.01)
        return True

    def _pass_on(self, name, body, until):
        # type: (str, Dict[str, Any], float) -> Answer
        data = json.dumps({k: v for k, v in body.items() if k != "timeout_seconds"}).encode()
        pause = 0.05
        while True:
            home = Home(self.job["id"], self.job["home"])
            try:
                return 200, home.request("POST", "/ask/" + name, data, "application/json")
            except Refused as error:
                return error.status, error.body
            except OSError as error:
                if time.monotonic() + pause >= until:
                    return 503, _words("The server does not answer: " + str(error))
                time.sleep(pause)
                pause = min(pause * 2, 2.0)
            finally:
                home.close()


def relay_address(folder):
    # type: (str) -> str
    """How a script finds the relay of its launch, also before it listens."""
    return "unix:" + os.path.join(folder, SOCKET)


def listen(folder):
    # type: (str) -> socket.socket
    """A socket in the launch's folder, for its owner only. Through the folder's descriptor, as paths are limited."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fd = os.open(folder, os.O_RDONLY)
    try:
        path = "/proc/self/fd/%d/%s" % (fd, SOCKET)
        try:
            listener.bind(path)
        except OSError:  # a launcher before us left it behind
            os.unlink(path)
            listener.bind(path)
    finally:
        os.close(fd)
    listener.listen(64)
    return listener


def _server(listener, answer):
    # type: (socket.socket, Callable[[str, str, Dict[str, Any]], Answer]) -> Any
    from http.server import BaseHTTPRequestHandler
    from socketserver import BaseServer, ThreadingMixIn

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, data = 400, _words("The call cannot be read.")
            try:
                size = int(self.headers.get("Content-Length") or 0)
                if size <= MOST_BYTES:
                    body = json.loads(self.rfile.read(size) or b"{}")
                    token = (self.headers.get("Authorization") or "").partition(" ")[2]
                    status, data = answer(self.path, token, body)
            except (ValueError, AttributeError):
                pass
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format, *args):  # type: ignore[no-untyped-def]
            pass

    class Server(ThreadingMixIn, BaseServer):
        daemon_threads = True
        request_queue_size = 64

        def fileno(self) -> int:
            return listener.fileno()

        def get_request(self):  # type: ignore[no-untyped-def]
            connection, _ = listener.accept()
            return connection, ("", 0)

        def shutdown_request(self, request):  # type: ignore[no-untyped-def]
            request.close()

        def handle_error(self, request, client_address):  # type: ignore[no-untyped-def]
            pass  # a script that went away in the middle of a call

    return Server(("", 0), Handler)


def _words(message):
    # type: (str) -> bytes
    return json.dumps({"message": message}).encode()
