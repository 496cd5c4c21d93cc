"""The keeper's line to the head: starts it, notices its death, brings it back."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from shunter.drivers.cluster import keeping
from shunter.drivers.cluster.autoscaler_file import write_autoscaler
from shunter.drivers.cluster.folder import ClusterFolder, is_process
from shunter.drivers.cluster.lines import Answer, Line, Request
from shunter.drivers.cluster.pools.local import session_members
from shunter.drivers.cluster.ray_engine import environment
from shunter.node import contract

START_SECONDS = 120.0
STOP_SECONDS = 15.0


class HeadLine:
    """`state` is "down", "starting since …" or "up"; `failures` counts starts that came to nothing."""

    def __init__(self, folder: ClusterFolder) -> None:
        self.folder = folder
        self.failures = 0
        self._line: Line | None = None
        self._started_at = 0.0
        self._lock = asyncio.Lock()
        self._wanted = True

    @property
    def state(self) -> str:
        if self._line is not None and self._line.is_open:
            return "up"
        return f"since {time.time() - self._started_at:.0f} s" if self._started_at else "down"

    @property
    def is_there(self) -> bool:
        return is_process(contract.read_json(str(self.folder.path / "head.json")))

    async def ask(self, request: Request) -> Answer:
        """Raises OSError when there is no head, or none any more."""
        if not await self.ensure():
            raise ConnectionError(f"The head of {self.folder.path.name} is not up.")
        assert self._line is not None
        answer = await self._line.ask(request)
        if "error" in answer:
            raise ConnectionError(f"The head could not {request['do']}: {answer['error']}")
        return answer

    async def ensure(self) -> bool:
        """Start a head unless one is there; True when it answers."""
        if self._line is not None and self._line.is_open:
            return True
        async with self._lock:
            if self._line is not None and self._line.is_open:
                return True
            if not self._wanted:
                return False
            return await self._bring_up()

    async def stop(self) -> None:
        """End the head and all of its processes."""
        self._wanted = False
        async with self._lock:
            record = contract.read_json(str(self.folder.path / "head.json"))
            if record and is_process(record):
                _send(record["pid"], signal.SIGTERM)
                until = time.monotonic() + STOP_SECONDS
                while is_process(record) and time.monotonic() < until:
                    await asyncio.sleep(0.05)
            self._kill_rest(record)
            (self.folder.path / "head.json").unlink(missing_ok=True)
            if self._line is not None:
                await self._line.close()
                self._line = None
            self._started_at = 0.0

    def write_autoscaler(self) -> None:
        write_autoscaler(self.folder)

    async def _bring_up(self) -> bool:
        record = contract.read_json(str(self.folder.path / "head.json"))
        if not (record and is_process(record)):
            self._kill_rest(record)
            self._started_at = time.time()
            (self.folder.path / "head.sock").unlink(missing_ok=True)
            self.folder.open_file.unlink(missing_ok=True)
            env = environment(self.folder.place(), "head", "head")
            env["PYTHONPATH"] = str(Path(keeping.__file__).parents[3])  # the autoscaler imports our provider
            pid = keeping.start(self.folder, "head", env)
            start = contract.start_time(pid)
        else:
            pid, start = int(record["pid"]), int(record["start"])
            self._started_at = self._started_at or time.time()
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._wanted:
            try:
                self._line = await Line.connect(self.folder.path / "head.sock")
                self.failures = 0
                return True
            except OSError:
                if not contract.is_alive(pid, start):
                    break
                await asyncio.sleep(0.05)
        self.failures += 1
        if contract.is_alive(pid, start):
            _send(pid, signal.SIGKILL)
        return False

    def _kill_rest(self, record: dict[str, Any] | None) -> None:
        """Parts of a head that was killed: they would hold its port and its store."""
        if record and record.get("boot") == contract.boot_id():
            for pid in session_members(int(record["pid"])):
                _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    """It may end by itself in the moment before: a keeper must not stumble over that halfway through."""
    try:
        os.kill(pid, number)
    except OSError:
        pass
