"""How others on the node talk to the warm parent (`parent.py`): found, started when none is there, replaced when it is old."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from shunter.node import contract, local_socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Dict, Optional

START_SECONDS = 10.0


class WarmParent:
    def __init__(self, root):
        # type: (str) -> None
        self.root = root
        self._line = None  # type: Optional[socket.socket]

    def tell(self, message):
        # type: (Dict[str, str]) -> Dict[str, Any]
        """Say something to the warm parent, starting one if none is there."""
        for last in (False, True):
            try:
                if self._line is None:
                    self._line = self._connect_or_start()
                self._line.sendall(json.dumps(message).encode() + b"\n")
                answer = b""
                while not answer.endswith(b"\n"):
                    more = self._line.recv(65536)
                    if not more:
                        raise ConnectionResetError("the warm parent closed the connection")
                    answer += more
                return json.loads(answer)  # type: ignore[no-any-return]
            except OSError:
                if self._line is not None:
                    self._line.close()
                self._line = None
                if last:
                    raise
        raise AssertionError

    def _connect_or_start(self):
        # type: () -> socket.socket
        try:
            connection = self.connect()
            if not self._is_old(connection):
                return connection
            connection.close()
        except OSError:
            pass
        self._start()
        began = again = time.monotonic()
        while True:
            try:
                return self.connect()
            except OSError:
                now = time.monotonic()
                if now > began + START_SECONDS:
                    raise
                if now > again + 0.5:  # the one that was ending may have stood in its way
                    self._start()
                    again = now
                time.sleep(0.01)

    def _is_old(self, connection):
        # type: (socket.socket) -> bool
        """A parent of an earlier release that looks after nothing is asked to go; one that does is left to it."""
        connection.sendall(b'{"status": ""}\n')
        found = json.loads(connection.recv(65536) or b"{}")
        mine = os.path.join(os.path.dirname(os.path.abspath(__file__)), "parent.py")
        if found.get("tree") == mine or found.get("launchers"):
            return False
        connection.sendall(b'{"stop": ""}\n')
        connection.recv(65536)
        while os.path.exists(os.path.join(self.root, contract.PARENT_SOCKET)):
            try:
                self.connect().close()
            except OSError:
                break
            time.sleep(0.01)
        return True

    def connect(self):
        # type: () -> socket.socket
        return local_socket.connect(os.path.join(self.root, contract.PARENT_SOCKET), START_SECONDS)

    def _start(self) -> None:
        with open(os.path.join(self.root, "parent.log"), "ab") as log:
            start_process("parent", "sys.exit(parent.main(sys.argv[1]))", self.root, log, log)


def start_process(module, call, root, out, err):
    # type: (str, str, str, Any, Any) -> subprocess.Popen[bytes]
    """A process that outlives us, of the tree we came from."""
    code = "import sys; sys.path.insert(0, %r); from shunter.node import %s; %s" % (tree(), module, call)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-E", "-c", code, root],
        stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, cwd="/",
        env={k: v for k, v in os.environ.items() if not k.startswith(("SHUNTER_", "SSH_"))},
    )  # fmt: skip


def tree() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
