"""Scripts and people who know MLflow: the unchanged client, our server, MLflow's own behind it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import shunter
from shunter.errors import Conflict, NotFound
from shunter.testing.house import House, wait_until

pytest.importorskip("mlflow")
pytest.importorskip("sklearn")
pytestmark = [pytest.mark.usefixtures("module_home"), pytest.mark.filterwarnings("ignore")]

SCRIPT = """
import json, os, pathlib
import mlflow
from mlflow.exceptions import MlflowException
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from shunter.run import Run

said = {}
ours = Run.get_context()
mlflow.set_experiment("another name")
with mlflow.start_run() as active:
    said["id"] = active.info.run_id
    ours.log("loss", 3.0, step=0)
    for step in (1, 2):
        mlflow.log_metric("loss", 3.0 - step, step=step)
    mlflow.log_metrics({"nan": float("nan"), "inf": float("inf")})
    mlflow.log_params({"lr": 0.1, "layers": "3"})
    mlflow.set_tags({"team": "blue", "gone": "1"})
    mlflow.delete_tag("gone")
    try:
        mlflow.log_param("lr", 0.2)
    except MlflowException as error:
        said["changed"] = str(error)
    with mlflow.start_run(nested=True, run_name="inner") as inner:
        mlflow.log_metric("depth", 1.0)
        mlflow.log_text("x", "deep/inner file.txt")
        said["inner"] = inner.info.run_id
    mlflow.log_text("hello", "notes/Käse & 'quotes' +1.txt")
    pathlib.Path("outputs/plain.txt").write_text("an output")
    client = mlflow.MlflowClient()
    said["seen"] = mlflow.get_run(active.info.run_id).data.metrics
    for name, call in {
        "get": lambda: client.get_run("OTHER"),
        "log": lambda: client.log_metric("OTHER", "stolen", 1.0),
        "tag": lambda: client.set_tag("OTHER", "stolen", "1"),
        "history": lambda: client.get_metric_history("OTHER", "loss"),
        "files": lambda: client.list_artifacts("OTHER"),
    }.items():
        try:
            call()
            said["refused " + name] = ""
        except MlflowException as error:
            said["refused " + name] = str(error)
    x, y = load_iris(return_X_y=True)
    mlflow.sklearn.autolog()
    LogisticRegression(max_iter=300).fit(x, y)
    mlflow.sklearn.autolog(disable=True)
    fitted = LogisticRegression(max_iter=300).fit(x, y)
    model = mlflow.sklearn.log_model(fitted, name="flowers", pip_requirements=["scikit-learn"])
    said["found"] = sorted(r.info.run_id for r in mlflow.search_runs(output_format="list"))
    said["history"] = [m.value for m in client.get_metric_history(active.info.run_id, "loss")]
    version = mlflow.register_model(model.model_uri, "by script")
    said["predicts"] = [int(v) for v in mlflow.pyfunc.load_model("models:/by script/1").predict(x[:3])]
print("SAID " + json.dumps(said))
"""


@pytest.fixture(scope="module")
def ws(module_home: Path) -> shunter.Workspace:
    return shunter.Workspace.from_config()


@pytest.fixture(scope="module")
def other(ws: shunter.Workspace, tmp_path_factory: pytest.TempPathFactory) -> shunter.Run:
    """A run that never heard of MLflow."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "plain.py").write_text(
        "from shunter.run import Run\nrun = Run.get_context()\nrun.tag('kind', 'plain')\n"
        "for i in range(5): run.log('loss', 5 - i)\nchild = run.child_run('fold'); child.log('acc', 1)\n"
        "open('outputs/weights.bin', 'wb').write(b'weights')\nraise SystemExit(3)\n"
    )
    return ws.submit("plain.py", source_directory=folder, experiment="plain", name="by hand").wait()


@pytest.fixture(scope="module")
def run(ws: shunter.Workspace, other: shunter.Run, tmp_path_factory: pytest.TempPathFactory) -> shunter.Run:
    folder = tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(SCRIPT.replace("OTHER", other.id))
    # Working out a model's requirements starts Python and imports everything: not our matter here.
    env = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_REQUIREMENTS_INFERENCE_TIMEOUT": "1"}
    run = ws.submit("train.py", source_directory=folder, environment_variables=env)
    run.wait(timeout_seconds=240)
    assert run.status == "Completed", run.logs()
    return run


