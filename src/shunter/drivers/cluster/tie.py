"""What ties a node process here to the machine that it stands for: a login, and a lease that is renewed over it.

The machine ends its work by itself when the lease is over. So we say that it is lost only after that: `is_over` waits for
the last moment to which any word of ours can have made the lease run, and a margin.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

from shunter.drivers.cluster.folder import ClusterFolder
from shunter.drivers.cluster.machines import HAND, address_among, connect, machine_root, unseal
from shunter.errors import NodeUnfit, ShunterError
from shunter.node import contract

#: Beyond the lease: for launchers to see that it is over, and for what they leave to be killed.
MARGIN_SECONDS = 6.0
OPEN_SECONDS = 60.0
CALL_SECONDS = 15.0
AGAIN_SECONDS = 1.0


class MachineTie:
    """Made in the node's process; the connection lives in a thread of its own."""

    def __init__(self, folder: ClusterFolder, name: str) -> None:
        self.folder = folder
        self.name = name
        self.spec = folder.spec()
        self.machine = _machine_of(folder, name)
        self.options: dict[str, Any] = dict(self.spec.options or {})
        self.lease = float(self.spec.lease_seconds)
        self.config = unseal(folder, self.machine)
        self.root = machine_root(folder.home, self.options["workspace"], self.spec.name, self.config)
        self._until = 0.0
        self._now_there: float | None = None
        self._heard_at = 0.0
        self._taken: set[str] = set()
        self._over: set[str] = set()
        self._why = ""
        self._stop = threading.Event()
        self._opened: threading.Event = threading.Event()
        self._problem: ShunterError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def open(self, leave: threading.Event) -> None:
        """Log in, look at the machine, begin the lease. Raises ShunterError when that cannot be, or we are to leave."""
        self._thread.start()
        until = time.monotonic() + OPEN_SECONDS
        while not self._opened.wait(0.1):
            if leave.is_set():
                raise NodeUnfit(f"{self.machine} was no longer wanted before it was ready.")
            if time.monotonic() > until:
                raise NodeUnfit(f"{self.machine} was not ready within {OPEN_SECONDS:.0f} s.")
        if self._problem is not None:
            raise self._problem

    def reason_to_leave(self) -> str:
        if self._why:
            return self._why
        if _now() > self._until + MARGIN_SECONDS:
            return f"{self.machine} could not be reached for longer than its lease of {self.lease:.0f} s."
        return ""

    def close(self) -> None:
        """End all work there; when it cannot be reached, its lease ends it."""
        self._stop.set()
        self._thread.join(CALL_SECONDS + 10)

    # In the thread.

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        session = None
        while not self._stop.is_set():
            connection = None
            try:
                connection, session = await connect(self.config, self.machine, self.root + HAND)
                if not self._opened.is_set():
                    await self._look_at_machine(connection, session)
                self._now_there = None  # how late it is there must be heard anew, before anything is granted
                while not self._stop.is_set():
                    await self._renew(session)
                await self._end(session)
            except (ShunterError, OSError) as error:
                if not self._opened.is_set():
                    self._problem = error if isinstance(error, ShunterError) else NodeUnfit(f"{self.machine}: {error}")
                    self._opened.set()
                    return
                await asyncio.sleep(AGAIN_SECONDS)
            finally:
                if connection is not None:
                    connection.abort()

    async def _look_at_machine(self, connection: Any, session: Any) -> None:
        self.folder.lent.mkdir(exist_ok=True)
        (self.folder.lent / self.machine).touch()
        facts, _ = await session.call("facts")
        cpus, gpus = int(facts["cpus"]), len(facts.get("gpus") or ())
        if cpus < self.spec.cpus or gpus < self.spec.gpus:
            raise NodeUnfit(
                f"{self.machine} has {cpus} CPUs and {gpus} GPUs; a node of {self.spec.name} needs {self.spec.cpus} and "
                f"{self.spec.gpus}."
            )
        found = await self._hold(session, None)
        if not found["alive"]:
            raise NodeUnfit(f"{self.machine}: nothing that we start there stays alive.")
        peer = connection.get_extra_info("peername") or ("",)
        address = address_among(found["addresses"].values(), str(peer[0]), self.options.get("subnet"))
        said = {"address": address, "watch": found["watch"], "root": facts["root"]}
        self._write("machine.json", said)
        self._heard(found)
        self._opened.set()

    async def _renew(self, session: Any) -> None:
        """Grant the lease from the moment that the last answer named."""
        granted = self._now_there
        if granted is not None:
            self._until = max(self._until, self._heard_at + self.lease)
            self._write("lease.json", {"until": self._until, "boot": contract.boot_id(), "wall": time.time() + self.lease})
        found = await self._hold(session, granted)
        self._heard(found)
        if not found["alive"]:
            self._why = f"{self.machine} was restarted, or somebody killed what held the node there."
            self._stop.set()

    async def _hold(self, session: Any, granted: float | None) -> dict[str, Any]:
        found, _ = await session.call(
            "tether", seconds=CALL_SECONDS, node=self.name, beside=Path(self.root).name, lease=self.lease,
            granted=granted, known=sorted(self._over),
        )  # fmt: skip
        answer: dict[str, Any] = found
        return answer

    def _heard(self, found: dict[str, Any]) -> None:
        self._heard_at = _now()
        self._now_there = float(found["now"])
        if not self._until:
            self._until = self._heard_at + self.lease
        # The keeper gives the room on when it sees this, whether or not there is a server.
        for launch in set(found["taken"]) - self._taken:
            self._mirror(launch, "claim")
            self._taken.add(launch)
        for launch in set(found["over"]) - self._over:
            self._mirror(launch, "claim", "done", "outcome")
            self._over.add(launch)

    def _mirror(self, launch: str, *words: str) -> None:
        place = self.folder.node_root(self.name) / contract.LAUNCHES / launch
        place.mkdir(parents=True, exist_ok=True)
        for word in words:
            (place / word).touch()

    async def _end(self, session: Any) -> None:
        ended = await end_work(session, self.name, self.root)
        if ended:
            self._write("ended.json", {"at": time.time()})

    def _write(self, name: str, content: dict[str, Any]) -> None:
        contract.write_whole(str(self.folder.node_root(self.name) / name), json.dumps(content).encode())


