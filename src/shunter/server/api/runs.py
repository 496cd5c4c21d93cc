"""Runs: look, wait, cancel. They are submitted in `submissions.py`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel

from shunter.errors import NotFound, UsageError
from shunter.model.run import Run, Status, launch_id
from shunter.server.api.context import Server, in_thread, quickly
from shunter.server.api.wire import event_wire, run_wire, time_text, why_wire
from shunter.server.collect.clocks import usage_in_our_time
from shunter.server.services import runs as service
from shunter.server.services.parts import Parts

router = APIRouter(prefix="/api/v1")

LONGEST_WAIT_SECONDS = 60.0
LOG_CHUNK_BYTES = 1 << 20
REFRESH_SECONDS = 60.0


class RerunBody(BaseModel):
    id: str
    changes: dict[str, Any] = {}


class TagBody(BaseModel):
    tags: dict[str, str] = {}
    remove: list[str] = []


@router.get("/workspaces/{workspace}/runs")
async def list_runs(
    workspace: str, server: Server, experiment: str | None = None, target: str | None = None, status: str | None = None,
    parent: str | None = None, tag: str | None = None, before: float | None = None, limit: int = 50,
) -> list[dict[str, Any]]:  # fmt: skip
    try:
        statuses = [Status(s) for s in status.split(",")] if status else []
    except ValueError as error:
        raise UsageError(f"{error}.", hint="States: " + ", ".join(Status)) from error
    tags = dict([tag.split("=", 1)]) if tag and "=" in tag else None
    server.workspaces.check(workspace)
    found = await in_thread(
        lambda: server.runs.list(workspace, experiment=experiment, target=target, statuses=statuses, parent_id=parent,
                                 tags=tags, before=before, limit=max(1, min(limit, 1000)))
    )  # fmt: skip
    return [run_wire(run) for run in found]


@router.get("/workspaces/{workspace}/find/{text}")
async def find(workspace: str, text: str, server: Server) -> dict[str, Any]:
    """A run by its id, the beginning of it, the first SDK's id, or its name."""
    return run_wire(await in_thread(server.runs.find, text, workspace))


@router.get("/runs/{run_id}")
async def show(run_id: str, server: Server, wait: float = 0.0, version: int = -1, until: str = "") -> Response:
    """The run. With `wait`, answers when it changes from `version` (or is over, `until=over`), or after that time."""
    if wait:
        return answer(run_wire(await _wait(server, run_id, min(wait, LONGEST_WAIT_SECONDS), version, until == "over")))
    return answer(run_wire(await quickly(server.database, server.runs.get, run_id)))


@router.get("/runs/{run_id}/details")
async def details(run_id: str, server: Server) -> dict[str, Any]:
    run = await in_thread(server.runs.get, run_id)
    launches = await in_thread(server.runs.launches, run_id)
    attempts = service.attempts_of(launches)
    for attempt in attempts:
        for name in ("intended_at", "started_at", "ended_at"):
            attempt[name] = time_text(attempt[name])
    return {**run_wire(run), "attempt_history": attempts}


@router.post("/runs/{run_id}/cancel")
async def cancel(run_id: str, server: Server) -> dict[str, Any]:
    return run_wire(await in_thread(service.cancel_run, server, run_id))


@router.post("/runs/{run_id}/rerun", status_code=201)
async def rerun(run_id: str, body: RerunBody, server: Server) -> dict[str, Any]:
    return run_wire(await in_thread(service.rerun_run, server, run_id, body.id, body.changes))


@router.delete("/runs/{run_id}", status_code=204)
async def delete(run_id: str, server: Server) -> None:
    await in_thread(service.delete_run, server, run_id)


@router.patch("/runs/{run_id}/tags")
async def tag(run_id: str, body: TagBody, server: Server) -> dict[str, Any]:
    return run_wire(await in_thread(service.tag_run, server, run_id, body.tags, tuple(body.remove)))


@router.get("/runs/{run_id}/events")
async def events(run_id: str, server: Server) -> list[dict[str, Any]]:
    await in_thread(server.runs.get, run_id)
    return [event_wire(event) for event in await in_thread(server.runs.events, run_id)]


@router.get("/runs/{run_id}/why")
async def why(run_id: str, server: Server) -> dict[str, Any]:
    return why_wire(await in_thread(service.explain_run, server, run_id))


