"""Wakes those who wait for something: no caller polls."""

from __future__ import annotations

import asyncio
from collections import defaultdict


class Signals:
    """Waiters by topic (a run's id, for its state or its log). `fire` may be called from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: dict[str, set[asyncio.Future[None]]] = defaultdict(set)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def fire(self, topic: str) -> None:
        if self._loop is not None and topic in self._waiters:
            self._loop.call_soon_threadsafe(self._wake, topic)

    def subscribe(self, *topics: str) -> asyncio.Future[None]:
        """A future that is done at the next fire of any topic. Subscribe first, then look, then wait: nothing is missed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for topic in topics:
            self._waiters[topic].add(future)
        future.add_done_callback(lambda f: self._drop(f, topics))
        return future

    async def wait(self, future: asyncio.Future[None], seconds: float) -> bool:
        """True when it fired within the time."""
        try:
            await asyncio.wait_for(future, seconds)
        except TimeoutError:
            return False
        return True

    @property
    def waiting(self) -> int:
        return sum(len(w) for w in self._waiters.values())

    def _wake(self, topic: str) -> None:
        for future in list(self._waiters.get(topic, ())):
            if not future.done():
                future.set_result(None)

    def _drop(self, future: asyncio.Future[None], topics: tuple[str, ...]) -> None:
        for topic in topics:
            waiters = self._waiters.get(topic)
            if waiters is not None:
                waiters.discard(future)
                if not waiters:
                    del self._waiters[topic]
