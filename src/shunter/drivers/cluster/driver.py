"""Runs on a cluster: the keeper has their nodes found, then each node's own warm parent starts them."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from shunter.drivers.base import (
    Absent,
    Capabilities,
    Capacity,
    Driver,
    Ended,
    Facts,
    Gone,
    Handle,
    Home,
    Launch,
    NodeState,
    Provisioning,
    Sign,
    Unknown,
)
from shunter.drivers.cluster.config import ClusterConfig, spec_of
from shunter.drivers.cluster.folder import LEFT, ClusterFolder, is_process
from shunter.drivers.cluster.gangs import CANCELED, FAILED, LOST, bundle_for
from shunter.drivers.cluster.keeper_line import KeeperLine
from shunter.drivers.cluster.pools import pool_class
from shunter.drivers.cluster.ray_engine import check_version
from shunter.errors import DriverError, UsageError
from shunter.model.compute import Compute
from shunter.model.run import Outcome
from shunter.node import contract


class ClusterDriver:
    kind: ClassVar[str] = "cluster"
    Config: ClassVar[type[BaseModel]] = ClusterConfig
    can: ClassVar[Capabilities] = Capabilities(
        gpu=True, sweeps=True, automl=True, pipelines=True, multi_node=True, containers=True, attach=False
    )
    shares_disk: ClassVar[bool] = True

    def __init__(self, compute: Compute, home: Home) -> None:
        self.compute = compute
        self.home = home
        self.config = ClusterConfig(**compute.config)
        base = Path(home.endpoint_file).parent
        self.size = self.config.size(base)
        self.spec = spec_of(compute.name, self.config, self.size)
        self.pool = pool_class(self.config.pool)
        self.folder = ClusterFolder(base / "clusters" / f"{compute.workspace}.{compute.name}")
        self.keeper = KeeperLine(self.folder, self.spec)
        self._nodes: dict[str, Driver] = {}
        self._in_flight: dict[str, int] = {}

    def capacity(self) -> Capacity:
        return Capacity(
            slots=self.size.cpus, nodes=self.config.max_nodes, gpus=int(self.size.gpus),
            memory_bytes=self.size.memory_bytes, whole_nodes=True, price_per_hour=self._rate(),
        )  # fmt: skip

    async def probe(self) -> Facts:
        return self.facts()

    def facts(self) -> Facts:
        """Whether such a cluster can be had. Nothing is started: a cluster at zero costs nothing."""
        try:
            check_version()
        except ImportError as error:
            raise DriverError(f"Clusters need {error}.", hint="pip install 'shunter[cluster]' brings it.") from error
        refusal = self.pool.refusal(self.spec)
        if refusal:
            raise UsageError(
                f"{self.compute.name}: {refusal}.", hint="Take a size without GPUs: `shunter compute sizes` lists them all."
            )
        price = self.size.price(self.config.region)
        details: dict[str, Any] = {
            "size": self.size.name,
            "pool": self.config.pool,
            "simulated": self.config.pool == "local",
        }
        details["usd_per_node_hour"] = self._rate()
        details["list_usd_per_hour"] = price.usd_per_hour if price else None
        gpus = tuple({"model": self.size.gpu_model} for _ in range(int(self.size.gpus)))
        return Facts(
            hostname=socket.gethostname(), system=f"{os.uname().sysname} {os.uname().release}", cpus=self.size.cpus,
            memory_bytes=self.size.memory_bytes, gpus=gpus, python=sys.version.split()[0], details=details,
        )  # fmt: skip

    def _rate(self) -> float | None:
        """What a node costs in an hour: the owner's word, else the list price; a simulated one costs nothing."""
        if self.config.price_per_hour is not None:
            return self.config.price_per_hour
        if self.config.pool == "local":
            return 0.0
        price = self.size.price(self.config.region)
        return price.usd_per_hour if price else None

    # The five verbs.

    async def launch(self, job: Launch) -> Handle:
        gang_id, index = _gang_of(job.id)
        self._in_flight[gang_id] = self._in_flight.get(gang_id, 0) + 1
        try:
            request = {"do": "place", "id": gang_id, "run": job.job["run_id"], "bundle": self._bundle(job.job)}
            gang = (await self.keeper.ask({**request, "count": job.job["node_count"]}))["gang"]
            if gang["state"] != "placed" and not (gang["state"] == "over" and gang["nodes"]):
                raise DriverError(gang["why"] or f"The attempt {gang_id} is {gang['state']}.")
            name = gang["nodes"][index]
            record = self.folder.node(name)
            if record is None or not is_process(record):
                raise DriverError(f"Node {name} of {self.compute.name} is gone.")
            added = {
                "watch": [record["pid"], record["start"]],
                "node": name,
                "gang": {"addresses": gang["addresses"], "ports": gang["ports"]},
                "scrub_env": ["RAY_", "AUTOSCALER_"],
            }
            await self._node(name).launch(replace(job, node=name, job={**job.job, **added}))
            return {"launch": job.id, "node": name}
        finally:
            self._in_flight[gang_id] -= 1
            if not self._in_flight[gang_id]:
                del self._in_flight[gang_id]

    async def poll(self, handles: Sequence[Handle]) -> Sequence[Sign]:
        return [await self._sign(handle) for handle in handles]

    async def fetch(self, handle: Handle, stream: str, offset: int) -> bytes:
        name = self._node_of(handle)
        return await self._node(name).fetch(handle, stream, offset) if name else b""

    async def cancel(self, handle: Handle) -> None:
        gang_id, _ = _gang_of(handle["launch"])
        name = self._node_of(handle)
        if not name:
            gang = (await self.keeper.ask({"do": "cancel", "id": gang_id, "run": gang_id.split(".")[0]}))["gang"]
            if gang["state"] != "placed":
                return
            name = self._node_of(handle)
        if name:
            await self._node(name).cancel(handle)

    async def clean(self, handle: Handle) -> None:
        name = self._node_of(handle)
        if name:
            await self._node(name).clean(handle)

    async def close(self) -> None:
        await self.keeper.close()
        for node in self._nodes.values():
            await node.close()

    # What a target with nodes offers beyond.

    async def start(self) -> None:
        """Bring up the nodes that stay. Returns when they are there."""
        self.folder.make(self.spec)
        if not self.spec.min_nodes:
            return
        while True:
            states = [n.state for n in await self.nodes(wake=True)]
            if sum(s in ("idle", "running") for s in states) >= self.spec.min_nodes:
                return
            if states.count("unusable") >= 3:
                raise DriverError(
                    f"The nodes of {self.compute.name} do not come up.",
                    hint=f"{self.folder.path}/nodes.log tells more.",
                )
            await asyncio.sleep(0.25)

    async def nodes(self, wake: bool = False) -> Sequence[NodeState]:
        """The nodes that are there or were a short while ago. A cluster at zero is not woken for the question."""
        if not wake and not self.keeper.is_there():
            return [
                NodeState(name, "unusable", r["asked_at"], r.get("ended_at"), str(r.get("why", "")))
                for name, r in self.folder.all_nodes().items() if r.get("why") != LEFT
            ]  # fmt: skip
        found = await self.keeper.ask({"do": "status"})
        return [
            NodeState(n["name"], n["state"], n["asked_at"], n["ended_at"], n["why"], tuple(n["runs"]))
            for n in found["nodes"] if n["why"] != LEFT
        ]  # fmt: skip

    async def apply(self) -> None:
        """The options changed: the autoscaler follows within a second or two."""
        if self.folder.path.exists():
            self.folder.make(self.spec)

    async def remove(self) -> None:
        """Delete the cluster with its nodes. May be repeated; if we die on the way, the keeper finishes it."""
        if not self.folder.path.exists():
            return
        (self.folder.path / "gone").touch()
        while self.folder.path.exists():
            await self.keeper.wake()
            await asyncio.sleep(0.1)
        await self.close()

    # Below.

    def _bundle(self, job: Mapping[str, Any]) -> dict[str, float]:
        asked = job.get("resources") or {}
        return bundle_for(
            int(asked.get("cpus") or self.size.cpus), int(asked.get("gpus") or 0), int(asked.get("memory_bytes") or 0),
            self.size.cpus, int(self.size.gpus),
        )  # fmt: skip

    async def _sign(self, handle: Handle) -> Sign:
        gang_id, _ = _gang_of(handle["launch"])
        gang = self.folder.gang(gang_id)
        name = self._node_of(handle)
        if not name:
            if gang is None:
                return Absent()
            if gang["state"] == FAILED:
                return Gone(gang["why"], started=False)
            if gang["state"] == CANCELED:
                return Ended(Outcome(kind="canceled", message=gang["why"], ended_at=time.time()))
            return Provisioning(gang["why"], since=gang["since"]) if gang_id in self._in_flight else Absent()
        try:
            if is_process(self.folder.node(name)):
                sign = (await self._node(name).poll([handle]))[0]
                # A launch on a node that lives and is not there: the order did not arrive, unless it is just being given.
                return (
                    Provisioning("Its nodes are there.", gang["since"])
                    if gang and isinstance(sign, Absent) and gang_id in self._in_flight
                    else sign
                )
            return self._sign_of_dead(handle, name, gang)
        except OSError as error:
            return Unknown(str(error))

    def _sign_of_dead(self, handle: Handle, name: str, gang: Mapping[str, Any] | None) -> Sign:
        """Its node is over: the launcher writes that down itself; when it was killed too, the folder tells."""
        folder = self.folder.node_root(name) / contract.LAUNCHES / handle["launch"]
        claim = contract.Claim.read(str(folder))
        outcome = contract.read_json(str(folder / "outcome"))
        if outcome is not None:
            return Ended(Outcome.from_wire(outcome), pushing=claim is not None and claim.launcher_alive())
        if claim is not None and (claim.launcher_alive() or claim.script_alive()):
            return Unknown(f"Node {name} is gone; what is left of it is being ended.")
        why = (gang or {}).get("why") if (gang or {}).get("state") == LOST else ""
        return Gone(
            why or f"Node {name} of {self.compute.name} was lost.", started=claim is not None and claim.starting
        )

    def _node_of(self, handle: Handle) -> str:
        """Where a launch was put: by its handle or, when nobody lived to write that down, by its gang."""
        if handle.get("node"):
            return str(handle["node"])
        gang_id, index = _gang_of(handle["launch"])
        gang = self.folder.gang(gang_id)
        return str(gang["nodes"][index]) if gang and gang["nodes"] else ""

    def _node(self, name: str) -> Driver:
        if name not in self._nodes:
            self._nodes[name] = self.pool.reach(self.folder, name, self.compute, self.home)
            for gone in [n for n in self._nodes if n != name and self.folder.node(n) is None]:
                self._nodes.pop(gone)
        return self._nodes[name]

    def shared_folder(self, launch: str, node: str) -> Path | None:
        """Where a launch's folder lies when its node shares the server's disk."""
        name = node or self._node_of({"launch": launch})
        return self.folder.node_root(name) / contract.LAUNCHES / launch if name else None


def _gang_of(launch: str) -> tuple[str, int]:
    run_id, attempt, index = launch.split(".")
    return f"{run_id}.{attempt}", int(index)
