"""Snapshots: ask what is missing, send it, get it back."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from shunter.errors import SnapshotError
from shunter.model.snapshot import Manifest
from shunter.server.api.context import Server, in_thread
from shunter.server.services.parts import Parts

router = APIRouter(prefix="/api/v1")

_MOST_MANIFEST_BYTES = 1 << 30


@router.post("/snapshots")
async def offer(request: Request, server: Server) -> dict[str, Any]:
    """Take a manifest (in its canonical encoding) and answer which blobs are missing; none: the snapshot is kept."""
    body = await request.body()
    return await in_thread(_offer, server, body)


@router.put("/packs")
async def put_pack(request: Request, server: Server) -> dict[str, Any]:
    """Take a pack of blobs as it streams in. The body goes to a thread chunk by chunk: memory stays flat."""
    chunks: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=64)
    loop = asyncio.get_running_loop()

    def read() -> Iterator[bytes]:
        while (chunk := chunks.get()) is not None:
            if isinstance(chunk, BaseException):
                raise chunk
            yield chunk

    work = loop.run_in_executor(None, lambda: server.blobs.receive(read()))
    try:
        async for chunk in request.stream():
            while not work.done():
                try:
                    chunks.put_nowait(chunk)
                    break
                except queue.Full:
                    await asyncio.sleep(0.001)
    except BaseException as error:
        chunks.put(SnapshotError("The pack broke off."))
        await asyncio.wait([work])
        raise error
    while not work.done():
        try:
            chunks.put_nowait(None)
            break
        except queue.Full:
            await asyncio.sleep(0.001)
    received = await work
    return {"blobs": received.blobs, "bytes": received.bytes}


@router.get("/snapshots/{snapshot_id}")
async def manifest(snapshot_id: str, server: Server) -> Response:
    found = await in_thread(server.snapshots.get, snapshot_id)
    return Response(found.to_bytes(), media_type="application/octet-stream")


@router.get("/snapshots/{snapshot_id}/pack")
async def pack(snapshot_id: str, server: Server) -> StreamingResponse:
    """All blobs of a snapshot as one pack, to restore it."""
    found = await in_thread(server.snapshots.get, snapshot_id)
    return StreamingResponse(server.blobs.pack(found.blobs), media_type="application/octet-stream")


def _offer(server: Parts, body: bytes) -> dict[str, Any]:
    if len(body) > _MOST_MANIFEST_BYTES:
        raise SnapshotError("The manifest is too large.")
    found = Manifest.from_bytes(body)
    missing = server.blobs.missing(found.blobs)
    if not missing:
        server.snapshots.add(found, server.clock())
    return {"id": found.snapshot_id, "missing": missing}
