"""The server's end of the agent: requests out, answers in, over one channel of the connection."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import struct
from collections.abc import Callable
from typing import Any

import asyncssh

from shunter.drivers.ssh import bootstrap
from shunter.errors import DriverError, NodeUnfit, StorageFull, TargetUnreachable

MOST_NOISE_BYTES = 1 << 20
CALL_SECONDS = 60.0

#: (wire, event, data): a launcher on the node that speaks through us.
OnWire = Callable[[int, str, bytes], None]


class AgentSession(asyncssh.SSHClientSession[bytes]):
    """Made by `start`. Every call fails with TargetUnreachable once the channel is gone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.mark = "shunter-" + secrets.token_hex(8) + " "
        self.on_wire: OnWire = lambda wire, event, data: None
        self.on_lost: Callable[[], None] = lambda: None
        self.is_open = True
        self.sent_bytes = 0
        self._words: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._started = False
        self._buffer = bytearray()
        self._stderr = bytearray()
        self._answers: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}
        self._numbers = itertools.count(1)
        self._room = asyncio.Event()
        self._room.set()
        self._channel: asyncssh.SSHClientChannel[bytes]

    @classmethod
    async def start(
        cls, connection: asyncssh.SSHClientConnection, name: str, root: str, python: str | None, seconds: float
    ) -> AgentSession:
        """Start the agent below the folder `root` there. Raises NodeUnfit when the machine cannot run it."""
        try:
            async with asyncio.timeout(seconds):
                session = cls(name)
                channel, _ = await connection.create_session(
                    lambda: session, bootstrap.command(python), encoding=None, window=4 << 20
                )
                channel.set_write_buffer_limits(high=1 << 20)
                await session._greet(root)
        except TimeoutError as error:
            raise TargetUnreachable(f"{name}: logged in, but no command was answered within {seconds:.0f} s.",
                                    hint="Does its login shell wait for something?") from error  # fmt: skip
        return session

    async def call(
        self, op: str, payload: bytes = b"", *, seconds: float = CALL_SECONDS, **fields: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Ask the agent and wait for its answer."""
        number = next(self._numbers)
        future: asyncio.Future[tuple[dict[str, Any], bytes]] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        try:
            self.send({**fields, "op": op, "n": number, "size": len(payload)}, payload)
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError as error:
            raise TargetUnreachable(f"{self.name}: no answer within {seconds:.0f} s.") from error
        finally:
            self._answers.pop(number, None)

    def send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        """Send without waiting; used alone only where an answer is not needed."""
        if not self.is_open:
            raise TargetUnreachable(f"{self.name}: the connection is lost.")
        text = json.dumps(header).encode()
        self.sent_bytes += 4 + len(text) + len(payload)
        try:
            self._channel.write(struct.pack(">I", len(text)) + text)
            if payload:
                self._channel.write(payload)
        except (OSError, asyncssh.Error) as error:
            raise TargetUnreachable(f"{self.name}: the connection is lost.") from error

    async def room(self) -> None:
        """Wait until what was sent has mostly left: memory stays flat and others get their turn."""
        await self._room.wait()
        if not self.is_open:
            raise TargetUnreachable(f"{self.name}: the connection was lost on the way.")

    def close(self) -> None:
        self._channel.close()

    # What asyncssh tells us.

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if datatype is not None:
            self._stderr += data
            del self._stderr[:-4096]
            return
        self._buffer += data
        if not self._started:
            self._look_for_mark()
        if self._started:
            self._take_frames()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._words.put_nowait({"lost": str(exc) if exc else ""})
        self._room.set()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(TargetUnreachable(f"{self.name}: the connection was lost while it was asked."))
        self.on_lost()

    async def _greet(self, root: str) -> None:
        self._channel.write(bootstrap.first_line(root, self.mark))
        while True:
            words = await self._words.get()
            if words.get("need") == "tree":
                self._channel.write(bootstrap.tree()[1])
            elif "ready" in words:
                return
            elif "problem" in words:
                raise _unfit(self.name, words)
            elif "versions" in words:
                raise _no_python(self.name, words["versions"])
            else:
                said = self._stderr.decode("utf-8", "replace").strip().splitlines()
                raise NodeUnfit(
                    f"{self.name}: logged in, but no command could be run there{': ' + said[-1][:200] if said else '.'}",
                    hint="Its account needs a login shell that runs commands (`ssh HOST true` must work).",
                )

    def _look_for_mark(self) -> None:
        mark = b"\n" + self.mark.encode()
        missing = b"\n" + bootstrap.NO_PYTHON.encode()
        while True:
            at = self._buffer.find(mark)
            if at < 0:
                at = self._buffer.find(missing)
                if at >= 0 and b"\n" in self._buffer[at + len(missing) :]:
                    line = bytes(self._buffer[at + len(missing) :]).partition(b"\n")[0]
                    self._words.put_nowait({"versions": line.decode("utf-8", "replace").strip()})
                    self._buffer.clear()
                del self._buffer[:-MOST_NOISE_BYTES]
                return
            end = self._buffer.find(b"\n", at + len(mark))
            if end < 0:
                return
            words = json.loads(bytes(self._buffer[at + len(mark) : end]))
            del self._buffer[: end + 1]
            if "ready" in words:
                self._started = True
            self._words.put_nowait(words)
            if self._started:
                return

    def _take_frames(self) -> None:
        at = 0
        buffer = self._buffer
        while len(buffer) - at >= 4:
            (length,) = struct.unpack_from(">I", buffer, at)
            if len(buffer) - at - 4 < length:
                break
            header = json.loads(bytes(buffer[at + 4 : at + 4 + length]))
            size = int(header.get("size") or 0)
            begin = at + 4 + length
            if len(buffer) - begin < size:
                break
            payload = bytes(buffer[begin : begin + size])
            at = begin + size
            if "wire" in header:
                self.on_wire(int(header["wire"]), str(header["event"]), payload)
            else:
                self._settle(header, payload)
        del buffer[:at]

    def _settle(self, header: dict[str, Any], payload: bytes) -> None:
        future = self._answers.get(header.get("n") or 0)
        if future is None or future.done():
            return
        if "error" in header:
            future.set_exception(_node_error(self.name, header["error"]))
        else:
            future.set_result((header["ok"], payload))


def _node_error(name: str, error: dict[str, Any]) -> DriverError | StorageFull:
    where = f" ({error['path']})" if error.get("path") else ""
    if error["code"] == "node_disk_full":
        return NodeUnfit(f"The disk of {name} is full{where}.", hint="Free some space there; nothing was started.")
    if error["code"] == "node_not_writable":
        return NodeUnfit(
            f"{name}: {error['message']}{where}", hint="Attach it with --folder, naming one that can be written."
        )
    return DriverError(f"{name}: {error['message']}{where}")


def _unfit(name: str, words: dict[str, Any]) -> NodeUnfit:
    if words.get("errno") in ("ENOSPC", "EDQUOT"):
        return NodeUnfit(
            f"The disk of {name} is full: {words['path']} cannot be written.", hint="Free some space there."
        )
    return NodeUnfit(
        f"{name}: {words['path']} cannot be written: {words['problem']}.",
        hint="Name a folder there that this user may write to with --folder.",
    )


def _no_python(name: str, versions: str) -> NodeUnfit:
    if versions:
        return NodeUnfit(f"{name} has only {versions}; Python 3.8 or newer is needed there.",
                         hint="Install a newer one there, and name it with --python if it is not on the path.")  # fmt: skip
    return NodeUnfit(f"{name} has no Python; 3.8 or newer is needed there.",
                     hint="Install python3 there, or name it with --python if it is not on the path.")  # fmt: skip
