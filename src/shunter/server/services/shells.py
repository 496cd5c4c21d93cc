"""Shells into runs: opened on the run's target, carried through the server. Each ends with its reader."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any, Protocol

from shunter.errors import Conflict, NotFound, UsageError
from shunter.server.services.parts import Parts


class Shell(Protocol):
    """A shell at work on a node."""

    async def read(self) -> bytes:
        """What it says next; empty when it is over."""
        ...

    def write(self, data: bytes) -> None: ...

    def resize(self, columns: int, rows: int) -> None: ...

    def close(self) -> None: ...


class Shells:
    """The shells that are open now, by names nobody can guess."""

    def __init__(self) -> None:
        self._open: dict[str, Shell] = {}

    async def open(self, parts: Parts, run_id: str, term: str, columns: int, rows: int, node: int = 0) -> str:
        run = await asyncio.to_thread(parts.runs.get, run_id)
        if run.is_over or not run.attempt:
            raise Conflict(f"Run {run.id[:8]} is {run.status}: there is nothing to open a shell in.",
                           hint="`shunter run logs` and `shunter run download` show what it left.")  # fmt: skip
        driver: Any = parts.targets.driver(run.workspace, run.target)
        if not hasattr(driver, "shell"):
            raise UsageError(f"Targets of kind {driver.kind!r} open no shells.")
        launches = await asyncio.to_thread(parts.runs.launches, run.id)
        launch = next((m for m in launches if m.attempt == run.attempt and m.node_index == node), None)
        if launch is None:
            raise NotFound(f"Run {run.id[:8]} has no node {node}.")
        name = secrets.token_urlsafe(16)
        self._open[name] = await driver.shell(launch.handle, term, columns, rows)
        return name

    def get(self, name: str) -> Shell:
        if name not in self._open:
            raise NotFound("There is no such shell; it may have ended.")
        return self._open[name]

    async def output(self, name: str) -> AsyncIterator[bytes]:
        """All it says until it ends. When the reader goes away it is closed."""
        shell = self.get(name)
        try:
            while data := await shell.read():
                yield data
        finally:
            self._open.pop(name, None)
            shell.close()
