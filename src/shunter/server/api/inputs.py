"""Inputs: looked at for a submitter, read for the node of a run that was given them; and what is kept at all."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from shunter.model.run import parse_launch_id
from shunter.server.api.context import Server, in_thread
from shunter.server.api.runs import answer
from shunter.server.services import inputs as service
from shunter.server.services.retention import Freed, collect_garbage, free_on_machines

router = APIRouter(prefix="/api/v1")


class UrlBody(BaseModel):
    url: str


class GarbageBody(BaseModel):
    older_than_days: float | None = None
    checkpoints: bool = True
    dry_run: bool = True
    grace_seconds: float = 3600.0


@router.post("/inputs/look")
async def look(body: UrlBody) -> dict[str, Any]:
    """What a URL holds now: noted at submit, compared when it is read."""
    return await in_thread(service.look_at_url, body.url)


@router.get("/node/{launch_id}/input/{name}")
async def listing(launch_id: str, name: str, server: Server, again: bool = False) -> Response:
    """The files of an input; `again` looks at a URL anew, when all of it was read."""
    run_id, _, _ = parse_launch_id(launch_id)
    run = await in_thread(server.runs.get, run_id)
    return answer(await in_thread(service.listing_of, server, run, name, again))


@router.get("/node/{launch_id}/input/{name}/data")
async def data(launch_id: str, name: str, server: Server, offset: int = 0, size: int = 1 << 20) -> Response:
    run_id, _, _ = parse_launch_id(launch_id)
    run = await in_thread(server.runs.get, run_id)
    found = await in_thread(service.read_input, server, run, name, offset, size)
    return Response(found, media_type="application/octet-stream")


@router.post("/garbage")
async def garbage(body: GarbageBody, server: Server) -> dict[str, Any]:
    """Free what nothing refers to; with `dry_run`, only tell what that would be."""

    def work() -> Freed:
        return collect_garbage(
            server, older_than_days=body.older_than_days, checkpoints=body.checkpoints, dry_run=body.dry_run,
            grace_seconds=body.grace_seconds,
        )  # fmt: skip

    freed = await in_thread(work)
    await free_on_machines(server, freed, body.grace_seconds)
    return freed.to_wire()
