"""Runs on a machine reached over SSH: the node's own protocol, asked through one agent at the end of one connection."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from shunter.drivers.base import Capabilities, Capacity, Facts, Handle, Home, Launch, Sign, Unknown, sign_from_wire
from shunter.drivers.ssh.cargo import Cargo
from shunter.drivers.ssh.checks import Check, check_machine, facts_of
from shunter.drivers.ssh.config import SshConfig
from shunter.drivers.ssh.link import Link
from shunter.drivers.ssh.session import AgentSession
from shunter.drivers.ssh.shell import SshShell
from shunter.errors import Conflict, DriverError, ShunterError
from shunter.home import HomeFolder
from shunter.model.clock import in_our_time, settle
from shunter.model.compute import Compute

log = logging.getLogger("shunter.ssh")

TIDY_SECONDS = 600.0
LOAD_SECONDS = 5.0


class SshDriver:
    kind: ClassVar[str] = "ssh"
    Config: ClassVar[type[BaseModel]] = SshConfig
    can: ClassVar[Capabilities] = Capabilities(gpu=True, sweeps=True, automl=True, pipelines=True, containers=True)

    def __init__(self, compute: Compute, home: Home) -> None:
        self.config = SshConfig(**compute.config)
        self.compute = compute
        self.facts: dict[str, Any] = dict(compute.facts)
        folder = HomeFolder(Path(home.endpoint_file).parent)
        # Each server, and each target of it, has a folder of its own there: they never meet.
        server = folder.read_or_make(folder.path / "server-id")[:12]
        own = hashlib.sha256(f"{compute.workspace}/{compute.name}".encode()).hexdigest()[:8]
        self.link = Link(
            self.config, compute.name, f"{self.config.folder or '~/.shunter-node'}/{server}-{own}", home.url
        )
        self.cargo = Cargo()
        self.clock_off_seconds = 0.0
        self._generation = 0
        self._tidied_at = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()

    def capacity(self) -> Capacity:
        details = self.facts.get("details") or {}
        return Capacity(
            slots=self.config.slots or int(self.facts.get("cpus") or 1),
            gpus=len(self.facts.get("gpus") or ()),
            memory_bytes=int(self.facts.get("memory_bytes") or 0),
            why=str(details.get("why") or ""),
            price_per_hour=self.config.price_per_hour,
        )

    def interpreter(self) -> str:
        """What a script runs with that asks for no environment."""
        details = self.facts.get("details") or {}
        return f"{self.config.python or details.get('interpreter')}, Python {self.facts.get('python')}"

    # Attaching

    async def check(self, say: Callable[[Check], None]) -> Facts:
        """Go through everything that a machine needs, telling each step; raises at the first that fails."""
        found = await check_machine(self.link, say)
        self.facts = found.to_wire()
        return found

    def learned(self) -> dict[str, Any]:
        """Options that were found out and are to be kept: the host key that was accepted."""
        key = self.link.verifier.accepted_key() if self.link.verifier else None
        return {"host_key": key} if key else {}

    def attached(self, compute: Compute) -> None:
        """It is attached now, with these options: what was said once no longer holds, what was learned does."""
        self.compute = compute
        self.config = self.link.config = SshConfig(**compute.config)

    async def probe(self) -> Facts:
        session = await self.link.session(patient=True)
        found, _ = await session.call("facts")
        facts = facts_of(found, self.link)
        self.facts = facts.to_wire()
        return facts

    # Readiness: dispatch starts nothing on a machine that is away.

    @property
    def is_ready(self) -> bool:
        return self.link.is_up

    async def make_ready(self) -> None:
        self.link.keep()
        await self.link.session()

    def keep(self, on_up: Callable[[], None]) -> None:
        """Stay connected from now on; `on_up` is called whenever the machine answers again."""
        self.link.on_up = on_up
        self.link.keep()

    def status(self) -> dict[str, Any]:
        return self.link.status()

    async def load(self) -> dict[str, Any] | None:
        """How busy the machine is now; None when it does not answer at once."""
        if not self.link.is_up:
            return None
        found, _ = await (await self.link.session()).call("load", seconds=LOAD_SECONDS)
        return found

    # The five verbs

    async def launch(self, job: Launch) -> Handle:
        self.link.keep()
        session = await self._session()
        named = job.job.get("tools")
        tools = await asyncio.to_thread(self.cargo.tools, named) if named else []
        for last in (False, True):
            await self.cargo.bring(session, job, tools)
            content = {
                **job.job,
                "collect": "push",
                "tools": {tool.name: tool.digest for tool in tools},
                "home": {**job.job["home"], "url": self.link.home_url, "endpoint_file": self.link.endpoint_file},
            }
            if not content.get("environment"):
                content["interpreter"] = self.config.python  # None: the one that the agent runs on
            answer, _ = await session.call("launch", json.dumps(content).encode(), launch=job.id)
            if "busy" in answer:
                raise DriverError(f"{self.link.name}: {answer['busy']}. It is tried again.")
            if "lacks" not in answer:
                break
            if last:
                raise DriverError(f"{self.link.name}: the snapshot was sent, and is not there.")
            self.cargo.forget()
        self._tidy_now_and_then(session)
        return {"launch": job.id}

    async def poll(self, handles: Sequence[Handle]) -> Sequence[Sign]:
        self.link.keep()
        try:
            session = await self._session()
            found, _ = await session.call("poll", launches=[h["launch"] for h in handles])
        except ShunterError as error:
            return [Unknown(error.message)] * len(handles)
        # Half of a slow way back is not a clock that is off.
        self.clock_off_seconds = settle(self.clock_off_seconds, float(found["time"]) - time.time())
        return [sign_from_wire(in_our_time(sign, self.clock_off_seconds)) for sign in found["signs"]]

    async def fetch(self, handle: Handle, stream: str, offset: int) -> bytes:
        session = await self._session()
        _, data = await session.call("fetch", launch=handle["launch"], stream=stream, offset=offset)
        return data

    async def files(self, handle: Handle) -> Sequence[tuple[str, int, int]]:
        """What a run left in outputs/ and logs/: (path, size, time of change in ns)."""
        session = await self._session()
        found, _ = await session.call("files", launch=handle["launch"])
        return [(path, size, mtime) for path, size, mtime in found["files"]]

    async def cancel(self, handle: Handle) -> None:
        session = await self._session()
        await session.call("cancel", launch=handle["launch"])

    async def clean(self, handle: Handle) -> None:
        session = await self._session()
        await session.call("clean", launch=handle["launch"])

    async def shell(self, handle: Handle, term: str, columns: int, rows: int) -> SshShell:
        """A shell in the folder and environment of a launch."""
        session = await self._session()
        found, _ = await session.call("shell", launch=handle["launch"])
        return await SshShell.open(self.link.connection, self.link.name, found["command"], term, columns, rows)

    async def detach(self) -> None:
        """Take everything of ours away from the machine. Conflict while something of ours runs there."""
        session = await self.link.session(patient=True)
        found, _ = await session.call("remove", seconds=600)
        if found["running"]:
            raise Conflict(f"{self.link.name}: {len(found['running'])} launches still run there.")

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await self.link.close()

    async def free_inputs(self, busy: Sequence[str], older_than_seconds: float, really: bool) -> tuple[int, int]:
        """Copies of inputs there that nobody needs: how many and how many bytes; with `really` they are removed."""
        session = await self._session()
        found, _ = await session.call(
            "inputs", busy=list(busy), older_than_seconds=older_than_seconds, really=really, seconds=600
        )
        if really:
            await self._tidy(session)
        return int(found["count"]), int(found["bytes"])

    async def _session(self) -> AgentSession:
        session = await self.link.session()
        if self.link.generation != self._generation:
            self._generation = self.link.generation
            self.cargo.forget()
        return session

    def _tidy_now_and_then(self, session: AgentSession) -> None:
        if time.monotonic() - self._tidied_at < TIDY_SECONDS and self._tidied_at:
            return
        self._tidied_at = time.monotonic()
        task = asyncio.ensure_future(self._tidy(session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tidy(self, session: AgentSession) -> None:
        try:
            found, _ = await session.call("tidy", limit_bytes=int(self.config.disk_limit_gb * 1e9), seconds=600)
            if found["freed_bytes"]:
                self.cargo.forget()
        except ShunterError as error:
            log.warning("%s: could not be tidied: %s", self.link.name, error.message)
