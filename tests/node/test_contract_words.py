"""What claims say of processes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shunter.node import contract, exits


def test_a_script_that_was_over_at_once_is_not_taken_for_alive(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie, as it is when its launcher was slow to look
        started = contract.start_time(process.pid)
    assert contract.take(str(tmp_path), f"launcher 1 1 {contract.boot_id()}")
    contract.add_to_claim(str(tmp_path), f"script {process.pid} {started}")
    claim = contract.Claim.read(str(tmp_path))
    assert claim is not None
    assert not claim.script_alive()


def test_this_process_is_alive_and_another_with_its_id_would_not_be() -> None:
    me = os.getpid()
    assert contract.is_alive(me, contract.start_time(me))
    assert not contract.is_alive(me, contract.start_time(me) + 1)


def test_a_claim_is_there_with_its_words_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who finds it empty takes its launcher for dead after a while, and starts another attempt."""
    seen: list[object] = []
    write = os.write

    def slow(fd: int, data: bytes) -> int:
        seen.append(contract.Claim.read(str(tmp_path)))
        return write(fd, data)

    monkeypatch.setattr(os, "write", slow)
    assert contract.take(str(tmp_path), "launcher 1 2 b")
    assert seen == [None]
    assert not contract.take(str(tmp_path), "launcher 3 4 b")
    claim = contract.Claim.read(str(tmp_path))
    assert claim is not None
    assert claim.launcher == (1, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["claim"]


def test_a_claim_can_be_taken_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    assert contract.take(str(tmp_path), "launcher 1 2 b")
    assert not contract.take(str(tmp_path), "launcher 3 4 b")
    assert [p.name for p in tmp_path.iterdir()] == ["claim"]


def test_a_process_is_unreaped_until_its_own_parent_has_waited_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = contract.start_time(process.pid)
        assert not exits.is_unreaped(process.pid, started, os.getpid())
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert exits.is_unreaped(process.pid, started, os.getpid())
        assert not exits.is_unreaped(process.pid, started, os.getpid() + 1)
    assert not exits.is_unreaped(process.pid, started, os.getpid())
