"""What runs on machines survive: cut cables, power cuts, bad links. Seeded cuts and kills: `test_fault_seeds.py`."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from shunter.sdk.workspace import Workspace
from shunter.testing.faults import CHECKPOINTED
from shunter.testing.house import wait_until

GATED = "import os, sys, time\nprint('on', flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\nprint('done')\n"


@pytest.fixture
def ws(home: Path) -> Workspace:
    return Workspace.from_config()


def write(folder: Path, code: str = GATED) -> Path:
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text(code)
    return folder / "src"


def test_a_cut_that_outlasts_the_connection_is_told_and_healed(
    ws: Workspace, make_machine: Any, shared: Path, tmp_path: Path
) -> None:
    """The run goes on meanwhile; its log comes home whole when the machine is back."""
    machine = make_machine()
    ws.compute.create("vm", "ssh", connect_timeout_seconds=10, **machine.options())
    code = GATED.replace("time.sleep(0.02)", "(print('tick', flush=True), time.sleep(0.1))")
    run = ws.submit("train.py", source_directory=write(tmp_path, code), arguments=[shared / "gate"], target="vm")
    wait_until(lambda: "tick" in run.logs(), 60, "the first line")
    machine.cut()
    wait_until(lambda: ws.compute.get("vm").show()["status"]["reachable"] is False, 60, "the loss noticed")
    (shared / "gate").touch()
    wait_until(lambda: not machine.processes("train.py"), 60, "the script's end")
    machine.heal()
    assert run.wait(timeout_seconds=120).status == "Completed"
    lines = run.logs().split("\n")
    assert (lines[0], lines[-2], set(lines[1:-2])) == ("on", "done", {"tick"})


def test_a_rebooted_machine_is_told_as_such_and_the_run_retried_if_it_says_so(
    ws: Workspace, make_machine: Any, shared: Path, tmp_path: Path
) -> None:
    machine = make_machine()
    ws.compute.create("vm", "ssh", slots=4, **machine.options())
    source = write(tmp_path)
    once = ws.submit("train.py", source_directory=source, arguments=[shared / "gate"], target="vm")
    again = ws.submit("train.py", source_directory=source, arguments=[shared / "gate"], target="vm", max_attempts=2)
    wait_until(lambda: all("on" in r.logs() for r in (once, again)), 60, "both running")
    machine.reboot()
    assert once.wait(timeout_seconds=90).status == "Failed"
    assert once.error is not None
    assert "restarted" in once.error["message"]
    assert once.logs() == "on\n"
    (shared / "gate").touch()
    assert again.wait(timeout_seconds=90).status == "Completed"
    assert again.data["attempts"] == 2


def test_a_rebooted_machine_goes_on_from_the_checkpoint(ws: Workspace, make_machine: Any, tmp_path: Path) -> None:
    machine = make_machine()
    ws.compute.create("vm", "ssh", **machine.options())
    run = ws.submit("train.py", source_directory=write(tmp_path, CHECKPOINTED), target="vm", max_attempts=2)
    wait_until(run.checkpoints, 60, "a checkpoint")
    first = machine.boot_id()
    machine.reboot()
    assert machine.boot_id() != first
    assert not machine.processes("train.py")
    assert run.wait(timeout_seconds=90).status == "Completed"
    assert run.logs(attempt=1) == "from 0\n"
    assert run.logs(attempt=2) == "from 3\ndone 6\n"
    assert any("restarted" in e["reason"] for e in run.events())


def test_a_lossy_link_is_slow_and_nothing_else(ws: Workspace, make_machine: Any, shared: Path, tmp_path: Path) -> None:
    machine = make_machine()
    for chain in ("INPUT", "OUTPUT"):
        machine.inside(
            "iptables", "-A", chain, "-m", "statistic", "--mode", "random", "--probability", "0.05", "-j", "DROP"
        )
    ws.compute.create("vm", "ssh", **machine.options())
    code = "for n in range(20000): print('line', n)\n"
    run = ws.submit("train.py", source_directory=write(tmp_path, code), target="vm").wait(timeout_seconds=120)
    assert run.status == "Completed"
    assert run.logs() == "".join(f"line {n}\n" for n in range(20000))


def test_a_slow_link_is_not_taken_for_a_dead_one(ws: Workspace, make_machine: Any, tmp_path: Path) -> None:
    machine = make_machine()
    ws.compute.create("vm", "ssh", **machine.options())
    machine.inside(
        "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "1mbit", "burst", "32kb", "latency", "4000ms"
    )
    (tmp_path / "data").mkdir()
    code = "import os\nos.write(1, os.urandom(1 << 20).hex().encode())\n"
    run = ws.submit("train.py", source_directory=write(tmp_path, code), target="vm").wait(timeout_seconds=120)
    assert run.status == "Completed"
    assert len(run.logs()) == 2 << 20
    assert "NotResponding" not in [e["status"] for e in run.events()]


SMALL_DISK = """
cp -a /home /run/h; mount -t tmpfs -o size=4m none /home; cp -a /run/h/* /home; chown -R 23000 /home/vm
"""


def test_a_disk_that_is_full_is_told_and_the_run_starts_when_there_is_room(
    ws: Workspace, make_machine: Any, tmp_path: Path
) -> None:
    machine = make_machine(home_mount=SMALL_DISK)
    ws.compute.create("vm", "ssh", **machine.options())
    source = write(tmp_path, "print('hello')\n")
    (source / "data").write_bytes(os.urandom(8 << 20))
    run = ws.submit("train.py", source_directory=source, target="vm")
    wait_until(lambda: "The disk of vm is full" in " ".join(run.why()["reasons"]), 60, "the reason")
    assert run.refresh().status != "Failed"
    machine.on_it("mount", "-o", "remount,size=64m", "/home")
    assert run.wait(timeout_seconds=120).status == "Completed"
    assert run.logs() == "hello\n"


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int found = real(id, t);
    if (id == CLOCK_REALTIME) t->tv_sec -= 7200;
    return found;
}
"""


def test_a_clock_that_is_two_hours_off_is_told_and_times_are_right(
    ws: Workspace, make_machine: Any, shared: Path, tmp_path: Path
) -> None:
    import subprocess

    (shared / "clock.c").write_text(CLOCK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", shared / "clock.so", shared / "clock.c", "-ldl"], check=True)
    machine = make_machine(sshd=[f"SetEnv LD_PRELOAD={shared}/clock.so"])
    steps: list[dict[str, Any]] = []
    ws.compute.create("vm", "ssh", on_step=steps.append, **machine.options())
    clock = next(s for s in steps if s["check"] == "clock")
    assert clock["verdict"] == "warning"
    assert "2.0 h behind" in clock["message"]
    code = """
import time, shunter.run
run = shunter.run.get_context()
for n in range(3):
    run.log("loss", n)
    run.log_table("t", {"n": [n]})
    time.sleep(0.5)
"""
    run = ws.submit(
        "train.py", source_directory=write(tmp_path, code), target="vm", inputs={"here": "node:/etc/hostname"}
    )
    run.wait(timeout_seconds=120)
    assert run.status == "Completed", run.logs()
    told = [run.data[k] for k in ("submitted_at", "started_at", "ended_at")]
    assert told == sorted(told)
    begun, over = (datetime.fromisoformat(t).timestamp() for t in (told[0], told[2]))
    points = ws.client.get(run.path + "/series", name="loss")["series"][0]
    samples = [sample["at"] for sample in run.usage()]
    said = [datetime.fromisoformat(e["at"]).timestamp() for e in run.events() if e["kind"] == "input"]
    for times in (points["times"], samples, said):
        assert times
        assert all(begun - 3 < at < over + 3 for at in times), (begun, times, over)
