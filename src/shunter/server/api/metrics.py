"""Metrics of runs: in the shapes that scripts know, thinned for plots, and the latest of many runs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query, Response

from shunter.server.api.context import Server, in_thread
from shunter.server.api.runs import answer
from shunter.server.services import metrics as service
from shunter.server.services.parts import Parts

router = APIRouter(prefix="/api/v1")


@router.get("/runs/{run_id}/metrics")
async def show(run_id: str, server: Server, name: str | None = None, recursive: bool = False) -> Response:
    return await in_thread(_metrics, server, run_id, name, recursive)


@router.get("/runs/{run_id}/series")
async def series(run_id: str, server: Server, name: list[str] = Query(default=[]), points: int = 1000) -> Response:  # noqa: B008
    """Number metrics thinned on the server to about `points` each."""

    def read() -> Response:
        server.runs.get(run_id)
        found = service.series_of(server, run_id, name, max(2, min(points, service.MOST_POINTS)))
        return answer({"series": [service.series_to_wire(one) for one in found]})

    return await in_thread(read)


@router.get("/runs/{run_id}/checkpoints")
async def checkpoints(run_id: str, server: Server) -> list[dict[str, Any]]:
    """The versions of the run's checkpoints, the newest first."""
    await in_thread(server.runs.get, run_id)
    found = await in_thread(server.context.checkpoints.list, run_id)
    return [
        {"name": v.name, "version": v.version, "attempt": v.attempt, "node": v.node_index, "at": v.at, "bytes": v.bytes,
         "files": [{"path": f.path, "bytes": f.size, "sha256": f.sha256} for f in v.files]}
        for v in found
    ]  # fmt: skip


def _metrics(server: Parts, run_id: str, name: str | None, recursive: bool) -> Response:
    server.runs.get(run_id)
    found = service.family_metrics(server, run_id, name) if recursive else service.metrics_of(server, run_id, name)
    return answer({"metrics": service.to_wire(found)})
