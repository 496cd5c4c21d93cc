"""What callers may ask about compute targets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from shunter.drivers.base import Driver, Gone
from shunter.drivers.registry import driver_class
from shunter.errors import AlreadyExists, Conflict, ShunterError, UsageError, nearest
from shunter.model.compute import Compute
from shunter.model.names import advice_on_compute_name, check_compute_name
from shunter.model.run import PLACED, WAITING, Launch, Run
from shunter.server.dispatch import reconcile
from shunter.server.services.parts import Parts
from shunter.server.services.runs import cancel_run
from shunter.server.vault import marked

log = logging.getLogger("shunter.computes")

#: A forced detach gives its runs so long to end when they are asked to.
FORCE_SECONDS = 30.0

#: Told each step of an attach, as a small JSON object.
Say = Callable[[dict[str, Any]], None]


async def add_compute(
    parts: Parts,
    workspace: str,
    name: str,
    kind: str,
    config: Mapping[str, Any],
    tags: Mapping[str, str],
    say: Say = lambda step: None,
) -> Compute:
    """Create or attach a target. The same again is fine; the same name with other settings is refused."""
    check_compute_name(name)
    parts.workspaces.check(workspace)
    checked = check_config(kind, config)
    schema = driver_class(kind).Config
    existing = {c.name: c for c in parts.computes.list(workspace)}.get(name)
    if existing is not None:
        if existing.kind == kind and _asked(schema, parts.vault.unseal(existing.config)) == _asked(schema, checked):
            return existing
        raise AlreadyExists(
            f"There is a compute target {name!r} already, with other settings.",
            hint=f"`shunter compute update {name}` changes them; or take another name.",
        )
    advice = advice_on_compute_name(name)
    if advice:
        say({"check": "target name", "verdict": "warning", "message": advice, "hint": ""})
    compute = Compute(name, workspace, kind, checked, parts.clock(), tags=dict(tags))
    driver = driver_class(kind)(parts.targets.opened(compute), parts.targets.home)
    try:
        facts = await driver.check(lambda step: say(step.to_wire())) if hasattr(driver, "check") else await driver.probe()
        kept = {k: v for k, v in checked.items() if k not in marked(schema, "once")} | _learned(driver)
        sealed = parts.vault.seal(schema, kept)
        compute = parts.computes.add(compute.evolve(config=sealed, facts=facts.to_wire()))
    except BaseException:
        await driver.close()
        raise
    if hasattr(driver, "attached"):
        driver.attached(compute.evolve(config=kept))  # the connection is there: it is the one that is used from now on
        parts.targets.take(compute, driver)
    else:
        await driver.close()
    parts.targets.changed(workspace, name)
    return await parts.clusters.bring_up(compute, say)


async def probe_compute(parts: Parts, workspace: str, name: str) -> Compute:
    compute = parts.computes.get(workspace, name)
    facts = await parts.targets.driver(workspace, name).probe()
    compute = parts.computes.update(compute.evolve(facts=facts.to_wire(), state="Succeeded", reason=""))
    parts.targets.changed(workspace, name)
    parts.dispatch.queue_changed(workspace, name)
    return compute


def update_compute(parts: Parts, workspace: str, name: str, config: Mapping[str, Any]) -> Compute:
    """Change options; None takes one away. What was learned of another address is forgotten with it."""
    compute = parts.computes.get(workspace, name)
    schema = driver_class(compute.kind).Config
    before = parts.vault.unseal(compute.config)
    merged = check_config(compute.kind, {k: v for k, v in {**before, **config}.items() if v is not None})
    fixed = [k for k in marked(schema, "fixed") if merged.get(k) != before.get(k)]
    if fixed:
        raise Conflict(f"{fixed[0]} of {name!r} cannot be changed.", hint="Make another target, and delete this one.")
    moved = [k for k in marked(schema, "place") if merged.get(k) != before.get(k)]
    if moved and parts.runs.list(workspace, target=name, statuses=PLACED, limit=1):
        raise Conflict(f"Runs are on {name!r}: {moved[0]} says where they are.", hint="Change it when they are over.")
    if any(merged.get(k) != before.get(k) for k in ("address", "port", "jump")):
        merged = {k: v for k, v in merged.items() if k not in marked(schema, "learned")}
    compute = parts.computes.update(compute.evolve(config=parts.vault.seal(schema, merged)))
    parts.targets.changed(workspace, name)
    parts.dispatch.queue_changed(workspace, name)
    return compute


async def delete_compute(parts: Parts, workspace: str, name: str, force: bool = False) -> None:
    """Delete or detach a target. Refused while runs are there; with `force` they are canceled first."""
    parts.computes.get(workspace, name)
    if name == "local":
        raise Conflict("The local target cannot be removed: it is this machine.")
    busy = parts.runs.list(workspace, target=name, statuses=PLACED | WAITING, limit=10_000)
    if busy and not force:
        shown = ", ".join(run.id[:8] for run in busy[:5])
        raise Conflict(f"Runs are using {name!r}: {shown}{', …' if len(busy) > 5 else ''}.",
                       hint="Wait for them, or cancel them first; --force does so.")  # fmt: skip
    if busy:
        await _end_runs(parts, workspace, name, busy)
    driver = parts.targets.driver(workspace, name)
    if hasattr(driver, "detach"):
        try:
            await driver.detach()
        except ShunterError as error:
            if isinstance(error, Conflict) and not force:
                raise
            log.warning("%s: what is left there could not be removed: %s", name, error.message)
    await parts.clusters.give_back(workspace, name)
    parts.computes.delete(workspace, name)
    parts.targets.removed(workspace, name)


async def _end_runs(parts: Parts, workspace: str, name: str, busy: list[Run]) -> None:
    for run in busy:
        cancel_run(parts, run.id, "a forced detach")
    until = asyncio.get_running_loop().time() + FORCE_SECONDS
    while busy := parts.runs.list(workspace, target=name, statuses=PLACED | WAITING, limit=10_000):
        if asyncio.get_running_loop().time() > until:
            break
        await asyncio.sleep(0.2)
    for run in busy:
        # Its machine does not answer, and its owner says that it is not coming back: that is the evidence.
        gone = Gone(f"{name} was detached by force while it did not answer.")
        for launch in parts.runs.launches(run.id):
            if launch.attempt == run.attempt and not launch.is_over:

                def decide(run: Run, launch: Launch, members: list[Launch], gone: Gone = gone) -> reconcile.Change:
                    return reconcile.on_sign(run, launch, members, gone, 0.0, parts.clock())

                parts.dispatch.hear(launch.id, decide)


def check_config(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a target as its driver knows them; an unknown one is refused with the nearest named."""
    schema = driver_class(kind).Config
    unknown = [key for key in config if key not in schema.model_fields]
    if unknown:
        raise UsageError(
            f"Targets of kind {kind!r} have no option {unknown[0]!r}.", hint=nearest(unknown[0], schema.model_fields)
        )
    try:
        return schema(**config).model_dump(mode="json", exclude_none=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise UsageError(f"Targets of kind {kind!r} need the option {where}.") from None
        if not where:
            raise UsageError(f"{first['msg'].removeprefix('Value error, ')}.") from None
        # Without the error that caused it: that one quotes the value, which may be a secret.
        raise UsageError(f"The option {where} is wrong: {first['msg']}.") from None


def _asked(schema: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a person asked for: without what was said once and what was found out."""
    return {k: v for k, v in config.items() if k not in marked(schema, "once") | marked(schema, "learned")}


def _learned(driver: Driver) -> dict[str, Any]:
    found: dict[str, Any] = driver.learned() if hasattr(driver, "learned") else {}
    return found
