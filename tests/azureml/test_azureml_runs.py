"""Runs in the shapes that programs of the first SDK read: details, metrics, files, ids, errors."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from shunter.azureml.core import Environment, Experiment, Model, Run, ScriptRunConfig, Workspace
from shunter.azureml.core._curated import curated_name
from shunter.azureml.core.compute import AmlCompute, ComputeTarget, HDInsightCompute, LocalTarget, RemoteCompute
from shunter.azureml.core.compute_target import ComputeTargetException
from shunter.azureml.core.run import ScriptRun, _OfflineRun
from shunter.azureml.core.runconfig import RunConfiguration
from shunter.azureml.exceptions import (
    ActivityFailedException,
    NotYetException,
    RunEnvironmentException,
    UserErrorException,
    WebserviceException,
    WorkspaceException,
)
from shunter.azureml.train.estimator import Estimator
from shunter.azureml.widgets import RunDetails

SHAPES = """
import sys
from azureml.core import Run
run = Run.get_context()
run.log("once", 0.5)
for value in (3, 2, 1):
    run.log("often", value)
run.log_list("list", [1, 2])
run.log_row("row", x=1, y=2)
run.log_row("rows", x=1)
run.log_row("rows", x=2)
run.log_table("table", {"a": [1, 2]})
child = run.child_run("child")
child.log("inner", 7)
child.complete()
open("outputs/model.txt", "w").write("a model")
print("hello", sys.argv[1:])
"""


def here() -> RunConfiguration:
    found = RunConfiguration()
    found.user_managed_dependencies = True
    return found


def submit(ws: Workspace, folder: Path, code: str, *arguments: object, experiment: str = "my experiment") -> ScriptRun:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(code)
    config = ScriptRunConfig(source_directory=folder, script="train.py", arguments=arguments, run_config=here())
    return Experiment(workspace=ws, name=experiment).submit(config=config, tags={"from": "test"})


@pytest.fixture(scope="module")
def run(ws: Workspace, tmp_path_factory: pytest.TempPathFactory) -> ScriptRun:
    made = submit(ws, tmp_path_factory.mktemp("source"), SHAPES, "--epochs", 3)
    made.wait_for_completion()
    return made


def test_metrics_have_the_shapes_that_programs_know(run: ScriptRun) -> None:
    assert run.get_metrics() == {
        "once": 0.5, "often": [3, 2, 1], "list": [1, 2], "row": {"x": 1, "y": 2}, "rows": {"x": [1, 2]},
        "table": {"a": [1, 2]},
    }  # fmt: skip
    assert run.get_metrics(name="once") == {"once": 0.5}
    (child,) = run.get_children()
    assert run.get_metrics(recursive=True)[child.id] == {"inner": 7}
    assert child.parent == run


def test_the_id_has_the_first_sdks_form_and_finds_the_run(ws: Workspace, run: ScriptRun) -> None:
    assert re.fullmatch(r"my_experiment_\d{10}_[0-9a-f]{8}", run.id)
    assert Run(Experiment(ws, "my experiment"), run.id) == run
    assert ws.get_run(run.id).status == "Completed"
    assert next(Experiment(ws, "my experiment").get_runs(tags={"from": "test"})) == run
    assert not list(Experiment(ws, "my experiment").get_runs(tags="nothing"))
    assert len(list(Experiment(ws, "my experiment").get_runs(include_children=True))) >= 2


def test_details_have_the_keys_that_programs_read(run: ScriptRun) -> None:
    details = run.get_details()
    assert {
        "runId", "target", "status", "startTimeUtc", "endTimeUtc", "properties", "inputDatasets", "outputDatasets",
        "runDefinition", "logFiles", "submittedBy",
    } <= details.keys()  # fmt: skip
    assert details["runDefinition"]["arguments"] == ["--epochs", "3"]
    assert details["runDefinition"]["environment"]["python"]["userManagedDependencies"] is True
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", details["endTimeUtc"])
    assert details["properties"]["ContentSnapshotId"] == run.get_snapshot_id()
    assert run.get_details_with_logs()["logFiles"]["azureml-logs/70_driver_log.txt"] == "hello ['--epochs', '3']\n"


def test_files_and_logs_have_the_names_that_programs_look_for(
    run: ScriptRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.get_file_names() == ["azureml-logs/70_driver_log.txt", "outputs/model.txt", "user_logs/std_log.txt"]
    monkeypatch.chdir(tmp_path)
    run.download_file("outputs/model.txt")
    run.download_file("user_logs/std_log.txt", "log.txt")
    assert (Path("model.txt").read_text(), Path("log.txt").read_text()) == ("a model", "hello ['--epochs', '3']\n")
    run.download_files(prefix="outputs", output_directory="there", append_prefix=False)
    assert Path("there/model.txt").read_text() == "a model"
    assert len(run.get_all_logs("logs")) == 2
    with pytest.raises(UserErrorException, match=r"no file 'outputs/modle.txt'.*outputs/model.txt"):
        run.download_file("outputs/modle.txt")
    assert Path(run.restore_snapshot(path="back"), "train.py").read_text() == SHAPES


def test_tags_come_and_go(run: ScriptRun) -> None:
    run.tag("quality", "good")
    run.tag("bare")
    assert run.get_tags() == {"from": "test", "quality": "good", "bare": ""}
    run.remove_tags(["bare", "quality"])
    assert run.get_tags() == {"from": "test"}


def test_what_belongs_into_the_script_says_so(run: ScriptRun) -> None:
    with pytest.raises(UserErrorException, match=r"Run\.log is for the run's own script"):
        run.log("x", 1)
    with pytest.raises(AttributeError, match="nothing"):
        run.nothing  # noqa: B018


def test_the_output_is_streamed_as_the_first_sdk_does(ws: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = submit(ws, tmp_path / "s", "print('a line')\n")
    run.wait_for_completion(show_output=True)
    web = f"Web View: {run.get_portal_url()}"
    title = "Streaming azureml-logs/70_driver_log.txt"
    assert capsys.readouterr().out == (
        f"RunId: {run.id}\n{web}\n\n{title}\n{'=' * len(title)}\n\na line\n\n"
        f"Execution Summary\n=================\nRunId: {run.id}\n{web}\n\n"
    )


def test_a_failed_run_raises_and_a_canceled_one_does_not(ws: Workspace, tmp_path: Path) -> None:
    failed = submit(ws, tmp_path / "failed", "raise ValueError('no data')\n")
    with pytest.raises(ActivityFailedException, match="no data") as caught:
        failed.wait_for_completion()
    assert json.loads(caught.value.error_details)["error"]["code"] == "UserError"
    details = failed.wait_for_completion(raise_on_error=False)
    assert details["status"] == "Failed"
    assert "no data" in details["error"]["error"]["message"]
    canceled = submit(ws, tmp_path / "canceled", "import time\ntime.sleep(100)\n")
    canceled.cancel()
    assert canceled.wait_for_completion()["status"] == "Canceled"


def test_an_estimator_is_submitted_as_it_is(ws: Workspace, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv[1:])\n")
    made = Estimator(
        str(tmp_path), entry_script="train.py", script_params={"--rate": 0.5}, user_managed=True, compute_target="local"
    )
    run = Experiment(ws, "estimators").submit(made)
    run.wait_for_completion()
    assert run.get_details_with_logs()["logFiles"]["user_logs/std_log.txt"] == "['--rate', '0.5']\n"
    RunDetails(run).show()
    assert RunDetails(run).get_widget_data()["status"] == "Completed"


def test_what_cannot_be_submitted_is_refused(ws: Workspace, tmp_path: Path) -> None:
    experiment = Experiment(ws, "refused")
    with pytest.raises(NotYetException, match="Submit a ScriptRunConfig or an Estimator"):
        experiment.submit(object())
    with pytest.raises(UserErrorException, match=r"There is no script 'none\.py'"):
        experiment.submit(ScriptRunConfig(tmp_path, "none.py", run_config=here()))
    with pytest.raises(NotYetException, match="does not run a Python script"):
        ScriptRunConfig(tmp_path, command="python t.py && rm -r x")
    with pytest.raises(UserErrorException, match="not both"):
        ScriptRunConfig(tmp_path, "t.py", command=["python", "t.py"])
    config = here()
    config.target = "nowhere"
    (tmp_path / "t.py").write_text("")
    with pytest.raises(UserErrorException, match="nowhere"):
        experiment.submit(ScriptRunConfig(tmp_path, "t.py", run_config=config))


def test_workspaces_are_found_by_their_config_file(ws: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Workspace.create("second", subscription_id="abc", resource_group="group", location="westus", exist_ok=True)
    assert (made.name, made.subscription_id, made.resource_group, made.location) == ("second", "abc", "group", "westus")
    made.write_config(tmp_path)
    assert json.loads((tmp_path / ".azureml" / "config.json").read_text()) == {
        "subscription_id": "abc", "resource_group": "group", "workspace_name": "second",
    }  # fmt: skip
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert Workspace.from_config() == made == Workspace.get("second") == Workspace("abc", "group", "second")
    assert "second" in Workspace.list("abc")
    with pytest.raises(WorkspaceException, match="third"):
        Workspace.get("third")
    with pytest.raises(UserErrorException, match=r"no config\.json"):
        Workspace.from_config("/proc/self")
    assert ws.location + ws.resource_group + ws.subscription_id


def test_targets_have_their_own_classes(ws: Workspace) -> None:
    local = ComputeTarget(workspace=ws, name="local")
    assert type(local) is LocalTarget
    assert local.get_status() == "Succeeded"
    with pytest.raises(ComputeTargetException, match="ComputeTargetNotFound: Compute Target with name gone not found"):
        ComputeTarget(workspace=ws, name="gone")
    with pytest.raises(ComputeTargetException, match="of the class LocalTarget, not AmlCompute"):
        AmlCompute(ws, "local")
    wanted = AmlCompute.provisioning_configuration(vm_size="STANDARD_D2_V2", max_nodes=4, idle_seconds_before_scaledown=60)
    made = ComputeTarget.create(ws, "cpu-cluster", wanted)
    made.wait_for_completion(show_output=True, min_node_count=0, timeout_in_minutes=1)
    assert type(AmlCompute(ws, "cpu-cluster")) is AmlCompute
    assert (made.type, made.vm_size, made.provisioning_state) == ("AmlCompute", "STANDARD_D2_V2", "Succeeded")
    assert made.get_status().serialize()["scaleSettings"] == {
        "minNodeCount": 0, "maxNodeCount": 4, "nodeIdleTimeBeforeScaleDown": "PT60S",
    }  # fmt: skip
    made.update(max_nodes=2)
    assert made.scale_settings.maximum_node_count == 2
    assert ws.compute_targets["cpu-cluster"].name == "cpu-cluster"
    assert ws.get_default_compute_target("CPU").name == "cpu-cluster"
    assert any(size["name"].upper() == "STANDARD_D2_V2" for size in AmlCompute.supported_vmsizes(ws))
    made.delete()
    assert "cpu-cluster" not in ws.compute_targets


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"vm_size": "STANDARD_D2_V2"}, "max nodes count is mandatory"),
        ({"max_nodes": 1}, "say vm_size"),
        ({"vm_size": "x", "min_nodes": 3, "max_nodes": 1}, "more than max_nodes"),
        ({"vm_size": "x", "max_nodes": 1, "vnet_name": "n"}, "a network needs"),
        ({"vm_size": "x", "max_nodes": 1, "admin_username": "me"}, "a password or a key"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_refused(options: dict[str, object], why: str) -> None:
    with pytest.raises(ComputeTargetException, match=why):
        AmlCompute.provisioning_configuration(**options)  # type: ignore[arg-type]


def test_machines_and_spark_clusters_say_what_is_missing() -> None:
    with pytest.raises(UserErrorException, match="Say address"):
        RemoteCompute.attach_configuration(username="me")
    found = RemoteCompute.attach_configuration(address="host", username="me", password=None, private_key_file="~/.ssh/id")
    assert found.options == {"address": "host", "port": 22, "username": "me", "private_key_file": "~/.ssh/id"}
    assert "id" not in repr(found)[len("ComputeConfiguration(kind='ssh'") :]
    with pytest.raises(NotYetException, match="HDInsightCompute is not there yet"):
        HDInsightCompute.attach_configuration(address="host", username="me", private_key_phrase="phrase")


def test_environments_are_registered_and_found_again(ws: Workspace) -> None:
    made = Environment("train")
    made.python.conda_dependencies.add_pip_package("joblib")  # type: ignore[union-attr]
    assert made.register(workspace=ws).version == "1"
    made.environment_variables["A"] = "1"
    assert made.register(ws).version == "2"
    assert Environment.get(workspace=ws, name="train").environment_variables == {"A": "1"}
    assert Environment.get(ws, "train", version="1").environment_variables == {}
    listed = Environment.list(ws)
    assert listed["train"].version == "2"
    assert "pytorch" in listed
    with pytest.raises(UserErrorException, match="Did you mean 'train'"):
        Environment.get(ws, "trian")


def test_what_a_run_made_is_registered_listed_and_brought_back(ws: Workspace, run: ScriptRun, tmp_path: Path) -> None:
    made = run.register_model(
        model_name="reader", model_path="./outputs/model.txt", tags={"area": "digits"}, properties={"accuracy": 0.9},
        description="reads",
    )  # fmt: skip
    assert (made.name, made.version, made.id, made.description) == ("reader", 1, "reader:1", "reads")
    assert (made.tags, made.properties, made.run_id) == ({"area": "digits"}, {"accuracy": "0.9"}, run.id)
    second = run.register_model("reader", "outputs/model.txt")
    assert second.version == 2
    assert Model(ws, "reader").id == "reader:2"
    assert Model(ws, "reader", version=1).tags == made.tags
    assert [m.id for m in Model.list(ws, name="reader", tags=[["area", "digits"]])] == ["reader:1"]
    assert ws.models["reader"].version == 2
    path = made.download(tmp_path)
    assert (path, Path(path).read_text()) == (str(tmp_path / "model.txt"), "a model")
    with pytest.raises(WebserviceException, match="exist_ok=True"):
        made.download(tmp_path)
    with pytest.raises(WebserviceException, match="ModelNotFound"):
        Model(ws, "writer")
    with pytest.raises(WebserviceException, match="cannot be the name of a model"):
        run.register_model("not a name", "outputs/model.txt")
    with pytest.raises(UserErrorException, match="none"):
        run.register_model("reader", "outputs/none.txt")
    second.delete()
    assert Model(ws, "reader").id == "reader:1"


def test_files_of_this_machine_are_registered_and_found_by_name(
    ws: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model" / "deep").mkdir(parents=True)
    (tmp_path / "model" / "weights.bin").write_bytes(b"weights")
    (tmp_path / "model" / "deep" / "Käse +.txt").write_text("")
    made = Model.register(
        ws, model_path=str(tmp_path / "model"), model_name="local", tags={"area": "x"}, properties={"p": 1},
        model_framework=Model.Framework.SCIKITLEARN, description="by hand",
    )  # fmt: skip
    assert (made.id, made.run_id, made.tags, made.properties) == ("local:1", None, {"area": "x"}, {"p": "1"})
    assert (made.model_framework, made.description) == ("ScikitLearn", "by hand")
    second = Model.register(workspace=ws, model_path=tmp_path / "model" / "weights.bin", model_name="local")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    path = Model.get_model_path("local", version=1, _workspace=ws)
    assert sorted(p.relative_to(path).as_posix() for p in Path(path).rglob("*") if p.is_file()) == [
        "deep/Käse +.txt", "weights.bin",
    ]  # fmt: skip
    assert Path(Model.get_model_path("local", _workspace=ws)).read_bytes() == b"weights"
    assert Path(Model.get_model_path("local", _workspace=ws)).as_posix() == "azureml-models/local/2/weights.bin"
    with pytest.raises(WebserviceException, match="could not be found"):
        Model.register(ws, "nothing here", "local")
    second.delete()
    assert Model(ws, "local").version == 1


def test_data_is_given_to_a_run_by_inputs_and_child_runs_are_submitted(ws: Workspace, run: ScriptRun, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("1\n")
    (tmp_path / "code").mkdir()
    code = "from azureml.core import Run\nimport os\nprint(os.listdir(Run.get_context().input_datasets['data']))\n"
    (tmp_path / "code" / "train.py").write_text(code)
    config = ScriptRunConfig(tmp_path / "code", "train.py", run_config=here())
    child = run.submit_child(config, inputs={"data": tmp_path / "data"})
    child.wait_for_completion()
    assert child.get_details_with_logs()["logFiles"]["user_logs/std_log.txt"] == "['a.csv']\n"
    assert child.parent == run
    assert child in list(run.get_children())


def test_a_script_registers_what_it_made_and_loads_what_others_registered(ws: Workspace, tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(range(256)) * 30_000)
    Model.register(ws, str(tmp_path / "weights.bin"), "before", tags={"a": "b"})
    code = (
        "import hashlib, os\nfrom azureml.core import Run\nfrom azureml.core.model import Model\n"
        "run = Run.get_context()\nws = run.experiment.workspace\nprint(ws.name, run.experiment.name)\n"
        "path = Model.get_model_path('before')\n"
        "print(path, hashlib.sha256(open(path, 'rb').read()).hexdigest(), Model(ws, 'before').tags)\n"
        "os.makedirs('outputs/net/deep', exist_ok=True)\nopen('outputs/net/deep/a.txt', 'w').write('net')\n"
        "made = run.register_model(model_name='inside', model_path='outputs/net', tags={'x': 1}, properties={'p': 2})\n"
        "print(made.id, made.tags['x'])\n"
        "open('late.txt', 'w').write('late')\nprint(Model.register(ws, 'late.txt', 'inside').version, sorted(ws.models))\n"
        "print([m.version for m in Model.list(ws, 'inside')])\n"
        "try: ws.get_default_datastore()\nexcept Exception as error: print(error)\n"
        "try: Model(ws, 'nothing')\nexcept Exception as error: print(error)\n"
    )
    run = submit(ws, tmp_path / "inside", code, experiment="models")
    run.wait_for_completion()
    lines = run.get_details_with_logs()["logFiles"]["user_logs/std_log.txt"].splitlines()
    digest = hashlib.sha256((tmp_path / "weights.bin").read_bytes()).hexdigest()
    assert lines[:4] == [
        f"{ws.name} models", f"azureml-models/before/1/weights.bin {digest} {{'a': 'b'}}", "inside:1 1",
        f"2 {sorted(ws.models)}",
    ]  # fmt: skip
    assert lines[4] == "[2, 1]"
    assert "get_default_datastore is not there inside a run" in lines[5]
    assert "There is no model 'nothing'" in lines[6]
    made = Model(ws, "inside", version=1)
    assert (made.run_id, made.properties, made.tags) == (run.id, {"p": "2"}, {"x": "1"})
    assert Path(made.download(tmp_path / "out"), "deep", "a.txt").read_text() == "net"


def test_an_interactive_run_is_logged_into_from_here(ws: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "notebook.py").write_text("1\n")
    monkeypatch.chdir(tmp_path / "here")
    experiment = Experiment(ws, "by hand")
    run = experiment.start_logging()
    assert (run.status, run.experiment.name, run.get_status()) == ("Running", "by hand", "Running")
    run.log("alpha", 0.5)
    run.log_list("often", [1, 2])
    run.tag("kind", "ridge")
    Path("model.txt").write_text("a model")
    run.upload_file("outputs/model.txt", "model.txt")
    child = run.child_run(name="fold")
    child.log("mse", 1)
    child.complete()
    assert run.get_metrics() == {"alpha": 0.5, "often": [1, 2]}
    assert "outputs/model.txt" in run.get_file_names()
    assert run.register_model("by-hand", "outputs/model.txt").run_id == run.id
    run.complete()
    found = ws.get_run(run.id)
    assert (found.status, found.get_tags(), found.get_metrics(recursive=True)[child.id]) == (
        "Completed", {"kind": "ridge"}, {"mse": 1},
    )  # fmt: skip
    assert Path(found.restore_snapshot(path=tmp_path / "back"), "notebook.py").read_text() == "1\n"
    assert run in list(experiment.get_runs())
    run.wait_for_completion()
    with pytest.raises(ValueError, match="no data"), experiment.start_logging(snapshot_directory=None) as failing:
        raise ValueError("no data")
    assert failing.get_details()["error"]["error"]["message"] == "no data"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("AzureML-sklearn-0.24-ubuntu18.04-py37-cpu", "scikit-learn"), ("AzureML-Tutorial", "scikit-learn"),
        ("AzureML-pytorch-1.10-ubuntu18.04-py38-cuda11-gpu", "pytorch-gpu"), ("AzureML-PyTorch-1.3-CPU", "pytorch"),
        ("AzureML-TensorFlow-2.0-GPU", "tensorflow-gpu"), ("AzureML-lightgbm-3.2-ubuntu18.04-py37-cpu", "boosting"),
        ("AzureML-PySpark-MmlSpark-0.15", "pyspark"), ("AzureML-Minimal", ""), ("AzureML-Triton", None), ("sklearn", None),
    ],
)  # fmt: skip
def test_curated_environments_are_found_by_their_framework(asked: str, found: str | None) -> None:
    assert curated_name(asked) == found


def test_a_curated_environment_is_got_by_the_first_sdks_name(ws: Workspace) -> None:
    found = Environment.get(ws, "AzureML-sklearn-0.24-ubuntu18.04-py37-cpu")
    assert found.name == "scikit-learn"
    assert any("scikit-learn" in p for p in found.python.conda_dependencies.pip_packages)  # type: ignore[union-attr]
    assert Environment.get(ws, "AzureML-Minimal").clone("mine").name == "mine"
    with pytest.raises(UserErrorException, match="AzureML-Triton"):
        Environment.get(ws, "AzureML-Triton")


def test_a_command_is_a_script_with_its_arguments_and_checkpoints_are_taken_up(ws: Workspace, tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys\nplace = pathlib.Path(os.environ['SHUNTER_CHECKPOINT_DIR'], 'state.txt')\n"
        "print(sys.argv[1:], place.read_text() if place.exists() else 'nothing')\nplace.write_text('epoch 3')\n"
    )
    (tmp_path / "train.py").write_text(code)
    commands: list[Any] = ["python train.py --name 'two words'", ["python", "-u", "train.py", "--rate", 0.1]]
    runs: list[ScriptRun] = []
    for command in commands:
        config = ScriptRunConfig(tmp_path, command=command, run_config=here(), resume_from=runs[0] if runs else None)
        runs.append(Experiment(ws, "commands").submit(config))
        runs[-1].wait_for_completion()
    logs = [run.get_details_with_logs()["logFiles"]["user_logs/std_log.txt"] for run in runs]
    assert logs == ["['--name', 'two words'] nothing\n", "['--rate', '0.1'] epoch 3\n"]


def test_outside_a_run_the_context_prints_and_scripts_can_tell(capsys: pytest.CaptureFixture[str]) -> None:
    context = Run.get_context()
    assert type(context) is _OfflineRun
    assert context.id.startswith("OfflineRun")
    context.log("loss", 0.5)
    assert capsys.readouterr().out == "Attempted to log scalar metric loss:\n0.5\n"
    with pytest.raises(RunEnvironmentException, match="There is no run here"):
        Run.get_context(allow_offline=False)


def test_inside_a_run_azureml_is_ours_and_the_rest_says_why_it_is_not_there(ws: Workspace, tmp_path: Path) -> None:
    code = (
        "import azureml.core\nfrom azureml.core import Run, VERSION\nfrom azureml.core.run import _OfflineRun\n"
        "from azureml.exceptions import UserErrorException\nfrom azureml.telemetry import set_diagnostics_collection\n"
        "set_diagnostics_collection(send_diagnostics=True)\nrun = Run.get_context()\nprint(VERSION, type(run) == _OfflineRun)\n"
        "try: run.log('x', [1, 2])\nexcept UserErrorException as error: print(error)\n"
        "try: from azureml.core import Dataset\nexcept ImportError as error: print(error)\n"
    )
    run = submit(ws, tmp_path / "inside", code)
    run.wait_for_completion()
    lines = run.get_details_with_logs()["logFiles"]["user_logs/std_log.txt"].splitlines()
    assert lines[0] == "1.61.0+shunter False"
    assert "log_list" in lines[1]
    assert "is not there inside a run" in lines[2]
