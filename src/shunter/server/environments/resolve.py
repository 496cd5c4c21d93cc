"""From what an environment says to what a node is given: solved, locked, stored, the same each time.

wire (run.config["environment"]) ──► Environment ──► Lock (solved once for each platform) ──► job["environment"]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from shunter.errors import EnvironmentInvalid
from shunter.model.environment import Environment, digest
from shunter.server.environments import conda, pypi
from shunter.server.environments.platforms import Platform
from shunter.server.environments.pypi import Sources
from shunter.server.environments.pythons import choose_python
from shunter.server.environments.requirements import (
    from_conda,
    name_of,
    provided_by_conda,
    take_out_ours,
    without,
)
from shunter.server.environments.turns import one_at_a_time
from shunter.server.environments.wheels import WheelStore

#: Grows when locks of the same request must be made anew.
FORMAT = 1
#: Conda packages that only prepare for pip's: with nothing else, PyPI serves them all.
_ONLY_PIP = frozenset({"pip", "setuptools", "wheel"})


@dataclass(frozen=True, slots=True)
class Lock:
    """Exact versions and hashes for one platform. `id` stands for the content: the same id builds the same."""

    id: str
    python: str
    platform: str
    pip: str = ""
    conda: str = ""
    options: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    translated: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    wheels: tuple[Mapping[str, Any], ...] = ()  # for a node that is offline: file, sha256, size

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Lock:
        texts = {name: tuple(data.get(name) or ()) for name in ("options", "ours", "wheels")}
        return cls(**{**data, **texts})

    @property
    def source(self) -> str:
        """Where the packages come from, for people."""
        if self.conda:
            return "conda and pypi" if self.pip else "conda"
        return "pypi instead of conda" if self.translated else "pypi"


class LockCache(Protocol):
    """Where locks are kept, by request."""

    def find(self, request: str) -> Lock | None: ...
    def keep(self, request: str, lock: Lock) -> Lock:
        """Keep it; when another was kept meanwhile, that one is returned."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """What the target, the workspace and the submitter add to an environment."""

    package_source: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict)
    submitter_python: str = ""
    pinned_lock: Lock | None = None  # a rerun: the very lock of the run before
    image_digest: str = ""  # likewise
    wheel_store: WheelStore | None = None  # where wheels for nodes that are offline lie


def resolve(
    wire: Mapping[str, Any], platform: Platform, settings: Settings | None = None, locks: LockCache | None = None
) -> dict[str, Any]:
    """What the node's launcher is given as job["environment"]. Solves if nobody has yet; may take minutes."""
    settings = settings or Settings()
    environment = Environment.from_wire(wire)
    lock = settings.pinned_lock or (
        lock_for(environment, platform, settings, locks) if environment.needs_lock else None
    )
    return job_environment(environment, lock, settings)


def lock_for(
    environment: Environment, platform: Platform, settings: Settings, locks: LockCache | None, again: bool = False
) -> Lock:
    """The lock of an environment on a platform: the one that is kept, else a new one. `again`: solve anyway."""
    request = request_of(environment, platform, settings)
    with one_at_a_time(request):
        found = locks.find(request) if locks is not None and not again else None
        if found is None:
            found = solve(environment, platform, settings)
            if locks is not None:
                found = locks.keep(request, found)
        return found


def request_of(environment: Environment, platform: Platform, settings: Settings) -> str:
    """The same for requests that must get the same lock."""
    content = {k: v for k, v in environment.to_wire().items() if k in _SOLVED}
    return digest({
        "format": FORMAT, "environment": content, "platform": platform.key,
        "python": python_of(environment, platform, settings), "source": _source(environment, settings),
    })  # fmt: skip


_SOLVED = (
    "packages", "constraints", "conda_packages", "channels", "index_url", "extra_index_urls", "find_links", "offline",
    "files", "azureml",
)  # fmt: skip


def python_of(environment: Environment, platform: Platform, settings: Settings) -> str:
    return choose_python(environment.python, (settings.submitter_python, platform.python))


