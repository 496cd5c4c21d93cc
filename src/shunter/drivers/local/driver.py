"""Runs on this machine: a warm parent forks a launcher for each."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

import shunter
from shunter.drivers.base import Capabilities, Capacity, Facts, Handle, Home, Launch, Sign, sign_from_wire
from shunter.errors import DriverError, StorageFull
from shunter.model.compute import Compute
from shunter.node import contract, signs

PARENT_START_SECONDS = 10.0
#: Of so many snapshots it is remembered that the node knows where their files lie.
MOST_LAID = 32


class LocalConfig(BaseModel):
    """Options of the local target."""

    model_config = ConfigDict(extra="forbid")

    slots: int | None = Field(None, ge=1, description="How many runs at once; the number of cores when not given.")
    price_per_hour: float | None = Field(None, ge=0, description="What an hour of this machine costs.")


class LocalDriver:
    kind: ClassVar[str] = "local"
    Config: ClassVar[type[BaseModel]] = LocalConfig
    can: ClassVar[Capabilities] = Capabilities(gpu=True, sweeps=True, automl=True, pipelines=True, containers=True)
    #: The server may rename a run's outputs into its own store instead of reading them through a socket.
    shares_disk: ClassVar[bool] = True

    def __init__(self, compute: Compute, home: Home, root: Path | None = None) -> None:
        """`root`: where this node keeps its launches, when it is one of several on this machine."""
        self.config = LocalConfig(**compute.config)
        self.home = home
        self.root = root or Path(home.endpoint_file).parent / "node"
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()
        self._parent: subprocess.Popen[bytes] | None = None
        self._laid: OrderedDict[str, object] = OrderedDict()
        self._slots = self.config.slots or len(os.sched_getaffinity(0))

    def capacity(self) -> Capacity:
        return Capacity(slots=self._slots, memory_bytes=_memory_bytes(), price_per_hour=self.config.price_per_hour)

    async def probe(self) -> Facts:
        return Facts(
            hostname=socket.gethostname(),
            system=f"{os.uname().sysname} {os.uname().release}",
            cpus=len(os.sched_getaffinity(0)),
            memory_bytes=_memory_bytes(),
            disk_free_bytes=shutil.disk_usage(self.root.parent).free,
            python=sys.version.split()[0],
        )

    async def launch(self, job: Launch) -> Handle:
        folder = self._folder(job.id)
        try:
            self._write(job, folder)
        except OSError as error:
            if error.errno in (28, 122):
                raise StorageFull(f"The disk is full: {folder} could not be written.") from error
            raise
        await self._tell({"launch": job.id})
        return {"launch": job.id}

    async def poll(self, handles: Sequence[Handle]) -> Sequence[Sign]:
        return [await self._sign(handle) for handle in handles]

    async def fetch(self, handle: Handle, stream: str, offset: int) -> bytes:
        folder = self._folder(handle["launch"])
        path = folder / "work" / stream[6:] if stream.startswith("files/") else folder / stream
        try:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(4 << 20)
        except OSError:
            return b""

    async def cancel(self, handle: Handle) -> None:
        if signs.cancel(str(self.root), handle["launch"]):
            await self._tell({"adopt": handle["launch"]})

    async def clean(self, handle: Handle) -> None:
        await asyncio.to_thread(signs.clean, str(self.root), handle["launch"])

    async def close(self) -> None:
        if self._connection is not None:
            self._connection[1].close()
            self._connection = None

    async def _sign(self, handle: Handle) -> Sign:
        found = signs.look(str(self.root), str(handle["launch"]))
        if found.get("adopt"):
            await self._tell({"adopt": str(handle["launch"])})
        return sign_from_wire(found)

    def _folder(self, launch: str) -> Path:
        return self.root / contract.LAUNCHES / launch

    def _write(self, job: Launch, folder: Path) -> None:
        """Job and layout on the node before anybody is told: a parent that is killed now loses nothing."""
        layout = self.root / contract.SNAPSHOTS / f"{job.snapshot_id}.json"
        if self._laid.get(job.snapshot_id) is not job.layout or not layout.exists():  # packs were rewritten, or sent anew
            layout.parent.mkdir(parents=True, exist_ok=True)
            contract.write_whole(str(layout), json.dumps(list(job.layout)).encode())
            self._laid[job.snapshot_id] = job.layout
            while len(self._laid) > MOST_LAID:
                self._laid.popitem(last=False)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        content: dict[str, Any] = {**job.job, "layout": str(layout), "collect": "move"}
        contract.write_whole(str(folder / "job.json"), json.dumps(content).encode())

    async def _tell(self, message: dict[str, str]) -> dict[str, Any]:
        """Say something to the warm parent, starting one if none is there."""
        async with self._lock:
            for last in (False, True):
                try:
                    if self._connection is None:
                        self._connection = await self._connect()
                    reader, writer = self._connection
                    writer.write(json.dumps(message).encode() + b"\n")
                    line = await asyncio.wait_for(reader.readline(), PARENT_START_SECONDS)
                    if not line:
                        raise ConnectionResetError("the warm parent closed the connection")
                    found: dict[str, Any] = json.loads(line)
                    return found
                except (OSError, TimeoutError) as error:
                    await self.close()
                    if last:
                        raise DriverError(f"The warm parent of this machine does not answer: {error}") from error
        raise AssertionError

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await self._open()
        except OSError:
            self._start_parent()
        again = time.monotonic()
        until = again + PARENT_START_SECONDS
        while True:
            try:
                return await self._open()
            except OSError:
                now = time.monotonic()
                if now > until:
                    raise
                if now > again + 0.5 and self._parent is not None and self._parent.poll() is not None:
                    self._start_parent()  # one that was just ending stood in its way
                    again = now
                await asyncio.sleep(0.01)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # Through /proc, as the path of a unix socket is limited to 108 bytes and a home may be deep.
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{contract.PARENT_SOCKET}")
        finally:
            os.close(folder)

    def _start_parent(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        package = str(Path(shunter.__file__).parent.parent)
        code = f"import sys; sys.path.insert(0, {package!r}); from shunter.node import parent; sys.exit(parent.main(sys.argv[1]))"
        with (self.root / "parent.log").open("ab") as log:
            self._parent = subprocess.Popen(
                [sys.executable, "-I", "-S", "-E", "-c", code, str(self.root)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
                env={k: v for k, v in os.environ.items() if not k.startswith("SHUNTER_")},
            )  # fmt: skip


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
