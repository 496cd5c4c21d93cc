"""Ranks that fell silent: who is named, and that a run that hangs ends within the time it was given."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from shunter.node import contract, silence
from shunter.sdk.run import Run
from shunter.sdk.workspace import Workspace
from shunter.testing.house import wait_until

#: Rank 1 hangs after its first step; rank 0 says one thing more, and waits for it.
HANGS = """
import os, sys, time
print("step 1", flush=True)
if os.environ["RANK"] == "1":
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
time.sleep(0.6)
print("step 2")
time.sleep(600)
"""


def heard(silent: float, state: str = "", last: str = "", at: float = 100.0) -> dict[str, Any]:
    return {"silent": silent, "state": state, "last": last, "heard": at}


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ({0: heard(3), 1: heard(50)}, ""),  # somebody speaks
        ({0: heard(31), 1: heard(45, last="step 9")},
         "Rank 1 has said nothing for 45 s while the others wait. Its last line: step 9"),
        ({0: heard(45), 1: heard(31, state="stopped")},
         "Rank 1 has said nothing for 31 s while the others wait: its process is stopped."),
        ({0: heard(31), 1: heard(40, state="ended")}, "Rank 1 ended 40 s ago, and the others have said nothing for 31 s."),
        ({0: heard(3), 1: heard(90, state="ended")}, ""),
        ({0: heard(3)}, "Rank 1 is gone: nothing was heard of it for 100 s."),
        ({0: heard(3), 1: heard(2, at=60.0)}, "Rank 1 is gone: nothing was heard of it for 42 s."),
    ],
)  # fmt: skip
def test_the_rank_that_the_others_wait_for_is_named(reports: dict[int, dict[str, Any]], expected: str) -> None:
    assert silence.verdict(reports, world=2, bound=30.0, now=100.0, since=0.0) == expected


def test_nobody_is_blamed_before_the_bound() -> None:
    assert silence.verdict({}, world=2, bound=30.0, now=29.0, since=0.0) == ""


def submit(home: Path, tmp_path: Path, **options: Any) -> Run:
    (tmp_path / "train.py").write_text(HANGS)
    ws = Workspace.from_config()
    arguments = [tmp_path / "pid"]
    return ws.submit("train.py", source_directory=tmp_path, arguments=arguments, processes_per_node=2, **options)


def test_a_run_that_hangs_ends_with_the_rank_that_fell_silent_first(home: Path, tmp_path: Path) -> None:
    run = submit(home, tmp_path, max_silence_seconds=5)
    begun = time.monotonic()
    run.wait(timeout_seconds=120)
    assert run.data["status"] == "Failed"
    assert "Rank 1 has said nothing for" in run.data["reason"]
    assert "Its last line: step 1" in run.data["reason"]
    assert time.monotonic() - begun < 100


def test_a_stopped_rank_is_named_though_another_was_silent_before(home: Path, tmp_path: Path) -> None:
    code = HANGS.replace('== "1"', '== "0"').replace("time.sleep(0.6)", "time.sleep(0.1)")
    (tmp_path / "train.py").write_text(code.replace('print("step 2")', 'open(sys.argv[1] + "1", "w").write(str(os.getpid()))'))
    ws = Workspace.from_config()
    run = ws.submit(
        "train.py", source_directory=tmp_path, arguments=[tmp_path / "pid"], processes_per_node=2, max_silence_seconds=6
    )
    wait_until((tmp_path / "pid1").exists, 60, "rank 1")
    wait_until((tmp_path / "pid1").read_text, 60, "its pid")
    pid = int((tmp_path / "pid1").read_text())
    os.kill(pid, signal.SIGSTOP)
    run.wait(timeout_seconds=120)
    assert "Rank 1 has said nothing for" in run.data["reason"]
    assert "its process is stopped" in run.data["reason"]
    assert not contract.start_time(pid)


def test_ranks_of_other_nodes_are_heard_and_strangers_are_not() -> None:
    from shunter.drivers.cluster.folder import free_port

    spec = {"seconds": 5.0, "world": 2, "address": "127.0.0.1", "port": free_port(), "secret": "s" * 64}
    hearing = silence.Hearing(spec)
    tellers = [silence.Teller({**spec, "secret": "x" * 64}), silence.Teller(spec)]
    try:
        for rank, teller in enumerate(tellers):
            teller.tell([{"rank": rank, "silent": 1.0, "state": "", "last": "hello"}])
        wait_until(lambda: 1 in hearing.reports, 60, "the report")
        assert set(hearing.reports) == {1}
    finally:
        for teller in tellers:
            teller.close()
        hearing.close()


def test_a_port_that_somebody_else_holds_neither_hides_silence_nor_makes_it_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        spec = {"seconds": 0.2, "world": 2, "address": "127.0.0.1", "port": other.getsockname()[1], "secret": "s" * 64}
        alone, far = silence.Hearing(spec, here=2), silence.Hearing(spec, here=1)
        told = [{"rank": rank, "silent": 9.0, "state": "", "last": ""} for rank in (0, 1)]
        alone.put(told)
        far.put(told[:1])
        time.sleep(0.5)
        assert "Rank 0 has said nothing" in alone.verdict()
        assert far.verdict() == ""  # the other node could not tell us
    try:
        teller = silence.Teller(spec)

        def is_heard() -> bool:
            teller.tell(told[1:])
            return 1 in far.reports

        wait_until(is_heard, 60, "the report once the port is free")
        assert "Rank 0 has said nothing" in far.verdict()
    finally:
        teller.close()
        alone.close()
        far.close()
