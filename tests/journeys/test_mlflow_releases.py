"""MLflow's other releases: a client of a year ago, and a database that one made."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import shunter
from shunter.testing.mlflow import said_by

pytest.importorskip("mlflow")
OLD = Path(os.environ.get("SHUNTER_TEST_PARTS") or "/var/tmp/shunter-test-parts") / "mlflow-3.5.1"
pytestmark = pytest.mark.skipif(not (OLD / "ready").exists(), reason="scripts/parts/mlflow-old was not run")

CLIENT = """
import json, mlflow, sys
from mlflow.entities import Metric
said = {"release": mlflow.__version__}
with mlflow.start_run() as active:
    said["id"] = active.info.run_id
    mlflow.log_metric("loss", 2.0, step=0)
    mlflow.log_metrics({"loss": 1.0, "nan": float("nan")}, step=1)
    client = mlflow.MlflowClient()
    client.log_batch(active.info.run_id, metrics=[Metric("m", float(i), 1700000000000, i) for i in range(1000)])
    mlflow.log_params({"lr": 0.1})
    mlflow.set_tag("team", "blue")
    mlflow.log_text("hello", "notes.txt")
    with mlflow.start_run(nested=True, run_name="inner"):
        mlflow.log_metric("depth", 1.0)
    said["history"] = [m.value for m in client.get_metric_history(active.info.run_id, "loss")]
    said["found"] = len(client.search_runs([active.info.experiment_id]))
    client.create_registered_model("old")
    said["version"] = client.create_model_version("old", active.info.artifact_uri + "/notes.txt", active.info.run_id).version
print("SAID " + json.dumps(said))
"""

#: Makes a database as that release does, with a run, a metric and a model.
DATABASE = """
import sys
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore as Registry
from mlflow.entities import Metric
store = SqlAlchemyStore(sys.argv[1], "mlflow-artifacts:/mlflow/artifacts")
experiment = store.create_experiment("of old")
run = store.create_run(experiment, "me", 1700000000000, [], "first")
store.log_metric(run.info.run_id, Metric("loss", 0.5, 1700000000000, 1))
Registry(sys.argv[1]).create_registered_model("kept")
print(run.info.run_id)
"""


def test_a_client_of_a_year_ago_logs_and_reads(home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CLIENT)
    ws = shunter.Workspace.from_config()
    environment = shunter.Environment(user_managed=True, interpreter=str(OLD / "bin" / "python"))
    run = ws.submit("train.py", source_directory=tmp_path, environment=environment).wait(timeout_seconds=120)
    assert run.status == "Completed", run.logs()
    assert said_by(run) == {"release": "3.5.1", "id": run.id, "history": [2.0, 1.0], "found": 2, "version": "1"}
    run.refresh()
    assert run.metrics("loss")["loss"] == [2.0, 1.0]
    assert len(run.metrics("m")["m"]) == 1000
    assert (run.params, run.tags["team"], [c.name for c in run.children()]) == ({"lr": "0.1"}, "blue", ["inner"])
    assert [file["path"] for file in run.files()] == ["notes.txt"]
    assert (ws.models.download("old", 1, tmp_path) / "notes.txt").read_text() == "hello"
    outside = (
        "import json, mlflow, sys\nclient = mlflow.MlflowClient(sys.argv[1])\nrun = client.get_run(sys.argv[2])\n"
        "print(json.dumps([run.info.status, run.data.metrics['loss'], run.data.tags['team']]))\n"
    )
    address = ws.mlflow_tracking_uri
    words = [str(OLD / "bin" / "python"), "-c", outside, address, run.id]
    env = os.environ | {"MLFLOW_TRACKING_TOKEN": ws.client.token}
    done = subprocess.run(words, env=env, capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout) == ["FINISHED", 1.0, "blue"]


def test_a_database_of_a_year_ago_is_brought_up_to_date(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home / "mlflow"
    folder.mkdir(parents=True, mode=0o700)
    words = [str(OLD / "bin" / "python"), "-c", DATABASE, f"sqlite:///{folder}/mlflow.db"]
    made = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout.split()[-1]
    (tmp_path / "train.py").write_text("from shunter.run import Run\nRun.get_context().log('acc', 1.0)\n")
    ws = shunter.Workspace.from_config()
    run = ws.submit("train.py", source_directory=tmp_path).wait(timeout_seconds=120)
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "")
    client = mlflow.MlflowClient(ws.mlflow_tracking_uri)
    assert client.get_run(made).data.metrics == {"loss": 0.5}
    assert client.get_run(run.id).data.metrics == {"acc": 1.0}
    assert client.get_registered_model("kept").name == "kept"
    assert {e.name for e in client.search_experiments()} >= {"of old", run.experiment}
