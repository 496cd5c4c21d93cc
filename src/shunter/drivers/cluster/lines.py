"""Requests and answers as JSON lines over a unix socket: how driver, keeper and head talk to each other."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Request = dict[str, Any]
Answer = dict[str, Any]


class Line:
    """One connection for many requests at a time. Raises OSError for every request when it breaks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._numbers = itertools.count()
        self._open: dict[int, asyncio.Future[Answer]] = {}
        self._task = asyncio.ensure_future(self._read(reader))

    @classmethod
    async def connect(cls, socket_file: Path) -> Line:
        # Through /proc, as the path of a unix socket is limited to 108 bytes and a home may be deep.
        folder = os.open(socket_file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return cls(*await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{socket_file.name}", limit=1 << 24))
        finally:
            os.close(folder)

    @property
    def is_open(self) -> bool:
        return not self._task.done()

    async def ask(self, request: Request) -> Answer:
        if not self.is_open:
            raise ConnectionResetError("the line is broken")
        number = next(self._numbers)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[number] = future
        try:
            self._writer.write(json.dumps({**request, "n": number}).encode() + b"\n")
            return await future
        finally:
            self._open.pop(number, None)

    async def close(self) -> None:
        self._writer.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                answer = json.loads(line)
                future = self._open.get(answer.pop("n"))
                if future is not None and not future.done():
                    future.set_result(answer)
        except (OSError, ValueError):
            pass
        finally:
            for future in self._open.values():
                if not future.done():
                    future.set_exception(ConnectionResetError("the line broke"))


async def serve(socket_file: Path, answer: Callable[[Request], Awaitable[Answer]]) -> asyncio.AbstractServer:
    """Listen; each request is answered by itself, however long another takes. Errors are answers too."""

    async def one(request: Request, writer: asyncio.StreamWriter) -> None:
        number = request.pop("n")
        try:
            found = await answer(request)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        if not writer.is_closing():
            writer.write(json.dumps({**found, "n": number}).encode() + b"\n")

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks: set[asyncio.Task[None]] = set()
        try:
            while line := await reader.readline():
                task = asyncio.create_task(one(json.loads(line), writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except (OSError, ValueError, asyncio.CancelledError):
            pass
        finally:
            for task in tasks:
                task.cancel()
            writer.close()

    socket_file.unlink(missing_ok=True)
    folder = os.open(socket_file.parent, os.O_RDONLY | os.O_DIRECTORY)
    old = os.umask(0o077)
    try:
        return await asyncio.start_unix_server(connection, f"/proc/self/fd/{folder}/{socket_file.name}", limit=1 << 24)
    finally:
        os.umask(old)
        os.close(folder)
