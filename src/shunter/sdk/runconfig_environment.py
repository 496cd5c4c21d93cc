"""The section `environment:` of a `.runconfig` (and the first SDK's `environment.yml`), read and written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shunter.errors import ConfigError, nearest
from shunter.model import environment as model
from shunter.model.environment import SHM_BYTES, Container, Mount

_PYTHON = {
    "userManagedDependencies",
    "interpreterPath",
    "condaDependenciesFile",
    "baseCondaEnvironment",
    "condaDependencies",
}
_DOCKER = {
    "enabled", "baseImage", "baseDockerfile", "buildContext", "sharedVolumes", "shmSize", "arguments", "gpuSupport",
    "baseImageRegistry", "platform", "preparedEnvironmentDirectory",
}  # fmt: skip
_KNOWN = {
    "name", "version", "environmentVariables", "python", "docker", "spark", "databricks", "r",
    "inferencingStackVersion", "assetId", "shunter",
}  # fmt: skip
#: Our own parts that the first SDK's layout has no place for; written under `shunter:` when they are set.
_OURS = {
    "python": "python", "packageSource": "package_source", "indexUrl": "index_url",
    "extraIndexUrls": "extra_index_urls",
    "findLinks": "find_links", "offline": "offline", "constraints": "constraints", "azureml": "azureml",
    "files": "files", "imageInterpreter": "", "mounts": "", "network": "", "pull": "", "context": "",
}  # fmt: skip


def is_section(loaded: Any) -> bool:
    """Whether this is the first SDK's layout rather than ours."""
    return isinstance(loaded, dict) and (
        isinstance(loaded.get("python"), dict) or isinstance(loaded.get("docker"), dict)
    )


def from_section(
    section: dict[str, Any], folder: Path, where: str, docker: dict[str, Any] | None = None
) -> model.Environment | None:
    """The environment a section describes; None when it asks for nothing. `docker` is the run configuration's own."""
    from shunter.sdk.environment import Environment
    from shunter.sdk.environment_files import read_conda

    check_keys(section, _KNOWN, f"{where}: environment")
    python = check_keys(section.get("python") or {}, _PYTHON, f"{where}: environment.python")
    ours = check_keys(section.get("shunter") or {}, _OURS, f"{where}: environment.shunter")
    values: dict[str, Any] = {
        "name": str(section.get("name") or ""),
        "version": str(section.get("version") or ""),
        "env": {str(k): str(v) for k, v in (section.get("environmentVariables") or {}).items()},
        "container": _container(section.get("docker") or {}, docker or {}, ours, where),
    }
    if values["name"].lower() in ("default-environment", "project_environment") or values["name"].startswith(
        "Experiment "
    ):
        values["name"] = ""  # a name the first SDK makes up
    if python.get("userManagedDependencies"):
        values |= {"user_managed": True, "interpreter": str(python.get("interpreterPath") or "python")}
        if values["container"] is not None:
            told = values.pop("interpreter")
            values["container"] = _with_interpreter(values["container"], "" if told == "python" else told)
            values["user_managed"] = True
    else:
        conda = python.get("condaDependenciesFile")
        if python.get("baseCondaEnvironment"):
            raise ConfigError(
                f"{where}: environment.python.baseCondaEnvironment names an environment on some machine.",
                hint="Use userManagedDependencies: true with its interpreterPath.",
            )
        if conda:
            found = read_conda(_conda_file(str(conda), folder, where))
            values["env"] = {**found.pop("env", {}), **values["env"]}
            found.pop("name", None)
            values |= found
    values |= {_OURS[k]: tuple(v) if isinstance(v, list) else v for k, v in ours.items() if _OURS[k]}
    environment = Environment(**values)
    return None if environment == Environment(name=environment.name) and not environment.name else environment