def solve(environment: Environment, platform: Platform, settings: Settings) -> Lock:
    """Make a lock. Slow, and talks to package indexes and channels."""
    python = python_of(environment, platform, settings)
    sources = sources_of(environment, settings)
    split = take_out_ours(environment.packages, environment.azureml)
    specs = [s for s in environment.conda_packages if s.lower() not in _ONLY_PIP]
    translated: dict[str, str] = {}
    conda_lock = pip_lock = ""
    if specs and _source(environment, settings) == "pypi":
        translated = from_conda(environment.conda_packages)
        specs = []
    if specs:
        wanted = [f"python={python}" if re.match(r"\d", environment.python or "") else _any_python(environment, python)]
        pips = ["pip"] if "pip" in environment.conda_packages else []
        conda_lock = conda.solve([*wanted, *specs, *pips], environment.channels, platform)
        python = conda.packages_of(conda_lock).get("python", python)
    if environment.files:
        pip_lock = pypi.export(environment.files)
    requirements = [*split.packages, *translated.values()]
    if requirements:
        there = provided_by_conda(conda.packages_of(conda_lock))
        constraints = [*environment.constraints, *(f"{name}=={version}" for name, version in there.items())]
        pip_lock += without(pypi.solve(requirements, python, platform, sources, constraints), there)
    wheels = _wheels(environment, settings, conda_lock, pip_lock, python, platform)
    content = {"python": python, "platform": platform.for_uv, "pip": pip_lock, "conda": conda_lock}
    return Lock(
        id=digest(content),
        **content,
        options=tuple(sources.options()),
        ours=split.ours,
        translated=translated,
        packages={**conda.packages_of(conda_lock), **versions_of(pip_lock)},
        wheels=wheels,
    )


def _wheels(
    environment: Environment, settings: Settings, conda_lock: str, pip_lock: str, python: str, platform: Platform
) -> tuple[Mapping[str, Any], ...]:
    """The wheels that the server has to hand on, because the node reaches no index."""
    if not environment.offline or settings.wheel_store is None:
        return ()
    if conda_lock and not all(c.startswith(("file:", "/")) for c in environment.channels):
        raise EnvironmentInvalid(
            f"{environment.label} is for a node that is offline, and conda packages cannot be handed on to it.",
            hint="Say package_source: pypi, or name a channel in a folder of the node (file:///…).",
        )
    found = settings.wheel_store.collect(pip_lock, python, platform, sources_of(environment, settings))
    return tuple(asdict(wheel) for wheel in found)


def sources_of(environment: Environment, settings: Settings) -> Sources:
    return Sources(
        index_url=environment.index_url,
        extra_index_urls=tuple(environment.extra_index_urls),
        find_links=tuple(environment.find_links),
        no_index=environment.offline and bool(environment.find_links),
        secrets=settings.secrets,
    )


def job_environment(environment: Environment, lock: Lock | None, settings: Settings) -> dict[str, Any]:
    """The node's part of it. Holds secrets: it is written into the job (0600) and nowhere else."""
    job: dict[str, Any] = {"name": environment.name, "version": environment.version, "env": dict(environment.env)}
    if not environment.prepare:
        job["prepare"] = False
    if lock is not None:
        sources = sources_of(environment, settings)
        job |= {
            "kind": "built",
            "lock_id": lock.id,
            "lock": {"python": lock.python, "pip": lock.pip, "conda": lock.conda},
            "options": list(lock.options),
            "secrets": sources.secret_env(),
            "offline": environment.offline,
            "wheels": list(lock.wheels),
        }
    elif environment.container is None:
        job |= {"kind": "existing", "interpreter": environment.interpreter or "python"}
    if environment.container is not None:
        box = environment.to_wire()["container"]
        if settings.image_digest and box.get("image") and not box.get("dockerfile"):
            box["pinned"] = settings.image_digest
        job |= {"kind": "container", "container": box}
    return job


def versions_of(pip_lock: str) -> dict[str, str]:
    """Name → version in a lock of requirements."""
    found: dict[str, str] = {}
    for line in pip_lock.splitlines():
        match = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)", line)
        if match:
            found[name_of(match.group(1))] = match.group(2)
        elif re.match(r"[A-Za-z0-9][\w.-]*\s*@\s*\S+", line):
            name, _, address = line.partition("@")
            found[name_of(name)] = address.split()[0]
    return found


def _source(environment: Environment, settings: Settings) -> str:
    source = environment.package_source or settings.package_source
    if source not in ("", "conda", "pypi"):
        raise EnvironmentInvalid(f"package_source={source!r} is not known.", hint="It is 'conda' or 'pypi'.")
    return source if environment.conda_packages else ""


def _any_python(environment: Environment, python: str) -> str:
    return f"python{environment.python}" if environment.python else f"python={python}"
