"""Launchers that speak through the agent: each of their connections is one of ours to the server, and no other place."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from shunter.drivers.ssh.session import AgentSession
from shunter.errors import ShunterError

PIECE_BYTES = 1 << 17


class Wires:
    def __init__(self, server_url: str, session: AgentSession) -> None:
        to = urlsplit(server_url)
        host = to.hostname or "127.0.0.1"
        self.host = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        self.port = to.port or 80
        self.session = session
        self._queues: dict[int, asyncio.Queue[bytes | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def hear(self, wire: int, event: str, data: bytes) -> None:
        if event == "open":
            self._queues[wire] = asyncio.Queue()
            task = asyncio.ensure_future(self._carry(wire))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        queue = self._queues.get(wire)
        if queue is not None:
            queue.put_nowait(data if event == "data" else None)

    async def _carry(self, wire: int) -> None:
        try:
            reader, writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            self._close(wire)
            return
        back = asyncio.ensure_future(self._back(wire, reader))
        try:
            queue = self._queues[wire]
            while (data := await queue.get()) is not None:
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            back.cancel()
            writer.close()
            self._close(wire)

    async def _back(self, wire: int, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(PIECE_BYTES):
                await self.session.room()
                self.session.send({"wire": wire, "event": "data", "size": len(data)}, data)
        except (OSError, ShunterError):
            pass
        self._close(wire)

    def _close(self, wire: int) -> None:
        queue = self._queues.pop(wire, None)
        if queue is None:
            return
        queue.put_nowait(None)
        try:
            self.session.send({"wire": wire, "event": "close"})
        except ShunterError:
            pass
