"""Interactive runs: a program logs into a run that is launched nowhere."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import shunter
from shunter.errors import Conflict
from shunter.model.run import Run, Status
from shunter.server.services.interactive import LOST_SECONDS, SILENT_SECONDS, on_silence
from shunter.testing.house import House


def test_it_is_a_run_like_any_other_and_outlives_its_server(home: Path, tmp_path: Path) -> None:
    ws = shunter.Workspace.from_config()
    run = shunter.Experiment(ws, "by hand").start_logging(name="try", tags={"a": 1})
    run.log("loss", 0.5)
    run.flush()
    House(home).kill_server()
    run.log("loss", 0.25)
    (tmp_path / "weights.bin").write_bytes(b"weights")
    run.upload_file("outputs/weights.bin", tmp_path / "weights.bin")
    child = run.child_run("fold")
    child.log("acc", 1)
    left_open = run.child_run("open")
    run.complete()
    found = shunter.Workspace.from_config().run(run.id)
    assert (found.status, found.name, found.tags, found.metrics()) == ("Completed", "try", {"a": "1"}, {"loss": [0.5, 0.25]})
    assert [file["path"] for file in found.files()] == ["outputs/weights.bin"]
    assert {c.id: c.status for c in found.children()} == {child.id: "Completed", left_open.id: "Completed"}
    assert found.metrics(recursive=True)[child.id] == {"acc": 1}
    with pytest.raises(Conflict, match="is over"):
        found.workspace.client.raw("POST", found.path + "/report", b"")


def test_a_program_that_ends_or_fails_ends_its_run(home: Path, tmp_path: Path) -> None:
    code = (
        "import shunter\nexperiment = shunter.Experiment(shunter.Workspace.from_config(), 'e')\n"
        "left = experiment.start_logging()\nleft.log('x', 1)\nprint(left.id)\n"
        "with experiment.start_logging() as run:\n    print(run.id, flush=True)\n    raise ValueError('no data')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert "no data" in done.stderr
    left, failed = (shunter.Workspace.from_config().run(run_id) for run_id in done.stdout.split())
    assert (left.status, left.metrics()) == ("Completed", {"x": 1})
    assert (failed.status, failed.error) == ("Failed", {"code": "ValueError", "message": "no data", "hint": ""})


def test_it_is_canceled_from_elsewhere_and_others_are_not_reported_to(home: Path, tmp_path: Path) -> None:
    ws = shunter.Workspace.from_config()
    run = shunter.Experiment(ws, "e").start_logging()
    assert ws.run(run.id).cancel().status == "Canceled"
    run.log("x", 1)
    with pytest.raises(Conflict, match="is over"):
        run.flush()
    run._session._forget()
    (tmp_path / "train.py").write_text("")
    other = ws.submit("train.py", source_directory=tmp_path).wait()
    with pytest.raises(Conflict, match="not interactive"):
        ws.client.raw("POST", other.path + "/report", b"")


RUN = Run(
    id="ab" * 16, workspace="default", experiment="e", name="", target="local", status=Status.RUNNING, snapshot_id="",
    script="", arguments=(), config={"interactive": True}, submitted_at=0.0, since=0.0, slots=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("status", "silent", "becomes"),
    [
        (Status.RUNNING, 5.0, None),
        (Status.RUNNING, SILENT_SECONDS, Status.NOT_RESPONDING),
        (Status.NOT_RESPONDING, SILENT_SECONDS + 1, None),
        (Status.NOT_RESPONDING, 1.0, Status.RUNNING),
        (Status.NOT_RESPONDING, LOST_SECONDS, Status.FAILED),
        (Status.RUNNING, LOST_SECONDS, Status.FAILED),
        (Status.COMPLETED, LOST_SECONDS, None),
    ],
)
def test_a_run_whose_program_is_silent_does_not_respond_and_is_lost_at_last(
    status: Status, silent: float, becomes: Status | None
) -> None:
    found = on_silence(replace(RUN, status=status), silent, 10_000.0)
    assert (found[0].status if found else None) == becomes
