"""Runs on a machine: both ways home, room, GPUs, what is sent, and two servers on one machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from machines import Machine

import shunter
from shunter.errors import Conflict
from shunter.testing.house import House, wait_until

GATED = "import os, sys, time\nprint('on', flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\nprint('done')\n"
FAKE_SMI = """
printf '#!/bin/sh\\nfor n in 0 1 2; do echo "$n, A10, 24000, 10, 0"; done\\n' > /run/nvidia-smi; chmod +x /run/nvidia-smi
"""


@pytest.fixture(scope="module", params=["tunnel", "session"])
def target(request: pytest.FixtureRequest, ws: shunter.Workspace, make_machine: Any) -> str:
    """The same machine with forwarding allowed and forbidden: everything below holds for both."""
    sshd = ["SetEnv PATH=/run:/usr/bin:/bin"] + (["AllowTcpForwarding no"] if request.param == "session" else [])
    made = make_machine(sshd=sshd, setup=FAKE_SMI)
    name = f"vm-{request.param}"
    found = ws.compute.create(name, "ssh", slots=2, price_per_hour=3.6, **made.options())
    assert found.data["facts"]["details"]["way_home"] == request.param
    return name


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(GATED)
    return tmp_path / "src"


def test_a_log_is_seen_while_the_script_runs(ws: shunter.Workspace, target: str, source: Path, shared: Path) -> None:
    run = ws.submit("train.py", source_directory=source, arguments=[shared / "gate"], target=target)
    wait_until(lambda: run.logs() == "on\n", 60, "the first line")
    (shared / "gate").touch()
    assert run.wait(timeout_seconds=120).status == "Completed"
    assert run.logs() == "on\ndone\n"


def test_runs_beyond_the_slots_wait_with_a_reason(
    ws: shunter.Workspace, target: str, source: Path, shared: Path
) -> None:
    runs = [
        ws.submit("train.py", source_directory=source, arguments=[shared / "gate"], target=target) for _ in range(3)
    ]
    wait_until(
        lambda: [r.refresh().status for r in runs] == ["Running", "Running", "Queued"], 60, "two of three running"
    )
    assert "2 slots" in " ".join(runs[2].why()["reasons"])
    shown = ws.compute.get(target).show()
    assert {r["id"] for r in shown["running"]} == {runs[0].id, runs[1].id}
    assert shown["status"]["reachable"] is True
    with pytest.raises(Conflict, match="Runs are using"):
        ws.compute.get(target).detach()
    with pytest.raises(Conflict, match="where they are"):
        ws.compute.get(target).update(folder="/tmp/elsewhere")
    (shared / "gate").touch()
    assert [r.wait(timeout_seconds=120).status for r in runs] == ["Completed"] * 3


def test_a_run_gets_its_own_gpus(ws: shunter.Workspace, target: str, tmp_path: Path, shared: Path) -> None:
    code = "import os, sys, time\nprint(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n" + GATED
    (tmp_path / "train.py").write_text(code)
    ws.compute.get(target).probe()
    runs = [
        ws.submit("train.py", source_directory=tmp_path, arguments=[shared / "gate"], target=target, gpus=n)
        for n in (1, 1, 3)
    ]
    third = runs.pop()
    wait_until(lambda: all("on" in r.logs() for r in runs), 60, "both running")
    assert third.refresh().status == "Queued"
    assert "needs 3 GPUs" in " ".join(third.why()["reasons"])
    (shared / "gate").touch()
    for run in runs:
        assert run.wait(timeout_seconds=120).status == "Completed"
    assert third.wait(timeout_seconds=120).status == "Completed"
    first, second, all_three = (r.logs().split("\n")[0].split(",") for r in (*runs, third))
    assert sorted(first + second) == ["0", "1"]
    assert all_three == ["0", "1", "2"]


def test_a_script_asks_and_logs_metrics_whatever_the_way_home(
    ws: shunter.Workspace, target: str, tmp_path: Path
) -> None:
    code = "import shunter.run\nrun = shunter.run.get_context()\nrun.log('loss', 0.5)\nrun.log('loss', 0.25)\nrun.tag('k', 'v')\n"
    (tmp_path / "train.py").write_text(code)
    run = ws.submit("train.py", source_directory=tmp_path, target=target).wait(timeout_seconds=120)
    assert run.status == "Completed", run.logs()
    assert run.metrics()["loss"][-1] == 0.25


def test_only_what_changed_travels(ws: shunter.Workspace, target: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(os.urandom(3 << 20))
    (tmp_path / "train.py").write_text("print(len(open('data', 'rb').read()))\n")
    for change in range(3):
        (tmp_path / "note.txt").write_text(str(change // 2))
        run = ws.submit("train.py", source_directory=tmp_path, target=target).wait(timeout_seconds=120)
        assert run.logs() == f"{3 << 20}\n"
    facts = ws.compute.get(target).probe().data["facts"]
    assert facts["details"]["kept_bytes"] < 4 << 20


def test_outputs_come_home_though_launcher_and_parent_were_killed(
    ws: shunter.Workspace, machine: Machine, tmp_path: Path, shared: Path
) -> None:
    """Nobody is left to push: the server reads the spool itself."""
    ws.compute.create("orphan", "ssh", **machine.options())
    (tmp_path / "train.py").write_text(GATED + "open('outputs/a', 'w').write('x' * 5000000)\n")
    run = ws.submit("train.py", source_directory=tmp_path, arguments=[shared / "gate"], target="orphan")
    wait_until(lambda: "on" in run.logs(), 60, "the first line")
    root = next((machine.home / ".shunter-node").glob("*/parent.lock")).parent
    claim = next((root / "launches").glob(f"{run.id}.*/claim")).read_text()
    for pid in machine.processes("shunter.node"):
        os.kill(pid, 9)
    assert "script" in claim
    (shared / "gate").touch()
    run.wait(timeout_seconds=90)
    assert run.status == "Failed"
    assert run.logs() == "on\ndone\n", run.data
    assert "exit status" in run.error["message"]
    assert [f["bytes"] for f in run.files()] == [5000000]
    ws.compute.get("orphan").detach()


def test_two_servers_use_one_machine_without_disturbing_each_other(
    ws: shunter.Workspace, machine: Machine, source: Path, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws.compute.create("mine", "ssh", **machine.options())
    run = ws.submit("train.py", source_directory=source, arguments=[shared / "gate"], target="mine")
    wait_until(lambda: "on" in run.logs(), 60, "the first line")
    other_home = tmp_path / "other"
    other_home.mkdir(mode=0o700)
    monkeypatch.setenv("SHUNTER_HOME", str(other_home))
    try:
        other = shunter.Workspace.from_config()
        other.compute.create("mine", "ssh", **machine.options())
        theirs = other.submit("train.py", source_directory=source, arguments=[shared / "gate2"], target="mine")
        wait_until(lambda: "on" in theirs.logs(), 60, "the other's first line")
        theirs.cancel().wait(timeout_seconds=120)
        other.compute.get("mine").detach()
    finally:
        House(other_home).end_all()
    assert run.refresh().status == "Running"
    (shared / "gate").touch()
    assert run.wait(timeout_seconds=120).status == "Completed"
    ws.compute.get("mine").detach()


@contextmanager
def another_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[shunter.Workspace]:
    home.mkdir(mode=0o700)
    with monkeypatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(home))
        try:
            yield shunter.Workspace.from_config()
        finally:
            House(home).end_all()


def test_two_servers_give_out_different_gpus_and_a_run_waits_for_one_of_the_others(
    ws: shunter.Workspace, make_machine: Any, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent = make_machine(sshd=["SetEnv PATH=/run:/usr/bin:/bin"], setup=FAKE_SMI)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(
        "import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n" + GATED
    )
    ws.compute.create("gpus", "ssh", **lent.options())
    asked: dict[str, Any] = {"source_directory": tmp_path / "src", "target": "gpus"}
    mine = ws.submit("train.py", arguments=[shared / "gate"], gpus=2, **asked)
    wait_until(lambda: "on" in mine.logs(), 60, "the first line")
    with another_server(tmp_path / "other", monkeypatch) as other:
        other.compute.create("gpus", "ssh", **lent.options())
        one = other.submit("train.py", arguments=[shared / "gate2"], gpus=1, **asked)
        wait_until(lambda: "on" in one.logs(), 60, "the other's first line")
        more = other.submit("train.py", arguments=[shared / "gate2"], gpus=2, **asked)
        wait_until(lambda: "0 of its 3 GPUs are free" in " ".join(more.why()["reasons"]), 60, "a reason")
        (shared / "gate").touch()
        assert mine.wait(timeout_seconds=120).status == "Completed"
        (shared / "gate2").touch()
        assert [r.wait(timeout_seconds=120).status for r in (one, more)] == ["Completed"] * 2
        assert [r.logs().split("\n")[0] for r in (mine, one)] == ["0,1", "2"]
        other.compute.get("gpus").detach()
    ws.compute.get("gpus").detach()


def test_what_is_kept_stays_within_the_disk_limit(ws: shunter.Workspace, machine: Machine, tmp_path: Path) -> None:
    """Each snapshot is larger than half of the limit: of three, at most one is still there after the next launch."""
    ws.compute.create("small", "ssh", disk_limit_gb=0.003, **machine.options())
    root = machine.home / ".shunter-node"
    (tmp_path / "train.py").write_text("print('hello')\n")
    for _ in range(3):
        (tmp_path / "data").write_bytes(os.urandom(2 << 20))
        assert (
            ws.submit("train.py", source_directory=tmp_path, target="small").wait(timeout_seconds=120).status
            == "Completed"
        )
        ws.collect_garbage(dry_run=False)  # asks for it now; it is done by itself every few minutes
    packs = [p for p in root.glob("*/blobs/*.pack") if p.stat().st_size > 1 << 20]
    mine = {p.parent for p in packs}
    assert all(sum(p.stat().st_size for p in packs if p.parent == folder) < 3e6 for folder in mine)
    ws.compute.get("small").detach()


def test_gc_frees_copies_of_inputs_on_machines(
    ws: shunter.Workspace, make_machine: Any, tmp_path: Path, shared: Path
) -> None:
    lent = make_machine()
    ws.compute.create("holds", "ssh", **lent.options())
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(
        "import os\nprint(os.path.getsize(os.environ['SHUNTER_INPUT_D']), flush=True)\n" + GATED
    )
    (tmp_path / "d.bin").write_bytes(os.urandom(1 << 20))
    run = ws.submit("train.py", source_directory=tmp_path / "src", arguments=[shared / "gate"], target="holds",
                    inputs={"d": str(tmp_path / "d.bin")})  # fmt: skip
    wait_until(lambda: "on" in run.logs(), 60, "the first line")
    what = "copies of inputs on holds"
    assert what not in ws.collect_garbage(grace_seconds=0)["kinds"]
    (shared / "gate").touch()
    assert run.wait(timeout_seconds=120).status == "Completed", run.logs()
    assert run.logs().startswith(f"{1 << 20}\n")
    copies = lent.home / ".shunter-node"
    assert what not in ws.collect_garbage(grace_seconds=3600)["kinds"]
    wait_until(lambda: what in ws.collect_garbage(grace_seconds=0)["kinds"], 60, "the run's end on its machine")
    assert ws.collect_garbage(grace_seconds=0)["kinds"][what] == {"count": 1, "bytes": 1 << 20}
    assert list(copies.glob("*/inputs/*.whole"))
    assert ws.collect_garbage(dry_run=False, grace_seconds=0)["kinds"][what]["count"] == 1
    assert not list(copies.glob("*/inputs/*.whole"))
    ws.compute.get("holds").detach()


def test_a_forced_detach_ends_what_runs_there(
    ws: shunter.Workspace, make_machine: Any, source: Path, shared: Path
) -> None:
    lent = make_machine()
    ws.compute.create("lent", "ssh", **lent.options())
    run = ws.submit("train.py", source_directory=source, arguments=[shared / "never"], target="lent", grace_seconds=1)
    wait_until(lambda: "on" in run.logs(), 60, "the first line")
    ws.compute.get("lent").delete(force=True)
    assert run.refresh().status == "Canceled"
    assert not lent.processes("train.py")


def test_a_machine_that_is_away_gets_no_runs_and_why_says_so(
    ws: shunter.Workspace, make_machine: Any, source: Path, shared: Path
) -> None:
    away = make_machine()
    ws.compute.create("away", "ssh", connect_timeout_seconds=10, **away.options())
    away.power_off()
    wait_until(lambda: ws.compute.get("away").show()["status"]["reachable"] is False, 60, "the loss noticed")
    (shared / "gate").touch()
    run = ws.submit("train.py", source_directory=source, arguments=[shared / "gate"], target="away")
    wait_until(lambda: "away" in " ".join(run.why()["reasons"]), 60, "a reason")
    assert run.refresh().status == "Queued"
    away.boot()
    began = time.monotonic()
    assert run.wait(timeout_seconds=120).status == "Completed"
    assert time.monotonic() - began < 60
