"""`azureml.core.environment`: an environment in sections, as the first SDK has it."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.azureml._strict import Strict
from shunter.azureml.core.conda_dependencies import CondaDependencies, from_requirements
from shunter.azureml.core.container_registry import ContainerRegistry
from shunter.azureml.exceptions import NotYetException, UserErrorException, as_first_sdk
from shunter.errors import NotFound
from shunter.model.environment import Container
from shunter.model.environment import Environment as Content
from shunter.sdk.environment import Environment as Ours
from shunter.sdk.runconfig_environment import size_bytes, size_text

if TYPE_CHECKING:
    from shunter.azureml.core.workspace import Workspace

__all__ = [
    "DEFAULT_CPU_IMAGE", "DEFAULT_GPU_IMAGE", "CondaDependencies", "DatabricksSection", "DockerSection", "Environment",
    "EnvironmentDefinition", "PythonSection", "RSection", "SparkSection",
]  # fmt: skip


def _default_image() -> str:
    from importlib import resources

    return str(json.loads(resources.files("shunter.catalogue").joinpath("environments.json").read_text())["default_image"])


#: One image serves both: packages bring their own CUDA, the engine brings the driver.
DEFAULT_CPU_IMAGE = DEFAULT_GPU_IMAGE = _default_image()


@dataclass
class PythonSection(Strict):
    """System-managed from `conda_dependencies`, or user-managed with the interpreter at `interpreter_path`."""

    user_managed_dependencies: bool = False
    interpreter_path: str = "python"
    conda_dependencies_file: str | None = None
    base_conda_environment: str | None = None
    conda_dependencies: CondaDependencies | None = field(default_factory=CondaDependencies)


@dataclass
class DockerSection(Strict):
    """The image around it. `gpu_support` is accepted; GPUs are given to a run that asks for them."""

    enabled: bool = False
    base_image: str | None = DEFAULT_CPU_IMAGE
    base_dockerfile: str | None = None
    build_context: Any = None
    shared_volumes: bool = True
    shm_size: str | None = "2g"
    arguments: list[str] = field(default_factory=list)
    base_image_registry: ContainerRegistry = field(default_factory=ContainerRegistry)
    platform: Any = None
    gpu_support: bool | None = None

    @property
    def _says_something(self) -> bool:
        return bool(self.base_dockerfile) or self.base_image not in (None, DEFAULT_CPU_IMAGE)


@dataclass
class SparkSection(Strict):
    repositories: list[str] = field(default_factory=list)
    packages: list[Any] = field(default_factory=list)
    precache_packages: bool = True


@dataclass
class DatabricksSection(Strict):
    maven_libraries: list[Any] = field(default_factory=list)
    pypi_libraries: list[Any] = field(default_factory=list)
    rcran_libraries: list[Any] = field(default_factory=list)
    jar_libraries: list[Any] = field(default_factory=list)
    egg_libraries: list[Any] = field(default_factory=list)


@dataclass
class RSection(Strict):
    r_version: str | None = None
    user_managed: bool = False
    rscript_path: str | None = None
    snapshot_date: str | None = None
    cran_packages: list[Any] = field(default_factory=list)


@dataclass
class EnvironmentDefinition(Strict):
    """An environment inside a run configuration."""

    name: str | None = None
    version: str | None = None
    environment_variables: dict[str, str] = field(default_factory=dict)
    python: PythonSection = field(default_factory=PythonSection)
    docker: DockerSection = field(default_factory=DockerSection)
    spark: SparkSection = field(default_factory=SparkSection)
    databricks: DatabricksSection = field(default_factory=DatabricksSection)
    r: RSection | None = None
    inferencing_stack_version: str | None = None
    asset_id: str | None = None

    def __post_init__(self) -> None:
        #: What ours knows and the first SDK has no place for.
        self._rest: dict[str, Any] = {}


class Environment(EnvironmentDefinition):
    """What a script needs, under a name; registered ones have versions."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        if not name:
            raise UserErrorException("An environment needs a name.")
        super().__init__(name=name, **kwargs)

    @staticmethod
    def from_conda_specification(name: str, file_path: str | os.PathLike[str]) -> Environment:
        made = Environment(name)
        made.python.conda_dependencies = CondaDependencies(file_path)
        made.environment_variables |= made.python.conda_dependencies._env
        return made

    @staticmethod
    def from_pip_requirements(name: str, file_path: str | os.PathLike[str], pip_version: str | None = None) -> Environment:
        made = Environment(name)
        made.python.conda_dependencies = from_requirements(file_path)
        return made

    @staticmethod
    def from_docker_image(
        name: str, image: str, container_registry: ContainerRegistry | None = None,
        conda_specification: str | None = None, pip_requirements: str | None = None,
    ) -> Environment:  # fmt: skip
        made = _in_image(name, conda_specification, pip_requirements)
        made.docker.base_image = image
        made.docker.base_image_registry = container_registry or ContainerRegistry()
        return made

    @staticmethod
    def from_dockerfile(
        name: str, dockerfile: str | os.PathLike[str], conda_specification: str | None = None,
        pip_requirements: str | None = None,
    ) -> Environment:  # fmt: skip
        made = _in_image(name, conda_specification, pip_requirements)
        with as_first_sdk():
            container = Ours.from_dockerfile(os.fspath(dockerfile)).container
        assert container is not None
        made.docker.base_image, made.docker.base_dockerfile = None, container.dockerfile
        return made

    @staticmethod
    def from_existing_conda_environment(name: str, conda_environment_name: str) -> Environment:
        raise NotYetException(
            "Environment.from_existing_conda_environment is not there yet. "
            "Write the environment down with `conda env export --from-history > environment.yml`, then from_conda_specification."
        )

    @staticmethod
    @as_first_sdk()
    def get(workspace: Workspace, name: str, version: str | None = None, label: str | None = None) -> Environment:
        """A registered or curated environment; the newest version when none is said. `AzureML-…` are found by framework."""
        from shunter.azureml.core._curated import curated

        try:
            return from_ours(workspace._ours.environments.get(name, version or ""))
        except NotFound:
            found = curated(workspace._ours.environments, name)
            if found is None:
                raise
            return from_ours(found)

    @staticmethod
    @as_first_sdk()
    def list(workspace: Workspace) -> dict[str, Environment]:
        """The newest version of each, and those that come with Shunter."""
        ours = workspace._ours.environments
        found = [*ours.curated(), *ours.list()]
        newest = {one["name"]: one for one in sorted(found, key=lambda o: _number(o["version"]))}
        return {
            name: from_ours(Ours.from_wire({**one["environment"], "name": name, "version": one["version"]}))
            for name, one in newest.items()
        }

    @as_first_sdk()
    def register(self, workspace: Workspace) -> Environment:
        """Keep it in the workspace: as the next version, or as the newest when nothing changed."""
        ours = to_ours(self, self.docker.enabled or self.docker._says_something)
        found = workspace._ours.environments.register(ours.evolve(version=""))
        self.version = found.version
        return from_ours(found)

    @as_first_sdk()
    def build(self, workspace: Workspace, image_build_compute: str | None = None) -> Any:
        """Build it on a target before anybody needs it. What is returned is the run that does so."""
        from shunter.azureml.core.run import Run

        ours = to_ours(self, self.docker.enabled or self.docker._says_something)
        return Run._of(workspace, workspace._ours.environments.build(ours, target=image_build_compute or "local"))

    def clone(self, new_name: str) -> Environment:
        made = copy.deepcopy(self)
        made.name, made.version = new_name, None
        return made

    @as_first_sdk()
    def save_to_directory(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """`azureml_environment.json` and `conda_dependencies.yml` in a folder."""
        folder = Path(path)
        if folder.exists() and not overwrite:
            raise UserErrorException(f"{folder} is there already. Say overwrite=True to write into it.")
        folder.mkdir(parents=True, exist_ok=True)
        from shunter.sdk.runconfig_environment import to_section

        section = to_section(to_ours(self, self.docker.enabled), "conda_dependencies.yml")
        if self.python.conda_dependencies is not None:
            self.python.conda_dependencies.save(folder / "conda_dependencies.yml")
        (folder / "azureml_environment.json").write_text(json.dumps(section, indent=4) + "\n", "utf-8")

    @staticmethod
    @as_first_sdk()
    def load_from_directory(path: str | os.PathLike[str]) -> Environment:
        from shunter.sdk.runconfig_environment import from_section

        file = Path(path) / "azureml_environment.json"
        if not file.is_file():
            raise UserErrorException(f"There is no {file.name} in {path}.")
        section = json.loads(file.read_text("utf-8"))
        found = from_section(section, Path(path), str(file)) or Ours(name=str(section.get("name") or ""))
        return from_ours(found)


def to_ours(environment: EnvironmentDefinition, in_container: bool) -> Ours:
    """The same as an environment of ours."""
    python, docker = environment.python, environment.docker
    values: dict[str, Any] = {
        **environment._rest,
        "name": environment.name or "",
        "version": environment.version or "",
        "env": {str(k): str(v) for k, v in environment.environment_variables.items()},
    }
    if python.base_conda_environment:
        raise UserErrorException(
            "base_conda_environment names an environment on some machine. "
            "Use user_managed_dependencies = True with its interpreter_path."
        )
    interpreter = python.interpreter_path or "python"
    if in_container:
        values["container"] = _container(docker, interpreter if python.user_managed_dependencies else "python", environment._rest)
    if python.user_managed_dependencies:
        values["user_managed"] = True
        if not in_container:
            values["interpreter"] = interpreter
    else:
        packages = python.conda_dependencies
        if python.conda_dependencies_file:
            packages = CondaDependencies(python.conda_dependencies_file)
        values |= {k: v for k, v in (packages._values() if packages else {}).items() if v}
    with as_first_sdk():
        return Ours(**values)


def from_ours(ours: Content) -> Environment:
    """An environment of ours in sections."""
    made = Environment(ours.name or "environment")
    fill(made, ours)
    return made


def fill(made: EnvironmentDefinition, ours: Content) -> None:
    """Put an environment of ours into these sections."""
    made.name, made.version = ours.name or made.name, ours.version or None
    made.environment_variables = dict(ours.env)
    made.python.user_managed_dependencies = ours.user_managed
    made.python.interpreter_path = ours.interpreter or "python"
    packages = CondaDependencies()
    packages._take({
        "python": ours.python, "packages": ours.packages, "conda_packages": ours.conda_packages,
        "channels": ours.channels, "index_url": ours.index_url, "extra_index_urls": ours.extra_index_urls,
        "find_links": ours.find_links,
    })  # fmt: skip
    made.python.conda_dependencies = packages
    if ours.container is not None:
        made.docker.enabled = True
        made.docker.base_image = ours.container.image or (None if ours.container.dockerfile else DEFAULT_CPU_IMAGE)
        made.docker.base_dockerfile = ours.container.dockerfile or None
        made.docker.shm_size = size_text(ours.container.shm_bytes)
        made.docker.arguments = list(ours.container.arguments)
        if ours.container.interpreter:
            made.python.interpreter_path = ours.container.interpreter
    kept = ("constraints", "package_source", "offline", "files", "azureml", "description", "tags")
    made._rest = {k: getattr(ours, k) for k in kept if k in ours.to_wire()}


def _container(docker: DockerSection, interpreter: str, rest: dict[str, Any]) -> Container:
    registry = docker.base_image_registry
    if registry.password:
        raise UserErrorException(
            "base_image_registry has a password. Log in to the registry on the target (`docker login`) and leave it out."
        )
    image = docker.base_image or ""
    if image and registry.address and not image.startswith(registry.address):
        image = f"{registry.address}/{image}"
    text = docker.base_dockerfile or ""
    if text:
        with as_first_sdk():
            made = Ours.from_dockerfile(text).container
        assert made is not None
        text = made.dockerfile
    return Container(
        image="" if text else image, dockerfile=text, interpreter="" if interpreter == "python" else interpreter,
        shm_bytes=size_bytes(docker.shm_size or "2g"), arguments=tuple(docker.arguments),
    )  # fmt: skip


def _in_image(name: str, conda_specification: str | None, pip_requirements: str | None) -> Environment:
    """Without a list of packages the image is taken as it is."""
    if conda_specification and pip_requirements:
        raise UserErrorException("Give conda_specification or pip_requirements, not both.")
    if conda_specification:
        made = Environment.from_conda_specification(name, conda_specification)
    elif pip_requirements:
        made = Environment.from_pip_requirements(name, pip_requirements)
    else:
        made = Environment(name)
        made.python.user_managed_dependencies = True
    made.docker.enabled = True
    return made


def _number(version: str) -> tuple[int, int, str]:
    return (0, int(version), "") if version.isdigit() else (1, 0, version)
