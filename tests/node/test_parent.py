"""The warm parent among those who talk to it."""

from __future__ import annotations

import json
import select
import subprocess
from pathlib import Path

from shunter.node import contract, local_socket
from shunter.node.warm_parent import start_process
from shunter.testing.house import wait_until


def ask(root: Path, said: bytes = b'{"status": ""}\n') -> int:
    """The parent's process id, as it says itself."""
    with local_socket.connect(str(root / contract.PARENT_SOCKET), 60) as line, line.makefile("rb") as answers:
        line.sendall(said)
        return int(json.loads(answers.readline())["pid"])


def test_it_outlives_those_who_are_killed_before_they_read_its_answer(tmp_path: Path) -> None:
    with start_process("parent", "sys.exit(parent.main(sys.argv[1]))", str(tmp_path), subprocess.DEVNULL, None) as parent:
        try:
            wait_until((tmp_path / contract.PARENT_SOCKET).exists, 60, "the parent")
            for said in (b'{"status": ""}\n', b"half a word\n"):
                with local_socket.connect(str(tmp_path / contract.PARENT_SOCKET), 60) as rude:
                    rude.sendall(said)
                    select.select([rude], [], [], 60)  # what it leaves unread makes its end a reset, as a kill -9 does
                assert ask(tmp_path) == parent.pid
            ask(tmp_path, b'{"stop": ""}\n')
            assert parent.wait(60) == 0
        finally:
            parent.kill()