@pytest.fixture(scope="module")
def said(run: shunter.Run) -> dict[str, Any]:
    line = next(line for line in run.logs().splitlines() if line.startswith("SAID "))
    found: dict[str, Any] = json.loads(line[5:])
    return found


@pytest.fixture(scope="module")
def client(ws: shunter.Workspace) -> Iterator[Any]:
    import mlflow

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_TOKEN", "")
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        mlflow.set_tracking_uri(ws.mlflow_tracking_uri)
        yield mlflow.MlflowClient()


def test_a_script_that_only_says_mlflow_is_tracked_as_its_run(run: shunter.Run, said: dict[str, Any]) -> None:
    run.refresh()
    assert said["id"] == run.id
    assert run.metrics("loss")["loss"] == [3.0, 2.0, 1.0]
    assert said["seen"]["loss"] == 1.0
    assert run.params["lr"] == "0.1"
    assert run.tags["team"] == "blue"
    assert "gone" not in run.tags
    assert "Changing param values is not allowed" in said["changed"]
    assert run.metrics("training_accuracy_score")["training_accuracy_score"] > 0.9


def test_nested_runs_and_artifacts_are_child_runs_and_files(run: shunter.Run, said: dict[str, Any]) -> None:
    (inner,) = run.children()
    assert (inner.id, inner.name, inner.status) == (said["inner"], "inner", "Completed")
    assert inner.metrics() == {"depth": 1.0}
    assert [f["path"] for f in inner.files()] == ["deep/inner file.txt"]
    paths = {f["path"] for f in run.files()}
    assert {"notes/Käse & 'quotes' +1.txt", "outputs/plain.txt", "training_confusion_matrix.png"} <= paths


def test_another_runs_id_in_a_request_is_refused(said: dict[str, Any], other: shunter.Run) -> None:
    for what in ("get", "log", "tag", "history", "files"):
        assert "is not this run" in said["refused " + what], what
    assert set(said["found"]) == {said["id"], said["inner"]}
    assert "stolen" not in other.refresh().metrics()


def test_a_script_registers_a_model_and_loads_it_again(said: dict[str, Any], ws: shunter.Workspace, run: shunter.Run) -> None:
    assert said["predicts"] == [0, 0, 0]
    assert said["history"] == [3.0, 2.0, 1.0]
    assert ws.models.get("by script").run_id == run.id


def test_any_client_sees_our_runs_with_their_id_name_parent_tags_metrics_and_end(
    client: Any, run: shunter.Run, other: shunter.Run, said: dict[str, Any]
) -> None:
    from mlflow.entities import RunTag

    seen = client.get_run(run.id)
    assert (seen.info.run_name, seen.info.status) == (run.name, "FINISHED")
    assert seen.data.params["layers"] == "3"
    assert seen.data.metrics["loss"] == 1.0
    assert seen.data.metrics["nan"] != seen.data.metrics["nan"]
    assert client.get_run(said["inner"]).data.tags["mlflow.parentRunId"] == run.id
    plain = client.get_run(other.id)
    assert (plain.info.run_name, plain.info.status, plain.data.tags["kind"]) == ("by hand", "FAILED", "plain")
    assert [m.value for m in client.get_metric_history(other.id, "loss")] == [5, 4, 3, 2, 1]
    experiment = client.get_experiment_by_name("plain")
    found = client.search_runs([experiment.experiment_id], "metrics.loss < 2 and tags.kind = 'plain'")
    assert [r.info.run_id for r in found] == [other.id]
    assert [a.path for a in client.list_artifacts(other.id, "outputs")] == ["outputs/weights.bin"]
    other.tag("late", "yes")
    assert client.get_run(other.id).data.tags["late"] == "yes"
    client.set_tag(other.id, "from outside", "1")
    client.set_tag(other.id, "mlflow.note.content", "theirs")
    client.log_batch(other.id, tags=[RunTag("batch", "2")])
    client.delete_tag(other.id, "late")
    tags = other.refresh().tags
    assert (tags["from outside"], tags["batch"]) == ("1", "2")
    assert not {"late", "mlflow.note.content"} & tags.keys()
    assert client.get_run(other.id).data.tags["mlflow.note.content"] == "theirs"


