"""Waiting for many runs with one call."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from shunter.errors import ServerUnreachable
from shunter.sdk.client import Client
from shunter.sdk.run import Run
from shunter.sdk.workspace import Workspace

_CALL_SECONDS = 50.0


def wait_for(ws: Workspace, runs: Sequence[Run], timeout_seconds: float | None = None) -> Iterator[Run]:
    """Each of these runs as it ends. Goes on after a lost connection; raises TimeoutError when the time is up."""
    todo = {run.id: [r for r in runs if r.id == run.id] for run in runs}
    until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    while todo:
        left = _CALL_SECONDS if until is None else min(_CALL_SECONDS, max(until - time.monotonic(), 0.0))
        try:
            over = ws.client.post("/api/v1/runs/wait", {"ids": list(todo), "wait": left, "any": True})
        except ServerUnreachable:
            ws.client = _again()
            continue
        for data in over:
            same = todo.pop(data["id"])
            for run in same:
                run.data = data
            yield same[0]
        if todo and until is not None and time.monotonic() >= until:
            shown = ", ".join(run_id[:8] for run_id in list(todo)[:5])
            raise TimeoutError(f"Still not over after {timeout_seconds:g} s: {shown}{' …' if len(todo) > 5 else ''}.")


def _again() -> Client:
    from shunter.sdk.connect import connect

    time.sleep(0.2)
    return connect()
