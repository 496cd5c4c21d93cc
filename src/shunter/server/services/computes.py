"""What callers may ask about compute targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from shunter.drivers.registry import driver_class
from shunter.errors import AlreadyExists, Conflict, UsageError, nearest
from shunter.model.compute import Compute
from shunter.model.names import check_compute_name
from shunter.model.run import PLACED, WAITING
from shunter.server.services.parts import Parts


async def add_compute(
    parts: Parts, workspace: str, name: str, kind: str, config: Mapping[str, Any], tags: Mapping[str, str]
) -> Compute:
    """Create or attach a target. The same again is fine; the same name with other settings is refused."""
    check_compute_name(name)
    parts.workspaces.check(workspace)
    checked = check_config(kind, config)
    compute = Compute(name, workspace, kind, checked, parts.clock(), tags=dict(tags))
    existing = {c.name: c for c in parts.computes.list(workspace)}.get(name)
    if existing is not None:
        if existing.kind == kind and existing.config == checked:
            return existing
        raise AlreadyExists(
            f"There is a compute target {name!r} already, with other settings.",
            hint=f"`shunter compute update {name}` changes them; or take another name.",
        )
    driver = driver_class(kind)(compute, parts.targets.home)
    facts = await driver.probe()
    await driver.close()
    compute = parts.computes.add(compute.evolve(facts=facts.to_wire()))
    parts.targets.changed(workspace, name)
    return compute


async def probe_compute(parts: Parts, workspace: str, name: str) -> Compute:
    compute = parts.computes.get(workspace, name)
    facts = await parts.targets.driver(workspace, name).probe()
    compute = parts.computes.update(compute.evolve(facts=facts.to_wire(), state="Succeeded", reason=""))
    parts.targets.changed(workspace, name)
    parts.dispatch.queue_changed(workspace, name)
    return compute


def update_compute(parts: Parts, workspace: str, name: str, config: Mapping[str, Any]) -> Compute:
    compute = parts.computes.get(workspace, name)
    merged = check_config(compute.kind, {**compute.config, **config})
    compute = parts.computes.update(compute.evolve(config=merged))
    parts.targets.changed(workspace, name)
    parts.dispatch.queue_changed(workspace, name)
    return compute


def delete_compute(parts: Parts, workspace: str, name: str) -> None:
    parts.computes.get(workspace, name)
    busy = parts.runs.list(workspace, target=name, statuses=PLACED | WAITING, limit=5)
    if busy:
        shown = ", ".join(run.id[:8] for run in busy)
        raise Conflict(f"Runs are using {name!r}: {shown}.", hint="Wait for them, or cancel them first.")
    if name == "local":
        raise Conflict("The local target cannot be removed: it is this machine.")
    parts.computes.delete(workspace, name)
    parts.targets.changed(workspace, name)


def check_config(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a target as its driver knows them; an unknown one is refused with the nearest named."""
    schema = driver_class(kind).Config
    unknown = [key for key in config if key not in schema.model_fields]
    if unknown:
        raise UsageError(f"Targets of kind {kind!r} have no option {unknown[0]!r}.", hint=nearest(unknown[0], schema.model_fields))
    try:
        return schema(**config).model_dump(mode="json", exclude_none=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"The option {'.'.join(map(str, first['loc']))} is wrong: {first['msg']}.") from error
