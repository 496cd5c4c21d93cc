"""Registered models of a workspace."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel

from shunter.errors import NotFound
from shunter.server.api.context import Server, in_mlflow_thread
from shunter.server.api.wire import time_text
from shunter.server.services import models as service

router = APIRouter(prefix="/api/v1/workspaces/{workspace}/models")


class RegisterBody(BaseModel):
    name: str
    #: Either the run whose files these are, or the upload they came with.
    run_id: str | None = None
    upload: str | None = None
    path: str
    tags: dict[str, str] = {}
    description: str = ""
    aliases: list[str] = []


@router.post("", status_code=201)
async def register(workspace: str, body: RegisterBody, server: Server) -> dict[str, Any]:
    server.workspaces.check(workspace)
    return _wire(await in_mlflow_thread(
        service.register_model, server, workspace, body.run_id, body.path, body.name, body.tags, body.description,
        tuple(body.aliases), body.upload,
    ))  # fmt: skip


@router.put("/uploads/{upload}/{path:path}", status_code=204)
async def put_file(workspace: str, upload: str, path: str, request: Request, server: Server) -> None:
    """A file of a model that no run made; `register` names the upload."""
    server.workspaces.check(workspace)
    await server.tracking.artifacts.put(service.upload_place(upload, path), request.stream())


@router.get("")
async def list_models(workspace: str, server: Server) -> list[dict[str, Any]]:
    server.workspaces.check(workspace)
    return [_wire(m) for m in await in_mlflow_thread(service.list_models, server, workspace)]


@router.get("/{name}/versions")
async def versions(workspace: str, name: str, server: Server) -> list[dict[str, Any]]:
    return [_wire(m) for m in await in_mlflow_thread(service.versions_of, server, workspace, name)]


@router.get("/{name}")
async def show(workspace: str, name: str, server: Server, version: str | None = None) -> dict[str, Any]:
    return _wire(await in_mlflow_thread(service.get_model, server, workspace, name, version))


@router.delete("/{name}", status_code=204)
async def delete(workspace: str, name: str, server: Server, version: str | None = None) -> None:
    await in_mlflow_thread(service.delete_model, server, workspace, name, version)


@router.get("/{name}/files")
async def list_files(workspace: str, name: str, server: Server, version: str | None = None) -> list[dict[str, Any]]:
    found = await in_mlflow_thread(service.files_of, server, workspace, name, version)
    return [{"path": path, "bytes": place.stat().st_size} for path, place in found]


@router.get("/{name}/files/{path:path}")
async def get_file(workspace: str, name: str, path: str, server: Server, version: str | None = None) -> FileResponse:
    for found, place in await in_mlflow_thread(service.files_of, server, workspace, name, version):
        if found == path:
            return FileResponse(place, media_type="application/octet-stream")
    raise NotFound(f"Model {name!r} has no file {path!r}.")


def _wire(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "created_at": time_text(found["created_at"])}
