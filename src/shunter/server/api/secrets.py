"""Secrets of a workspace: names come and go, values only come."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from shunter.server.api.context import Server, in_thread
from shunter.server.api.wire import time_text
from shunter.server.services import secrets as service

router = APIRouter(prefix="/api/v1/workspaces/{workspace}/secrets")


class SecretBody(BaseModel):
    value: str


@router.put("/{name}")
async def set_secret(workspace: str, name: str, body: SecretBody, server: Server) -> dict[str, Any]:
    return await in_thread(service.set_secret, server, workspace, name, body.value)


@router.get("")
async def list_secrets(workspace: str, server: Server) -> list[dict[str, Any]]:
    found = await in_thread(service.list_secrets, server, workspace)
    return [
        {"name": f["name"], "created_at": time_text(f["created_at"]), "updated_at": time_text(f["updated_at"])}
        for f in found
    ]


@router.delete("/{name}", status_code=204)
async def delete_secret(workspace: str, name: str, server: Server) -> None:
    await in_thread(service.delete_secret, server, workspace, name)
