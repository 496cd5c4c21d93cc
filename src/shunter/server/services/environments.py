"""What callers may ask about environments, and what a run's environment needs before the run can start.

`connect` joins these to a server's orders, dispatch and collect.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.errors import EnvironmentInvalid, Infeasible, NameInvalid, NotFound, ShunterError, nearest
from shunter.model.environment import Container, Difference, Environment, diff
from shunter.model.run import Launch, Run, parse_launch_id
from shunter.node.environments.facts import host_facts
from shunter.server.environments.curated import Curated, curated, default_image
from shunter.server.environments.platforms import Platform, of_facts, of_this_machine
from shunter.server.environments.resolve import Lock, Settings, job_environment, lock_for, request_of
from shunter.server.environments.tools import tools
from shunter.server.environments.wheels import WheelStore
from shunter.server.storage.environments import Environments, Locks

if TYPE_CHECKING:
    from shunter.drivers.base import Driver
    from shunter.server.services.parts import Parts

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,127}")
_VERSION = re.compile(r"[A-Za-z0-9._-]{1,64}")
ENGINE = "SHUNTER_CONTAINER_ENGINE"
#: A variable of a run: its environment is compared with what was installed, file by file, and built again if it differs.
VERIFY = "SHUNTER_VERIFY_ENVIRONMENT"
MOST_WHEEL_BYTES = 32 << 20


def connect(parts: Parts) -> EnvironmentService:
    service = EnvironmentService(parts)
    parts.orders.additions.append(service.add_to_job)
    parts.dispatch.needs = service.needs
    parts.dispatch.prepare = service.prepare
    parts.ingest.handlers.add("events", service.on_events)
    return service


class EnvironmentService:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.store = Environments(parts.database)
        self.locks = Locks(parts.database)
        self.wheels = WheelStore(parts.home / "wheels")
        # Solving takes seconds to minutes: it must not hold the threads that everything else needs.
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="shunter-solve")

    # What callers ask

    def register(self, workspace: str, wire: Mapping[str, Any]) -> Environment:
        """Keep an environment under its name: a new version, or the newest when nothing changed."""
        self.parts.workspaces.check(workspace)
        environment = Environment.from_wire(wire)
        if not _NAME.fullmatch(environment.name):
            raise NameInvalid(
                f"{environment.name!r} cannot be the name of an environment.",
                hint="Take letters, digits, blanks, '-', '_' and '.', beginning with a letter or digit, at most 128.",
            )
        if environment.version and not _VERSION.fullmatch(environment.version):
            raise NameInvalid(f"{environment.version!r} cannot be the version of an environment.")
        return self.store.add(workspace, environment, self.parts.clock())

    def find(self, workspace: str, reference: str) -> Environment:
        """A registered or curated environment by `NAME` (its newest version) or `NAME:VERSION`."""
        name, _, version = reference.partition(":")
        found = self.store.get(workspace, name, version)
        if found is None and reference in curated():
            found = curated()[reference].environment
        if found is None:
            known = {e.name for e, _ in self.store.list(workspace)} | {c.environment.name for c in curated().values()}
            what = (
                f"version {version} of an environment {name!r}"
                if version and name in known
                else f"environment {reference!r}"
            )
            raise NotFound(f"There is no {what}.", hint=nearest(reference, known))
        return found

    def registered(self, workspace: str) -> list[tuple[Environment, float]]:
        self.parts.workspaces.check(workspace)
        return self.store.list(workspace)

    def curated(self) -> list[Curated]:
        return [one for key, one in curated().items() if ":" in key]

    def delete(self, workspace: str, reference: str) -> int:
        name, _, version = reference.partition(":")
        gone = self.store.delete(workspace, name, version)
        if not gone:
            raise NotFound(
                f"There is no environment {reference!r}.",
                hint=nearest(name, {e.name for e, _ in self.store.list(workspace)}),
            )
        return gone

    def content(self, workspace: str, wire: Mapping[str, Any]) -> Environment:
        """What a submit sent: an environment itself, or a reference to one."""
        if "ref" in wire:
            found = self.find(workspace, str(wire["ref"]))
            return found.evolve(prepare=bool(wire.get("prepare", True)))
        return Environment.from_wire(wire)

    def lock(self, workspace: str, wire: Mapping[str, Any], target: str, python: str = "", again: bool = False) -> Lock:
        """The lock of an environment on a target. `again`: solve anew, also when one is kept. May take minutes."""
        environment = self.content(workspace, wire)
        if not environment.needs_lock:
            raise EnvironmentInvalid(f"{environment.label} installs nothing: there is nothing to lock.")
        settings = self._settings(workspace, target, python)
        return lock_for(environment, self._platform(workspace, target), settings, self.locks, again)

    async def lock_apart(self, workspace: str, wire: Mapping[str, Any], target: str, python: str, again: bool) -> Lock:
        """`lock`, in a thread that is there for solving."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: self.lock(workspace, wire, target, python, again))

    def diff(self, workspace: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
        return diff(self.content(workspace, before), self.content(workspace, after))

    # What a run needs

    def freeze(self, workspace: str, target: str, driver: Driver, config: dict[str, Any]) -> None:
        """At submit: replace a reference by what it means now, and refuse what can never work on the target."""
        wire = config.get("environment")
        if wire is None:
            return
        if not isinstance(wire, Mapping):
            raise EnvironmentInvalid(f"{wire!r} is not an environment.")
        environment = self.content(workspace, wire)
        box = environment.container
        if box is not None:
            if not driver.can.containers:
                raise Infeasible(
                    f"{environment.label} needs a container, and {target} runs none.",
                    hint="Take a target that does, or an environment without an image.",
                )
            nodes = config.get("node_count")
            if box.network != "host" and isinstance(nodes, int) and nodes > 1:
                raise Infeasible(
                    f"{environment.label} is in a network of its own ({box.network}): {nodes} nodes could not find each other.",
                    hint="Leave its network out, and a container is in that of its node; or take one node.",
                )
            if not box.image and not box.dockerfile:
                environment = environment.evolve(container=_with_image(box, default_image()))
        if environment.needs_lock:
            request_of(environment, self._platform(workspace, target), self._settings(workspace, target))
        config["environment"] = environment.to_wire()

    def needs(self, run: Run) -> str:
        """What has to be made before a run can be launched, in words; empty when nothing."""
        wire = run.config.get("environment")
        if not wire:
            return ""
        environment = Environment.from_wire(wire)
        if not environment.needs_lock:
            return ""
        platform, settings = self._platform(run.workspace, run.target), self._run_settings(run)
        if settings.pinned_lock or self.locks.find(request_of(environment, platform, settings)):
            return ""
        return "Solving its environment: which versions go together."

    def record(self, driver: Driver, config: Mapping[str, Any]) -> dict[str, Any]:
        """For a run without an environment of its own on this machine: the interpreter it gets, and the machine."""
        if config.get("environment") or not getattr(driver, "shares_disk", False):
            return {}
        node = {"interpreter": config.get("interpreter"), "python": config.get("python"), "host": host_facts()}
        return {"environment": {"kind": "submitter", "nodes": {"0": node}}}

    async def prepare(self, run: Run) -> None:
        """Have the run's lock at hand. Raises EnvironmentInvalid with the solver's own reason."""
        if not run.config.get("environment"):
            return
        await asyncio.get_running_loop().run_in_executor(self._pool, self._prepare, run)

    def add_to_job(self, run: Run, launch: Launch, job: dict[str, Any]) -> None:
        limits = {k: run.config[k] for k in ("cpus", "memory_bytes", "gpus") if run.config.get(k)}
        if limits:
            job["limits"] = limits
        wire = run.config.get("environment")
        if not wire:
            return
        environment = Environment.from_wire(wire)
        settings = self._run_settings(run)
        lock = self._lock_of(run, environment, settings)
        found = job_environment(environment, lock, settings)
        if os.environ.get(ENGINE):
            found["engine"] = os.environ[ENGINE]
        variables = {**environment.env, **(run.config.get("env") or {})}
        if str(variables.get("PYTHONDONTWRITEBYTECODE") or ""):
            found["compile"] = True
        if str(variables.get(VERIFY) or ""):
            found["verify"] = True
        job["environment"] = found
        if lock is not None:
            job["tools"] = tools(self._platform(run.workspace, run.target), self.wheels, conda=bool(lock.conda))

    def wheel(self, run_id: str, sha256: str, offset: int, size: int) -> bytes:
        """A piece of a wheel for a node that is offline: only of those that the run's own lock names."""
        record = self.parts.runs.get(run_id).properties.get("environment") or {}
        lock = self.locks.get(str(record.get("lock") or "none"))
        path = self.wheels.path(sha256) if any(w["sha256"] == sha256 for w in lock.wheels) else None
        if path is None:
            raise NotFound("There is no such wheel in the lock of this run.")
        with path.open("rb") as file:
            file.seek(max(0, offset))
            return file.read(max(1, min(size, MOST_WHEEL_BYTES)))

    def on_events(self, run: Run, launch_id: str, path: Path) -> None:
        """What nodes say about the environment they made, into the run's record."""
        index = parse_launch_id(launch_id)[2]
        found = None
        for line in path.read_bytes().splitlines():
            if b'"environment"' in line:
                said = json.loads(line)
                if said.get("kind") == "environment":
                    found = said
        if found is None:
            return
        properties = dict(self.parts.runs.get(run.id).properties)
        record = dict(properties.get("environment") or {})
        nodes = {str(k): v for k, v in (record.get("nodes") or {}).items()}
        said = {"seconds": found.get("seconds"), "host": found.get("host"), **(found.get("environment") or {})}
        if nodes.get(str(index)) == said:
            return
        nodes[str(index)] = said
        self.parts.runs.change(run.id, properties={**properties, "environment": {**record, "nodes": nodes}})

    def _prepare(self, run: Run) -> None:
        environment = Environment.from_wire(run.config["environment"])
        settings = self._run_settings(run)
        lock = self._lock_of(run, environment, settings)
        record: dict[str, Any] = {
            "name": environment.name, "version": environment.version, "kind": environment.kind,
            "content": environment.content_id,
        }  # fmt: skip
        if lock is not None:
            record |= {"lock": lock.id, "python": lock.python, "source": lock.source, "ours": list(lock.ours)}
            record |= {"translated": dict(lock.translated)} if lock.translated else {}
        properties = dict(self.parts.runs.get(run.id).properties)
        known = properties.get("environment") or {}
        if any(known.get(k) != v for k, v in record.items()):
            self.parts.runs.change(run.id, properties={**properties, "environment": {**known, **record}})

    def _lock_of(self, run: Run, environment: Environment, settings: Settings) -> Lock | None:
        if not environment.needs_lock:
            return None
        platform = self._platform(run.workspace, run.target)
        pinned = settings.pinned_lock
        if pinned is not None and pinned.platform == platform.for_uv:
            return pinned
        return lock_for(environment, platform, settings, self.locks)

    def _run_settings(self, run: Run) -> Settings:
        pinned, digest = self._of_run_before(run)
        found = self._settings(run.workspace, run.target, str(run.config.get("python") or ""))
        return replace(found, pinned_lock=pinned, image_digest=digest)

    def _of_run_before(self, run: Run) -> tuple[Lock | None, str]:
        """A rerun gets the very lock and image of the run before, also when the same request would give others now."""
        before = run.properties.get("rerun_of")
        if not before:
            return None, ""
        try:
            record = self.parts.runs.get(str(before)).properties.get("environment") or {}
            lock = self.locks.get(record["lock"]) if record.get("lock") else None
        except ShunterError:
            return None, ""
        nodes = (record.get("nodes") or {}).values()
        return lock, str(next((n.get("image_digest") for n in nodes if n.get("image_digest")), ""))

    def _settings(self, workspace: str, target: str, python: str = "") -> Settings:
        compute = self.parts.computes.get(workspace, target)
        ours = self.parts.workspaces.get(workspace)["settings"]
        source = (
            compute.config.get("package_source") or compute.tags.get("package_source") or ours.get("package_source")
        )
        return Settings(str(source or ""), _Secrets(self.parts, workspace), python, wheel_store=self.wheels)

    def _platform(self, workspace: str, target: str) -> Platform:
        if getattr(self.parts.targets.driver(workspace, target), "shares_disk", False):
            return of_this_machine()
        return of_facts(self.parts.computes.get(workspace, target).facts)


class _Secrets(Mapping[str, str]):
    """The workspace's secrets, read when one is asked for."""

    def __init__(self, parts: Parts, workspace: str) -> None:
        self.parts, self.workspace = parts, workspace

    def __getitem__(self, name: str) -> str:
        try:
            return self.parts.context.secrets.get(self.workspace, name)
        except ShunterError as error:
            raise KeyError(name) from error

    def __iter__(self) -> Any:
        return iter([s["name"] for s in self.parts.context.secrets.list(self.workspace)])

    def __len__(self) -> int:
        return len(self.parts.context.secrets.list(self.workspace))


def _with_image(box: Container, image: str) -> Container:
    return replace(box, image=image)