def test_what_a_client_logs_from_outside_is_the_runs_too(client: Any, other: shunter.Run) -> None:
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException

    client.log_metric(other.id, "checked", 0.5, timestamp=1000, step=1)
    client.log_metric(other.id, "checked", 0.5, timestamp=1000, step=1)  # as when an answer was lost
    client.log_metric(other.id, "checked", float("nan"), timestamp=1000, step=2)
    client.log_metric(other.id, "checked", float("nan"), timestamp=1000, step=2)
    client.log_param(other.id, "reviewer", "ada")
    with pytest.raises(MlflowException, match="not allowed"):
        client.log_param(other.id, "reviewer", "bob")
    points = [Metric("late", 3.0, 2000, 0), Metric("late", 2.0, 2001, 1), Metric("bleu", 30.0, 2000, 0)]
    client.log_batch(other.id, metrics=points, params=[Param("split", "test")])
    found = other.metrics()
    assert (found["checked"][0], found["late"], found["bleu"]) == (0.5, [3, 2], 30)
    assert len(found["checked"]) == 2
    assert other.refresh().params == {"reviewer": "ada", "split": "test"}
    seen = client.get_run(other.id).data
    assert (seen.metrics["bleu"], seen.params["split"]) == (30, "test")
    assert [m.value for m in client.get_metric_history(other.id, "late")] == [3, 2]
    assert len(client.get_metric_history(other.id, "checked")) == 2


def test_models_are_registered_found_downloaded_and_deleted(
    ws: shunter.Workspace, run: shunter.Run, other: shunter.Run, tmp_path: Path
) -> None:
    one = other.register_model("weights", "outputs/weights.bin", tags={"stage": "try"}, aliases=["best"])
    assert (one.version, one.run_id, one.tags, one.metrics["loss"]) == (1, other.id, {"stage": "try"}, 1)
    assert one.data["snapshot_id"] == other.data["snapshot_id"]
    assert ws.models.get("weights", "best").aliases == ["best"]
    assert (ws.models.download("weights", 1, tmp_path) / "weights.bin").read_bytes() == b"weights"
    flowers = run.register_model("flowers", "flowers")
    assert [int(v) for v in flowers.load().predict([[5.1, 3.5, 1.4, 0.2]])] == [0]
    assert {m.name for m in ws.models.list()} >= {"weights", "flowers", "by script"}
    with pytest.raises(NotFound, match="no file, folder or logged model"):
        run.register_model("x", "nothing here")
    with pytest.raises(NotFound, match="no model 'weigths'") as caught:
        ws.models.get("weigths")
    assert "weights" in caught.value.hint
    with pytest.raises(Conflict, match="weights:1 is made of run"):
        other.delete()
    ws.models.delete("weights")
    with pytest.raises(NotFound):
        ws.models.get("weights")


