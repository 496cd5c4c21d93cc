"""Machine sizes."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from shunter.catalogue.sizes import Wanted
from shunter.server.api.context import Server, in_thread
from shunter.server.services import sizes as service

router = APIRouter(prefix="/api/v1")


@router.get("/sizes")
async def find(
    server: Server,
    text: str | None = None,
    cloud: str | None = None,
    region: str | None = None,
    min_cpus: int | None = None,
    max_cpus: int | None = None,
    min_memory_gib: float | None = None,
    min_gpus: float | None = None,
    gpu_model: str | None = None,
    min_gpu_memory_gib: float | None = None,
    max_usd_per_hour: float | None = None,
    limit: int = 200,
) -> list[dict[str, Any]]:
    """Sizes that fit, cheapest first."""
    wanted = Wanted(
        text,
        cloud,
        region,
        min_cpus,
        max_cpus,
        min_memory_gib,
        min_gpus,
        gpu_model,
        min_gpu_memory_gib,
        max_usd_per_hour,
    )
    return [size.to_wire(region) for size in (await in_thread(service.find_sizes, server, wanted))[:limit]]


@router.get("/sizes/{name}")
async def show(name: str, server: Server) -> dict[str, Any]:
    return (await in_thread(service.get_size, server, name)).to_wire()
