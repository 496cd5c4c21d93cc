"""Environments, as users make them.

>>> Environment(name="train", python="3.11", packages=["scikit-learn==1.5.2"]).kind
'system'
>>> Environment.existing("/opt/conda/bin/python").kind
'user'
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shunter.errors import EnvironmentInvalid
from shunter.model import environment as model
from shunter.model.environment import Container, Mount

__all__ = ["Container", "Environment", "Mount", "default_environment", "environment_wire", "from_name_or_file"]

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,127}(:[A-Za-z0-9._-]{1,64})?")


@dataclass(frozen=True, slots=True)
class Environment(model.Environment):
    """What a script needs. See `shunter.model.environment.Environment` for its parts; here are the ways to make one."""

    @classmethod
    def existing(cls, interpreter: str = "python", name: str = "", **rest: Any) -> Environment:
        """User-managed: an interpreter that is there on the target. Nothing is installed or checked."""
        return cls(name=name, user_managed=True, interpreter=interpreter, **rest)

    @classmethod
    def from_image(cls, image: str, name: str = "", *, interpreter: str = "", **rest: Any) -> Environment:
        """A container image; with `packages` they are installed for it, without the image stays untouched."""
        return cls(name=name, container=_container(rest, image=image, interpreter=interpreter), **rest)

    @classmethod
    def from_dockerfile(
        cls, dockerfile: str | Path, name: str = "", *, context: str = "", interpreter: str = "", **rest: Any
    ) -> Environment:
        """An image built on the node from a Dockerfile: a path to one, or its text."""
        text = str(dockerfile)
        if "\n" not in text and not re.match(r"(?i)\s*from\s", text):
            text = _read(Path(text))
        return cls(
            name=name, container=_container(rest, dockerfile=text, context=context, interpreter=interpreter), **rest
        )

    @classmethod
    def from_requirements(cls, path: str | Path, name: str = "", **rest: Any) -> Environment:
        """From a `requirements.txt`: `-r`, `-c`, index and find-links lines are followed."""
        from shunter.sdk.environment_files import read_requirements

        return cls(name=name, **{**read_requirements(Path(path)), **rest})

    @classmethod
    def from_conda(cls, path: str | Path, name: str = "", **rest: Any) -> Environment:
        """From a `conda_dependencies.yml` or `environment.yml`."""
        from shunter.sdk.environment_files import read_conda

        found = read_conda(Path(path))
        return cls(**{**found, **({"name": name} if name else {}), **rest})

    @classmethod
    def from_pyproject(cls, path: str | Path, name: str = "", **rest: Any) -> Environment:
        """From a `pyproject.toml`; a `uv.lock` beside it is taken as the lock it is."""
        from shunter.sdk.environment_files import read_pyproject

        return cls(name=name, **{**read_pyproject(Path(path)), **rest})

    @classmethod
    def from_file(cls, path: str | Path, name: str = "", **rest: Any) -> Environment:
        """From any of these files, told by its name."""
        from shunter.sdk.environment_files import read_any

        found = read_any(Path(path))
        return cls(**{**found, **({"name": name} if name else {}), **rest})


def environment_wire(environment: model.Environment | str | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What a submit sends: the content, or `{"ref": "name:version"}` for one the server knows."""
    if environment is None:
        return None
    if isinstance(environment, str):
        if not _REFERENCE.fullmatch(environment):
            raise EnvironmentInvalid(
                f"{environment!r} is not the name of an environment.",
                hint="Give NAME or NAME:VERSION (`shunter env list` shows them), or Environment.from_file(path).",
            )
        return {"ref": environment}
    if isinstance(environment, model.Environment):
        return environment.to_wire()
    return model.Environment.from_wire(environment).to_wire()


def default_environment(folder: Path, files: Sequence[str] | None = None) -> tuple[Environment, str]:
    """What a folder needs away from home, and in words where that comes from.

    Its own requirements, pyproject or conda file; without one the packages that its scripts import, at the versions
    that are installed here.
    """
    from shunter.sdk.environment_files import find
    from shunter.sdk.imports import imported

    own = find(folder)
    if own is not None:
        return Environment.from_file(own), f"Environment: from {own.relative_to(folder)}"
    found = imported(folder, files)
    words = (
        "Environment: " + (", ".join(found.packages) or "no packages") + " (what the scripts import, as installed here)"
    )
    if found.unknown:
        words += f"; not installed here, so left out: {', '.join(found.unknown)}"
    return Environment(packages=found.packages), words


def from_name_or_file(text: str) -> Environment | str:
    """`--environment NAME|FILE`: a file when there is one of that name, else the name of an environment."""
    path = Path(text)
    if path.is_file():
        return Environment.from_file(path)
    if "/" in text or path.suffix in (".yml", ".yaml", ".txt", ".toml", ".lock"):
        raise EnvironmentInvalid(f"There is no file {text}.", hint="Give the path of an environment file, or a name.")
    environment_wire(text)
    return text


def _container(rest: dict[str, Any], **values: Any) -> Container:
    for name in ("shm_bytes", "arguments", "network", "pull"):
        if name in rest:
            values[name] = rest.pop(name)
    mounts: Sequence[Any] = rest.pop("mounts", ())
    values["mounts"] = tuple(m if isinstance(m, Mount) else Mount.parse(m) for m in mounts)
    values["arguments"] = tuple(values.get("arguments", ()))
    return Container(**values)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise EnvironmentInvalid(f"{path} cannot be read: {error.strerror}.") from error
