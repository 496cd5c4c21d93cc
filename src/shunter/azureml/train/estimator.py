"""`azureml.train.estimator`: a script, its packages and its target in one object."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shunter.azureml._places import NAMES
from shunter.azureml.core.conda_dependencies import CondaDependencies, from_requirements
from shunter.azureml.core.environment import EnvironmentDefinition
from shunter.azureml.core.runconfig import MpiConfiguration, RunConfiguration, definition_of, with_distribution
from shunter.azureml.core.script_run_config import ScriptRunConfig
from shunter.azureml.exceptions import NotYetException, TrainingException

__all__ = ["Estimator", "MpiConfiguration"]


class Estimator:
    """Submitted as it is: `experiment.submit(estimator)`.

    `use_gpu` is accepted; GPUs are asked for with `experiment.submit(estimator, gpus=1)`.
    Containers are used when an image is named or `use_docker=True` is said; the first SDK uses them always.
    """

    _FRAMEWORK_PACKAGES: Sequence[str] = ()

    def __init__(
        self, source_directory: str | os.PathLike[str], *, compute_target: Any = None, vm_size: str | None = None,
        vm_priority: str | None = None, entry_script: str | None = None, script_params: Mapping[str, Any] | None = None,
        node_count: int = 1, process_count_per_node: int = 1, distributed_backend: str | None = None,
        distributed_training: Any = None, use_gpu: bool = False, use_docker: bool | None = None,
        custom_docker_base_image: str | None = None, custom_docker_image: str | None = None,
        image_registry_details: Any = None, user_managed: bool = False, conda_packages: list[str] | None = None,
        pip_packages: list[str] | None = None, conda_dependencies_file_path: str | None = None,
        pip_requirements_file_path: str | None = None, conda_dependencies_file: str | None = None,
        pip_requirements_file: str | None = None, environment_variables: Mapping[str, str] | None = None,
        environment_definition: Any = None, inputs: Sequence[Any] | None = None, source_directory_data_store: Any = None,
        shm_size: str | None = None, resume_from: Any = None, max_run_duration_seconds: float | None = None,
        framework_version: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        if kwargs:
            raise TypeError(f"{type(self).__name__} has no argument {next(iter(kwargs))!r}.")
        if not entry_script:
            raise TrainingException("An estimator needs entry_script: the script to run.")
        if compute_target is None and vm_size is None:
            compute_target = "local"
        if inputs or source_directory_data_store is not None:
            raise NotYetException(f"Datastores and datasets are not there yet. {NAMES['Dataset']}")
        self.source_directory = os.fspath(source_directory)
        self.entry_script = entry_script
        self._arguments = _words(script_params or {})
        config = RunConfiguration()
        config.target = compute_target if compute_target is not None else "amlcompute"
        config.amlcompute.vm_size, config.amlcompute.vm_priority = vm_size, vm_priority
        config.node_count = node_count
        config.max_run_duration_seconds = max_run_duration_seconds
        if environment_definition is not None:
            config.environment = definition_of(environment_definition)
        else:
            self._packages(
                config.environment, conda_packages, pip_packages, conda_dependencies_file or conda_dependencies_file_path,
                pip_requirements_file or pip_requirements_file_path, framework_version,
            )  # fmt: skip
            config.environment.python.user_managed_dependencies = user_managed
            image = custom_docker_image or custom_docker_base_image
            if image:
                config.environment.docker.base_image = image
            config.environment.docker.enabled = bool(image) if use_docker is None else use_docker
            if image_registry_details is not None:
                config.environment.docker.base_image_registry = image_registry_details
            if shm_size:
                config.environment.docker.shm_size = shm_size
        config.environment_variables = dict(environment_variables or {})
        if distributed_training is not None:
            with_distribution(config, distributed_training)
            config.node_count = max(config.node_count, node_count)
        elif distributed_backend is not None:
            if distributed_backend.lower() != "mpi":
                raise TrainingException(
                    f"distributed_backend={distributed_backend!r} is not known. It is 'mpi', or say distributed_training."
                )
            with_distribution(config, MpiConfiguration(process_count_per_node, node_count))
        self._config = config

    @property
    def run_config(self) -> RunConfiguration:
        return self._config

    @property
    def conda_dependencies(self) -> CondaDependencies | None:
        return self._config.environment.python.conda_dependencies

    def _packages(
        self, environment: EnvironmentDefinition, conda: list[str] | None, pip: list[str] | None, conda_file: str | None,
        pip_file: str | None, framework_version: str | None,
    ) -> None:  # fmt: skip
        if conda_file:
            made = CondaDependencies(self._path(conda_file))
        elif pip_file:
            made = from_requirements(self._path(pip_file))
        else:
            made = CondaDependencies.create(conda_packages=conda, pip_packages=pip)
        for package in self._FRAMEWORK_PACKAGES:
            known = {p.split("=")[0] for p in (*made.pip_packages, *made.conda_packages)}
            if package not in known:
                made.add_pip_package(f"{package}=={framework_version}" if framework_version else package)
        environment.python.conda_dependencies = made

    def _path(self, file: str) -> Path:
        """The first SDK looks for it in the source folder."""
        inside = Path(self.source_directory) / file
        return inside if inside.is_file() else Path(file)

    def _script_run_config(self) -> ScriptRunConfig:
        return ScriptRunConfig(self.source_directory, self.entry_script, self._arguments, run_config=self._config)


def _words(params: Mapping[str, Any]) -> list[Any]:
    """`{'--epochs': 3, '--quick': ''}` → `--epochs 3 --quick`."""
    found: list[Any] = []
    for name, value in params.items():
        found.append(name)
        if value is not None and value != "":
            found.append(value)
    return found
