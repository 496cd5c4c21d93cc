"""`azureml.core.conda_dependencies`: lists of packages, and the file `conda_dependencies.yml`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shunter.azureml.exceptions import UserErrorException, as_first_sdk
from shunter.sdk.environment_files import conda_yaml, read_conda, read_requirements

CONDA_FILE_NAME = "auto_prepare_environment.yml"
_DEFAULT = "azureml-defaults"
_OPTION = re.compile(r"--(index-url|extra-index-url|find-links|pre|trusted-host|no-index)\b[ =]*(\S*)|-(i|f)[ =]*(\S+)")


class CondaDependencies:
    """What an environment has: Python, conda packages with channels, PyPI packages.

    The Python version is that of whoever submits, unless one is said.
    """

    DEFAULT_NUMBER_OF_CONDA_PACKAGES = 0
    DEFAULT_NUMBER_OF_PIP_PACKAGES = 0

    def __init__(self, conda_dependencies_file_path: str | os.PathLike[str] | None = None) -> None:
        self._python = ""
        self._pip: list[str] = []
        self._conda: list[str] = []
        self._channels: list[str] = []
        self._options: list[str] = []
        self._env: dict[str, str] = {}
        if conda_dependencies_file_path is None:
            self._pip.append(_DEFAULT)
            return
        with as_first_sdk():
            found = read_conda(Path(conda_dependencies_file_path))
        self._take(found)

    @staticmethod
    def create(
        pip_indexurl: str | None = None,
        pip_packages: list[str] | None = None,
        conda_packages: list[str] | None = None,
        python_version: str = "",
        pin_sdk_version: bool = True,
    ) -> CondaDependencies:
        """From lists. Without `pip_packages`, `azureml-defaults` is there, which ours stands in for."""
        made = CondaDependencies()
        made._pip = [_DEFAULT] if pip_packages is None else []
        for package in _several("conda_packages", conda_packages):
            made.add_conda_package(package)
        for package in _several("pip_packages", pip_packages):
            made.add_pip_package(package)
        if python_version:
            made.set_python_version(python_version)
        if pip_indexurl:
            made.set_pip_index_url(pip_indexurl)
        return made

    @property
    def conda_packages(self) -> Iterable[str]:
        return iter([*([f"python={self._python}"] if self._python else []), *self._conda])

    @property
    def pip_packages(self) -> Iterable[str]:
        return iter(self._pip)

    @property
    def pip_options(self) -> Iterable[str]:
        return iter(self._options)

    @property
    def conda_channels(self) -> Iterable[str]:
        return iter(self._channels)

    def add_conda_package(self, conda_package: str) -> None:
        if match := re.fullmatch(r"python\s*([=<>!~].*)?", conda_package.strip()):
            self.set_python_version((match[1] or "").lstrip("= "))
        else:
            _put(self._conda, conda_package)

    def add_pip_package(self, pip_package: str) -> None:
        if _OPTION.match(pip_package.strip()):
            self.set_pip_option(pip_package)
        else:
            _put(self._pip, pip_package)

    def add_channel(self, channel: str) -> None:
        if channel not in self._channels:
            self._channels.append(channel)

    def add_tensorflow_conda_package(self, core_type: str = "cpu", version: str | None = None) -> None:
        self.add_conda_package(f"tensorflow{'-gpu' if core_type == 'gpu' else ''}{'=' + version if version else ''}")

    def add_tensorflow_pip_package(self, core_type: str = "cpu", version: str | None = None) -> None:
        self.add_pip_package(f"tensorflow{'-gpu' if core_type == 'gpu' else ''}{'==' + version if version else ''}")

    def remove_conda_package(self, conda_package: str) -> None:
        self._conda = [p for p in self._conda if _name(p) != _name(conda_package)]

    def remove_pip_package(self, pip_package: str) -> None:
        self._pip = [p for p in self._pip if _name(p) != _name(pip_package)]

    def remove_channel(self, channel: str) -> None:
        self._channels = [c for c in self._channels if c != channel]

    def set_pip_option(self, pip_option: str) -> None:
        if pip_option not in self._options:
            self._options.append(pip_option)

    def remove_pip_option(self, pip_option: str) -> None:
        self._options = [o for o in self._options if not o.startswith(pip_option)]

    def set_pip_index_url(self, index_url: str) -> None:
        self.set_pip_option(index_url if index_url.startswith("--") else f"--index-url {index_url}")

    def set_pip_requirements(self, pip_requirements: Iterable[str]) -> None:
        self._pip = []
        for one in pip_requirements:
            self.add_pip_package(one)

    def set_python_version(self, version: str) -> None:
        self._python = version

    def get_python_version(self) -> str:
        return self._python

    @staticmethod
    def merge_requirements(requirements: Iterable[str]) -> list[str]:
        """One of each package; several versions of one are joined with commas."""
        merged: dict[str, list[str]] = {}
        for one in requirements:
            name = re.split(r"[=<>!~ ]", one, maxsplit=1)[0]
            rest = one[len(name) :].strip()
            if rest not in merged.setdefault(name, []):
                merged[name].append(rest)
        return [name + ",".join(filter(None, rests)) for name, rests in merged.items()]

    def serialize_to_string(self) -> str:
        return conda_yaml(self._pip, self._conda, self._channels, self._python, self._options)

    def as_dict(self) -> dict[str, Any]:
        import yaml

        found: dict[str, Any] = yaml.safe_load(self.serialize_to_string())
        return found

    def save(self, path: str | os.PathLike[str] | None = None) -> str:
        file = Path(path) if path is not None else Path(CONDA_FILE_NAME)
        file.write_text(self.serialize_to_string(), "utf-8")
        return str(file)

    def save_to_file(self, base_directory: str | os.PathLike[str], conda_file_path: str | None = None) -> str:
        """Write it below `base_directory`; what is returned is relative to that folder."""
        inner = conda_file_path or CONDA_FILE_NAME
        file = Path(base_directory) / inner
        file.parent.mkdir(parents=True, exist_ok=True)
        self.save(file)
        return inner

    def _take(self, found: dict[str, Any]) -> None:
        self._python = found.get("python", "")
        self._pip = list(found.get("packages", ()))
        self._conda = list(found.get("conda_packages", ()))
        self._channels = list(found.get("channels", ()))
        self._env = dict(found.get("env", {}))
        if found.get("index_url"):
            self.set_pip_option(f"--index-url {found['index_url']}")
        for url in found.get("extra_index_urls", ()):
            self.set_pip_option(f"--extra-index-url {url}")
        for link in found.get("find_links", ()):
            self.set_pip_option(f"--find-links {link}")

    def _values(self) -> dict[str, Any]:
        """The parts of an environment of ours."""
        found: dict[str, Any] = {
            "packages": self._pip, "conda_packages": self._conda, "channels": self._channels, "python": self._python,
        }  # fmt: skip
        for option in self._options:
            match = _OPTION.match(option.strip())
            what, value = (match[1] or match[3], match[2] or match[4]) if match else ("", "")
            if what in ("index-url", "i"):
                found["index_url"] = value
            elif what == "extra-index-url":
                found.setdefault("extra_index_urls", []).append(value)
            elif what in ("find-links", "f"):
                found.setdefault("find_links", []).append(value)
            else:
                raise UserErrorException(f"The pip option {option!r} cannot be used here.")
        return found


def from_requirements(path: str | os.PathLike[str]) -> CondaDependencies:
    """What a `requirements.txt` lists."""
    made = CondaDependencies()
    with as_first_sdk():
        made._take(read_requirements(Path(path)))
    return made


def _several(what: str, packages: list[str] | None) -> list[str]:
    if isinstance(packages, str):
        raise UserErrorException(f"{what} is a list of packages, not {packages!r}.")
    return list(packages or ())


def _put(packages: list[str], package: str) -> None:
    packages[:] = [p for p in packages if _name(p) != _name(package)] + [package]


def _name(package: str) -> str:
    return re.split(r"[=<>!~ \[;]", package.strip(), maxsplit=1)[0].lower().replace("_", "-")
