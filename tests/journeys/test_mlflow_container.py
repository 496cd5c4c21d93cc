"""MLflow in a container run: nothing is needed inside the image."""

from __future__ import annotations

from pathlib import Path

import pytest

import shunter
from shunter.testing import mlflow
from shunter.testing.containers import IMAGE, podman

pytest.importorskip("mlflow")


def test_a_script_in_a_container_logs_by_mlflow_and_gets_its_answers(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = podman()
    if engine is None:
        pytest.skip("podman is not set up: scripts/parts/podman does it")
    monkeypatch.setenv("SHUNTER_CONTAINER_ENGINE", engine)
    (tmp_path / "train.py").write_text(mlflow.SCRIPT)
    ws = shunter.Workspace.from_config()
    run = ws.submit("train.py", source_directory=tmp_path, environment=shunter.Environment.from_image(IMAGE))
    run.wait(timeout_seconds=120)
    mlflow.check(run, mlflow.said_by(run))
