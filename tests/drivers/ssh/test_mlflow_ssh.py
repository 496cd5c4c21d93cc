"""MLflow on a machine: whatever way leads home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shunter
from shunter.testing import mlflow

pytest.importorskip("mlflow")


@pytest.mark.parametrize("way", ["tunnel", "session"])
def test_a_script_logs_by_mlflow_and_gets_its_answers(
    ws: shunter.Workspace, make_machine: Any, way: str, tmp_path: Path
) -> None:
    machine = make_machine(sshd=["AllowTcpForwarding no"] if way == "session" else [])
    target = ws.compute.create(f"mlflow-{way}", "ssh", slots=1, **machine.options())
    assert target.data["facts"]["details"]["way_home"] == way
    (tmp_path / "train.py").write_text(mlflow.SCRIPT)
    run = ws.submit("train.py", source_directory=tmp_path, target=f"mlflow-{way}").wait(timeout_seconds=120)
    mlflow.check(run, mlflow.said_by(run))
