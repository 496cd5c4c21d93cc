"""Nodes on this machine: each a Ray node in a session of its own, with a folder and a warm parent of its own."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from shunter.drivers.cluster import limits, ray_engine
from shunter.drivers.cluster.folder import LEFT, ClusterFolder, Spec, is_process, process_record
from shunter.drivers.cluster.pools.base import PoolNode
from shunter.node import contract
from shunter.node.monitor.cpu import descendants

if TYPE_CHECKING:
    from shunter.drivers.base import Driver, Home
    from shunter.model.compute import Compute

#: A node that has not joined after so long is given up.
UP_SECONDS = 120.0
#: A node that is told to leave is given so long before it is killed.
LEAVE_SECONDS = 5.0


class LocalPool:
    kind: ClassVar[str] = "local"
    shares_disk: ClassVar[bool] = True
    leave_seconds: ClassVar[float] = LEAVE_SECONDS

    def __init__(self, folder: ClusterFolder, spec: Spec) -> None:
        self.folder = folder
        self.spec = spec
        self._lock = threading.Lock()
        self._listed: set[str] = set()

    def create(self, tags: Mapping[str, str], resources: Mapping[str, float]) -> str:
        name = new_name()
        facts: dict[str, Any] = {"address": self.spec.address}
        try:
            facts["groups"] = limits.make(f"shunter-{name}", self.spec.cpus, self.spec.memory_bytes)
        except OSError as error:
            facts["unlimited"] = error.strerror or str(error)
        return self._create(name, tags, resources, facts)

    def _create(
        self, name: str, tags: Mapping[str, str], resources: Mapping[str, float], facts: Mapping[str, Any]
    ) -> str:
        """Start the process that stands for a node, and write it down with what is known of it."""
        root = self.folder.node_root(name)
        root.mkdir(mode=0o700)
        env = ray_engine.environment(self.folder.place(), name, self.spec.shape().name)
        with (self.folder.path / "nodes.log").open("ab") as log:
            process = subprocess.Popen(
                [*python_module("shunter.drivers.cluster.node"), str(self.folder.path), name, json.dumps(dict(resources))],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/", env=env,
            )  # fmt: skip
        threading.Thread(target=process.wait, daemon=True).start()
        self._write(
            name,
            {**process_record(process.pid), "tags": dict(tags), "asked_at": time.time(), **facts},
        )
        return name

    def nodes(self) -> Sequence[PoolNode]:
        found = []
        for name, record in self.folder.all_nodes().items():
            if "ended_at" in record:
                continue
            alive = is_process(record)
            up = (self.folder.node_root(name) / "up").exists()
            if alive and not up and time.time() - record["asked_at"] > UP_SECONDS:
                self.terminate(name)
                alive = False
            if alive or name not in self._listed:
                self._listed.add(name)
                found.append(PoolNode(name, record["address"], record["tags"], record["asked_at"], up))
        return found

    def set_tags(self, name: str, tags: Mapping[str, str]) -> None:
        with self._lock:
            record = self.folder.node(name)
            if record is not None:
                self._write(name, {**record, "tags": {**record["tags"], **tags}})

    def terminate(self, name: str) -> None:
        record = self.folder.node(name)
        if record is None:
            return
        with self._lock:
            self._write(name, {**record, "leaving": True})
        if is_process(record):
            family = descendants(record["pid"])
            send_signal([record["pid"]], signal.SIGTERM)
            until = time.monotonic() + self.leave_seconds
            while is_process(record) and time.monotonic() < until:
                time.sleep(0.02)
            send_signal(family, signal.SIGKILL)
        self.sweep(name)

    @classmethod
    def refusal(cls, spec: Spec) -> str:
        here = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
        if spec.gpus > here:
            have = "none" if not here else str(here)
            return f"{spec.size} has {spec.gpus} GPU{'s' if spec.gpus > 1 else ''}, and this machine has {have}"
        return ""

    @classmethod
    def place_of(cls, folder: ClusterFolder, name: str) -> str:
        return name

    @classmethod
    def reach(cls, folder: ClusterFolder, name: str, compute: Compute, home: Home) -> Driver:
        from shunter.drivers.cluster.pools.local_way import LocalNode

        groups = (folder.node(name) or {}).get("groups") or ()
        return LocalNode(compute.evolve(config={}), home, folder.node_root(name), groups)

    @classmethod
    async def is_quiet(cls, way: Driver) -> bool:
        return True  # what is left there finds the server by itself

    def sweep(self, name: str) -> str:
        """End what a dead node left: Ray's agents, scripts without a launcher, the warm parent."""
        record = self.folder.node(name)
        if record is None or is_process(record):
            return ""
        if record.get("boot") == contract.boot_id():
            send_signal(session_members(record["pid"]), signal.SIGKILL)
        root = self.folder.node_root(name)
        at_work = 0
        for launch in sorted((root / contract.LAUNCHES).glob("*")):
            claim = contract.Claim.read(str(launch))
            if claim is None or (launch / "outcome").exists():
                continue
            at_work += 1
            if claim.launcher_alive():
                continue  # it watches the node, and ends its script by itself
            if claim.script is not None and claim.script_alive():
                send_signal(descendants(claim.script[0]), signal.SIGKILL)
        if not at_work:
            _end_parent(root)  # launchers that only bring things home do without it
        if "ended_at" not in record:
            why = last_word(root) or (LEFT if record.get("leaving") else "Its process was killed.")
            if not (root / "up").exists():
                why = "It did not come up."
            with self._lock:
                self._write(name, {**record, "ended_at": time.time(), "why": why})
            return why
        limits.remove(record.get("groups") or ())
        return str(record["why"])

    def take_away(self) -> None:
        """All else lies in the cluster's folder."""
        for record in self.folder.all_nodes().values():
            limits.remove(record.get("groups") or ())

    def _write(self, name: str, record: dict[str, Any]) -> None:
        contract.write_whole(str(self.folder.nodes / f"{name}.json"), json.dumps(record).encode())


def new_name() -> str:
    return "n" + secrets.token_hex(3)


def python_module(module: str) -> list[str]:
    """A command that runs one of our modules with this interpreter and nothing of the caller's path."""
    import shunter

    package = str(Path(shunter.__file__).parent.parent)
    code = f"import sys; sys.path.insert(0, {package!r}); from {module} import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", code]


def session_members(session: int) -> list[int]:
    """Every process of a session, found by what the kernel says: Ray's agents overwrite their own environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.getsid(int(name)) == session:
                    found.append(int(name))
            except OSError:
                continue
    return found


def last_word(root: Path) -> str:
    try:
        return (root / "over").read_text()
    except OSError:
        return ""


def _end_parent(root: Path) -> None:
    try:
        pid, start = (int(word) for word in (root / "parent.lock").read_text().split())
    except (OSError, ValueError):
        return
    if contract.is_alive(pid, start):
        send_signal([pid], signal.SIGTERM)


def send_signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass
