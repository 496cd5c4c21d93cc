"""Kill each part of a real house at ten seeded moments and see that the states tell the truth. More in `scripts/soak`."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from blake3 import blake3

import shunter
from shunter.node import signs
from shunter.sdk.connect import connect
from shunter.testing.faults import Batch, kill_some, kill_the_server_again_and_again
from shunter.testing.house import House, send, wait_until

SEEDS = range(10)


def write(folder: Path, code: str) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "train.py").write_text(code)
    return folder


GATED = "import sys, time, os\nprint('on', flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\nprint('done')\n"


def test_the_server_may_be_killed_at_any_moment(house: House, tmp_path: Path) -> None:
    """One batch, ten kills at seeded moments."""
    batch = Batch(house, tmp_path / "batch", seed=1)
    killed = kill_the_server_again_and_again(house, batch, kills=len(SEEDS), count=20)
    batch.wait()
    batch.check()
    assert killed >= len(SEEDS)


@pytest.mark.parametrize("what", ["parent", "launcher"])
def test_a_killed_parent_or_launcher_ends_no_run_and_hides_no_outcome(what: str, house: House, tmp_path: Path) -> None:
    batches = [Batch(house, tmp_path / str(seed), seed) for seed in SEEDS]
    for batch in batches:
        batch.submit(2, longest_seconds=1.0)
        kill_some(house, batch, what)
    for batch in batches:
        batch.wait()
        batch.check()


def test_a_warm_parent_that_is_slow_to_hear_hides_no_outcome(house: House, tmp_path: Path) -> None:
    """Launcher and script are both over, and the only one that can tell how has not had its turn yet."""
    gate = tmp_path / "gate"
    ws = shunter.Workspace.from_config()
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", GATED), arguments=[gate])
    wait_until(house.scripts, 60, "the script")
    parent, [launcher] = house.parent, house.launchers()
    assert parent
    os.kill(parent, signal.SIGSTOP)
    try:
        os.kill(launcher, signal.SIGKILL)
        gate.touch()
        wait_until(lambda: not house.scripts() and not house.launchers(), 60, "the end of both")
        claim = house.home / "node" / "launches" / f"{run.id}.1.0" / "claim"
        os.utime(claim, (0, 0))  # nobody has looked after it for long
        assert signs.look(str(house.home / "node"), f"{run.id}.1.0")["sign"] == "running"
    finally:
        os.kill(parent, signal.SIGCONT)
    assert run.wait(timeout_seconds=120).data["status"] == "Completed"
    assert run.logs() == "on\ndone\n"


def test_a_killed_script_is_told_as_killed(house: House, tmp_path: Path) -> None:
    for seed in SEEDS:
        batch = Batch(house, tmp_path / str(seed), seed)
        batch.submit(2, longest_seconds=3.0)
        killed = kill_some(house, batch, "script")
        batch.wait()
        batch.check(killed)
        assert killed
        for run in batch.runs:
            if run.id in killed:
                assert run.error is not None
                assert run.error["code"] == "killed_by_signal"
                assert "SIGKILL" in run.error["message"]


def test_when_all_are_killed_as_in_a_reboot_the_run_is_told_as_lost(house: House, tmp_path: Path) -> None:
    batches = [Batch(house, tmp_path / str(seed), seed) for seed in SEEDS]
    lost: list[frozenset[str]] = []
    for batch in batches:
        batch.workspace.client = connect()
        batch.submit(2, longest_seconds=20.0)
        lost.append(kill_some(house, batch, "all"))
    for batch, killed in zip(batches, lost, strict=True):
        batch.workspace.client = connect()
        batch.wait(90)
        assert killed
        for run in batch.runs:
            if run.id in killed:
                assert run.data["status"] == "Failed"
                assert run.error is not None
                assert run.error["code"] in ("node_lost", "outcome_unknown")
                assert "killed" in run.error["message"]


def test_the_server_away_for_a_while_loses_nothing(house: House, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    ws = shunter.Workspace.from_config()
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", GATED), arguments=[gate])
    wait_until(lambda: "on" in run.logs())
    house.kill_server()
    gate.touch()
    wait_until(lambda: not house.scripts(), what="the script's end without a server")
    assert house.server is None
    run.workspace.client = connect()
    assert run.wait(timeout_seconds=120).data["status"] == "Completed"
    assert run.logs() == "on\ndone\n"


def test_a_client_that_goes_away_does_not_end_its_run(house: House, tmp_path: Path) -> None:
    import sys

    gate = tmp_path / "gate"
    folder = write(tmp_path / "src", GATED)
    code = (
        "import shunter, sys\nws = shunter.Workspace.from_config()\n"
        "run = ws.submit('train.py', source_directory=sys.argv[1], arguments=[sys.argv[2]])\n"
        "print(run.id, flush=True)\nrun.wait(show_output=True)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(shunter.__file__).parent.parent)}
    with subprocess.Popen([sys.executable, "-c", code, folder, gate], stdout=subprocess.PIPE, env=env) as client:
        assert client.stdout is not None
        run_id = client.stdout.readline().decode().strip()
        assert client.stdout.readline() == b"on\n"
        send(client.pid, signal.SIGKILL)
    gate.touch()
    ws = shunter.Workspace.from_config()
    assert ws.run(run_id).wait().data["status"] == "Completed"


@pytest.mark.parametrize("what", ["a row", "a pack"])
def test_a_run_that_can_never_be_launched_is_over_and_says_why(house: House, tmp_path: Path, what: str) -> None:
    ws = shunter.Workspace.from_config()
    gate = tmp_path / "gate"
    if what == "a pack":  # its files were written out on this node before
        ws.submit("train.py", source_directory=write(tmp_path / "b", "print('never')\n")).wait(timeout_seconds=120)
    first = ws.submit("train.py", source_directory=write(tmp_path / "a", GATED), arguments=[gate], cpus=os.cpu_count())
    run = ws.submit("train.py", source_directory=write(tmp_path / "b", "print('never')\n"), cpus=os.cpu_count())
    assert run.data["status"] == "Queued"
    lost = blake3(b"print('never')\n").hexdigest()
    with closing(sqlite3.connect(house.home / "shunter.db")) as database, database:
        [[pack]] = database.execute("SELECT pack FROM blobs WHERE digest = ?", (lost,))
        if what == "a row":
            assert database.execute("DELETE FROM blobs WHERE digest = ?", (lost,)).rowcount == 1
        else:
            [file] = house.home.rglob(f"{pack}.pack")
            file.unlink()
    gate.touch()
    assert first.wait(timeout_seconds=120).data["status"] == "Completed"
    assert run.wait(timeout_seconds=120).data["status"] == "Failed"
    assert run.error is not None
    assert "lacks the contents of train.py" in run.error["message"]
    assert run.error["hint"].startswith("Submit from the source folder again")
    assert ws.submit("train.py", source_directory=tmp_path / "b").wait(timeout_seconds=120).data["status"] == "Completed"


def test_a_database_that_is_locked_for_a_while_is_waited_for(house: House, tmp_path: Path) -> None:
    ws = shunter.Workspace.from_config()
    folder = write(tmp_path / "src", "print('fine')\n")
    ws.submit("train.py", source_directory=folder).wait()
    lock = sqlite3.connect(house.home / "shunter.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    import threading

    threading.Timer(1.5, lambda: os.write(gate[1], b"x")).start()
    gate = os.pipe()
    found: list[shunter.Run] = []
    thread = threading.Thread(target=lambda: found.append(ws.submit("train.py", source_directory=folder).wait()))
    thread.start()
    os.read(gate[0], 1)
    lock.execute("ROLLBACK")
    lock.close()
    thread.join(60)
    assert [r.data["status"] for r in found] == ["Completed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("where", ["node", "runs"])
def test_a_full_disk_is_said_and_nothing_is_half_done(where: str, house: House, tmp_path: Path) -> None:
    small = house.home / where
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=True)
    try:
        ws = shunter.Workspace.from_config()
        code = "import os\nos.write(1, b'x' * 200_000)\nopen('outputs/big', 'wb').write(b'y' * 700_000)\nprint('end')\n"
        filler = small / "filler"
        filler.write_bytes(b"z" * (980 << 10))
        run = ws.submit("train.py", source_directory=write(tmp_path / "src", code))
        if where == "node":
            run.wait(timeout_seconds=120)
            assert run.data["status"] == "Failed"
            assert run.error is not None
            assert "full" in run.error["message"] or "No space" in run.error["message"]
        else:
            wait_until(lambda: not house.scripts() and run.status in ("Running", "Finalizing", "Starting"), 60)
            filler.unlink()
            run.wait(timeout_seconds=90)
            assert run.data["status"] == "Completed"
            assert run.logs() == "x" * 200_000 + "end\n"
            assert [(f["path"], f["bytes"]) for f in run.files()] == [("outputs/big", 700_000)]
    finally:
        house.end_all()
        subprocess.run(["umount", "-l", small], check=True)


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A memory group of 60 MB that a script can put itself into: cgroup v1 or v2."""
    base = Path("/sys/fs/cgroup/memory")
    base = base if base.is_dir() else Path("/sys/fs/cgroup")
    group = base / f"shunter-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = "memory.limit_in_bytes" if (group / "memory.limit_in_bytes").exists() else "memory.max"
        (group / limit).write_text(str(60 << 20))
    except OSError as error:
        pytest.skip(f"no memory group can be made here: {error}")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text(), what="the group's last process")
    group.rmdir()


def test_running_out_of_memory_is_told_apart_from_a_kill(house: House, tmp_path: Path, small_memory: Path) -> None:
    ws = shunter.Workspace.from_config()
    code = "import os, sys\nopen(sys.argv[1] + '/cgroup.procs', 'w').write(str(os.getpid()))\nx = bytearray(300 << 20)\n"
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), arguments=[small_memory]).wait()
    assert run.error is not None
    assert run.error["code"] == "out_of_memory"
    assert "memory ran out" in run.error["message"]
    assert run.exit_code == 137
