"""Compute targets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from shunter.drivers.registry import driver_class, kinds
from shunter.errors import ServerError, ShunterError
from shunter.model.compute import Compute
from shunter.model.run import PLACED, Status
from shunter.server.api.context import Server, in_thread
from shunter.server.api.wire import compute_wire, time_text
from shunter.server.services import computes as service
from shunter.server.services.parts import Parts

router = APIRouter(prefix="/api/v1")
log = logging.getLogger("shunter.computes")


class ComputeBody(BaseModel):
    name: str
    kind: str
    config: dict[str, Any] = {}
    tags: dict[str, str] = {}


class ConfigBody(BaseModel):
    config: dict[str, Any]


@router.post("/workspaces/{workspace}/computes", status_code=201)
async def add(workspace: str, body: ComputeBody, server: Server, steps: bool = False) -> Any:
    """Create or attach. With `steps` the answer is one JSON object a line: each step, then the target or the error."""
    if steps:
        return StreamingResponse(_add_in_steps(server, workspace, body), 201, media_type="application/x-ndjson")
    return compute_wire(await service.add_compute(server, workspace, body.name, body.kind, body.config, body.tags))


async def _add_in_steps(server: Parts, workspace: str, body: ComputeBody) -> AsyncIterator[str]:
    lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def work() -> None:
        try:
            made = await service.add_compute(
                server, workspace, body.name, body.kind, body.config, body.tags, lines.put_nowait
            )
            lines.put_nowait({"compute": compute_wire(made)})
        except ShunterError as error:
            lines.put_nowait({"error": error.to_wire()})
        except Exception as error:
            log.exception("%s could not be added", body.name)
            lines.put_nowait({"error": ServerError(f"The server failed: {type(error).__name__}.").to_wire()})
        finally:
            lines.put_nowait(None)

    task = asyncio.ensure_future(work())
    while (line := await lines.get()) is not None:
        yield json.dumps(line) + "\n"
    await task


@router.get("/workspaces/{workspace}/computes")
async def list_computes(workspace: str, server: Server) -> list[dict[str, Any]]:
    server.workspaces.check(workspace)
    return [compute_wire(c) | _status(server, c) for c in await in_thread(server.computes.list, workspace)]


@router.get("/workspaces/{workspace}/computes/{name}")
async def show(workspace: str, name: str, server: Server) -> dict[str, Any]:
    compute = await in_thread(server.computes.get, workspace, name)
    running = await in_thread(lambda: server.runs.list(workspace, target=name, statuses=PLACED, limit=200))
    queued = await in_thread(lambda: server.runs.list(workspace, target=name, statuses=[Status.QUEUED], limit=1000))
    try:
        capacity = server.targets.driver(workspace, name).capacity()
        room: dict[str, Any] = {"slots": capacity.slots, "nodes": capacity.nodes, "gpus": capacity.gpus}
    except ShunterError as error:
        room = {"problem": error.message}
    runs = [
        {"id": r.id, "name": r.name, "experiment": r.experiment, "status": str(r.status), "slots": r.slots,
         "since": time_text(r.since)}
        for r in running
    ]  # fmt: skip
    nodes = await server.clusters.status(workspace, name) if "problem" not in room else {}
    found = {**compute_wire(compute), **_status(server, compute), "capacity": room, "running": runs, "queued": len(queued)}
    return found | nodes | await _load(server, compute)


@router.post("/workspaces/{workspace}/computes/{name}/probe")
async def probe(workspace: str, name: str, server: Server) -> dict[str, Any]:
    return compute_wire(await service.probe_compute(server, workspace, name))


@router.patch("/workspaces/{workspace}/computes/{name}")
async def update(workspace: str, name: str, body: ConfigBody, server: Server) -> dict[str, Any]:
    compute = await in_thread(service.update_compute, server, workspace, name, body.config)
    await server.clusters.apply(workspace, name)
    return compute_wire(compute)


@router.delete("/workspaces/{workspace}/computes/{name}", status_code=204)
async def delete(workspace: str, name: str, server: Server, force: bool = False) -> None:
    await service.delete_compute(server, workspace, name, force)


@router.get("/kinds")
async def list_kinds() -> list[dict[str, Any]]:
    """The kinds of targets this server knows, their options and what they can do; one that fails to load says why."""
    found = []
    for kind in sorted(kinds()):
        try:
            cls = driver_class(kind)
            can = {name: getattr(cls.can, name) for name in cls.can.__dataclass_fields__}
            found.append({"kind": kind, "can": can, "config": cls.Config.model_json_schema()})
        except ShunterError as error:
            found.append({"kind": kind, "problem": error.message, "hint": error.hint})
    return found


@router.get("/kinds/{kind}")
async def show_kind(kind: str) -> dict[str, Any]:
    """One kind. The others are not loaded for it."""
    cls = driver_class(kind)
    can = {name: getattr(cls.can, name) for name in cls.can.__dataclass_fields__}
    return {"kind": kind, "can": can, "config": cls.Config.model_json_schema()}


async def _load(server: Parts, compute: Compute) -> dict[str, Any]:
    """How busy a target is that can say so; nothing of one that does not answer."""
    try:
        driver = server.targets.driver(compute.workspace, compute.name)
        found = await driver.load() if hasattr(driver, "load") else None
    except ShunterError:
        return {}
    return {} if found is None else {"load": found}


def _status(server: Parts, compute: Compute) -> dict[str, Any]:
    """Whether a target that keeps a connection answers now. Nothing is tried for it."""
    try:
        driver = server.targets.driver(compute.workspace, compute.name)
    except ShunterError as error:
        return {"status": {"reachable": False, "why": error.message}}
    if not hasattr(driver, "status"):
        return {}
    found = dict(driver.status())
    found["since"] = time_text(found.get("since"))
    return {"status": found}
