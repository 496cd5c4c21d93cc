"""`import azureml` is ours where it is asked for, and says so."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import shunter.azureml
from shunter.azureml.exceptions import NotYetException

SRC = str(Path(shunter.__file__).parents[1])

#: What public programs import most, by how many of them do.
IMPORTS = [
    "azureml.core:Workspace", "azureml.core:Experiment", "azureml.core", "azureml.core.compute:ComputeTarget",
    "azureml.core:Environment", "azureml.core:ScriptRunConfig", "azureml.core.compute:AmlCompute", "azureml.core:Run",
    "azureml.widgets:RunDetails", "azureml.core.compute_target:ComputeTargetException", "azureml.core:Dataset",
    "azureml.core.model:Model", "azureml.core.conda_dependencies:CondaDependencies", "azureml.core.run:Run",
    "azureml.core.run:_OfflineRun", "azureml.core.workspace:Workspace", "azureml.core:Model",
    "azureml.core.runconfig:RunConfiguration", "azureml.telemetry:set_diagnostics_collection",
    "azureml.core.authentication:InteractiveLoginAuthentication", "azureml.core:Datastore",
    "azureml.core.datastore:Datastore", "azureml.core.runconfig:CondaDependencies",
    "azureml.train.estimator:Estimator", "azureml.exceptions:ComputeTargetException",
    "azureml.core.runconfig:DEFAULT_CPU_IMAGE", "azureml.core.environment:Environment",
    "azureml.core.runconfig:MpiConfiguration", "azureml.core.dataset:Dataset",
    "azureml.core.runconfig:PyTorchConfiguration", "azureml.core.runconfig:DEFAULT_GPU_IMAGE",
    "azureml.core:ComputeTarget", "azureml.core:RunConfiguration", "azureml.exceptions:UserErrorException",
    "azureml.core.runconfig:DockerConfiguration", "azureml.core.environment:CondaDependencies",
    "azureml.core.authentication:AzureCliAuthentication", "azureml.train.sklearn:SKLearn",
    "azureml.core.experiment:Experiment", "azureml.core.compute:RemoteCompute",
    "azureml.core.script_run_config:ScriptRunConfig", "azureml.core.authentication:ServicePrincipalAuthentication",
    "azureml.core.runconfig:TensorflowConfiguration", "azureml.train.dnn:PyTorch",
    "azureml.core.compute:ComputeInstance", "azureml.core.container_registry:ContainerRegistry",
    "azureml.core:VERSION", "azureml.core.compute:HDInsightCompute", "azureml.train.dnn:TensorFlow",
    "azureml.core.compute:DatabricksCompute", "azureml.core.authentication:MsiAuthentication",
]  # fmt: skip


@pytest.mark.parametrize("spelling", IMPORTS)
def test_what_programs_import_is_there(spelling: str) -> None:
    module, _, name = spelling.partition(":")
    found = importlib.import_module(module)
    assert not name or getattr(found, name) is not None


def test_a_class_is_the_same_under_both_names() -> None:
    ours = importlib.import_module("shunter.azureml.core.run")
    assert importlib.import_module("azureml.core.run") is ours
    assert ours.__spec__ is not None
    assert ours.__spec__.name == "shunter.azureml.core.run"


def test_a_module_that_is_not_there_says_what_to_use_instead() -> None:
    with pytest.raises(ImportError, match="one after the other; pipelines are not there yet"):
        importlib.import_module("azureml.pipeline.core")
    with pytest.raises(ImportError, match=r"no module 'azureml\.nothing'"):
        importlib.import_module("azureml.nothing")


def test_a_class_that_is_not_there_yet_can_be_named_and_says_so_when_it_is_used() -> None:
    dataset = importlib.import_module("azureml.core").Dataset
    with pytest.raises(NotYetException, match=r"Dataset\.get_by_name is not there yet.*inputs="):
        dataset.get_by_name("ws", "name")
    with pytest.raises(NotYetException, match="Datastore is not there yet"):
        importlib.import_module("azureml.core").Datastore("ws", "name")


def test_a_script_runs_with_ours_in_the_place_of_the_first_sdk(tmp_path: Path) -> None:
    script = tmp_path / "submit.py"
    script.write_text("import sys, azureml.core, beside\nprint(azureml.core.VERSION, sys.argv, __name__)\n")
    (tmp_path / "beside.py").write_text("")
    done = python("-m", "shunter.azureml", str(script), "--x", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1.61.0+shunter." + shunter.__version__, f"['{script}',", "'--x',", "'1']", "__main__"]
    assert done.stderr == "azureml is Shunter's in this process.\n"


def test_an_installed_first_sdk_is_left_alone_and_which_one_is_in_use_is_said(tmp_path: Path) -> None:
    real = tmp_path / "real" / "azureml" / "core"
    real.mkdir(parents=True)
    (real / "__init__.py").write_text("VERSION = 'the real one'\n")
    about = tmp_path / "real" / "azureml_core-1.61.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: azureml-core\nVersion: 1.61.0\n")
    before = sorted(p for p in (tmp_path / "real").rglob("*"))
    code = (
        "import shunter.azureml as ours\nprint(ours.in_use())\nours.install()\nprint(ours.in_use())\n"
        "import azureml.core\nprint(azureml.core.VERSION)\nours.uninstall()\nimport azureml.core\nprint(azureml.core.VERSION)\n"
        "try: ours.install()\nexcept Exception as e: print(e)\n"
    )
    done = python("-B", "-c", code, path=str(tmp_path / "real"))
    assert done.stdout.splitlines()[:4] == [
        "azureml is the installed azureml-core 1.61.0.",
        "azureml is Shunter's in this process; the installed azureml-core 1.61.0 is left alone.",
        "1.61.0+shunter." + shunter.__version__,
        "the real one",
    ], done.stderr
    assert "has been imported already in this process" in done.stdout
    assert sorted(p for p in (tmp_path / "real").rglob("*")) == before


def test_it_imports_neither_a_server_nor_anything_heavy() -> None:
    heavy = ("fastapi", "sqlalchemy", "ray", "numpy", "IPython")
    code = f"import sys, shunter.azureml.core\nprint([m for m in {heavy} if m in sys.modules])"
    assert python("-c", code).stdout.strip() == "[]"


def python(*words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (SRC, path)))}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env, check=False)
