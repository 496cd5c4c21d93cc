"""GPUs of one machine, given out by servers that know nothing of each other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shunter.node import contract, gpus
from shunter.testing.house import send, wait_until

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


def test_a_script_holds_its_gpus_though_its_launcher_is_killed(roots: list[str], tmp_path: Path) -> None:
    take(roots[0], "1.1.0", 3)
    folder = Path(roots[0], contract.LAUNCHES, "1.1.0")
    (tmp_path / "train.py").write_text(BUSY)
    layout = [["train.py", "file", 0o644, str(tmp_path / "train.py"), 0, len(BUSY)]]
    (tmp_path / "layout.json").write_text(json.dumps(layout))
    home = {"url": "http://127.0.0.1:9", "endpoint_file": "", "token": ""}
    job = {"id": "1.1.0", "run_id": "1", "layout": str(tmp_path / "layout.json"), "interpreter": sys.executable,
           "script": "train.py", "arguments": [], "attempt": 1, "node_index": 0, "node_count": 1, "home": home}  # fmt: skip
    (folder / "job.json").write_text(json.dumps(job))
    code = f"from shunter.node import gpus, launcher; gpus.MEETING = {gpus.MEETING!r}; launcher.run({str(folder)!r})"
    launcher = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        gpus.hand_over(roots[0], "1.1.0", launcher.pid)
        held = Path(gpus.MEETING, f"{os.getuid()}.1.1.0")
        wait_until(lambda: len(held.read_text().splitlines()) == 3, 60, "the script")
    finally:
        launcher.kill()
        launcher.wait()
    claim = contract.Claim.read(str(folder))
    assert claim is not None
    assert claim.script is not None
    with pytest.raises(gpus.Busy):
        take(roots[1], "2.1.0", 1)
    send(claim.script[0], signal.SIGKILL)
    wait_until(lambda: not claim.script_alive(), 60, "its end")
    assert take(roots[1], "2.1.0", 1) == "0"


def test_whoever_looks_while_it_is_told_anew_who_holds_them_sees_all_gpus_held(roots: list[str]) -> None:
    take(roots[0], "1.1.0", 3)
    stop = threading.Event()

    def tell() -> None:
        while not stop.is_set():
            gpus.hand_over(roots[0], "1.1.0", os.getpid())

    telling = threading.Thread(target=tell)
    telling.start()
    try:
        # Without the lock, as a process does that was killed in the middle: what lies in the folder must hold by itself.
        seen = {tuple(gpus._held(roots[1], "2.1.0")) for _ in range(300)}
    finally:
        stop.set()
        telling.join()
    assert seen == {tuple((index, os.getuid()) for index in range(3))}


def test_a_late_word_of_the_agent_does_not_take_the_gpus_from_the_script(roots: list[str]) -> None:
    take(roots[0], "1.1.0", 3)
    over = subprocess.Popen([sys.executable, "-c", ""])
    over.wait()
    me = f"{os.getpid()} {contract.start_time(os.getpid())}"
    claim = Path(roots[0], contract.LAUNCHES, "1.1.0", "claim")
    claim.write_text(f"launcher {over.pid} 1 {contract.boot_id()}\nstarting\nscript {me}\n")
    gpus.hold(roots[0], "1.1.0")
    gpus.hand_over(roots[0], "1.1.0", over.pid)
    with pytest.raises(gpus.Busy):
        take(roots[1], "2.1.0", 1)


def test_without_a_place_to_meet_ones_own_launches_are_kept_apart(roots: list[str], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Path(gpus.MEETING).symlink_to(tmp_path / "elsewhere")
    assert take(roots[0], "1.1.0", 1) == "0"
    assert take(roots[0], "2.1.0", 1) == "1"
    assert not list((tmp_path / "elsewhere").iterdir())
