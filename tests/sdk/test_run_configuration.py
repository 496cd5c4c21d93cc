"""Run configurations: strict attributes, the wire, and `.runconfig` files as people have them in their repositories."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from shunter.errors import ConfigError, NotFound, UsageError
from shunter.sdk.config import RunConfiguration, ScriptRunConfig
from shunter.sdk.environment import Container, Environment, Mount

OLD = """\
# The script to run.
script: train.py
# The arguments to the script file.
arguments: [--alpha, 0.5]
# The name of the compute target to use for this run.
target: cpu-cluster
# Framework to execute inside. Allowed values are "Python" ,  "PySpark", "CNTK",  "TensorFlow", and "PyTorch".
framework: Python
# Communicator for the given framework.
communicator: None
# Automatically prepare the run environment as part of the run itself.
autoPrepareEnvironment: true
# Maximum allowed duration for the run.
maxRunDurationSeconds: 3600
# Number of nodes to use for running job.
nodeCount: 2
environment:
  environmentVariables:
    EXAMPLE_ENV_VAR: EXAMPLE_VALUE
  python:
    userManagedDependencies: false
    interpreterPath: python
    condaDependenciesFile: aml_config/conda_dependencies.yml
  docker:
    enabled: true
    baseImage: registry.example/azureml/base:0.2.1
    sharedVolumes: true
    gpuSupport: false
    shmSize: 1g
    arguments: []
    baseImageRegistry:
      address:
      username:
      password:
  spark:
    repositories: []
    packages: []
    precachePackages: true
history:
  outputCollection: true
spark:
  configuration:
    spark.app.name: Azure ML Experiment
hdi:
  yarnDeployMode: cluster
tensorflow:
  workerCount: 1
  parameterServerCount: 1
mpi:
  processCountPerNode: 1
amlcompute:
  vmSize: STANDARD_D2_V2
  vmPriority:
  retainCluster: false
  name:
  clusterMaxNodeCount: 1
dataReferences: {}
"""
CONDA = """\
name: project_environment
dependencies:
  - python=3.6.2
  - pip:
    - azureml-defaults
    - matplotlib==3.0.2
  - scikit-learn
channels: [conda-forge]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "aml_config").mkdir()
    (tmp_path / "aml_config" / "cpu-cluster.runconfig").write_text(OLD)
    (tmp_path / "aml_config" / "conda_dependencies.yml").write_text(CONDA)
    return tmp_path


def test_a_configuration_of_the_first_sdk_is_read_with_its_packages_and_its_image(project: Path) -> None:
    config = RunConfiguration.load(project, "cpu-cluster")

    assert (config.script, config.arguments, config.target) == ("train.py", ["--alpha", 0.5], "cpu-cluster")
    assert (config.node_count, config.max_run_duration_seconds, config.vm_size) == (2, 3600, "STANDARD_D2_V2")
    environment = config.environment
    assert isinstance(environment, Environment)
    assert environment.python == "3.6.2"
    assert environment.packages == ("azureml-defaults", "matplotlib==3.0.2")
    assert (environment.conda_packages, environment.channels) == (("scikit-learn",), ("conda-forge",))
    assert environment.container == Container(image="registry.example/azureml/base:0.2.1", shm_bytes=1 << 30)
    assert config.to_wire()["framework"] == "python"
    assert "communicator" not in config.to_wire()


def test_what_is_saved_is_loaded_again_the_same(project: Path, tmp_path: Path) -> None:
    config = RunConfiguration.load(project, "cpu-cluster")
    again = tmp_path / "elsewhere"
    again.mkdir()

    file = config.save(again, "copy")

    assert file == again / ".azureml" / "copy.runconfig"
    assert RunConfiguration.load(again, "copy") == config
    assert RunConfiguration.load(file) == config


