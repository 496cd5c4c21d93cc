"""One cluster's folder on the machine that keeps it: what it is, who lives in it, which gangs it holds.

cluster.json        what was asked for, and where its Ray lives
keeper.lock .sock   the keeper: one process that looks after the cluster
head.json .sock     the head: Ray's own processes and the groups; head.open once nodes can join it
autoscaler.json     what Ray's autoscaler reads in every round
gangs/ID.json       one attempt's room; written by the keeper alone
nodes/NAME.json     one node; written by its pool alone
nodes/NAME/         that node's root: a warm parent and its launches (see `shunter/node/contract.py`); of a machine that is
                    lent, what is known of it: machine.json, lease.json, and which launches are over
gone                the cluster is to be deleted: whoever finds this finishes it
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shunter.drivers.cluster.ray_engine import RECONNECT_SECONDS, Place, Shape
from shunter.node import contract

#: The last word of a node that left in order.
LEFT = "It left."


@dataclass(frozen=True, slots=True)
class Spec:
    """What a cluster is, as its keeper needs to know it."""

    name: str
    size: str
    cpus: int
    gpus: int
    memory_bytes: int
    min_nodes: int
    max_nodes: int
    idle_seconds: float
    pool: str
    address: str
    only_run: str = ""
    #: A node that is cut off ends its work after so long.
    lease_seconds: float = RECONNECT_SECONDS
    #: What only its pool understands.
    options: Mapping[str, Any] | None = None

    def shape(self) -> Shape:
        kind = "".join(c if c.isalnum() else "_" for c in self.size)
        return Shape(kind, self.cpus, self.gpus, self.memory_bytes, self.min_nodes, self.max_nodes)


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    path: Path

    @property
    def home(self) -> Path:
        """SHUNTER_HOME of the server that it belongs to."""
        return self.path.parent.parent

    @property
    def gangs(self) -> Path:
        return self.path / "gangs"

    @property
    def nodes(self) -> Path:
        return self.path / "nodes"

    @property
    def lent(self) -> Path:
        """A file for each machine that was ever lent to it: something of it may lie there."""
        return self.path / "lent"

    @property
    def autoscaler_file(self) -> Path:
        return self.path / "autoscaler.json"

    @property
    def open_file(self) -> Path:
        """There once nodes can join the head."""
        return self.path / "head.open"

    @property
    def temp_folder(self) -> Path:
        """Short, as the path of a unix socket has at most 107 bytes and Ray puts several folders before it."""
        mark = hashlib.sha256(str(self.path).encode()).hexdigest()[:10]
        return Path(tempfile.gettempdir()) / f"shunter-{os.getuid()}-{mark}"

    def make(self, spec: Spec) -> None:
        """Write what the cluster is. What was decided once (port, token) stays."""
        for folder in (self.path, self.gangs, self.nodes):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        token = self.path / "token"
        if not token.exists():
            contract.write_whole(str(token), secrets.token_hex(32).encode())
        old = self.read() or {}
        content = {
            "spec": asdict(spec),
            "port": old.get("port") or free_port(),
            "metrics_port": old.get("metrics_port") or free_port(),
        }
        if content != old:
            contract.write_whole(str(self.path / "cluster.json"), json.dumps(content).encode())

    def read(self) -> dict[str, Any] | None:
        return contract.read_json(str(self.path / "cluster.json"))

    def spec(self) -> Spec:
        found = self.read()
        assert found is not None, self.path
        return Spec(**found["spec"])

    def place(self) -> Place:
        found = self.read()
        assert found is not None, self.path
        return Place(
            port=found["port"], address=found["spec"]["address"], token_file=str(self.path / "token"),
            temp_folder=str(self.temp_folder), storage_folder=str(self.path / "ray"), metrics_port=found["metrics_port"],
        )  # fmt: skip

    def gang(self, gang_id: str) -> dict[str, Any] | None:
        return contract.read_json(str(self.gangs / f"{gang_id}.json"))

    def node(self, name: str) -> dict[str, Any] | None:
        return contract.read_json(str(self.nodes / f"{name}.json"))

    def machine(self, name: str) -> dict[str, Any] | None:
        """What is known of the machine that a node stands for; None for a node on this one."""
        return contract.read_json(str(self.node_root(name) / "machine.json"))

    def node_root(self, name: str) -> Path:
        return self.nodes / name

    def all_nodes(self) -> dict[str, dict[str, Any]]:
        return {p.stem: r for p in sorted(self.nodes.glob("*.json")) if (r := contract.read_json(str(p))) is not None}

    def forget_ray(self) -> None:
        """What Ray stored: its next head starts from nothing."""
        shutil.rmtree(self.path / "ray", ignore_errors=True)
        shutil.rmtree(self.temp_folder, ignore_errors=True)

    def remove(self) -> None:
        """Whole or not at all: moved aside first, as whoever still writes into it would leave half of it standing."""
        self.forget_ray()
        aside = self.home / "removed"
        aside.mkdir(mode=0o700, exist_ok=True)
        try:
            self.path.rename(aside / f"{self.path.name}.{secrets.token_hex(4)}")
        except FileNotFoundError:
            pass  # somebody else did
        for left in aside.iterdir():  # those too that whoever moved them died over
            shutil.rmtree(left, ignore_errors=True)


def is_process(record: Mapping[str, Any] | None) -> bool:
    """Whether the process that a record names (`pid`, `start`, `boot`) is still there."""
    if not record or not record.get("pid") or record.get("boot") != contract.boot_id():
        return False
    return contract.is_alive(int(record["pid"]), int(record["start"]))


def process_record(pid: int) -> dict[str, Any]:
    return {"pid": pid, "start": contract.start_time(pid), "boot": contract.boot_id()}


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
