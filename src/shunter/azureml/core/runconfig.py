"""`azureml.core.runconfig`: run configurations, both as the first SDK has them and as its documents spell them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shunter.azureml._strict import Strict
from shunter.azureml.core.conda_dependencies import CondaDependencies
from shunter.azureml.core.container_registry import ContainerRegistry
from shunter.azureml.core.environment import (
    DEFAULT_CPU_IMAGE,
    DEFAULT_GPU_IMAGE,
    DatabricksSection,
    DockerSection,
    Environment,
    EnvironmentDefinition,
    PythonSection,
    RSection,
    SparkSection,
    fill,
    to_ours,
)
from shunter.azureml.exceptions import NotYetException, RunConfigurationException, UserErrorException, as_first_sdk
from shunter.model.environment import Environment as Content
from shunter.sdk.config import RunConfiguration as Ours
from shunter.sdk.environment import Environment as OurEnvironment

__all__ = [
    "DEFAULT_CPU_IMAGE", "DEFAULT_GPU_IMAGE", "MPI_CPU_IMAGE", "MPI_GPU_IMAGE", "AmlComputeConfiguration",
    "CondaDependencies", "ContainerRegistry", "DataReferenceConfiguration", "DatabricksSection", "DockerConfiguration",
    "DockerSection", "EnvironmentDefinition", "HdiConfiguration", "HistoryConfiguration", "MpiConfiguration",
    "PyTorchConfiguration", "PythonSection", "RSection", "RunConfiguration", "SparkConfiguration", "SparkSection",
    "TensorflowConfiguration",
]  # fmt: skip

MPI_CPU_IMAGE, MPI_GPU_IMAGE = DEFAULT_CPU_IMAGE, DEFAULT_GPU_IMAGE
LOCAL = "local"


@dataclass
class TensorflowConfiguration(Strict):
    worker_count: int = 1
    parameter_server_count: int = 1


@dataclass
class MpiConfiguration(Strict):
    process_count_per_node: int = 1
    node_count: int = 1


@dataclass
class PyTorchConfiguration(Strict):
    communication_backend: str = "Nccl"
    process_count: int | None = None
    node_count: int = 1


@dataclass
class DockerConfiguration(Strict):
    use_docker: bool = False
    shared_volumes: bool = True
    arguments: list[str] = field(default_factory=list)
    shm_size: str | None = None


@dataclass
class AmlComputeConfiguration(Strict):
    """The cluster that is made for one run when the target is `amlcompute`."""

    vm_size: str | None = None
    vm_priority: str | None = None
    _name: str | None = None
    _cluster_max_node_count: int | None = None


@dataclass
class HistoryConfiguration(Strict):
    """Accepted as it is: outputs and logs always come home."""

    output_collection: bool = True
    snapshot_project: bool = True
    directories_to_watch: list[str] = field(default_factory=lambda: ["logs"])


@dataclass
class SparkConfiguration(Strict):
    configuration: dict[str, Any] = field(default_factory=dict)


@dataclass
class HdiConfiguration(Strict):
    yarn_deploy_mode: str = "cluster"


@dataclass
class DataReferenceConfiguration(Strict):
    datastore_name: str | None = None
    mode: str = "mount"
    path_on_datastore: str | None = None
    path_on_compute: str | None = None
    overwrite: bool = False


@dataclass(init=False)
class RunConfiguration(Strict):
    """Which target, which environment, how many nodes.

    >>> config = RunConfiguration()
    >>> config.user_managed_dependencies = True      # as the documents spell it
    >>> config.environment.python.user_managed_dependencies
    True
    """

    script: str | None
    arguments: list[Any]
    framework: str
    communicator: str
    node_count: int
    environment: EnvironmentDefinition
    history: HistoryConfiguration
    spark: SparkConfiguration
    docker: DockerConfiguration
    hdi: HdiConfiguration
    tensorflow: TensorflowConfiguration
    mpi: MpiConfiguration
    pytorch: PyTorchConfiguration
    amlcompute: AmlComputeConfiguration
    data_references: dict[str, Any]
    data: dict[str, Any]
    output_data: dict[str, Any]
    max_run_duration_seconds: float | None
    priority: int | None
    auto_prepare_environment: bool
    environment_variables: dict[str, str]
    command: Any

    def __init__(
        self, script: str | None = None, arguments: Sequence[Any] | None = None, framework: str | None = None,
        communicator: str | None = None, conda_dependencies: CondaDependencies | None = None, command: Any = None,
    ) -> None:  # fmt: skip
        self.script = script
        self.arguments = list(arguments or ())
        self.framework = framework or "Python"
        self.communicator = communicator or "None"
        self._target: Any = LOCAL
        self.node_count = 1
        self.environment = EnvironmentDefinition()
        if conda_dependencies is not None:
            self.environment.python.conda_dependencies = conda_dependencies
        self.history = HistoryConfiguration()
        self.spark = SparkConfiguration()
        self.docker = DockerConfiguration()
        self.hdi = HdiConfiguration()
        self.tensorflow = TensorflowConfiguration()
        self.mpi = MpiConfiguration()
        self.pytorch = PyTorchConfiguration()
        self.amlcompute = AmlComputeConfiguration()
        self.data_references, self.data, self.output_data = {}, {}, {}
        self.max_run_duration_seconds = None
        self.priority = None
        self.auto_prepare_environment = True
        self.environment_variables = {}
        self.command = command
        self._sections: dict[str, Any] = {}

    @property
    def target(self) -> str:
        """The name of the compute target; a target itself may be given."""
        return str(self._target)

    @target.setter
    def target(self, value: Any) -> None:
        self._target = value if isinstance(value, str) else value.name

    # As the documents of the first SDK spell them, which it does not itself accept.

    @property
    def user_managed_dependencies(self) -> bool:
        return self.environment.python.user_managed_dependencies

    @user_managed_dependencies.setter
    def user_managed_dependencies(self, value: bool) -> None:
        self.environment.python.user_managed_dependencies = value

    @property
    def vm_size(self) -> str | None:
        return self.amlcompute.vm_size

    @vm_size.setter
    def vm_size(self, value: str | None) -> None:
        self.amlcompute.vm_size = value

    @property
    def prepare_environment(self) -> bool:
        return self.auto_prepare_environment

    @prepare_environment.setter
    def prepare_environment(self, value: bool) -> None:
        self.auto_prepare_environment = value

    @as_first_sdk(RunConfigurationException)
    def save(
        self, path: str | os.PathLike[str] | None = None, name: str | None = None, separate_environment_yaml: bool = False
    ) -> str:
        """Write `NAME.runconfig` into `.azureml/` (or an existing `aml_config/`) of the folder `path`."""
        return str(self._to_ours().save(path if path is None else Path(path), name, separate_environment_yaml))

    @staticmethod
    def load(
        path: Any = None, name: str | None = None, *, project_object: Any = None, run_name: str | None = None
    ) -> RunConfiguration:
        """Read a `.runconfig`. `project_object` and `run_name` are the documents' names for `path` and `name`."""
        place = path if path is not None else project_object
        if place is None:
            raise UserErrorException("RunConfiguration.load needs a path: a folder, or the file itself.")
        folder = place if isinstance(place, str | os.PathLike) else getattr(place, "project_directory", ".")
        with as_first_sdk(RunConfigurationException):
            return from_config(Ours.load(Path(folder), name or run_name))

    @staticmethod
    @as_first_sdk(RunConfigurationException)
    def delete(path: str | os.PathLike[str], name: str) -> None:
        Ours.delete(Path(path), name)

    def _to_ours(self) -> Ours:
        """The same as a run configuration of ours."""
        if self.command:
            raise NotYetException("command is not there yet. Name a script and its arguments.")
        if self.data_references or self.data or self.output_data:
            from shunter.azureml._places import NAMES

            raise NotYetException(f"Datastores and datasets are not there yet. {NAMES['Dataset']}")
        communicator = None if self.communicator in ("None", "none", "", None) else self.communicator
        nodes, processes = self._nodes(communicator)
        with as_first_sdk(RunConfigurationException):
            return Ours(
                script=self.script, arguments=self.arguments, framework=(self.framework or "python").lower(),
                communicator=communicator, target=self.target, node_count=nodes, environment=self._environment(),
                environment_variables=self.environment_variables or None,
                max_run_duration_seconds=self.max_run_duration_seconds,
                auto_prepare_environment=self.auto_prepare_environment, vm_size=self.amlcompute.vm_size,
                vm_priority=self.amlcompute.vm_priority, priority=self.priority, processes_per_node=processes,
                sections=self._sections,
            )  # fmt: skip

    def _environment(self) -> OurEnvironment | None:
        environment, docker = self.environment, self.environment.docker
        inside = docker.enabled or self.docker.use_docker or (self.target != LOCAL and docker._says_something)
        python = environment.python
        if not inside and self.target == LOCAL and python.user_managed_dependencies and python.interpreter_path == "python":
            if not environment.environment_variables:
                return None  # where we are: the interpreter that submits
            import sys

            return to_ours(environment, False).evolve(interpreter=sys.executable)
        made = to_ours(environment, inside)
        if self.docker.use_docker and made.container is not None:
            from dataclasses import replace

            from shunter.sdk.runconfig_environment import size_bytes

            more: dict[str, Any] = {"arguments": (*made.container.arguments, *self.docker.arguments)}
            if self.docker.shm_size:
                more["shm_bytes"] = size_bytes(self.docker.shm_size)
            made = made.evolve(container=replace(made.container, **more))
        return made

    def _nodes(self, communicator: str | None) -> tuple[int, int | None]:
        kind = (communicator or "").lower()
        if "mpi" in kind:
            return max(self.node_count, self.mpi.node_count), self.mpi.process_count_per_node
        if kind in ("nccl", "gloo"):
            count = max(self.node_count, self.pytorch.node_count)
            return count, max(1, self.pytorch.process_count // count) if self.pytorch.process_count else None
        return self.node_count, None


def from_config(ours: Ours) -> RunConfiguration:
    """A run configuration of ours in the first SDK's shape."""
    made = RunConfiguration(ours.script, ours.arguments, ours.framework, ours.communicator)
    made.target = ours.target
    made.node_count = ours.node_count
    if isinstance(ours.environment, Content):
        fill(made.environment, ours.environment)
    made.environment_variables = dict(ours.environment_variables or {})
    made.max_run_duration_seconds = ours.max_run_duration_seconds
    made.auto_prepare_environment = ours.auto_prepare_environment
    made.amlcompute.vm_size, made.amlcompute.vm_priority = ours.vm_size, ours.vm_priority
    made.priority = ours.priority
    if ours.processes_per_node and "mpi" in (ours.communicator or "").lower():
        made.mpi.process_count_per_node = ours.processes_per_node
    made._sections = dict(ours.sections)
    return made


def with_distribution(config: RunConfiguration, job: Any) -> None:
    """What `distributed_job_config` says, in a run configuration."""
    if isinstance(job, MpiConfiguration):
        config.communicator, config.mpi, config.node_count = "Mpi", job, job.node_count
    elif isinstance(job, PyTorchConfiguration):
        config.framework, config.communicator = "PyTorch", job.communication_backend
        config.pytorch, config.node_count = job, job.node_count
    elif isinstance(job, TensorflowConfiguration):
        config.framework, config.communicator, config.tensorflow = "TensorFlow", "ParameterServer", job
        config.node_count = job.worker_count + job.parameter_server_count
    else:
        raise RunConfigurationException(
            "distributed_job_config is an MpiConfiguration, PyTorchConfiguration or TensorflowConfiguration, "
            f"not {type(job).__name__}."
        )


def definition_of(environment: Environment | EnvironmentDefinition | Mapping[str, Any]) -> EnvironmentDefinition:
    """The environment of a run configuration."""
    if not isinstance(environment, EnvironmentDefinition):
        raise UserErrorException(f"{environment!r} is not an Environment.")
    return environment