@pytest.mark.parametrize(
    "environment",
    [
        None,
        "train-env:3",
        Environment(name="mine", python="3.11", packages=["numpy==1.26.4"], env={"A": "1"}),
        Environment.existing("/opt/py/bin/python"),
        Environment.from_image("img:1", mounts=["/data:/data:ro"], shm_bytes=64 << 20, interpreter="/opt/python"),
        Environment(container=Container(dockerfile="FROM x\nRUN y\n", context="snapshot"), packages=["numpy"]),
        Environment(packages=["a"], index_url="https://u:${P}@h/simple", find_links=["/wheels"], offline=True),
        Environment(python=">=3.10", files={"pyproject.toml": "[project]", "uv.lock": "version = 1"}),
        Environment(container=Container(image="i", mounts=(Mount("/a", "/b"),)), user_managed=True),
    ],
)
@pytest.mark.parametrize("separate", [False, True])
def test_every_kind_of_environment_survives_a_save(
    environment: Environment | str | None, separate: bool, tmp_path: Path
) -> None:
    config = RunConfiguration(
        script="t.py", arguments=["1"], target="vm1", environment=environment, cpus=2, communicator="OpenMpi",
        processes_per_node=4, node_count=3, tags={"a": "b"}, environment_variables={"K": "V"},
        vm_priority="lowpriority",
    )  # fmt: skip

    config.save(tmp_path, "vm1", separate_environment_yaml=separate)

    assert RunConfiguration.load(tmp_path, "vm1") == config


def test_saving_keeps_the_order_and_the_names_that_users_know(tmp_path: Path) -> None:
    file = RunConfiguration(target="cpu", environment=Environment(packages=["numpy"])).save(tmp_path, "cpu")

    content = yaml.safe_load(file.read_text())
    assert list(content)[:4] == ["script", "arguments", "target", "framework"]
    assert content["framework"] == "Python"
    assert content["environment"]["python"]["condaDependenciesFile"] == ".azureml/conda_dependencies.yml"
    assert content["docker"] == {"useDocker": False, "sharedVolumes": True, "arguments": [], "shmSize": "2g"}


def test_two_configurations_in_one_folder_keep_their_own_packages(tmp_path: Path) -> None:
    RunConfiguration(environment=Environment(packages=["numpy"])).save(tmp_path, "one")
    RunConfiguration(environment=Environment(packages=["pandas"])).save(tmp_path, "two")

    for name, package in (("one", "numpy"), ("two", "pandas")):
        environment = RunConfiguration.load(tmp_path, name).environment
        assert isinstance(environment, Environment)
        assert environment.packages == (package,)


def test_sections_we_do_not_use_survive_a_load_and_a_save(project: Path) -> None:
    config = RunConfiguration.load(project, "cpu-cluster")
    file = config.save(project, "again")

    assert file.parent.name == "aml_config"
    assert yaml.safe_load(file.read_text())["amlcompute"]["clusterMaxNodeCount"] == 1


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("nodeCount: 2", "nodeCounts: 2", "nodeCount"),
        ("    interpreterPath: python", "    interpreterPaths: python", "interpreterPath"),
        ("    baseImage:", "    baseImages:", "baseImage"),
        ("  yarnDeployMode:", "  yarnDeploymode:", "yarnDeployMode"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(
    project: Path, before: str, after: str, told: str
) -> None:
    file = project / "aml_config" / "cpu-cluster.runconfig"
    file.write_text(OLD.replace(before, after))

    with pytest.raises(ConfigError) as caught:
        RunConfiguration.load(project, "cpu-cluster")

    assert after.split(":", 1)[0].strip() in caught.value.message
    assert repr(told) in caught.value.hint


def test_an_unknown_name_is_refused_with_the_nearest_one(project: Path) -> None:
    with pytest.raises(NotFound, match="cpu-cluster"):
        RunConfiguration.load(project, "cpu-clutser")


def test_an_unknown_attribute_is_refused_with_the_nearest_one() -> None:
    config = RunConfiguration()
    with pytest.raises(AttributeError, match="node_count"):
        config.node_counts = 3
    with pytest.raises(AttributeError, match="arguments"):
        ScriptRunConfig(script="a.py").argument = []


@pytest.mark.parametrize(
    "bad", [{"node_count": 0}, {"cpus": -1}, {"max_run_duration_seconds": 0}, {"node_count": True}]
)
def test_numbers_that_make_no_sense_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        RunConfiguration(**bad).to_wire()  # type: ignore[arg-type]


def test_a_script_run_config_takes_its_run_config_and_its_own_arguments() -> None:
    config = ScriptRunConfig(
        ".", "a.py", [1, "x y"], run_config=RunConfiguration(target="vm", arguments=["old"]), target="no"
    )

    assert config.run_config is not None
    assert (config.run_config.target, config.run_config.arguments, config.run_config.script) == (
        "vm",
        [1, "x y"],
        "a.py",
    )


def test_switching_the_target_needs_no_other_change() -> None:
    config = RunConfiguration(script="a.py", environment=Environment(packages=["numpy"]), node_count=2)
    before = config.to_wire()
    config.target = "another"
    assert config.to_wire() == before
