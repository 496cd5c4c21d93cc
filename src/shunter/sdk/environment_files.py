"""Files in which people write down what their script needs: requirements.txt, conda's yml, pyproject.toml, uv.lock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from shunter.errors import EnvironmentInvalid, nearest

#: Names by which a folder's own file is found, in this order.
REQUIREMENTS = ("requirements.txt",)
CONDA = ("conda_dependencies.yml", "environment.yml", "environment.yaml", "conda.yml")
_CONDA_KEYS = ("name", "channels", "dependencies", "variables", "prefix")
_URL_PASSWORD = re.compile(r"(?i)^[a-z+]+://[^/@\s]*:(?!\$\{)[^/@\s]+@")


def find(folder: Path) -> Path | None:
    """The file of this folder that says what its scripts need, None when it has none."""
    for name in REQUIREMENTS:
        if (folder / name).is_file():
            return folder / name
    if (folder / "pyproject.toml").is_file() and _project(folder / "pyproject.toml") is not None:
        return folder / "pyproject.toml"
    for place in (folder, folder / ".azureml", folder / "aml_config"):
        for name in CONDA:
            if (place / name).is_file():
                return place / name
    return None


def read_any(path: Path) -> dict[str, Any]:
    """The parts of an environment from any of these files, told by its name."""
    if path.name in ("pyproject.toml", "uv.lock"):
        return read_pyproject(path)
    if path.suffix in (".yml", ".yaml"):
        loaded = load_yaml(path)
        if isinstance(loaded, dict) and "dependencies" not in loaded:
            return read_environment_yaml(path)
        return read_conda(path)
    if path.suffix in (".txt", ".in") or path.name.startswith("requirements"):
        return read_requirements(path)
    if path.name.startswith("Dockerfile") or path.suffix == ".dockerfile":
        return {"container": _dockerfile(path)}
    raise EnvironmentInvalid(
        f"{path} is not a file that describes an environment.",
        hint="requirements.txt, conda_dependencies.yml, environment.yml, pyproject.toml, uv.lock and Dockerfile are.",
    )


def read_environment_yaml(path: Path) -> dict[str, Any]:
    """An environment in our own words (`packages: [scikit-learn]`) or in the first SDK's `environment.yml`."""
    from shunter.model.environment import Environment
    from shunter.sdk.runconfig_environment import from_section, is_section

    loaded = load_yaml(path)
    if is_section(loaded):
        found = from_section(loaded, path.parent, str(path))
        return _parts(found) if found is not None else {}
    try:
        return _parts(Environment.from_wire(loaded))
    except EnvironmentInvalid as error:
        raise EnvironmentInvalid(f"{path}: {error.message}", hint=error.hint) from error


def _parts(environment: Any) -> dict[str, Any]:
    return {name: getattr(environment, name) for name in environment.__dataclass_fields__}


# requirements.txt


def read_requirements(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"packages": [], "constraints": [], "extra_index_urls": [], "find_links": []}
    _requirement_lines(_text(path), path, found, "packages", set())
    return _tidy(found)


def _requirement_lines(text: str, path: Path, found: dict[str, Any], into: str, seen: set[Path]) -> None:
    if path.resolve() in seen:
        return
    seen.add(path.resolve())
    for number, line in _logical_lines(text):
        take_pip_line(line, f"{path}:{number}", found, into, lambda name, kind: _requirement_lines(
            _text(path.parent / name), path.parent / name, found, kind, seen
        ))  # fmt: skip


def take_pip_line(line: str, where: str, found: dict[str, Any], into: str, follow: Callable[[str, str], None]) -> None:
    """One line as pip writes them: a requirement, or an option about where packages come from."""
    if not line.startswith("-"):
        if re.match(r"(\.{0,2}/|\.$|file:)", line) and not line.endswith((".whl", ".tar.gz", ".zip")):
            raise _cannot(where, line, "The submitted folder itself is on the script's path: no need to install it.")
        check_no_password(line, where)
        found[into].append(line)
        return
    option, _, value = re.sub(r"^(-[a-zA-Z])(?=[^\s=-])", r"\1 ", line).replace("=", " ", 1).partition(" ")
    value = value.strip().strip("'\"")
    if option in ("-r", "--requirement"):
        follow(value, into)
    elif option in ("-c", "--constraint"):
        follow(value, "constraints")
    elif option in ("-i", "--index-url"):
        found["index_url"] = check_no_password(value, where)
    elif option == "--extra-index-url":
        found["extra_index_urls"].append(check_no_password(value, where))
    elif option in ("-f", "--find-links"):
        found["find_links"].append(check_no_password(value, where))
    elif option == "--no-index":
        found["offline"] = True
    elif option in ("-e", "--editable"):
        if value in (".", "./"):
            return  # the submitted folder: it is on the script's path
        raise _cannot(where, line, "Editable installs stay on the machine they were made on. Name the package itself.")
    elif option in ("--pre", "--prefer-binary", "--trusted-host", "--only-binary", "--no-binary", "--use-pep517"):
        return
    else:
        raise _cannot(where, line, nearest(option, _PIP_OPTIONS))


