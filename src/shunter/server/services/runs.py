"""What callers may ask about runs."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shunter.drivers.base import Driver
from shunter.errors import AlreadyExists, Conflict, Infeasible, NotFound, ShunterError, UsageError, nearest
from shunter.model.names import check_run_id, check_title
from shunter.model.run import Event, Launch, Run, Status
from shunter.server.dispatch.explain import Why, explain
from shunter.server.dispatch.place import Pool, fits, gpus_of
from shunter.server.services.inputs import check_inputs
from shunter.server.services.models import check_not_held
from shunter.server.services.notify import check_notify
from shunter.server.services.parts import Parts
from shunter.server.services.retention import forget_run
from shunter.server.services.secrets import check_secrets

#: Linux passes at most 128 KiB in one argument and, with the environment, 2 MiB or so in all.
MOST_ARGUMENT_BYTES = 131071
MOST_ARGUMENTS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Submission:
    """What a client sends to start a run. The id is minted by the client: sending it again submits once."""

    id: str
    workspace: str
    experiment: str
    target: str
    snapshot_id: str
    script: str
    arguments: tuple[str, ...] = ()
    name: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    parent_id: str | None = None
    priority: int = 0


def submit_run(parts: Parts, asked: Submission) -> Run:
    """Check everything that can be checked, then queue it. Nothing is written for a submission that is refused."""
    check_run_id(asked.id)
    check_title("experiment", asked.experiment)
    if asked.name:
        check_title("run", asked.name)
    parts.workspaces.check(asked.workspace)
    _check_arguments(asked)
    _check_texts(asked)
    if asked.config.get("vm_size"):
        try:
            return parts.runs.get(asked.id)  # submitted before: its cluster may be gone already, and is not made again
        except NotFound:
            pass
    asked, made = parts.clusters.for_one_run(asked)
    try:
        return _submit(parts, asked)
    except ShunterError:
        if made is not None:
            parts.clusters.forget(made)
        raise


def _submit(parts: Parts, asked: Submission) -> Run:
    driver = parts.targets.driver(asked.workspace, asked.target)
    manifest = parts.snapshots.require(asked.snapshot_id)
    _check_script(asked.script, {e.path for e in manifest.entries})
    if asked.parent_id:
        parts.runs.get(check_run_id(asked.parent_id))
    config = dict(asked.config)
    check_secrets(parts, asked.workspace, config)
    check_notify(config)
    parts.environments.freeze(asked.workspace, asked.target, driver, config)
    check_inputs(parts, config)
    if config.get("from_checkpoint"):
        config["from_checkpoint"] = parts.runs.find(str(config["from_checkpoint"]), asked.workspace).id
    capacity = driver.capacity()
    slots = _number(config, "cpus", 1)
    if capacity.whole_nodes and config.get("cpus") is None:
        slots = capacity.slots
    node_count = _number(config, "node_count", 1)
    fit = fits(
        capacity, slots=slots, node_count=node_count,
        gpus=_number(config, "gpus", 0), memory_bytes=_number(config, "memory_bytes", 0),
    )  # fmt: skip
    if not fit.possible:
        raise Infeasible(f"It could never start on {asked.target}: {fit.why}.", hint=f"The nearest that would: {fit.nearest}.")
    now = parts.clock()
    run = Run(
        id=asked.id,
        workspace=asked.workspace,
        experiment=asked.experiment,
        name=asked.name,
        target=asked.target,
        status=Status.QUEUED,
        snapshot_id=asked.snapshot_id,
        script=asked.script,
        arguments=asked.arguments,
        config=config,
        submitted_at=now,
        since=now,
        node_count=node_count,
        slots=slots,
        max_attempts=_number(config, "max_attempts", 1),
        parent_id=asked.parent_id,
        priority=asked.priority,
        reason="Submitted.",
        tags=dict(asked.tags),
        properties={**asked.properties, **parts.environments.record(driver, config), **_interpreter(driver, config)},
    )
    try:
        run = parts.runs.add(run, Event(run.id, now, "state", Status.QUEUED, "Submitted.", {}))
    except AlreadyExists:
        return parts.runs.get(asked.id)
    parts.context.notifier.expect(run)
    parts.dispatch.submitted(run)
    return run


def cancel_run(parts: Parts, run_id: str, by: str = "the user") -> Run:
    """Ask for a run and its children to be canceled. Legal in every state, and may be repeated."""
    for child in parts.runs.list(parts.runs.get(run_id).workspace, parent_id=run_id, limit=10_000):
        if not child.is_over:
            cancel_run(parts, child.id, by)
    return parts.dispatch.cancel(run_id, by)


def rerun_run(parts: Parts, run_id: str, new_id: str, changes: Mapping[str, Any] | None = None) -> Run:
    """The same snapshot, arguments and configuration again."""
    old = parts.runs.get(run_id)
    changes = dict(changes or {})
    return submit_run(
        parts,
        Submission(
            id=new_id,
            workspace=old.workspace,
            experiment=old.experiment,
            target=str(changes.pop("target", None) or old.target),
            snapshot_id=old.snapshot_id,
            script=old.script,
            arguments=old.arguments,
            config={**old.config, **changes},
            tags=old.tags,
            properties={k: v for k, v in old.properties.items() if k in ("git", "source")} | {"rerun_of": old.id},
            priority=old.priority,
        ),
    )


def explain_run(parts: Parts, run_id: str) -> Why:
    run = parts.runs.get(run_id)
    launches = parts.runs.launches(run_id)
    pool, problem = None, parts.dispatch.problem_of(run.workspace, run.target)
    ahead = 0
    if run.status == Status.QUEUED:
        try:
            capacity = parts.targets.driver(run.workspace, run.target).capacity()
            in_use = parts.runs.slots_in_use(run.workspace, run.target)
            gpus = sum(gpus_of(parts.runs.get(run_id)) for run_id, _ in in_use) if capacity.gpus else 0
            pool = Pool(capacity, in_use, gpus)
        except NotFound as error:
            problem = error.message
        ahead = parts.runs.ahead_of(run)
    return explain(run, launches, pool, ahead, problem, parts.clock())


def tag_run(parts: Parts, run_id: str, tags: Mapping[str, str], remove: tuple[str, ...] = ()) -> Run:
    run = parts.runs.get(run_id)
    merged = {k: v for k, v in {**run.tags, **{str(k): str(v) for k, v in tags.items()}}.items() if k not in remove}
    return parts.runs.change(run_id, tags=merged)


def delete_run(parts: Parts, run_id: str) -> None:
    """Delete a run that is over, with its log and files. Delete means delete."""
    run = parts.runs.get(run_id)
    if not run.is_over:
        raise Conflict(f"Run {run.id[:8]} is {run.status}.", hint=f"Cancel it first: `shunter run cancel {run.id[:8]}`.")
    check_not_held(parts, run)
    forget_run(parts, run_id)


def attempts_of(launches: list[Launch]) -> list[dict[str, Any]]:
    """The attempts of a run as a person reads them: when, where, how each ended."""
    found: dict[int, list[Launch]] = {}
    for launch in launches:
        found.setdefault(launch.attempt, []).append(launch)
    return [
        {
            "attempt": number,
            "intended_at": min(m.intended_at for m in members),
            "started_at": min((m.started_at for m in members if m.started_at), default=None),
            "ended_at": max((m.ended_at for m in members if m.ended_at), default=None),
            "nodes": [{"node": m.node or None, "state": str(m.state), "evidence": m.evidence or None,
                       "outcome": m.outcome.to_wire() if m.outcome else None} for m in members],
        }
        for number, members in sorted(found.items())
    ]  # fmt: skip


def _interpreter(driver: Driver, config: Mapping[str, Any]) -> dict[str, Any]:
    """Without an environment, a target that has a Python of its own runs the script with that one."""
    if config.get("environment") or not hasattr(driver, "interpreter"):
        return {}
    return {"interpreter": driver.interpreter()}


def _check_script(script: str, paths: set[str]) -> None:
    if not script or script.startswith("/") or ".." in script.split("/") or "\0" in script or "\\" in script:
        raise UsageError(f"{script!r} cannot be the script.", hint="Name it by its path inside the source folder.")
    if posixpath.normpath(script) not in paths:
        known = [p for p in paths if p.endswith(".py")]
        raise NotFound(f"There is no {script!r} in the source folder.", hint=nearest(script, known))


def _check_arguments(asked: Submission) -> None:
    sizes = [len(a.encode("utf-8", "surrogateescape")) for a in asked.arguments]
    for index, (argument, size) in enumerate(zip(asked.arguments, sizes, strict=True)):
        if size > MOST_ARGUMENT_BYTES or "\0" in argument:
            raise UsageError(
                f"Argument {index + 1} has {size} bytes; an operating system passes at most {MOST_ARGUMENT_BYTES}."
                if size > MOST_ARGUMENT_BYTES else f"Argument {index + 1} has a NUL character.",
                hint="Put long values into a file of the source folder and pass its name.",
            )  # fmt: skip
    if sum(sizes) > MOST_ARGUMENTS_BYTES:
        raise UsageError(f"The arguments have {sum(sizes)} bytes together; {MOST_ARGUMENTS_BYTES} are allowed.",
                         hint="Put long values into a file of the source folder and pass its name.")  # fmt: skip


def _check_texts(asked: Submission) -> None:
    for kind, pairs in (("tag", asked.tags), ("environment variable", asked.config.get("env") or {})):
        for name, value in pairs.items():
            if not isinstance(name, str) or not name or "\0" in name + str(value) or (kind != "tag" and "=" in name):
                raise UsageError(f"{name!r} cannot be the name of a {kind}.")


def _number(config: dict[str, Any], name: str, default: int) -> int:
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not min(default, 1) <= value < 1e15:
        raise UsageError(f"{name} is {value!r}; it must be a number of at least {min(default, 1)}.")
    return math.ceil(value)
