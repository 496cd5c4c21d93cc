"""Wakes those who wait for something: no caller polls."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable


class Signals:
    """Waiters by topic (a run's id, for its state or its log). `fire` may be called from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: dict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._watches: dict[str, set[Watch]] = defaultdict(set)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def fire(self, topic: str) -> None:
        if self._loop is not None and (topic in self._waiters or topic in self._watches):
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

    def watch(self, topics: Iterable[str]) -> Watch:
        """Follow many topics for as long as it takes: which of them fired is remembered between two looks."""
        return Watch(self, topics)

    @property
    def waiting(self) -> int:
        return sum(len(w) for w in self._waiters.values())

    def _wake(self, topic: str) -> None:
        for watch in self._watches.get(topic, ()):
            watch.on_fire(topic)
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


class Watch:
    """Many topics at once, for one waiter. Costs what fires, not what is watched."""

    def __init__(self, signals: Signals, topics: Iterable[str]) -> None:
        self.signals = signals
        self.topics = set(topics)
        self._fired: set[str] = set()
        self._some = asyncio.Event()
        for topic in self.topics:
            signals._watches[topic].add(self)

    async def fired(self, seconds: float) -> set[str]:
        """The topics that have fired since the last call; waits for the first, at most so long."""
        try:
            await asyncio.wait_for(self._some.wait(), max(seconds, 0.0))
        except TimeoutError:
            return set()
        self._some.clear()
        found, self._fired = self._fired, set()
        return found

    def on_fire(self, topic: str) -> None:
        self._fired.add(topic)
        self._some.set()

    def close(self) -> None:
        for topic in self.topics:
            watches = self.signals._watches.get(topic)
            if watches is not None:
                watches.discard(self)
                if not watches:
                    del self.signals._watches[topic]
