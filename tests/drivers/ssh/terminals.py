"""The command line at a real terminal, as a person has it."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time


def at_a_terminal(words: list[str], answers: list[tuple[bytes, bytes]], seconds: float = 120) -> tuple[int, str]:
    """Run the command line at a terminal, answer each question once it is asked; its exit code and all it showed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "shunter.cli", *words])
    shown, seen, todo = b"", 0, list(answers)
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    data = os.read(terminal, 4096)
                except OSError:
                    break
                shown += data
            if todo and todo[0][0] in shown[seen:]:
                seen = len(shown)
                os.write(terminal, todo.pop(0)[1] + b"\n")
        else:
            os.kill(pid, signal.SIGKILL)
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert not todo, shown
    return os.waitstatus_to_exitcode(status), shown.decode()
