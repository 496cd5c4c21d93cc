"""Workspaces, their experiments, and the server itself."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from shunter.model.names import check_title
from shunter.server.api import interactive
from shunter.server.api.context import Server, in_thread
from shunter.server.api.wire import time_text
from shunter.server.services.workspaces import create_workspace

router = APIRouter(prefix="/api/v1")
router.include_router(interactive.router)


class WorkspaceBody(BaseModel):
    name: str
    exist_ok: bool = False


class ExperimentBody(BaseModel):
    name: str


@router.get("/server")
async def about(server: Server) -> dict[str, Any]:
    return dict(server.info)


@router.post("/server/stop", status_code=202)
async def stop(server: Server) -> dict[str, Any]:
    """End this server in an orderly way. Runs go on."""
    server.stop()
    return {"stopping": True}


@router.post("/workspaces", status_code=201)
async def create(body: WorkspaceBody, server: Server) -> dict[str, Any]:
    return _workspace(await in_thread(create_workspace, server, body.name, body.exist_ok))


@router.get("/workspaces")
async def list_workspaces(server: Server) -> list[dict[str, Any]]:
    return [_workspace(w) for w in await in_thread(server.workspaces.list)]


@router.get("/workspaces/{workspace}")
async def show(workspace: str, server: Server) -> dict[str, Any]:
    return _workspace(await in_thread(server.workspaces.get, workspace))


@router.patch("/workspaces/{workspace}/settings")
async def change(workspace: str, body: dict[str, Any], server: Server) -> dict[str, Any]:
    return _workspace(await in_thread(server.workspaces.change, workspace, body))


@router.get("/workspaces/{workspace}/experiments")
async def list_experiments(workspace: str, server: Server) -> list[dict[str, Any]]:
    server.workspaces.check(workspace)
    found = await in_thread(server.experiments.list, workspace)
    return [e | {"created_at": time_text(e["created_at"])} for e in found]


@router.post("/workspaces/{workspace}/experiments", status_code=201)
async def add_experiment(workspace: str, body: ExperimentBody, server: Server) -> dict[str, Any]:
    server.workspaces.check(workspace)
    check_title("experiment", body.name)
    await in_thread(server.experiments.add, workspace, body.name, server.clock())
    return await show_experiment(workspace, body.name, server)


@router.get("/workspaces/{workspace}/experiments/{name}")
async def show_experiment(workspace: str, name: str, server: Server) -> dict[str, Any]:
    server.workspaces.check(workspace)
    found = await in_thread(server.experiments.get, workspace, name)
    counts = await in_thread(server.runs.count_by_status, workspace, name)
    return found | {"created_at": time_text(found["created_at"]), "statuses": counts}


def _workspace(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"created_at": time_text(found["created_at"])}