_PIP_OPTIONS = ("--requirement", "--constraint", "--index-url", "--extra-index-url", "--find-links", "--no-index")


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    waiting, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        start = start or number
        if line.endswith("\\"):
            waiting += line[:-1].strip() + " "
            continue
        whole, at = (waiting + line).strip(), start
        waiting, start = "", 0
        if whole:
            yield at, whole
    if waiting.strip():
        yield start, waiting.strip()


# conda


def read_conda(path: Path) -> dict[str, Any]:
    loaded = load_yaml(path)
    if not isinstance(loaded, dict) or not isinstance(loaded.get("dependencies", []), list):
        raise EnvironmentInvalid(f"{path} is not a conda environment file.", hint="It needs a list `dependencies:`.")
    for key in loaded:
        if key not in _CONDA_KEYS:
            raise EnvironmentInvalid(
                f"{path}: a conda environment file has no {key!r}.", hint=nearest(str(key), _CONDA_KEYS)
            )
    found: dict[str, Any] = {
        "packages": [], "constraints": [], "extra_index_urls": [], "find_links": [], "conda_packages": [],
        "channels": [str(c) for c in loaded.get("channels") or []],
        "env": {str(k): str(v) for k, v in (loaded.get("variables") or {}).items()},
    }  # fmt: skip
    for one in loaded.get("dependencies") or []:
        if isinstance(one, dict):
            _conda_pip(one, path, found)
        elif (python := python_of(str(one))) is not None:
            found["python"] = python
        else:
            found["conda_packages"].append(str(one).strip())
    return _tidy(found)


def _conda_pip(section: dict[Any, Any], path: Path, found: dict[str, Any]) -> None:
    if list(section) != ["pip"]:
        raise EnvironmentInvalid(
            f"{path}: {sorted(map(str, section))} among the dependencies.", hint="Only `pip:` is known."
        )
    for line in section["pip"] or []:
        take_pip_line(str(line).strip(), str(path), found, "packages", lambda name, kind: _requirement_lines(
            _text(path.parent / name), path.parent / name, found, kind, set()
        ))  # fmt: skip


def python_of(spec: str) -> str | None:
    """The Python version a conda dependency asks for; None when it is another package. `python` alone: any."""
    match = re.fullmatch(r"(?:[\w.-]+::)?python(?![\w.-])\s*(.*)", spec.strip())
    if not match:
        return None
    rest = match.group(1).strip()
    exact = re.fullmatch(r"={0,2}\s*([0-9][0-9.]*)(\.\*|\*)?(=.*)?", rest)
    return exact.group(1).rstrip(".") if exact else rest.replace(" ", "")


def conda_yaml(
    packages: Iterable[str],
    conda_packages: Iterable[str],
    channels: Iterable[str],
    python: str,
    options: Iterable[str] = (),
) -> str:
    """`conda_dependencies.yml` in the layout of the first SDK: python first, then pip's list, then conda's."""
    import yaml

    dependencies: list[Any] = []
    if python:
        dependencies.append(f"python={python}" if python[0].isdigit() else f"python{python}")
    pip = [*options, *packages]
    if pip:
        dependencies.append({"pip": pip})
    dependencies += conda_packages
    content = {"name": "project_environment", "dependencies": dependencies}
    if list(channels):
        content["channels"] = list(channels)
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


# pyproject


def read_pyproject(path: Path) -> dict[str, Any]:
    folder = path.parent
    pyproject, lock = folder / "pyproject.toml", folder / "uv.lock"
    project = _project(pyproject)
    if project is None:
        raise EnvironmentInvalid(
            f"{pyproject} has no [project] table with dependencies.", hint="Add one, or use a requirements.txt."
        )
    python = str(project.get("requires-python", "")).replace(" ", "")
    if lock.is_file():
        return {"python": python, "files": {"pyproject.toml": _text(pyproject), "uv.lock": _text(lock)}}
    if "dependencies" in (project.get("dynamic") or []):
        raise EnvironmentInvalid(
            f"The dependencies in {pyproject} are dynamic: only its build would tell them.",
            hint="Run `uv lock` beside it, or use a requirements.txt.",
        )
    return {"python": python, "packages": tuple(str(d) for d in project.get("dependencies") or [])}


def _project(path: Path) -> dict[str, Any] | None:
    import tomllib

    try:
        loaded = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise EnvironmentInvalid(f"{path} is not TOML: {error}.") from error
    project = loaded.get("project")
    return project if isinstance(project, dict) else None


# What they share


def load_yaml(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(_text(path)) or {}
    except yaml.YAMLError as error:
        raise EnvironmentInvalid(f"{path} is not YAML: {' '.join(str(error).split())}") from error


def check_no_password(address: str, where: str) -> str:
    """A password in an address would end up in every run's record: it has to be named, not written."""
    if _URL_PASSWORD.match(address.partition("@ ")[2] or address):
        raise EnvironmentInvalid(
            f"{where}: the address has a password in it.",
            hint="Write https://${NAME}@… or https://user:${NAME}@… and keep the value with `shunter secret set NAME`.",
        )
    return address


def _tidy(found: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in found.items() if v}


def _dockerfile(path: Path) -> Any:
    from shunter.model.environment import Container

    return Container(dockerfile=_text(path))


def _cannot(where: str, line: str, hint: str) -> EnvironmentInvalid:
    return EnvironmentInvalid(f"{where}: {line!r} cannot be used in an environment.", hint=hint)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentInvalid(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
