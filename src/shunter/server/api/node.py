"""Where launchers report. The door has seen to it that the token is the one of this very run."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from shunter.errors import UsageError
from shunter.server.api.context import in_thread, parts_of
from shunter.server.api.runs import answer
from shunter.server.collect.ingest import MOST_BYTES

router = APIRouter(prefix="/api/v1/node")


@router.post("/{launch_id}")
async def report(launch_id: str, request: Request) -> Response:
    if int(request.headers.get("content-length") or 0) > MOST_BYTES:
        raise UsageError(f"A report may have at most {MOST_BYTES} bytes.")
    return answer(await in_thread(parts_of(request).ingest.receive, launch_id, await request.body()))
