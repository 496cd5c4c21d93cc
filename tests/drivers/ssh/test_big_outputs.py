"""Large files on their way home from a machine while the server, the launcher, or all of ours there is killed: kill -9."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from machines import Machine

import shunter
from shunter.node.contract import Claim
from shunter.testing.house import House, wait_until

SIZE = 48 << 20
#: Early enough that also a test that is held up for seconds kills somebody in the middle.
SOME = SIZE // 8
#: On the way when somebody is killed: a piece, and what the connection holds.
ON_THE_WAY = 8 << 20
CODE = """
import hashlib, os, sys, time
from shunter.run import Run
data = os.urandom(SIZE)
print(hashlib.sha256(data).hexdigest(), flush=True)
name = "model.bin" if sys.argv[1] == "upload" else "outputs/model.bin"
with open(name, "wb") as file:
    file.write(data)
if sys.argv[1] == "change":
    print("written", flush=True)
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.02)
    with open(name, "r+b") as file:
        file.write(data[::-1])
    print(hashlib.sha256(data[::-1]).hexdigest(), flush=True)
if sys.argv[1] == "upload":
    run = Run.get_context()
    run.upload_file("outputs/model.bin", name)
    os.unlink(name)
    for n in range(30):
        run.log("tick", n)
        time.sleep(0.1)
    run.flush(120)
"""


@pytest.fixture(scope="module")
def slow(ws: shunter.Workspace, make_machine: Any) -> Machine:
    """A machine whose link brings about 10 MB a second home."""
    machine: Machine = make_machine()
    machine.inside(
        "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "80mbit", "burst", "256kb", "latency", "400ms"
    )
    ws.compute.create("slow", "ssh", **machine.options())
    return machine


class Upload:
    """A run with a large file that is on its way home."""

    def __init__(self, machine: Machine, source: Path, how: str, *more: object) -> None:
        source.joinpath("train.py").write_text(CODE.replace("SIZE", str(SIZE)))
        self.machine = machine
        self.house = House(Path(os.environ["SHUNTER_HOME"]))
        self.before = self.came()
        ws = shunter.Workspace.from_config()
        self.run = ws.submit("train.py", source_directory=source, arguments=[how, *more], target="slow")
        self.folder = self.house.home / "runs" / self.run.id[:2] / self.run.id

    def came(self) -> int:
        """Bytes that left the machine so far, as its cable counts them."""
        return int(Path(f"/sys/class/net/{self.machine.link}/statistics/rx_bytes").read_text())

    def aside(self) -> os.stat_result | None:
        """What the server holds of the file that is not whole yet."""
        found = list((self.folder / "incoming").glob("*"))
        try:
            return found[0].stat() if found else None
        except OSError:
            return None

    def held(self) -> int:
        found = self.aside()
        return found.st_size if found else 0

    def wait_for_some(self) -> int:
        """Until some of it is here. Returns the number of the file that it is kept in."""
        wait_until(lambda: self.held() > SOME, 60, "some of the file")
        found = self.aside()
        assert found is not None
        assert found.st_size < SIZE, "it was too quick to be killed in the middle"
        return found.st_ino

    def launcher(self) -> int:
        """Its launcher's id on the host: it knows itself by the one it has on its machine."""
        (folder,) = (self.machine.home / ".shunter-node").glob(f"*/launches/{self.run.id}.*")
        claim = Claim.read(str(folder))
        assert claim is not None
        assert claim.launcher is not None
        (found,) = (p for p in self.machine.processes("shunter") if _inner(p) == claim.launcher[0])
        return int(found)

    def look(self, number: int) -> None:
        """It must be whole, in the file that it was begun in, and nothing of it have been sent twice."""
        ws = shunter.Workspace.from_config()
        run = ws.run(self.run.id).wait(timeout_seconds=120)
        assert run.status == "Completed", (run.error, run.logs())
        kept = self.folder / "files/outputs/model.bin"
        assert hashlib.sha256(kept.read_bytes()).hexdigest() == run.logs().split()[0]
        assert kept.stat().st_ino == number
        assert list((self.folder / "incoming").glob("*")) == []
        assert self.came() - self.before < SIZE * 1.05 + ON_THE_WAY


def _inner(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))


@pytest.mark.parametrize("how", ["outputs", "upload"])
def test_it_goes_on_where_it_was_when_the_server_is_killed(slow: Machine, tmp_path: Path, how: str) -> None:
    upload = Upload(slow, tmp_path, how)
    number = upload.wait_for_some()
    assert upload.house.kill_server()
    upload.look(number)


@pytest.mark.parametrize("how", ["outputs", "upload"])
def test_it_goes_on_where_it_was_when_the_launcher_is_killed(slow: Machine, tmp_path: Path, how: str) -> None:
    upload = Upload(slow, tmp_path, how)
    number = upload.wait_for_some()
    os.kill(upload.launcher(), 9)
    upload.look(number)


def test_the_server_takes_the_rest_when_nobody_is_left_to_send_it(slow: Machine, tmp_path: Path) -> None:
    upload = Upload(slow, tmp_path, "outputs")
    number = upload.wait_for_some()
    for pid in slow.processes("shunter.node"):
        os.kill(pid, 9)
    upload.look(number)


def test_what_a_script_says_comes_home_while_a_large_file_does(slow: Machine, tmp_path: Path) -> None:
    upload = Upload(slow, tmp_path, "upload")
    number = upload.wait_for_some()
    wait_until(lambda: len(upload.run.metrics().get("tick") or ()) > 3, 60, "what it says")
    assert upload.held() > SOME, "they came when it was whole"
    upload.look(number)
    assert upload.run.metrics()["tick"] == list(range(30))


def test_one_that_changes_on_the_way_is_never_seen_torn(slow: Machine, tmp_path: Path, shared: Path) -> None:
    upload = Upload(slow, tmp_path, "change", shared / "gate")
    wait_until(lambda: "written" in upload.run.logs(), 60, "the file")
    with ThreadPoolExecutor(1) as others:
        asked = others.submit(upload.run.files, refresh=True)
        upload.wait_for_some()
        (shared / "gate").touch()
        run = upload.run.wait(timeout_seconds=120)
        asked.result(60)
    assert run.status == "Completed", (run.error, run.logs())
    first, _, second = run.logs().split()
    assert first != second
    assert hashlib.sha256((upload.folder / "files/outputs/model.bin").read_bytes()).hexdigest() == second
    assert list((upload.folder / "incoming").glob("*")) == []
