"""Run configurations in both spellings, and what they become."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from shunter.azureml.core import Environment, ScriptRunConfig
from shunter.azureml.core.conda_dependencies import CondaDependencies
from shunter.azureml.core.runconfig import (
    DEFAULT_CPU_IMAGE,
    DockerConfiguration,
    MpiConfiguration,
    PyTorchConfiguration,
    RunConfiguration,
)
from shunter.azureml.exceptions import NotYetException, RunConfigurationException, UserErrorException
from shunter.azureml.train.estimator import Estimator
from shunter.azureml.train.sklearn import SKLearn
from shunter.sdk.environment import Environment as Ours


def test_the_documents_spelling_and_the_real_one_are_the_same() -> None:
    config = RunConfiguration(framework="python")
    config.user_managed_dependencies = True
    config.vm_size = "STANDARD_D2_V2"
    config.prepare_environment = False
    assert config.environment.python.user_managed_dependencies is True
    assert config.amlcompute.vm_size == "STANDARD_D2_V2"
    assert config.auto_prepare_environment is False


@pytest.mark.parametrize(
    ("where", "wrong", "nearest"),
    [
        (lambda c: c, "vmsize", "vm_size"),
        (lambda c: c.environment, "dockr", "docker"),
        (lambda c: c.environment.docker, "enable", "enabled"),
        (lambda c: c.environment.python, "user_managed", "user_managed_dependencies"),
        (lambda c: c.amlcompute, "vm_sise", "vm_size"),
    ],
)
def test_any_other_attribute_is_refused_and_the_nearest_named(where, wrong, nearest) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AttributeError, match=f"has no attribute {wrong}. Did you mean '{nearest}'"):
        setattr(where(RunConfiguration()), wrong, 1)


def environment_of(config: RunConfiguration) -> Ours:
    found = config._to_ours().environment
    assert isinstance(found, Ours)
    return found


def test_user_managed_here_is_the_interpreter_that_submits() -> None:
    config = RunConfiguration()
    config.environment.python.user_managed_dependencies = True
    assert config._to_ours().environment is None
    config.environment.environment_variables["A"] = "1"
    assert environment_of(config).interpreter == sys.executable
    config.environment.python.interpreter_path = "/opt/python"
    assert environment_of(config).interpreter == "/opt/python"


def test_system_managed_is_the_default_and_lists_what_was_said() -> None:
    config = RunConfiguration()
    assert environment_of(config).packages == ("azureml-defaults",)
    config.environment.python.conda_dependencies = CondaDependencies.create(
        conda_packages=["scikit-learn", "python=3.11"],
        pip_packages=["joblib"],
        pip_indexurl="https://example.org/simple",
    )
    made = environment_of(config)
    assert (made.conda_packages, made.packages, made.python) == (("scikit-learn",), ("joblib",), "3.11")
    assert made.index_url == "https://example.org/simple"
    assert made.container is None


def test_containers_are_used_when_they_are_asked_for() -> None:
    config = RunConfiguration()
    assert environment_of(config).container is None
    config.environment.docker.enabled = True
    config.environment.docker.shm_size = "64m"
    box = environment_of(config).container
    assert box is not None
    assert (box.image, box.shm_bytes) == (DEFAULT_CPU_IMAGE, 64 << 20)
    config.environment.docker.enabled = False
    config.environment.docker.base_image = "example/own:1"
    assert environment_of(config).container is None  # here
    config.target = "cpu-cluster"
    assert environment_of(config).container is not None  # elsewhere an image that was named counts
    with_docker = ScriptRunConfig(
        ".", "t.py", docker_runtime_config=DockerConfiguration(use_docker=True, arguments=["--init"])
    )
    assert environment_of(with_docker.run_config).container.arguments == ("--init",)  # type: ignore[union-attr]


def test_a_password_for_a_registry_is_not_taken() -> None:
    config = RunConfiguration()
    config.environment.docker.enabled = True
    config.environment.docker.base_image_registry.password = "secret"
    with pytest.raises(UserErrorException, match="Log in to the registry on the target"):
        config._to_ours()


def test_a_run_configuration_is_saved_and_loaded_in_both_spellings(tmp_path: Path) -> None:
    config = RunConfiguration("train.py", ["--epochs", 3])
    config.target = "cpu"
    config.node_count = 2
    config.environment.docker.enabled = True
    config.environment.python.conda_dependencies = CondaDependencies.create(conda_packages=["scikit-learn"])
    config.save(tmp_path, "cpu")
    for found in (
        RunConfiguration.load(tmp_path, "cpu"),
        RunConfiguration.load(path=str(tmp_path), name="cpu"),
        RunConfiguration.load(project_object=str(tmp_path), run_name="cpu"),
    ):
        assert (found.script, found.arguments, found.target, found.node_count) == (
            "train.py",
            ["--epochs", 3],
            "cpu",
            2,
        )
        assert found.environment.docker.enabled
        assert list(found.environment.python.conda_dependencies.conda_packages) == ["scikit-learn"]  # type: ignore[union-attr]
    with pytest.raises(RunConfigurationException, match="There is no run configuration 'gpu'"):
        RunConfiguration.load(tmp_path, "gpu")
    RunConfiguration.delete(tmp_path, "cpu")


def test_what_a_run_config_says_is_not_said_again(caplog: pytest.LogCaptureFixture) -> None:
    config = RunConfiguration()
    config.target = "there"
    with caplog.at_level(logging.WARNING):
        made = ScriptRunConfig(".", "train.py", ["--a"], run_config=config, compute_target="elsewhere")
    assert "compute_target is ignored" in caplog.text
    assert made.run_config.target == "there"
    assert made.arguments == ["--a"]
    made.run_config.target = "local"
    assert config.target == "there", "it is a copy"
    assert ScriptRunConfig(".", "train.py").run_config.target == "local"


def test_distributed_jobs_say_how_many_nodes_and_processes() -> None:
    mpi = ScriptRunConfig(".", "t.py", distributed_job_config=MpiConfiguration(process_count_per_node=2, node_count=3))
    ours = mpi.run_config._to_ours()
    assert (ours.communicator, ours.node_count, ours.processes_per_node) == ("Mpi", 3, 2)
    torch = ScriptRunConfig(
        ".", "t.py", distributed_job_config=PyTorchConfiguration("Gloo", process_count=4, node_count=2)
    )
    ours = torch.run_config._to_ours()
    assert (ours.communicator, ours.node_count, ours.processes_per_node) == ("Gloo", 2, 2)
    with pytest.raises(RunConfigurationException, match="not dict"):
        ScriptRunConfig(".", "t.py", distributed_job_config={})


def test_conda_dependencies_are_written_and_read_in_the_first_sdks_layout(tmp_path: Path) -> None:
    made = CondaDependencies.create(
        pip_packages=["azureml-sdk", "joblib==1.0"], conda_packages=["numpy"], python_version="3.11"
    )
    made.add_channel("conda-forge")
    made.add_pip_package("joblib==1.1")
    assert made.save_to_file(tmp_path, "env.yml") == "env.yml"
    text = (tmp_path / "env.yml").read_text()
    assert text == made.serialize_to_string()
    found = CondaDependencies(tmp_path / "env.yml")
    assert found.as_dict() == {
        "name": "project_environment",
        "dependencies": ["python=3.11", {"pip": ["azureml-sdk", "joblib==1.1"]}, "numpy"],
        "channels": ["conda-forge"],
    }
    found.remove_pip_package("joblib")
    assert list(found.pip_packages) == ["azureml-sdk"]
    with pytest.raises(UserErrorException, match="list of packages"):
        CondaDependencies.create(conda_packages="numpy")  # type: ignore[arg-type]


def test_environments_come_from_files_and_images(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("joblib==1.0\n")
    (tmp_path / "Dockerfile").write_text("FROM example/base\n")
    pip = Environment.from_pip_requirements("pip", tmp_path / "requirements.txt")
    assert list(pip.python.conda_dependencies.pip_packages) == ["joblib==1.0"]  # type: ignore[union-attr]
    file = Environment.from_dockerfile("file", tmp_path / "Dockerfile")
    assert (file.docker.base_image, file.docker.base_dockerfile) == (None, "FROM example/base\n")
    image = Environment.from_docker_image("image", "example/own:1", pip_requirements=str(tmp_path / "requirements.txt"))
    assert image.docker.enabled
    twin = image.clone("twin")
    twin.docker.base_image = "example/other"
    assert (image.docker.base_image, twin.name) == ("example/own:1", "twin")
    image.save_to_directory(tmp_path / "saved")
    loaded = Environment.load_from_directory(tmp_path / "saved")
    assert (loaded.name, loaded.docker.base_image) == ("image", "example/own:1")


def test_estimators_become_script_runs() -> None:
    made = Estimator(
        ".", entry_script="train.py", script_params={"--epochs": 3, "--quick": ""}, conda_packages=["numpy"]
    )
    config = made._script_run_config()
    assert (config.script, config._words()) == ("train.py", ["--epochs", "3", "--quick"])
    assert environment_of(made.run_config).conda_packages == ("numpy",)
    learn = SKLearn(".", entry_script="train.py", compute_target="cpu", framework_version="1.5.2")
    assert "scikit-learn==1.5.2" in environment_of(learn.run_config).packages
    assert Estimator(".", entry_script="t.py", vm_size="STANDARD_D2_V2").run_config.target == "amlcompute"
    with pytest.raises(TypeError, match="entry_scrip"):
        Estimator(".", entry_scrip="train.py")
    with pytest.raises(NotYetException, match="inputs="):
        Estimator(".", entry_script="train.py", inputs=["dataset"])