def _machine_of(folder: ClusterFolder, name: str) -> str:
    """Which machine this node is: written down by whoever started us, a moment after that."""
    until = time.monotonic() + 10
    while (record := folder.node(name)) is None and time.monotonic() < until:
        time.sleep(0.02)
    if record is None:
        raise NodeUnfit(f"{name} is not written down.")
    return str(record["machine"])


async def end_work(session: Any, node: str, root: str) -> bool:
    """End the lease of a node and all that runs under it; True when nothing does any more."""
    found, _ = await session.call("tether", seconds=CALL_SECONDS, node=node, beside=Path(root).name, end=True)
    return not found["running"]


def is_certainly_over(folder: ClusterFolder, name: str) -> bool:
    """Whether the work of a node whose process is gone has ended: it was seen to, or its lease is over for sure."""
    root = folder.node_root(name)
    if (root / "ended.json").exists() or not (root / "machine.json").exists():
        return True
    lease = contract.read_json(str(root / "lease.json"))
    if lease is None:  # it was never renewed: from its beginning
        made = (root / "machine.json").stat().st_mtime
        return time.time() > made + folder.spec().lease_seconds + MARGIN_SECONDS
    if lease["boot"] == contract.boot_id():
        return _now() > float(lease["until"]) + MARGIN_SECONDS
    return time.time() > float(lease["wall"]) + MARGIN_SECONDS


def _now() -> float:
    """Seconds since this machine was started, those that it slept too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
