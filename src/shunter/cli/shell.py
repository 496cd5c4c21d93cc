"""`shunter run shell`: a shell in a run's folder and environment, on the machine it runs on."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from typing import Any

from shunter.cli.finding import find_run
from shunter.cli.options import RunId
from shunter.errors import ShunterError


def command(run: RunId) -> None:
    """Open a shell where a run runs: in its folder, with its environment. It ends with the run or with `exit`."""
    found = find_run(run)
    client = found.workspace.client
    columns, rows = shutil.get_terminal_size()
    body = {"term": os.environ.get("TERM") or "xterm", "columns": columns, "rows": rows}
    path = f"/api/v1/shells/{client.post(f'/api/v1/runs/{found.id}/shell', body)['shell']}"
    threading.Thread(target=_send_input, args=(client, path), daemon=True).start()
    with _RawTerminal(lambda: _send_size(client, path)):
        for data in client.stream(path + "/output", size=1 << 16, live=True):
            os.write(1, data)


def _send_input(client: Any, path: str) -> None:
    while True:
        data = os.read(0, 4096)
        try:
            client.raw("POST", path + "/input", data or b"\x04")
        except ShunterError:
            return
        if not data:
            return


def _send_size(client: Any, path: str) -> None:
    columns, rows = shutil.get_terminal_size()
    try:
        client.post(path + "/size", {"columns": columns, "rows": rows})
    except ShunterError:
        pass


class _RawTerminal:
    """The terminal passes every key on, and is as it was afterwards. Does nothing where there is no terminal."""

    def __init__(self, on_size: Any) -> None:
        self.on_size = on_size
        self._before: Any = None

    def __enter__(self) -> None:
        if not sys.stdin.isatty():
            return
        import termios
        import tty

        self._before = termios.tcgetattr(0)
        tty.setraw(0, termios.TCSADRAIN)  # what was typed before is kept
        signal.signal(signal.SIGWINCH, lambda *_: self.on_size())

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            import termios

            termios.tcsetattr(0, termios.TCSADRAIN, self._before)
