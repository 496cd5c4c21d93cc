"""What travels to a machine: contents of snapshots and tools, each once; small ones without asking first."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shunter.drivers.base import Launch
from shunter.drivers.ssh.session import AgentSession
from shunter.errors import BlobCorrupt, DriverError

CHUNK_BYTES = 1 << 18
#: A pack is at most about so large: what a cut link costs is one pack.
PACK_BYTES = 64 << 20
#: Below this it is cheaper to send than to ask.
BLIND_BYTES = 1 << 17
BLIND_COUNT = 200


class Content(NamedTuple):
    """Bytes of a file on the server, by their digest."""

    digest: str
    path: str
    offset: int
    size: int


class Tool(NamedTuple):
    """A program or a folder of the server, by a digest of all of it: (path below, mode, content)."""

    name: str
    digest: str
    files: Sequence[tuple[str, int, Content]]


class Cargo:
    """What one machine has been sent. Knows only this connection's part; the machine itself is asked about the rest."""

    def __init__(self) -> None:
        self.bytes_sent = 0
        self._held: set[str] = set()
        self._layouts: set[str] = set()
        self._tools: dict[tuple[str, int, int], Tool] = {}
        self._tools_there: set[str] = set()
        self._lock = asyncio.Lock()

    def forget(self) -> None:
        """A new connection, or the machine says that it lacks something: ask again."""
        self._held.clear()
        self._layouts.clear()
        self._tools_there.clear()

    async def bring(self, session: AgentSession, order: Launch, tools: Sequence[Tool]) -> None:
        """See to it that the snapshot and the tools of a launch are there."""
        if order.snapshot_id in self._layouts and all(t.digest in self._tools_there for t in tools):
            return
        async with self._lock:  # two runs of a new snapshot send it once
            new_tools = [t for t in tools if t.digest not in self._tools_there]
            if new_tools:
                await self._bring_tools(session, new_tools)
            if order.snapshot_id not in self._layouts:
                await self._bring_snapshot(session, order)

    async def _bring_snapshot(self, session: AgentSession, order: Launch) -> None:
        contents = {
            digest: Content(digest, entry[3], entry[4], entry[5])
            for entry, digest in zip(order.layout, order.digests, strict=True) if entry[1] == "file"
        }  # fmt: skip
        unknown = [c for c in contents.values() if c.digest not in self._held]
        if len(unknown) > BLIND_COUNT or sum(c.size for c in unknown) > BLIND_BYTES:
            wanted = zlib.compress(json.dumps([c.digest for c in unknown]).encode(), 1)
            found, data = await session.call("lack", wanted, snapshot=order.snapshot_id)
            if found["layout"]:
                self._layouts.add(order.snapshot_id)
                return
            lacking = set(json.loads(zlib.decompress(data)))
            unknown = [c for c in unknown if c.digest in lacking]
        await self._send(session, unknown)
        entries = [
            (path, kind, mode, source if kind == "link" else digest)
            for (path, kind, mode, source, _, _), digest in zip(order.layout, order.digests, strict=True)
        ]
        answer, _ = await session.call(
            "layout", zlib.compress(json.dumps(entries).encode(), 1), snapshot=order.snapshot_id
        )
        if answer["lacking"]:
            self._held.clear()
            raise DriverError(
                f"{session.name}: {len(answer['lacking'])} files of the snapshot did not arrive; they are sent again."
            )
        self._held.update(contents)
        self._layouts.add(order.snapshot_id)

    async def _bring_tools(self, session: AgentSession, tools: Sequence[Tool]) -> None:
        found, _ = await session.call("lack", tools=[[t.digest, t.name] for t in tools])
        lacking = {digest for digest, _ in found["tools"]}
        for tool in tools:
            if tool.digest in lacking:
                await self._send(session, list({c.digest: c for _, _, c in tool.files}.values()))
                entries = [(path, mode, content.digest) for path, mode, content in tool.files]
                await session.call(
                    "tool", zlib.compress(json.dumps(entries).encode()), digest=tool.digest, name=tool.name
                )
            self._tools_there.add(tool.digest)

    async def _send(self, session: AgentSession, contents: Sequence[Content]) -> None:
        """In packs; the last piece of each is answered, so a full disk is told here."""
        waiting: list[asyncio.Future[Any]] = []
        for pack in _packs(contents):
            waiting.append(await self._send_pack(session, pack))
        for answer in waiting:
            await answer

    async def _send_pack(self, session: AgentSession, pack: Sequence[Content]) -> asyncio.Future[Any]:
        name, at = secrets.token_hex(8), 0
        pieces: list[bytes] = []  # small files share a frame
        size = 0
        for content in pack:
            for piece in _pieces(content):
                pieces.append(piece)
                size += len(piece)
                if size >= CHUNK_BYTES:
                    session.send({"op": "pack", "name": name, "offset": at, "size": size}, b"".join(pieces))
                    at, pieces, size = at + size, [], 0
                    await session.room()
        self.bytes_sent += at + size
        table = [(c.digest, c.size) for c in pack]
        return asyncio.ensure_future(
            session.call("pack", b"".join(pieces), name=name, offset=at, table=table, seconds=600)
        )

    def tools(self, named: Mapping[str, str]) -> list[Tool]:
        """The tools that a job names by their paths on the server. Reads them once each."""
        found = []
        for name, path in named.items():
            stat = os.stat(path)
            key = (path, stat.st_mtime_ns, stat.st_size)
            if key not in self._tools:
                self._tools[key] = _read_tool(name, Path(path))
            found.append(self._tools[key])
        return found


def _read_tool(name: str, path: Path) -> Tool:
    files = []
    # A Python package is named by the folder that holds it: of all that lies there only the package itself travels.
    top = path / name if (path / name).is_dir() else path
    for file in (
        sorted(p for p in top.rglob("*") if p.is_file() and "__pycache__" not in p.parts) if path.is_dir() else [path]
    ):
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        stat = file.stat()
        below = file.relative_to(path).as_posix() if path.is_dir() else ""
        files.append((below, stat.st_mode & 0o755, Content("sha256-" + digest, str(file), 0, stat.st_size)))
    whole = hashlib.sha256(json.dumps([(n, m, c.digest) for n, m, c in files]).encode()).hexdigest()[:32]
    return Tool(name, whole, files)


def _packs(contents: Iterable[Content]) -> Iterable[list[Content]]:
    """Cut into packs; a content larger than a pack is one by itself."""
    now: list[Content] = []
    size = 0
    for content in contents:
        if now and size + content.size > PACK_BYTES:
            yield now
            now, size = [], 0
        now.append(content)
        size += content.size
    if now:
        yield now


def _pieces(content: Content) -> Iterable[bytes]:
    left = content.size
    if not left:
        return
    fd = os.open(content.path, os.O_RDONLY)
    try:
        at = content.offset
        while left:
            data = os.pread(fd, min(left, CHUNK_BYTES), at)
            if not data:
                raise BlobCorrupt(f"The contents {content.digest[:12]} are cut off in the server's store.")
            yield data
            at += len(data)
            left -= len(data)
    finally:
        os.close(fd)
