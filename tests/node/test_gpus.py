"""GPUs of one machine, given out by servers that know nothing of each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shunter.node import contract, gpus

BUSY = "import time; time.sleep(60)"


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with three GPUs and the folders of two servers on it."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nfor n in 0 1 2; do echo "$n, A10, 24000, 10, 0"; done\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(gpus, "MEETING", str(tmp_path / "meeting"))
    return [str(tmp_path / "one"), str(tmp_path / "other")]


def take(root: str, launch: str, count: int) -> str:
    os.makedirs(os.path.join(root, contract.LAUNCHES, launch), exist_ok=True)
    return gpus.assign(root, launch, count)["CUDA_VISIBLE_DEVICES"]


def test_two_servers_never_give_out_the_same_gpu(roots: list[str]) -> None:
    assert take(roots[0], "1.1.0", 1) == "0"
    assert take(roots[1], "2.1.0", 2) == "1,2"
    with pytest.raises(gpus.Busy, match="0 of its 3 GPUs are free and it needs 1"):
        take(roots[1], "3.1.0", 1)


def test_the_same_launch_gets_its_gpus_again(roots: list[str]) -> None:
    assert take(roots[0], "1.1.0", 2) == "0,1"
    assert take(roots[0], "1.1.0", 2) == "0,1"


def test_gpus_are_free_when_the_processes_that_held_them_are_gone(roots: list[str]) -> None:
    assert take(roots[0], "1.1.0", 3) == "0,1,2"
    holder = subprocess.Popen([sys.executable, "-c", BUSY])
    gpus.hand_over(roots[0], "1.1.0", holder.pid)
    with pytest.raises(gpus.Busy):
        take(roots[1], "2.1.0", 1)
    holder.kill()
    holder.wait()
    assert take(roots[1], "2.1.0", 1) == "0"


def test_an_outcome_frees_gpus_though_the_launcher_lives(roots: list[str]) -> None:
    take(roots[0], "1.1.0", 3)
    folder = Path(roots[0], contract.LAUNCHES, "1.1.0")
    (folder / "claim").write_text(f"launcher {os.getpid()} {contract.start_time(os.getpid())} {contract.boot_id()}\n")
    gpus.hold(roots[0], "1.1.0")
    with pytest.raises(gpus.Busy):
        take(roots[1], "2.1.0", 1)
    (folder / "outcome").write_text("{}")
    gpus.hold(roots[0], "1.1.0")
    assert take(roots[1], "2.1.0", 3) == "0,1,2"


def test_without_a_place_to_meet_ones_own_launches_are_kept_apart(roots: list[str], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Path(gpus.MEETING).symlink_to(tmp_path / "elsewhere")
    assert take(roots[0], "1.1.0", 1) == "0"
    assert take(roots[0], "2.1.0", 1) == "1"
    assert not list((tmp_path / "elsewhere").iterdir())
