"""Shells into runs: one call opens one, one reads it, others write to it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from shunter.server.api.context import Server
from shunter.server.services.shells import Shells

router = APIRouter(prefix="/api/v1")
shells = Shells()


class Size(BaseModel):
    columns: int = Field(80, ge=1, le=10_000)
    rows: int = Field(24, ge=1, le=10_000)


class ShellBody(Size):
    term: str = Field("xterm", pattern=r"^[A-Za-z0-9._+-]{1,64}$")
    node: int = Field(0, ge=0)


@router.post("/runs/{run_id}/shell", status_code=201)
async def open_shell(run_id: str, body: ShellBody, server: Server) -> dict[str, Any]:
    return {"shell": await shells.open(server, run_id, body.term, body.columns, body.rows, body.node)}


@router.get("/shells/{name}/output")
async def output(name: str) -> Response:
    shells.get(name)
    return StreamingResponse(shells.output(name), media_type="application/octet-stream")


@router.post("/shells/{name}/input", status_code=204)
async def write(name: str, request: Request) -> None:
    shells.get(name).write(await request.body())


@router.post("/shells/{name}/size", status_code=204)
async def resize(name: str, body: Size) -> None:
    shells.get(name).resize(body.columns, body.rows)
