"""What every compute target must keep, as a suite: a target is tested by subclassing `DriverContract` with its fixture.

    class TestLocal(DriverContract):
        @pytest.fixture
        def target(self, ws): return "local"
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from shunter.sdk.connect import connect
from shunter.sdk.workspace import Workspace
from shunter.testing.house import House, wait_until

GATED = """
import os, sys, time
print("on", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
open("outputs/result.txt", "w").write("made")
print("done")
sys.exit(int(sys.argv[2]))
"""
LEDGER = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(fd, b"started\\n")
"""


class DriverContract:
    """Subclasses give the fixture `target`: the name of a target in the workspace `ws`, ready to be used.

    The scripts and the tests share files: a target whose nodes do not see this machine's disk overrides `shared`.
    """

    options: ClassVar[dict[str, Any]] = {}  # what a submit to this target needs beside its name

    @pytest.fixture
    def ws(self, home: Path) -> Workspace:
        return Workspace.from_config()

    @pytest.fixture
    def target(self, ws: Workspace) -> str:
        raise NotImplementedError

    @pytest.fixture
    def shared(self, tmp_path: Path) -> Path:
        """A folder that both the test and the script can see."""
        return tmp_path

    def write(self, folder: Path, code: str) -> Path:
        (folder / "src").mkdir(exist_ok=True)
        (folder / "src" / "train.py").write_text(code)
        return folder / "src"

    @pytest.mark.parametrize(("code", "status"), [(0, "Completed"), (3, "Failed")])
    def test_log_exit_code_and_outputs_come_home(
        self, ws: Workspace, target: str, shared: Path, tmp_path: Path, code: int, status: str
    ) -> None:
        (shared / "gate").touch()
        source = self.write(tmp_path, GATED)
        run = ws.submit("train.py", source_directory=source, arguments=[shared / "gate", code], target=target, **self.options)
        run.wait(timeout_seconds=180)
        assert (run.data["status"], run.exit_code) == (status, code), run.data["reason"]
        assert run.logs() == "on\ndone\n"
        assert [f["path"] for f in run.files()] == ["outputs/result.txt"]

    def test_cancel_may_be_repeated_and_leaves_nothing(self, ws: Workspace, target: str, shared: Path, tmp_path: Path) -> None:
        source = self.write(tmp_path, GATED)
        run = ws.submit("train.py", source_directory=source, arguments=[shared / "never", 0], target=target,
                        grace_seconds=0.5, **self.options)  # fmt: skip
        wait_until(lambda: "on" in run.logs(), 120, "the first line")
        run.cancel()
        run.cancel()
        assert run.wait(timeout_seconds=120).data["status"] == "Canceled"
        assert run.cancel().data["status"] == "Canceled"

    def test_a_run_outlives_a_server_outage(self, ws: Workspace, target: str, shared: Path, tmp_path: Path, home: Path) -> None:
        source = self.write(tmp_path, GATED)
        run = ws.submit("train.py", source_directory=source, arguments=[shared / "gate", 0], target=target, **self.options)
        wait_until(lambda: "on" in run.logs(), 120, "the first line")
        assert House(home).kill_server()
        (shared / "gate").touch()
        run.workspace.client = connect()
        assert run.wait(timeout_seconds=180).data["status"] == "Completed"
        assert run.logs() == "on\ndone\n"

    def test_a_run_is_started_once_however_often_the_server_is_killed(
        self, ws: Workspace, target: str, shared: Path, tmp_path: Path, home: Path
    ) -> None:
        source = self.write(tmp_path, LEDGER)
        runs = []
        for _ in range(3):
            run = ws.submit("train.py", source_directory=source, arguments=[shared / "ledger"], target=target, **self.options)
            House(home).kill_server()
            run.workspace.client = ws.client = connect()
            runs.append(run)
        for run in runs:
            assert run.wait(timeout_seconds=180).data["status"] == "Completed", run.data["reason"]
        assert (shared / "ledger").read_text() == "started\n" * len(runs)
