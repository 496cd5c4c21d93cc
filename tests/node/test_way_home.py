"""The way home of a launcher: who refuses it, and where it looks then."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from shunter.node.home import Home, Refused


@contextmanager
def answering(status: int, value: object) -> Iterator[str]:
    """A server that says this to everybody."""
    body = json.dumps(value).encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def a_home(url: str, folder: Path, endpoint: str) -> Home:
    (folder / "endpoint.json").write_text(json.dumps({"url": endpoint}))
    return Home("ab.1.0", {"url": url, "endpoint_file": str(folder / "endpoint.json"), "token": "t"})


def test_our_server_may_refuse(tmp_path: Path) -> None:
    said = {"error": {"code": "not_found", "message": "There is no such run.", "hint": ""}}
    with answering(404, said) as url:
        home = a_home(url, tmp_path, url)
        with pytest.raises(Refused) as found:
            home.post([({"beat": 1}, b"")])
        home.close()
    assert found.value.status == 404


@pytest.mark.parametrize(
    "said", [{"error": {"message": "The token is not the one of this run."}}, {"error_code": "X"}, "?"]
)
def test_another_at_the_old_port_cannot_refuse_and_the_way_home_is_looked_up(tmp_path: Path, said: object) -> None:
    """As when a server was killed, and the relay of another run got its port."""
    with answering(401, said) as other, answering(200, {"held": {"log": 3}}) as ours:
        home = a_home(other, tmp_path, ours)
        assert home.post([({"beat": 1}, b"")]) == {"held": {"log": 3}}
        home.close()


def test_as_long_as_nobody_else_is_found_the_server_counts_as_away(tmp_path: Path) -> None:
    with answering(404, {"detail": "Not Found"}) as other:
        home = a_home(other, tmp_path, other)
        with pytest.raises(OSError, match="somebody else answers there"):
            home.post([({"beat": 1}, b"")])
        home.close()
