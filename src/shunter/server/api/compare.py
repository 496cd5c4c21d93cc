"""What differs between runs."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import BaseModel

from shunter.server.api.context import Server, in_thread
from shunter.server.api.runs import answer
from shunter.server.services.compare import compare_runs

router = APIRouter(prefix="/api/v1")


class CompareBody(BaseModel):
    runs: list[str]


@router.post("/compare")
async def compare(body: CompareBody, server: Server) -> Response:
    return answer(await in_thread(compare_runs, server, body.runs))
