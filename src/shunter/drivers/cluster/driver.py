"""Runs on a cluster: the keeper has their nodes found, then each node's own warm parent starts them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    Running,
    Sign,
    Unknown,
)
from shunter.drivers.cluster import limits
from shunter.drivers.cluster.config import ClusterConfig, spec_of
from shunter.drivers.cluster.folder import LEFT, ClusterFolder, is_process
from shunter.drivers.cluster.gangs import CANCELED, FAILED, LOST, OVER, bundle_for
from shunter.drivers.cluster.keeper_line import KeeperLine
from shunter.drivers.cluster.pools import pool_class
from shunter.drivers.cluster.ray_engine import check_version
from shunter.errors import DriverError, ShunterError, UsageError
from shunter.model.compute import Compute
from shunter.model.run import Outcome
from shunter.node import contract, signs

log = logging.getLogger("shunter.cluster")

#: How often the ways to nodes that are gone are looked for.
LET_GO_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Step:
    """One line of what a create tells."""

    name: str
    verdict: str
    message: str
    hint: str = ""

    def to_wire(self) -> dict[str, str]:
        return {"check": self.name, "verdict": self.verdict, "message": self.message, "hint": self.hint}


class ClusterDriver:
    kind: ClassVar[str] = "cluster"
    Config: ClassVar[type[BaseModel]] = ClusterConfig
    can: ClassVar[Capabilities] = Capabilities(
        gpu=True, sweeps=True, automl=True, pipelines=True, multi_node=True, containers=True, attach=False
    )

    def __init__(self, compute: Compute, home: Home) -> None:
        self.compute = compute
        self.home = home
        self.config = ClusterConfig(**compute.config)
        base = Path(home.endpoint_file).parent
        self.size = self.config.size(base)
        self.machines = self.config.machine_configs(compute.name)
        self.spec = spec_of(compute, self.config, self.size, base, self.machines)
        self.pool = pool_class(self.config.pool)
        self.shares_disk = self.pool.shares_disk
        self.folder = ClusterFolder(base / "clusters" / f"{compute.workspace}.{compute.name}")
        self.keeper = KeeperLine(self.folder, self.spec)
        self._nodes: dict[str, Driver] = {}
        self._in_flight: dict[str, int] = {}
        self._learned: dict[str, Any] = {}
        self._letting_go: asyncio.Future[None] | None = None
        self._quiet: set[str] = set()

    def capacity(self) -> Capacity:
        return Capacity(
            slots=self.size.cpus, nodes=self.spec.max_nodes, gpus=int(self.size.gpus),
            memory_bytes=self.size.memory_bytes, whole_nodes=True, price_per_hour=self._rate(),
        )  # fmt: skip

    async def probe(self) -> Facts:
        return self.facts()

    async def check(self, say: Callable[[Any], None]) -> Facts:
        """At create: whether it can be had; machines that are to be lent are logged in to and looked at."""
        found = self.facts()
        if self.shares_disk:
            problem = await asyncio.to_thread(limits.problem)
            say(_check_limits(problem, self.size.name))
            found = replace(found, details={**found.details, "limits": problem or "enforced"})
        if self.machines:
            from shunter.drivers.cluster.machines import look_at

            seen = await look_at(self.machines, self.size if self.config.vm_size else None, self.spec.gpus, say)
            self._learned = {} if self.config.vm_size else {"machine_size": seen.size}
            found = replace(found, **seen.facts)
        return found

    def learned(self) -> dict[str, Any]:
        """Options that were found out and are to be kept."""
        return self._learned

    def facts(self) -> Facts:
        """Whether such a cluster can be had. Nothing is started: a cluster at zero costs nothing."""
        try:
            check_version()
        except ImportError as error:
            raise DriverError(f"Clusters need {error}.", hint="pip install 'shunter[cluster]' brings it.") from error
        refusal = self.pool.refusal(self.spec)
        if refusal:
            raise UsageError(f"{self.compute.name}: {refusal}.", hint="`shunter compute sizes` lists all sizes.")
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
            machine = self.folder.machine(name)
            added = {
                "watch": machine["watch"] if machine else [record["pid"], record["start"]],
                "node": name,
                "gang": {"addresses": gang["addresses"], "ports": gang["ports"]},
                "scrub_env": ["RAY_", "AUTOSCALER_"],
            }
            order = replace(job, node=name, job={**job.job, **added})
            if self.shares_disk:
                await self._node(name).launch(order)
            else:
                await self._launch_there(name, order)
            return {"launch": job.id, "node": name}
        finally:
            self._in_flight[gang_id] -= 1
            if not self._in_flight[gang_id]:
                del self._in_flight[gang_id]

    async def _launch_there(self, name: str, order: Launch) -> None:
        """Sending a snapshot may take long: the keeper is shown meanwhile that the room is wanted."""
        coming = self.folder.node_root(name) / contract.LAUNCHES / order.id / "coming"
        coming.parent.mkdir(parents=True, exist_ok=True)
        task = asyncio.ensure_future(self._node(name).launch(order))
        try:
            while not task.done():
                coming.touch()
                await asyncio.wait([task], timeout=20)
            await task
        finally:
            task.cancel()

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
        await self._close_nodes()

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
        await self._close_nodes()  # a connection that is kept would bring back what is taken away there
        while self.folder.path.exists():
            try:
                (self.folder.path / "gone").touch()
                await self.keeper.wake()
            except FileNotFoundError:
                break  # a keeper that found nothing left to keep took it away
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
            if gang is None:  # the keeper that is to write it down may only be coming up
                asked = gang_id in self._in_flight
                return Provisioning(f"{self.compute.name} is being woken.", time.time()) if asked else Absent()
            if gang["state"] == FAILED:
                return Gone(gang["why"], started=False)
            if gang["state"] == CANCELED:
                return Ended(Outcome(kind="canceled", message=gang["why"], ended_at=time.time()))
            return Provisioning(gang["why"], since=gang["since"]) if gang_id in self._in_flight else Absent()
        try:
            if is_process(self.folder.node(name)):
                sign = (await self._node(name).poll([handle]))[0]
                if isinstance(sign, Absent) and not self.shares_disk and gang and gang["state"] == OVER:
                    return Gone("Its room was given on before it was started there.", started=False)
                # A launch on a node that lives and is not there: the order did not arrive, unless it is just being given.
                return (
                    Provisioning("Its nodes are there.", gang["since"])
                    if gang and isinstance(sign, Absent) and gang_id in self._in_flight
                    else sign
                )
            if not self.shares_disk:
                return await self._sign_of_given_back(handle, name, gang)
            return self._sign_of_dead(handle, name, gang)
        except OSError as error:
            return Unknown(str(error))

    async def _sign_of_given_back(self, handle: Handle, name: str, gang: Mapping[str, Any] | None) -> Sign:
        """Its machine was given back or lost. Whatever that machine says is true; when it says nothing, its lease does."""
        record = self.folder.node(name)
        if record is not None and "ended_at" not in record:
            return Unknown(f"Node {name} is being ended, or its lease has not run out yet.")
        sign = (await self._node(name).poll([handle]))[0]
        if isinstance(sign, Ended | Gone):
            return sign
        if isinstance(sign, Running):
            return Unknown(f"Node {name} is gone; its launcher is just finishing.")
        why = (record or {}).get("why") or (gang or {}).get("why") or "it is gone"
        return Gone(f"Node {name} of {self.compute.name} was lost: {why}", started=not isinstance(sign, Absent))

    def _sign_of_dead(self, handle: Handle, name: str, gang: Mapping[str, Any] | None) -> Sign:
        """Its node is over: the launcher writes that down itself; when it was killed too, the folder tells."""
        root = self.folder.node_root(name)
        folder = root / contract.LAUNCHES / handle["launch"]
        ending = Unknown(f"Node {name} is gone; what is left of it is being ended.")
        claim = contract.Claim.read(str(folder))
        if claim is None and folder.is_dir() and not signs.give_up(str(folder), f"Node {name} was lost before it began."):
            return ending  # a launcher that was on its way has just taken it
        if claim is not None and not claim.launcher_alive():
            claim = contract.Claim.read(str(folder))  # again: how far it came before it died
        launcher = claim is not None and claim.launcher_alive()
        busy = claim is not None and (launcher or claim.script_alive() or not signs.is_settled(str(root), claim))
        outcome = contract.read_json(str(folder / "outcome"))  # after these, or one could write it and be gone in between
        if outcome is not None:
            return Ended(Outcome.from_wire(outcome), pushing=launcher)
        if busy:
            return ending
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
        place = self.pool.place_of(self.folder, name)
        if place not in self._nodes:
            self._nodes[place] = self.pool.reach(self.folder, name, self.compute, self.home)
            self._begin_letting_go()
        return self._nodes[place]

    def keep(self, on_up: Callable[[], None]) -> None:
        """Stay reachable for what machines that were given back still have to bring home."""
        if not self.shares_disk:
            self._begin_letting_go()

    def _begin_letting_go(self) -> None:
        if self._letting_go is None or self._letting_go.done():
            self._letting_go = asyncio.ensure_future(self._let_go())

    async def _let_go(self) -> None:
        """Of the ways to nodes that are gone, once nothing there has anything to say any more."""
        while True:
            await asyncio.sleep(LET_GO_SECONDS)
            try:
                if not await self._let_some_go():
                    return
            except (LookupError, OSError):  # a folder that is just taken away, a machine that is no longer named
                log.exception("%s: the ways to its nodes could not be looked through; trying again", self.compute.name)

    async def _let_some_go(self) -> bool:
        """Whether there are any left."""
        records = self.folder.all_nodes()
        places = {name: self.pool.place_of(self.folder, name) for name in records}
        wanted = {places[n] for n, r in records.items() if "ended_at" not in r}
        left = {places[n] for n, r in records.items() if "ended_at" in r and n not in self._quiet}
        for place in (left | set(self._nodes)) - wanted:
            name = next((n for n in records if places[n] == place), "")
            try:
                over = not name or await self.pool.is_quiet(self._node(name))
            except ShunterError:
                continue  # it does not answer: tried for as long as anybody remembers the node
            if over:
                self._quiet.update(n for n in records if places[n] == place and "ended_at" in records[n])
                if place in self._nodes:
                    await self._nodes.pop(place).close()
        return bool(self._nodes or left)

    async def _close_nodes(self) -> None:
        if self._letting_go is not None:
            self._letting_go.cancel()
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            await node.close()

    async def completed(self, run_id: str, attempt: int) -> None:
        """The server knows it before the keeper does when the node's disk is elsewhere: its room may be given on."""
        if not self.shares_disk and self.keeper.is_connected:
            await self.keeper.ask({"do": "release", "id": f"{run_id}.{attempt}"})

    def shared_folder(self, launch: str, node: str) -> Path | None:
        """Where a launch's folder lies when its node shares the server's disk."""
        if not self.shares_disk:
            return None
        name = node or self._node_of({"launch": launch})
        return self.folder.node_root(name) / contract.LAUNCHES / launch if name else None


def _check_limits(problem: str, size: str) -> Step:
    if problem:
        words = f"Nodes are not held to what {size} has: this machine allows no control groups ({problem})."
        return Step("limits", "warning", words)
    return Step("limits", "ok", f"Each node is held to the cores and the memory of {size}.")


def _gang_of(launch: str) -> tuple[str, int]:
    run_id, attempt, index = launch.split(".")
    return f"{run_id}.{attempt}", int(index)
