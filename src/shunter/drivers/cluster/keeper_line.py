"""The driver's line to a cluster's keeper. Starts a keeper when there is none: a cluster at zero wakes up so."""

from __future__ import annotations

import asyncio
import time

from shunter.drivers.cluster import keeping
from shunter.drivers.cluster.folder import ClusterFolder, Spec
from shunter.drivers.cluster.lines import Answer, Line, Request
from shunter.errors import DriverError

START_SECONDS = 60.0


class KeeperLine:
    def __init__(self, folder: ClusterFolder, spec: Spec) -> None:
        self.folder = folder
        self.spec = spec
        self._line: Line | None = None
        self._lock = asyncio.Lock()
        self._is_written = False

    def is_there(self) -> bool:
        with keeping.hold(self.folder) as lock:
            return lock is None and self.folder.path.exists()

    @property
    def is_connected(self) -> bool:
        return self._line is not None and self._line.is_open

    async def ask(self, request: Request) -> Answer:
        """Asked again when the keeper dies on the way: every request may be repeated."""
        for tries in range(20):
            line = await self._connect()
            try:
                answer = await line.ask(request)
            except OSError:
                await asyncio.sleep(min(0.05 * 1.5**tries, 2.0))
                continue
            if "error" in answer:
                raise DriverError(f"The keeper of {self.spec.name} could not {request['do']}: {answer['error']}")
            return answer
        raise DriverError(
            f"The keeper of {self.spec.name} dies again and again.", hint=f"{self.folder.path}/keeper.log tells more."
        )

    async def wake(self) -> None:
        """Have a keeper at work, whatever it finds to do."""
        await asyncio.to_thread(keeping.ensure, self.folder)

    async def close(self) -> None:
        if self._line is not None:
            await self._line.close()
            self._line = None

    async def _connect(self) -> Line:
        if self._line is not None and self._line.is_open:
            return self._line
        async with self._lock:
            if self._line is not None and self._line.is_open:
                return self._line
            if not self._is_written or not self.folder.path.exists():
                self.folder.make(self.spec)  # once: a driver of before an update must not undo it
                self._is_written = True
            until = time.monotonic() + START_SECONDS
            while True:
                try:
                    self._line = await Line.connect(self.folder.path / "keeper.sock")
                    return self._line
                except OSError as error:
                    if time.monotonic() > until:
                        tail = keeping.log_tail(self.folder.path / "keeper.log")
                        raise DriverError(f"The keeper of {self.spec.name} does not start: {tail or error}") from error
                await self.wake()
                await asyncio.sleep(0.05)
