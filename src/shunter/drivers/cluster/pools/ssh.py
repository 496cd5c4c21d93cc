"""Nodes on machines that are logged in to: each is lent when work comes, and given back when it is idle.

The node's process runs here: Ray's part of it, which only counts what is free, and the tie to the machine (`tie.py`). So the
machine needs nothing of Ray, no port of Ray's leaves this machine, and what goes between is inside SSH.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from shunter.drivers.cluster.folder import LEFT, ClusterFolder, Spec, is_process
from shunter.drivers.cluster.machines import HAND, connect, free_machine, machine_root, take_away, unseal
from shunter.drivers.cluster.pools.local import LocalPool, last_word, new_name, send_signal, session_members
from shunter.drivers.cluster.tie import CALL_SECONDS, end_work, is_certainly_over
from shunter.errors import DriverError, ShunterError
from shunter.node import contract

if TYPE_CHECKING:
    from shunter.drivers.base import Driver, Home
    from shunter.model.compute import Compute

#: A machine that is not reached is tried again after so long.
AGAIN_SECONDS = 3.0
TAKE_AWAY_SECONDS = 30.0


class SshPool(LocalPool):
    kind: ClassVar[str] = "ssh"
    shares_disk: ClassVar[bool] = False
    leave_seconds: ClassVar[float] = CALL_SECONDS + 15

    def __init__(self, folder: ClusterFolder, spec: Spec) -> None:
        super().__init__(folder, spec)
        self.machines = list((spec.options or {}).get("machines") or ())
        self._ending: dict[str, threading.Thread] = {}

    def create(self, tags: Mapping[str, str], resources: Mapping[str, float]) -> str:
        with self._lock:
            records = self.folder.all_nodes().values()
            ended = sorted((r["ended_at"], r["machine"]) for r in records if "ended_at" in r and r["why"] != LEFT)
            failed = {machine: at for at, machine in ended}  # the last time of each
            chosen = free_machine(self.machines, [r["machine"] for r in records if "ended_at" not in r], failed)
            if chosen is None:
                raise DriverError(f"All {len(self.machines)} machines of {self.spec.name} are lent already.")
            return self._create(new_name(), tags, resources, {"address": chosen, "machine": chosen})

    @classmethod
    def refusal(cls, spec: Spec) -> str:
        machines = (spec.options or {}).get("machines") or ()
        if spec.max_nodes > len(machines):
            return f"max_nodes is {spec.max_nodes}, and the pool has {len(machines)} machines"
        return ""  # what each of them has is looked at when it is logged in to

    @classmethod
    def place_of(cls, folder: ClusterFolder, name: str) -> str:
        record = folder.node(name)
        return str(record["machine"]) if record else name

    @classmethod
    def reach(cls, folder: ClusterFolder, name: str, compute: Compute, home: Home) -> Driver:
        """The machine's own driver, in the folder that this cluster has there."""
        from shunter.drivers.ssh.driver import SshDriver

        machine = cls.place_of(folder, name)
        config = unseal(folder, machine)
        found = SshDriver(
            compute.evolve(name=machine, kind="ssh", config=config.model_dump(exclude_none=True), facts={}), home
        )
        found.link.root = machine_root(folder.home, compute.workspace, compute.name, config)
        return found

    @classmethod
    async def is_quiet(cls, way: Driver) -> bool:
        link = way.link  # type: ignore[attr-defined]
        session = await link.session()
        found, _ = await session.call("tether", node="none", beside=Path(link.root).name, end=True)
        return not found["pushing"]

    def sweep(self, name: str) -> str:
        """Empty until it is certain that nothing runs there any more: ended by us, or by its lease."""
        record = self.folder.node(name)
        if record is None or is_process(record):
            return ""
        if "ended_at" in record:
            return str(record["why"])
        if record.get("boot") == contract.boot_id():
            send_signal(session_members(record["pid"]), signal.SIGKILL)
        if not is_certainly_over(self.folder, name):
            self._begin_ending(name, str(record["machine"]))
            return ""
        root = self.folder.node_root(name)
        why = last_word(root) or (LEFT if record.get("leaving") else "The process that held it was killed.")
        with self._lock:
            self._write(name, {**record, "ended_at": time.time(), "why": why})
        return why

    def take_away(self) -> None:
        """The cluster is being deleted: nothing of it stays on machines that answer."""
        lent = {r["machine"] for r in self.folder.all_nodes().values()} | {p.name for p in self.folder.lent.glob("*")}
        threads = [
            threading.Thread(target=lambda m=machine: self._try(take_away(self.folder, self.spec, m, TAKE_AWAY_SECONDS)))
            for machine in lent if machine in self.machines
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TAKE_AWAY_SECONDS + 5)

    def _begin_ending(self, name: str, machine: str) -> None:
        """Log in and end what a dead process left there, in a thread: the keeper has others to look after."""
        running = self._ending.get(name)
        if running is None or not running.is_alive():
            self._ending[name] = threading.Thread(target=lambda: self._try(self._end(name, machine)), daemon=True)
            self._ending[name].start()

    async def _end(self, name: str, machine: str) -> None:
        config = unseal(self.folder, machine)
        root = machine_root(self.folder.home, (self.spec.options or {})["workspace"], self.spec.name, config)
        try:
            connection, session = await connect(config, machine, root + HAND)
            try:
                if await end_work(session, name, root):
                    (self.folder.node_root(name) / "ended.json").touch()
            finally:
                connection.abort()
        except (ShunterError, OSError):
            await asyncio.sleep(AGAIN_SECONDS)

    @staticmethod
    def _try(work: Any) -> None:
        try:
            asyncio.run(work)
        except (ShunterError, OSError) as error:
            print(f"{time.strftime('%X')} {error}", flush=True)