@router.get("/runs/{run_id}/log")
async def log(
    run_id: str, server: Server, offset: int = 0, wait: float = 0.0, attempt: int = 0, node: int = 0
) -> Response:
    """Bytes of the log from `offset`; with `wait`, as soon as there are any. Headers say where to go on, and the end."""
    ending = server.signals.subscribe(run_id, run_id + "/log") if wait else None
    run = await quickly(server.database, server.runs.get, run_id)
    number = attempt or max(run.attempt, 1)
    path = server.files.log_path(run_id, number, node)
    data = await in_thread(_read, path, offset)
    over = run.is_over or run.attempt > number
    if not data and not over and ending is not None:
        await server.signals.wait(ending, min(wait, LONGEST_WAIT_SECONDS))
        run = await quickly(server.database, server.runs.get, run_id)
        data = await in_thread(_read, path, offset)
        over = run.is_over or run.attempt > number
    if ending is not None:
        ending.cancel()
    headers = {
        "x-shunter-offset": str(offset + len(data)),
        "x-shunter-attempt": str(number),
        "x-shunter-attempts": str(run.attempt),
        "x-shunter-status": str(run.status),
        "x-shunter-end": "1" if over and not data else "0",
    }
    return Response(data, media_type="application/octet-stream", headers=headers)


@router.get("/runs/{run_id}/files")
async def list_files(run_id: str, server: Server, refresh: bool = False) -> list[dict[str, Any]]:
    run = await in_thread(server.runs.get, run_id)
    if refresh and not run.is_over:
        await _refresh(server, run)
    found = await in_thread(lambda: list(server.files.list(run_id)))
    return [{"path": path, "bytes": size, "changed_at": time_text(at)} for path, size, at in found]


@router.get("/runs/{run_id}/files/{path:path}")
async def get_file(run_id: str, path: str, server: Server, offset: int = 0) -> Response:
    """A file, or what of it comes after `offset`: a download that was cut off goes on there."""
    await in_thread(server.runs.get, run_id)
    found = await in_thread(server.files.file, run_id, path)
    if offset > 0:
        return StreamingResponse(_from(found, offset), media_type="application/octet-stream")
    return FileResponse(found, media_type="application/octet-stream")


@router.get("/runs/{run_id}/usage")
async def usage(run_id: str, server: Server, attempt: int = 0, node: int = 0) -> Response:
    """The samples of CPU and working set, one JSON object a line."""
    run = await in_thread(server.runs.get, run_id)
    launch = launch_id(run_id, attempt or run.attempt, node)

    def read() -> bytes:
        lines = _read(server.files.stream_path(launch, "usage"), 0, 64 << 20)
        return usage_in_our_time(lines, server.ingest.clocks.of(launch))

    return Response(await in_thread(read), media_type="application/x-ndjson")


@router.post("/runs/wait")
async def wait_many(request: Request, server: Server) -> Response:
    """Wait until all of these runs are over, or for `wait` seconds; answers with those that are over."""
    import time

    body = await request.json()
    ids = list(dict.fromkeys(str(i) for i in body["ids"]))
    until = time.monotonic() + min(float(body.get("wait", 30)), LONGEST_WAIT_SECONDS)
    done: dict[str, Run] = {}
    watch = server.signals.watch(ids)
    try:
        todo: Iterable[str] = ids
        while True:
            for run in await quickly(server.database, server.runs.get_many, list(todo)):
                if run.is_over:
                    done[run.id] = run
            if len(done) == len(ids) or (body.get("any") and done) or time.monotonic() >= until:
                return answer([run_wire(done[i]) for i in ids if i in done])
            todo = await watch.fired(until - time.monotonic()) - done.keys()
    finally:
        watch.close()


def answer(value: Any, status: int = 200) -> Response:
    """JSON without a second validation of what we have just made ourselves."""
    import json

    return Response(json.dumps(value).encode(), status, media_type="application/json")


async def _wait(server: Parts, run_id: str, seconds: float, version: int, over: bool) -> Run:
    import time

    until = time.monotonic() + seconds
    while True:
        waiting = server.signals.subscribe(run_id)
        run = await quickly(server.database, server.runs.get, run_id)
        if run.is_over or (not over and run.version != version) or time.monotonic() >= until:
            waiting.cancel()
            return run
        await server.signals.wait(waiting, until - time.monotonic())


async def _refresh(server: Parts, run: Run) -> None:
    """Ask the node for the outputs so far and wait until they are here, the run is over, or nobody answers."""
    import asyncio
    import time

    arrived = server.signals.subscribe(run.id, run.id + "/files")
    server.ingest.wanted.setdefault(run.id, set()).add("outputs")
    until = time.monotonic() + REFRESH_SECONDS
    try:
        while not arrived.done() and time.monotonic() < until:
            await asyncio.wait([arrived], timeout=min(11.0, max(until - time.monotonic(), 0.1)))
            if run.id in server.ingest.wanted:
                return  # no launcher has asked what we want: it will be sent when one does
    finally:
        arrived.cancel()


def _from(path: Path, offset: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(offset)
        while piece := file.read(LOG_CHUNK_BYTES):
            yield piece


def _read(path: Any, offset: int, most: int = LOG_CHUNK_BYTES) -> bytes:
    try:
        with open(path, "rb") as file:
            if offset:
                file.seek(offset)
            return file.read(most)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise NotFound(f"{os.path.basename(path)}: {error}") from error
