"""A list of requirements made ready for the solver: ours taken out, conda's translated when the user says so. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from shunter.errors import EnvironmentInvalid

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
#: What a requirement of the first SDK brings along that scripts import directly.
_BROUGHT = {"azureml-mlflow": "mlflow-skinny"}


@dataclass(frozen=True, slots=True)
class Split:
    """Requirements to solve, and those that ours satisfy."""

    packages: tuple[str, ...]
    ours: tuple[str, ...]


def name_of(requirement: str) -> str:
    """The normalised name of a requirement line; empty for an address."""
    match = _NAME.match(requirement)
    if not match or re.match(r"\s*[a-z+]+://", requirement):
        return ""
    return re.sub(r"[-_.]+", "-", match.group(1)).lower()


def take_out_ours(packages: Iterable[str], azureml: str) -> Split:
    """`azureml-*` are satisfied by ours, unless the environment says `azureml: real`."""
    kept, ours = [], []
    names = {name_of(p) for p in packages}
    for one in packages:
        name = name_of(one)
        if azureml != "real" and name.startswith("azureml-"):
            ours.append(one)
            brought = _BROUGHT.get(name)
            if brought and not names & {brought, "mlflow"}:
                kept.append(brought)
        else:
            kept.append(one)
    return Split(tuple(kept), tuple(ours))


def from_conda(specs: Iterable[str]) -> dict[str, str]:
    """Conda packages as PyPI requirements, spec by spec; an error names those that PyPI is not known to have."""
    known = _known()
    found: dict[str, str] = {}
    unknown = []
    for spec in specs:
        name, version = split_conda(spec)
        if name in known:
            if known[name]:
                found[spec] = known[name] + version
        else:
            unknown.append(spec)
    if unknown:
        raise EnvironmentInvalid(
            f"package_source is pypi, and {', '.join(unknown)} is not known to be on PyPI under that name.",
            hint="List it under pip with its PyPI name, or let it come from a conda channel (package_source: conda).",
        )
    return found


def provided_by_conda(versions: Mapping[str, str]) -> dict[str, str]:
    """PyPI name → version of what conda brings already: pip's packages are solved around it, not over it."""
    known = _known()
    return {name_of(known[name]): version for name, version in versions.items() if known.get(name)}


def without(lock: str, names: Iterable[str]) -> str:
    """A lock of requirements without these packages."""
    gone, kept, skipping = set(names), [], False
    for line in lock.splitlines(keepends=True):
        if line[:1].isalnum():
            skipping = name_of(line) in gone
        if not skipping:
            kept.append(line)
    return "".join(kept)


def split_conda(spec: str) -> tuple[str, str]:
    """Name and PEP 440 version of a conda spec: `numpy=1.26` means any 1.26, `numpy==1.26.4` exactly that."""
    match = re.fullmatch(r"(?:[\w./-]+::)?([A-Za-z0-9._-]+)\s*(.*)", spec.strip())
    if not match:
        raise EnvironmentInvalid(f"{spec!r} is not a conda package.")
    name, rest = match.group(1).lower(), match.group(2).replace(" ", "")
    rest = re.sub(r"^(={1,2}[^=,]+)=[^=,]+$", r"\1", rest)  # without the build string
    parts = []
    for part in filter(None, rest.split(",")):
        if re.fullmatch(r"=[0-9][^=]*", part):
            version = part[1:].rstrip("*").rstrip(".")
            parts.append(f"=={version}.*")
        elif re.fullmatch(r"[0-9].*", part):
            parts.append("==" + part)
        else:
            parts.append(part)
    return name, ",".join(parts)


@cache
def _known() -> Mapping[str, str]:
    from importlib import resources

    text = resources.files("shunter.catalogue").joinpath("conda_to_pypi.json").read_text("utf-8")
    found: dict[str, str] = {}
    for conda, pypi in json.loads(text).items():
        found[conda] = pypi
    return found
