"""A SHUNTER_HOME of its own for whoever asks; at the end nothing that was started in it is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shunter.node import contract

_END_SECONDS = 15.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty SHUNTER_HOME for one test."""
    yield from _home(tmp_path / "home", monkeypatch)


@pytest.fixture(scope="module")
def module_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty SHUNTER_HOME that the tests of one module share, and with it a server."""
    with pytest.MonkeyPatch.context() as patch:
        yield from _home(tmp_path_factory.mktemp("home") / "home", patch)


def _home(path: Path, patch: pytest.MonkeyPatch) -> Iterator[Path]:
    path.mkdir(mode=0o700)
    for name in [n for n in os.environ if n.startswith("SHUNTER_")]:
        patch.delenv(name)
    patch.setenv("SHUNTER_HOME", str(path))
    try:
        yield path
    finally:
        end_all(path)


def end_all(home: Path) -> None:
    """End the server of a home, its warm parent, its launchers and their scripts: each by its id, none by its name."""
    _end([pid for pid in (_server(home),) if pid])
    # The parent goes before the launchers, or it would start new ones for those that die.
    parent = _parent(home)
    _end([parent] if parent else [])
    launchers, scripts = _launched(home)
    _end(launchers, signal.SIGKILL)
    for pid in scripts:
        _send(-pid, signal.SIGKILL)
    _end(scripts, signal.SIGKILL)


def _server(home: Path) -> int | None:
    import fcntl

    try:
        with (home / "server.lock").open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return int(file.read() or 0) or None
    except (OSError, ValueError):
        pass
    return None


def _parent(home: Path) -> int | None:
    try:
        pid, started = map(int, (home / "node" / "parent.lock").read_text().split())
    except (OSError, ValueError):
        return None
    return pid if contract.is_alive(pid, started) else None


def _launched(home: Path) -> tuple[list[int], list[int]]:
    launchers, scripts = [], []
    folder = home / "node" / contract.LAUNCHES
    for launch in folder.iterdir() if folder.is_dir() else ():
        claim = contract.Claim.read(str(launch))
        if claim is not None and claim.launcher and claim.launcher_alive():
            launchers.append(claim.launcher[0])
        if claim is not None and claim.script and claim.script_alive():
            scripts.append(claim.script[0])
    return launchers, scripts


def _end(pids: list[int], how: signal.Signals = signal.SIGTERM) -> None:
    started = {pid: contract.start_time(pid) for pid in pids}
    for pid in pids:
        _send(pid, how)
    until = time.monotonic() + _END_SECONDS
    while any(start and contract.is_alive(pid, start) for pid, start in started.items()):
        if time.monotonic() > until:
            for pid in pids:
                _send(pid, signal.SIGKILL)
            return
        time.sleep(0.01)


def _send(pid: int, how: signal.Signals) -> None:
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        pass