def to_section(environment: model.Environment, conda_file: str | None) -> dict[str, Any]:
    container = environment.container
    interpreter = container.interpreter if container else environment.interpreter
    section: dict[str, Any] = {
        "name": environment.name or None,
        "version": environment.version or None,
        "environmentVariables": dict(environment.env),
        "python": {
            "userManagedDependencies": environment.user_managed,
            "interpreterPath": interpreter or "python",
            "condaDependenciesFile": conda_file,
            "baseCondaEnvironment": None,
        },
        "docker": {
            "enabled": container is not None,
            "baseImage": (container.image or None) if container else None,
            "baseDockerfile": (container.dockerfile or None) if container else None,
            "sharedVolumes": True,
            "shmSize": size_text(container.shm_bytes) if container else "2g",
            "arguments": list(container.arguments) if container else [],
        },
        "spark": {"repositories": [], "packages": [], "precachePackages": True},
    }
    wire = environment.to_wire()
    ours: dict[str, Any] = {k: wire[v] for k, v in _OURS.items() if v and v != "python" and v in wire}
    if environment.python and conda_file is None:
        ours["python"] = environment.python
    if container is not None:
        inner = wire.get("container", {})
        ours |= {k: inner[k] for k in ("mounts", "network", "pull", "context") if k in inner}
        if container.interpreter and not environment.user_managed:
            ours["imageInterpreter"] = container.interpreter
    if ours:
        section["shunter"] = ours
    return section


def _container(
    section: dict[str, Any], configuration: dict[str, Any], ours: dict[str, Any], where: str
) -> Container | None:
    check_keys(section, _DOCKER, f"{where}: environment.docker")
    if not (section.get("enabled") or configuration.get("useDocker")):
        return None
    registry = section.get("baseImageRegistry") or {}
    if registry.get("password"):
        raise ConfigError(
            f"{where}: environment.docker.baseImageRegistry has a password in clear.",
            hint="Log in to the registry on the target (`docker login`, `podman login`) and leave it out here.",
        )
    image = str(section.get("baseImage") or "")
    if image and registry.get("address") and not image.startswith(str(registry["address"])):
        image = f"{registry['address']}/{image}"
    dockerfile = str(section.get("baseDockerfile") or "")
    return Container(
        image="" if dockerfile else image,
        dockerfile=dockerfile,
        context=str(ours.get("context") or ""),
        interpreter=str(ours.get("imageInterpreter") or ""),
        shm_bytes=size_bytes(
            (configuration if configuration.get("useDocker") else section).get("shmSize") or "2g", where
        ),
        mounts=tuple(Mount.parse(m) if isinstance(m, str) else Mount(**m) for m in ours.get("mounts") or ()),
        arguments=tuple(str(a) for a in (*(section.get("arguments") or ()), *(configuration.get("arguments") or ()))),
        network=str(ours.get("network") or "host"),
        pull=str(ours.get("pull") or "missing"),
    )


def _with_interpreter(container: Container, interpreter: str) -> Container:
    from dataclasses import replace

    return replace(container, interpreter=container.interpreter or interpreter)


def _conda_file(name: str, folder: Path, where: str) -> Path:
    """The first SDK writes it relative to the project, or to the folder of the configuration: both are in use."""
    for place in (folder, folder.parent):
        if (place / name).is_file():
            return place / name
    if (folder / Path(name).name).is_file():
        return folder / Path(name).name
    raise ConfigError(f"{where}: there is no file {name}.", hint="environment.python.condaDependenciesFile names it.")


def check_keys(section: Any, known: Any, where: str) -> dict[str, Any]:
    """The section as it is, if all its keys are known."""
    if not isinstance(section, dict):
        raise ConfigError(f"{where} is not a section but {section!r}.")
    for key in section:
        if key not in known:
            raise ConfigError(f"{where}: there is no key {key!r}.", hint=nearest(str(key), known))
    return section


def size_bytes(text: Any, where: str = "shm_size") -> int:
    """Bytes from `2g`, `512m`, `64k` or a number."""
    match = re.fullmatch(r"(?i)\s*([0-9]+(?:\.[0-9]+)?)\s*([bkmgt]?)i?b?\s*", str(text))
    if not match:
        raise ConfigError(f"{where}: {text!r} is not a size.", hint="Write 2g, 512m or a number of bytes.")
    return int(float(match.group(1)) * 1024 ** "bkmgt".index((match.group(2) or "b").lower()))


def size_text(size: int) -> str:
    for power, letter in ((3, "g"), (2, "m"), (1, "k")):
        if size % 1024**power == 0:
            return f"{size // 1024**power}{letter}"
    return str(size)


assert size_text(SHM_BYTES) == "2g"