def test_the_command_line_registers_lists_and_shows_models(ws: shunter.Workspace, run: shunter.Run, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; from shunter.cli import main; sys.exit(main())", "model"]
    import mlflow.sklearn
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression().fit([[0], [9]], [0, 1])
    mlflow.sklearn.save_model(fitted, tmp_path / "tree", pip_requirements=["scikit-learn==0.1", "no-such-package==2"])
    made = [*command, "register", str(tmp_path / "tree"), "--name", "tree", "--tag", "kind=small", "--json"]
    data = json.loads(subprocess.run(made, capture_output=True, check=True, timeout=60).stdout)
    assert (data["name"], data["version"], data["run_id"], data["tags"]) == ("tree", "1", None, {"kind": "small"})
    model = ws.models.get("tree")
    assert list(model.load().predict([[9]])) == [1]
    assert model.differences()["no-such-package"] == ("2", None)
    for file in (tmp_path / "tree").glob("model.*"):
        file.write_bytes(b"of another release")
    with pytest.raises(Exception, match=r".") as caught:
        ws.models.register(path=tmp_path / "tree", name="tree").load()
    [note] = caught.value.__notes__
    assert "no-such-package (not installed, the model has 2)" in note
    listed = subprocess.run([*command, "list", "--json"], capture_output=True, check=True, timeout=60)
    assert "by script" in {m["name"] for m in json.loads(listed.stdout)}
    shown = subprocess.run([*command, "show", "by script", "--version", "1"], capture_output=True, check=True, timeout=60)
    assert run.id in shown.stdout.decode()


def test_nobody_gets_in_without_a_token_and_a_browser_by_a_link_that_works_once(ws: shunter.Workspace) -> None:
    url = urlsplit(ws.client.url)

    def call(method: str, path: str, **headers: str) -> tuple[int, Any, bytes]:
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
        try:
            connection.request(method, path, headers=headers, body=b'{"max_results": 5}' if method == "POST" else None)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    assert call("GET", "/mlflow/")[0] == 401
    path = ws.client.post("/api/v1/mlflow/link")["path"]
    status, headers, _ = call("GET", path)
    assert status == 303
    assert call("GET", path)[0] == 401
    cookie = headers["set-cookie"].partition(";")[0]
    assert b"<div id=\"root\"" in call("GET", "/mlflow/", Cookie=cookie)[2]
    search = "/mlflow/ajax-api/2.0/mlflow/experiments/search"
    assert call("POST", search, Cookie=cookie)[0] == 401
    assert call("POST", search, Cookie=cookie, Origin=ws.client.url, **{"Content-Type": "application/json"})[0] == 200
    assert call("GET", "/api/v1/workspaces", Cookie=cookie)[0] == 401


def test_a_script_waits_for_a_server_that_is_away_and_loses_nothing(ws: shunter.Workspace, tmp_path: Path) -> None:
    """The relay is spoken to by hand: what counts is that a call that needs the server is answered once it is back."""
    code = (
        "import http.client, json, os, pathlib, time\n"
        "run, token = os.environ['MLFLOW_RUN_ID'], os.environ['MLFLOW_TRACKING_TOKEN']\n"
        "def call(method, path, **body):\n"
        "    relay = http.client.HTTPConnection(os.environ['MLFLOW_TRACKING_URI'].partition('://')[2])\n"
        "    relay.request(method, '/api/2.0/mlflow/' + path, json.dumps(body), {'Authorization': 'Bearer ' + token})\n"
        "    answer = relay.getresponse()\n"
        "    return answer.status, answer.read()\n"
        "while not pathlib.Path(GONE).exists(): time.sleep(0.01)\n"
        "for i in range(200):\n"
        "    assert call('POST', 'runs/log-metric', run_id=run, key='m', value=i, timestamp=1, step=i)[0] == 200\n"
        "pathlib.Path(LOGGED).touch()\n"
        "status, body = call('GET', 'metrics/get-history?metric_key=m&run_id=' + run)\n"
        "print(status, len(json.loads(body)['metrics']))\n"
    )
    gone, logged = tmp_path / "gone", tmp_path / "logged"
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "train.py").write_text(code.replace("GONE", repr(str(gone))).replace("LOGGED", repr(str(logged))))
    house = House(Path(os.environ["SHUNTER_HOME"]))
    run = ws.submit("train.py", source_directory=tmp_path / "script")
    wait_until(lambda: run.refresh().data["status"] == "Running", what="the start")
    house.kill_server()
    gone.touch()
    wait_until(logged.exists, what="logging without a server")
    shunter.Workspace.from_config()
    assert run.wait(timeout_seconds=120).status == "Completed"
    assert run.logs().split() == ["200", "200"]


def test_mlflow_that_is_killed_is_started_again_and_ends_with_the_server(client: Any, run: shunter.Run) -> None:
    house = House(Path(os.environ["SHUNTER_HOME"]))
    (pid,) = mlflow_processes(house)
    os.kill(pid, 9)
    assert client.get_run(run.id).info.run_id == run.id
    (pid,) = mlflow_processes(house)
    house.kill_server()
    wait_until(lambda: not mlflow_processes(house), what="MLflow's end")


def mlflow_processes(house: House) -> list[int]:
    return [p for p in house.left_over() if b"tracking/serve.py" in Path(f"/proc/{p}/cmdline").read_bytes()]
