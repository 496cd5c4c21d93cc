"""Interactive runs: begun here, reported to as a launcher does, ended by what is said in a report."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from shunter.errors import UsageError
from shunter.server.api.context import Server, in_thread
from shunter.server.api.wire import run_wire
from shunter.server.collect.ingest import MOST_BYTES
from shunter.server.services import interactive as service

router = APIRouter()


class BeginBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str
    experiment: str
    name: str = ""
    snapshot_id: str = ""
    tags: dict[str, str] = {}
    properties: dict[str, Any] = {}


@router.post("/workspaces/{workspace}/interactive", status_code=201)
async def start_logging(workspace: str, body: BeginBody, server: Server) -> dict[str, Any]:
    asked = service.Begin(workspace=workspace, **body.model_dump())
    return run_wire(await in_thread(service.start_logging, server, asked))


@router.post("/runs/{run_id}/report")
async def report(run_id: str, request: Request, server: Server) -> dict[str, Any]:
    if int(request.headers.get("content-length") or 0) > MOST_BYTES:
        raise UsageError(f"A report may have at most {MOST_BYTES} bytes.")
    return await in_thread(service.report, server, run_id, await request.body())
