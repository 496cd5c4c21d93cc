"""Carries launchers' reports over the agent's own channel, for machines where nothing may be forwarded.

Launchers connect to a socket in the node's root that only their user can open. What they say goes to the server as frames
and comes back the same way; the server's side lets through only what a launcher may call.
"""

from __future__ import annotations

import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List

    #: (header, payload): to the server's side.
    Send = Callable[[Dict[str, object], bytes], None]

SOCKET = "home.sock"
PIECE_BYTES = 1 << 17


class Courier:
    def __init__(self, root, send):
        # type: (str, Send) -> None
        self.path = os.path.join(root, SOCKET)
        self.send = send
        self.listener = _listen(root)
        self.wires = {}  # type: Dict[int, socket.socket]
        self._next = 1

    def sockets(self):
        # type: () -> List[socket.socket]
        return [self.listener, *self.wires.values()]

    def hear(self, ready):
        # type: (socket.socket) -> None
        """One of our sockets has something to say."""
        if ready is self.listener:
            connection, _ = self.listener.accept()
            self.wires[self._next] = connection
            self.send({"wire": self._next, "event": "open"}, b"")
            self._next += 1
            return
        wire = next((n for n, c in self.wires.items() if c is ready), None)
        if wire is None:
            return
        try:
            data = ready.recv(PIECE_BYTES)
        except OSError:
            data = b""
        if data:
            self.send({"wire": wire, "event": "data", "size": len(data)}, data)
        else:
            self._close(wire)
            self.send({"wire": wire, "event": "close"}, b"")

    def answer(self, wire, event, data):
        # type: (int, str, bytes) -> None
        """Something came from the server for one of the launchers."""
        connection = self.wires.get(wire)
        if connection is None:
            return
        if event == "close":
            self._close(wire)
            return
        try:
            connection.sendall(data)
        except OSError:
            self._close(wire)

    def _close(self, wire):
        # type: (int) -> None
        connection = self.wires.pop(wire, None)
        if connection is not None:
            connection.close()


def _listen(root):
    # type: (str) -> socket.socket
    """Through the folder's descriptor, as the path of a socket is limited and a home may be deep."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        path = "/proc/self/fd/%d/%s" % (fd, SOCKET)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        mask = os.umask(0o077)
        try:
            listener.bind(path)
        finally:
            os.umask(mask)
    finally:
        os.close(fd)
    listener.listen(256)
    return listener
