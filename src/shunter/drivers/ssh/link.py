"""One pooled connection to one machine: the agent at its other end, and the way home for what runs there.

It is opened when it is first needed, noticed when it falls, and opened again for as long as somebody wants it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import asyncssh

from shunter.drivers.ssh.config import SshConfig
from shunter.drivers.ssh.hostkeys import Verifier
from shunter.drivers.ssh.login import log_in
from shunter.drivers.ssh.session import AgentSession
from shunter.drivers.ssh.wires import Wires
from shunter.errors import NodeUnfit, ShunterError, TargetUnreachable

log = logging.getLogger("shunter.ssh")

#: Waits between tries to reach a machine that is away.
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)


#: So many connections are opened at once: a server that comes up must not bring a small machine down.
OPENING = 16
_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _gate() -> asyncio.Semaphore:
    return _gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(OPENING))


class Link:
    """`session()` is all that callers need; `keep()` makes it come back by itself."""

    def __init__(self, config: SshConfig, name: str, root: str, server_url: str) -> None:
        self.config = config
        self.name = name
        self.root = root
        self.server_url = server_url
        self.home_url = ""
        self.endpoint_file = ""
        self.tunnel_problem = ""
        self.verifier: Verifier | None = None
        self.problem = ""  # why it could not be reached, the last time it was tried
        self.since = time.time()
        self.on_up: Callable[[], None] = lambda: None
        self.generation = 0
        self._connection: asyncssh.SSHClientConnection | None = None
        self._session: AgentSession | None = None
        self._lock = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False
        self._fell = asyncio.Event()
        self._retry_at = 0.0
        self._tries = 0
        self._error: ShunterError | None = None

    @property
    def is_up(self) -> bool:
        return self._session is not None and self._session.is_open

    @property
    def connection(self) -> asyncssh.SSHClientConnection:
        """The connection that `session` just answered over."""
        if self._connection is None:
            raise TargetUnreachable(f"{self.name}: the connection is lost.")
        return self._connection

    async def session(self, patient: bool = False) -> AgentSession:
        """The agent, connected to if need be. Raises at once what the last try raised, when that was a moment ago;
        with `patient` it tries in any case."""
        if self._session is not None and self._session.is_open:
            return self._session
        async with self._lock:
            if self._session is not None and self._session.is_open:
                return self._session
            if self._error is not None and not patient and time.monotonic() < self._retry_at:
                raise type(self._error)(self._error.message, hint=self._error.hint)
            try:
                await self._open()
            except ShunterError as error:
                self._failed(error)
                raise
        assert self._session is not None
        return self._session

    def keep(self) -> None:
        """From now on the connection is opened again whenever it falls, until `close`."""
        if self._keeper is None and not self._closed:
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
        await self._drop()

    # Opening

    async def connect(self, sock: socket.socket | None = None) -> tuple[asyncssh.SSHClientConnection, Verifier]:
        """The first step alone: a login, over a socket that is connected already if there is one."""
        return await log_in(self.config, self.name, sock)

    async def _open(self) -> None:
        await self._drop()
        async with _gate():
            connection, verifier = await self.connect()
            try:
                await self.settle_in(connection, verifier)
            except BaseException:
                connection.abort()
                raise

    async def settle_in(self, connection: asyncssh.SSHClientConnection, verifier: Verifier) -> AgentSession:
        """On a login: start the agent there and show launchers the way home."""
        try:
            session = await AgentSession.start(
                connection, self.name, self.root, self.config.python, self.config.connect_timeout_seconds
            )
            url = await self._open_tunnel(connection)
            if url is None:
                wires = Wires(self.server_url, session)
                session.on_wire = wires.hear
            found, _ = await session.call("home", url=url)
        except asyncssh.ChannelOpenError as error:
            raise NodeUnfit(f"{self.name}: its SSH server lets nobody run commands ({error.reason}).",
                            hint="MaxSessions in its sshd_config must be at least 1.") from error  # fmt: skip
        except (asyncssh.Error, OSError) as error:
            raise TargetUnreachable(
                f"{self.name}: the connection was lost while it was being set up ({error})."
            ) from error
        self.verifier = verifier
        self.home_url, self.endpoint_file = found["url"], found["endpoint_file"]
        self._connection, self._session = connection, session
        self.generation += 1
        self._error, self._tries = None, 0
        self._say_up()
        session.on_lost = lambda: self._on_lost(session)
        if not session.is_open:
            self._on_lost(session)  # it fell before we listened: whoever keeps it would wait for that for ever
        return session

    async def _open_tunnel(self, connection: asyncssh.SSHClientConnection) -> str | None:
        """A port on the machine's loopback that leads to the server; None where sshd forbids it."""
        if self.config.forwarding == "never":
            self.tunnel_problem = "switched off by the option forwarding=never"
            return None
        to = urlsplit(self.server_url)
        host = to.hostname or "127.0.0.1"
        if host in ("0.0.0.0", "::"):
            host = "127.0.0.1"
        try:
            listener = await connection.forward_remote_port("127.0.0.1", 0, host, to.port or 80)
        except asyncssh.ChannelListenError as error:
            self.tunnel_problem = str(error)
            return None
        self.tunnel_problem = ""
        return f"http://127.0.0.1:{listener.get_port()}"

    # Falling

    def _on_lost(self, session: AgentSession) -> None:
        if session is not self._session:
            return
        self.problem = f"The connection to {self.name} was lost."
        self.since = time.time()
        self._fell.set()

    def _failed(self, error: ShunterError) -> None:
        pause = PAUSES[min(self._tries, len(PAUSES) - 1)]
        self._tries += 1
        self._error, self._retry_at = error, time.monotonic() + pause
        if not self.problem:
            self.since = time.time()
        self.problem = error.message

    def _say_up(self) -> None:
        if self.problem or self.generation == 1:
            self.since = time.time()
        self.problem = ""
        self.on_up()

    async def _keep(self) -> None:
        while not self._closed:
            self._fell.clear()
            try:
                await self.session()
                await self._fell.wait()
            except ShunterError as error:
                log.debug("%s", error)
                await asyncio.sleep(max(0.05, self._retry_at - time.monotonic()))
            except Exception:
                log.exception("%s: the connection could not be kept", self.name)
                await asyncio.sleep(PAUSES[-1])

    async def _drop(self) -> None:
        connection, self._connection, self._session = self._connection, None, None
        if connection is not None:
            connection.abort()

    def status(self) -> dict[str, Any]:
        """As a person reads it in `compute show`. Nothing is tried for it."""
        if self.is_up:
            return {"reachable": True, "since": self.since}
        if not self.generation and not self.problem:
            why = "It is being reached." if self._keeper is not None else "It was not needed yet."
            return {"reachable": None, "since": self.since, "why": why}
        return {"reachable": False, "since": self.since, "why": self.problem}
