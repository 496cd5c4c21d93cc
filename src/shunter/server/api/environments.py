"""Environments of a workspace: kept by name and version, locked for a target, compared."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from shunter.model.environment import Environment
from shunter.model.run import parse_launch_id
from shunter.server.api.context import Server, in_thread
from shunter.server.api.wire import time_text
from shunter.server.environments.resolve import Lock

router = APIRouter(prefix="/api/v1")


class EnvironmentBody(BaseModel):
    environment: dict[str, Any]


class LockBody(BaseModel):
    environment: dict[str, Any]
    target: str = "local"
    python: str = ""
    again: bool = False


class DiffBody(BaseModel):
    before: dict[str, Any]
    after: dict[str, Any]


@router.post("/workspaces/{workspace}/environments", status_code=201)
async def register(workspace: str, body: EnvironmentBody, server: Server) -> dict[str, Any]:
    return environment_wire(await in_thread(server.environments.register, workspace, body.environment))


@router.get("/workspaces/{workspace}/environments")
async def list_environments(workspace: str, server: Server) -> list[dict[str, Any]]:
    found = await in_thread(server.environments.registered, workspace)
    return [environment_wire(e, at) for e, at in found]


@router.get("/environments/curated")
async def list_curated(server: Server) -> list[dict[str, Any]]:
    return [
        {**environment_wire(c.environment), "framework": c.framework, "variant": c.variant}
        for c in server.environments.curated()
    ]


@router.get("/workspaces/{workspace}/environments/{reference}")
async def show(workspace: str, reference: str, server: Server) -> dict[str, Any]:
    return environment_wire(await in_thread(server.environments.find, workspace, reference))


@router.delete("/workspaces/{workspace}/environments/{reference}")
async def delete(workspace: str, reference: str, server: Server) -> dict[str, Any]:
    return {"deleted": await in_thread(server.environments.delete, workspace, reference)}


@router.post("/workspaces/{workspace}/environment-locks")
async def lock(workspace: str, body: LockBody, server: Server) -> dict[str, Any]:
    return lock_wire(
        await server.environments.lock_apart(workspace, body.environment, body.target, body.python, body.again)
    )


@router.get("/environment-locks/{lock_id}")
async def show_lock(lock_id: str, server: Server) -> dict[str, Any]:
    return lock_wire(await in_thread(server.environments.locks.get, lock_id))


@router.get("/node/{launch_id}/wheel/{sha256}")
async def wheel(launch_id: str, sha256: str, server: Server, offset: int = 0, size: int = 1 << 20) -> Response:
    run_id, _, _ = parse_launch_id(launch_id)
    data = await in_thread(server.environments.wheel, run_id, sha256, offset, size)
    return Response(data, media_type="application/octet-stream")


@router.post("/workspaces/{workspace}/environment-diff")
async def compare(workspace: str, body: DiffBody, server: Server) -> list[dict[str, Any]]:
    return [asdict(d) for d in await in_thread(server.environments.diff, workspace, body.before, body.after)]


def environment_wire(environment: Environment, created_at: float | None = None) -> dict[str, Any]:
    return {
        "name": environment.name,
        "version": environment.version,
        "kind": environment.kind,
        "content_id": environment.content_id,
        "created_at": time_text(created_at),
        "environment": environment.to_wire(),
    }


def lock_wire(found: Lock) -> dict[str, Any]:
    return {**found.to_wire(), "source": found.source}
