"""The platform a lock is made for, from what a probe told of a node."""

from __future__ import annotations

import os
import platform as here
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shunter.errors import EnvironmentInvalid

#: glibc versions that the resolver knows as platforms of their own.
_MANYLINUX = (17, 28, *range(31, 41))
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_CONDA = {
    ("Linux", "x86_64"): "linux-64", ("Linux", "aarch64"): "linux-aarch64", ("Darwin", "x86_64"): "osx-64",
    ("Darwin", "aarch64"): "osx-arm64", ("Windows", "x86_64"): "win-64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Platform:
    """System, machine and C library of a node, and the Python its owner has there."""

    system: str = "Linux"
    machine: str = "x86_64"
    libc: str = ""
    python: str = ""
    cuda: str = ""

    @property
    def for_uv(self) -> str:
        """As `uv pip compile --python-platform` names it."""
        if self.system == "Linux":
            return f"{self.machine}-manylinux_2_{self._glibc_minor()}"
        if self.system == "Darwin":
            return f"{self.machine}-apple-darwin"
        return f"{self.machine}-pc-windows-msvc"

    @property
    def for_conda(self) -> str:
        """As conda names its sub-directories."""
        found = _CONDA.get((self.system, self.machine))
        if found is None:
            raise EnvironmentInvalid(f"There are no conda packages for {self.system} on {self.machine}.")
        return found

    @property
    def key(self) -> dict[str, Any]:
        """What of it a lock depends on: the Python there is a preference, not a part of it."""
        return {k: v for k, v in asdict(self).items() if k != "python"}

    def _glibc_minor(self) -> int:
        match = re.search(r"2\.(\d+)", self.libc)
        minor = int(match.group(1)) if match else 28
        return max((m for m in _MANYLINUX if m <= minor), default=17)


def of_this_machine() -> Platform:
    system = os.uname().sysname
    libc = "-".join(here.libc_ver()) if system == "Linux" else ""
    return Platform(system, _machine(os.uname().machine), libc, ".".join(map(str, sys.version_info[:3])))


def of_facts(facts: Mapping[str, Any]) -> Platform:
    """From a compute target's facts; what it did not tell is taken as usual for a Linux machine."""
    details = facts.get("details") or {}
    system = str(facts.get("system") or details.get("system") or "Linux").split(" ", maxsplit=1)[0]
    return Platform(
        system=system if system in ("Linux", "Darwin", "Windows") else "Linux",
        machine=_machine(str(details.get("machine") or facts.get("machine") or "x86_64")),
        libc=str(details.get("libc") or facts.get("libc") or ""),
        python=str(facts.get("python") or ""),
        cuda=str(details.get("cuda") or ""),
    )


def _machine(name: str) -> str:
    return _MACHINES.get(name.lower(), name)
