"""The keeper: one small process for each cluster that has work, apart from the server and from Ray.

It starts the head and brings it back, has gangs placed and gives their room on, tells what a gang waits for, ends what
dead nodes left, and goes when there is nothing left to keep. All it knows is in the cluster's folder: another keeper goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from shunter.drivers.cluster import keeping
from shunter.drivers.cluster.folder import ClusterFolder, free_port, is_process, process_record
from shunter.drivers.cluster.gangs import (
    ASKED,
    CANCELED,
    FAILED,
    FORGOTTEN_SECONDS,
    LINGER_SECONDS,
    LOST,
    MOST_FAILURES,
    OVER,
    PLACED,
    Gang,
    NodeView,
    Room,
    Zero,
    counts,
    failures,
    find_room,
    state_of,
    words,
)
from shunter.drivers.cluster.head_line import HeadLine
from shunter.drivers.cluster.lines import Answer, Request, serve
from shunter.drivers.cluster.pools import pool_class
from shunter.drivers.cluster.ray_engine import worker_tags
from shunter.errors import ShunterError
from shunter.node import contract, signs

TICK_SECONDS = 0.25
RECONCILE_SECONDS = 5.0
#: The longest that a head stays when nothing is there.
HEAD_IDLE_SECONDS = 30.0
#: How long the record of a node that is over is kept for people who ask.
CORPSE_SECONDS = 3600.0


def main(arguments: list[str]) -> int:
    folder = ClusterFolder(Path(arguments[0]))
    with keeping.hold(folder, int(arguments[1]) if arguments[1:] else None) as mine:
        if mine is None:
            return 0
        if (folder.path / "gone").exists() and folder.read() is None:
            folder.remove()  # what a deletion that was cut short left
            return 0
        contract.write_whole(str(folder.path / "keeper.json"), json.dumps(process_record(os.getpid())).encode())
        return asyncio.run(Keeper(folder).run())


class Keeper:
    def __init__(self, folder: ClusterFolder) -> None:
        self.folder = folder
        self.spec = folder.spec()
        self.pool = pool_class(self.spec.pool)(folder, self.spec)
        self.head = HeadLine(folder)
        self.gangs: dict[str, Gang] = {}
        self.rooms: list[Room] = []
        self.nodes: dict[str, NodeView] = {}
        self.zero = Zero()
        self._asked_at: dict[str, float] = {}
        self._seeking: dict[str, asyncio.Task[None]] = {}
        self._settled: dict[str, asyncio.Event] = {}
        self._spec_time = 0
        self._had_head_start = False
        self._reconcile_at = 0.0
        self._stop = False

    async def run(self) -> int:
        self._load()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._on_term)
        server = await serve(self.folder.path / "keeper.sock", self.answer)
        async with server:
            while not self._stop:
                try:
                    await self._tick()
                except Exception as error:
                    print(f"{time.strftime('%X')} tick: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                if not self.folder.path.is_dir():
                    return 0
                await asyncio.sleep(TICK_SECONDS)
        return 0

    def _on_term(self) -> None:
        self._stop = True

    # What the driver asks.

    async def answer(self, request: Request) -> Answer:
        match request["do"]:
            case "place":
                return {"gang": (await self._place(request)).to_wire()}
            case "cancel":
                return {"gang": (await self._cancel(request["id"], str(request.get("run", "")))).to_wire()}
            case "release":
                self._give_back(request["id"])
            case "status":
                return self._status()
            case "delete":
                (self.folder.path / "gone").touch()
        return {"pid": os.getpid()}

    async def _place(self, request: Request) -> Gang:
        """The room for an attempt: found, asked for, or waited for. The same id twice asks once."""
        gang = self.gangs.get(request["id"])
        if gang is None:
            gang = Gang(
                request["id"], request["run"], request["bundle"], request["count"], time.time(), group=request["id"]
            )
            self._settled[gang.id] = asyncio.Event()
            self._look_at_nodes()
            room = find_room(self.rooms, gang, self.nodes) or self._room_of_one_that_ended(gang)
            if room is not None:
                self.rooms = [r for r in self.rooms if r.group != room.group]
                self._put(self._placed(gang.evolve(group=room.group), room.nodes, room.addresses))
            else:
                self._put(gang)
                self._seek(gang.id)
        if gang.id not in self._settled:
            self._settled[gang.id] = asyncio.Event()
        while self.gangs[gang.id].state == ASKED:
            self._asked_at[gang.id] = time.time()
            self._settled[gang.id].clear()
            try:
                await asyncio.wait_for(self._settled[gang.id].wait(), FORGOTTEN_SECONDS / 4)
            except TimeoutError:
                pass
        return self.gangs[gang.id]

    async def _cancel(self, gang_id: str, run: str) -> Gang:
        """Legal before it was asked for, too: it is then never placed."""
        gang = self.gangs.get(gang_id) or Gang(gang_id, run, {}, 0, time.time(), group="")
        if gang.state == ASKED:
            self._put(gang.evolve(state=CANCELED, why="Canceled before it had its nodes."))
            await self._remove_group(gang.group)
        return self.gangs[gang_id]

    def _status(self) -> Answer:
        self._look_at_nodes()
        self._give_back_ended()
        busy = self._busy()
        nodes = [
            {"name": n.name, "state": state_of(n, busy), "asked_at": n.asked_at, "ended_at": n.ended_at, "why": n.why,
             "runs": [g.run for g in self.gangs.values() if g.state == PLACED and n.name in g.nodes]}
            for n in self.nodes.values()
        ]  # fmt: skip
        return {
            "head": self.head.state, "counts": counts(self.nodes.values(), busy), "nodes": nodes,
            "gangs": [g.to_wire() for g in self.gangs.values() if g.is_open],
        }  # fmt: skip

    # The life of a gang.

    def _seek(self, gang_id: str) -> None:
        if gang_id not in self._seeking:
            self._give_head_start(self.gangs[gang_id])
            task = self._seeking[gang_id] = asyncio.create_task(self._find_nodes(gang_id))
            task.add_done_callback(lambda _: self._seeking.pop(gang_id, None))

    def _give_head_start(self, gang: Gang) -> None:
        """From zero: nodes come up beside the head, not after it. Its autoscaler would ask for them, and takes them on."""
        if self._had_head_start or self.head.is_there or any(n.is_alive for n in self.nodes.values()):
            return
        self._had_head_start = True
        self.folder.open_file.unlink(missing_ok=True)
        shape = self.spec.shape()
        try:
            for _ in range(min(gang.count, self.spec.max_nodes)):
                self.pool.create(worker_tags(shape.name), shape.resources())
        except (ShunterError, OSError) as error:
            print(f"{time.strftime('%X')} no head start: {error}", file=sys.stderr, flush=True)

    async def _find_nodes(self, gang_id: str) -> None:
        for room in list(self.rooms):  # of another shape: it may be what this one needs
            await self._drop_room(room)
        while (gang := self.gangs[gang_id]).state == ASKED:
            try:
                await self.head.ask({"do": "create", "name": gang.group, "bundles": [dict(gang.bundle)] * gang.count})
                found = (await self.head.ask({"do": "wait", "name": gang.group})).get("nodes")
            except OSError as error:
                print(f"{time.strftime('%X')} {gang_id}: {error}", file=sys.stderr, flush=True)
                await asyncio.sleep(0.2)
                continue
            if found and self.gangs[gang_id].state == ASKED:
                self._look_at_nodes()
                if all(name in self.nodes for name in found):
                    for name in found:  # Ray knows it before its process has finished starting
                        (self.folder.node_root(name) / "up").touch()
                    self._put(self._placed(self.gangs[gang_id], found, [self._address(n) for n in found]))
                else:
                    await asyncio.sleep(0.2)  # Ray has placed it on a node that it knows no name of yet

    def _placed(self, gang: Gang, nodes: Sequence[str], addresses: Sequence[str]) -> Gang:
        # One for each node, and one at which the first hears of silent ranks.
        ports = [free_port() for _ in range(len(nodes) + 1)] if self.pool.shares_disk else []
        return gang.evolve(
            state=PLACED, nodes=list(nodes), addresses=list(addresses), ports=ports, placed_at=time.time(), why=""
        )

    def _room_of_one_that_ended(self, gang: Gang) -> Room | None:
        """An attempt of the same shape whose scripts are all over hands its room on at once."""
        for other in self.gangs.values():
            if other.state == PLACED and other.key == gang.key and self._is_over(other):
                self._give_back(other.id)
                return find_room(self.rooms, gang, self.nodes)
        return None

    def _give_back_ended(self) -> None:
        for gang in [g for g in self.gangs.values() if g.state == PLACED]:
            if self._is_over(gang):
                self._give_back(gang.id)

    def _give_back(self, gang_id: str) -> None:
        gang = self.gangs.get(gang_id)
        if gang is None or gang.state != PLACED:
            return
        self._put(gang.evolve(state=OVER))
        self.rooms.append(Room(gang.group, gang.key, gang.nodes, gang.addresses, time.time()))

    def _is_over(self, gang: Gang) -> bool:
        return all(self._launch_is_over(gang, index) for index in range(gang.count))

    def _launch_is_over(self, gang: Gang, index: int) -> bool:
        folder = self.folder.node_root(gang.nodes[index]) / contract.LAUNCHES / gang.launch(index)
        if (folder / "outcome").exists():
            return True
        if time.time() - max(gang.placed_at, keeping.changed_at(folder / "coming")) < FORGOTTEN_SECONDS:
            return False
        # Placed long ago and never taken: nobody is going to. Taking it ourselves makes sure of that.
        folder.mkdir(parents=True, exist_ok=True)
        return signs.give_up(str(folder), "Nobody started the launcher in time.")

    def _forget_when_home(self, gang: Gang, now: float) -> None:
        """The record of a gang that is over tells where its launches lie; when all is home nobody asks for that."""
        roots = [self.folder.node_root(name) / contract.LAUNCHES / gang.launch(i) for i, name in enumerate(gang.nodes)]
        home = gang.state == OVER and all((r / "done").exists() or not r.exists() for r in roots)
        if home or now - gang.since > CORPSE_SECONDS * 24 * 7:
            self.gangs.pop(gang.id)
            self._settled.pop(gang.id, None)
            self._asked_at.pop(gang.id, None)
            (self.folder.gangs / f"{gang.id}.json").unlink(missing_ok=True)

    async def _drop_room(self, room: Room) -> None:
        self.rooms = [r for r in self.rooms if r.group != room.group]
        await self._remove_group(room.group)

    async def _remove_group(self, group: str) -> None:
        if group and self.head.state == "up":
            try:
                await self.head.ask({"do": "remove", "name": group})
            except OSError:
                self._reconcile_at = 0.0

    # The round.

    async def _tick(self) -> None:
        now = time.time()
        if (self.folder.path / "gone").exists():
            return await self._delete()
        self._read_spec()
        self._look_at_nodes()
        for node in list(self.nodes.values()):
            if not node.is_alive:
                await self._on_dead_node(node, now)
        self._give_back_ended()
        for gang in [g for g in self.gangs.values() if not g.is_open]:
            self._forget_when_home(gang, now)
        for room in [r for r in self.rooms if now - r.since > LINGER_SECONDS]:
            await self._drop_room(room)
        for gang in [g for g in self.gangs.values() if g.state == ASKED]:
            await self._look_at_waiting(gang, now)
        idle = self.zero.seen(self.gangs.values(), self.rooms, self.nodes.values(), self.spec.min_nodes, now)
        if idle >= min(self.spec.idle_seconds, HEAD_IDLE_SECONDS) and self.zero.since is not None:
            return await self._go()
        if self.zero.since is None:
            await self._look_at_head(now)
        return None

    async def _look_at_waiting(self, gang: Gang, now: float) -> None:
        if now - self._asked_at.get(gang.id, now) > FORGOTTEN_SECONDS:
            self.gangs.pop(gang.id)
            (self.folder.gangs / f"{gang.id}.json").unlink(missing_ok=True)
            return await self._remove_group(gang.group)
        self._asked_at.setdefault(gang.id, now)
        self._seek(gang.id)
        bad = failures(self.nodes.values(), gang.since)
        if len(bad) >= MOST_FAILURES or self.head.failures >= MOST_FAILURES:
            tail = keeping.log_tail(self.folder.path / ("nodes.log" if bad else "head.log"))
            what = (
                f"{len(bad)} nodes of {self.spec.name} did not come up"
                if bad
                else f"The head of {self.spec.name} does not come up"
            )
            self.head.failures = 0
            self._put(gang.evolve(state=FAILED, why=f"{what}: {tail or 'without a word'}"))
            return await self._remove_group(gang.group)
        spec = self.spec
        why = words(
            gang, spec.name, spec.size, self.head.state, list(self.nodes.values()), self._busy(), spec.max_nodes, now
        )
        if why != gang.why:
            self._put(gang.evolve(why=why))
        return None

    async def _on_dead_node(self, node: NodeView, now: float) -> None:
        why = await asyncio.to_thread(self.pool.sweep, node.name)
        if not why:
            return  # something of it may still be running
        for gang in [g for g in self.gangs.values() if g.state == PLACED and node.name in g.nodes]:
            # Ray would put the group elsewhere and say that all is well, with nothing running in it.
            self._put(
                gang.evolve(
                    state=LOST, lost_node=node.name, why=f"Node {node.name} of {self.spec.name} was lost: {why}"
                )
            )
            await self._remove_group(gang.group)
        for room in [r for r in self.rooms if node.name in r.nodes]:
            await self._drop_room(room)
        self._bury(node.name, node.ended_at or now, now)

    def _bury(self, name: str, ended_at: float, now: float) -> None:
        """A dead node's folder goes when everything in it is home; its record a while later."""
        import shutil

        root = self.folder.node_root(name)
        if root.is_dir() and all((launch / "done").exists() for launch in (root / contract.LAUNCHES).glob("*")):
            shutil.rmtree(root, ignore_errors=True)
        if not root.is_dir() and now - ended_at > CORPSE_SECONDS:
            (self.folder.nodes / f"{name}.json").unlink(missing_ok=True)

    async def _look_at_head(self, now: float) -> None:
        if not await self.head.ensure() or now < self._reconcile_at:
            return
        self._reconcile_at = now + RECONCILE_SECONDS
        seen = await self.head.ask({"do": "look"})
        wanted = {g.group for g in self.gangs.values() if g.is_open} | {r.group for r in self.rooms}
        for group in seen.get("groups", ()):
            if group not in wanted:
                await self._remove_group(group)

    async def _go(self) -> None:
        """Nothing is left to keep: the head goes, and we with it. The next run starts us again."""
        await self.head.stop()
        self.folder.forget_ray()
        for node in self.nodes.values():
            self._bury(node.name, node.ended_at or 0.0, time.time())
        if self.spec.only_run and not any(self.folder.nodes.glob("*/launches/*/job.json")):
            self.folder.remove()
        self._stop = True

    async def _delete(self) -> None:
        await self.head.stop()  # first, or it would bring nodes back
        for name in self.folder.all_nodes():
            await asyncio.to_thread(self.pool.terminate, name)
        await asyncio.to_thread(self.pool.take_away)
        self.folder.remove()
        self._stop = True

    # What is there.

    def _load(self) -> None:
        for file in self.folder.gangs.glob("*.json"):
            record = contract.read_json(str(file))
            if record is not None:
                self.gangs[record["id"]] = Gang(**record)
                self._settled[record["id"]] = asyncio.Event()

    def _put(self, gang: Gang) -> None:
        """Written down before anybody is told."""
        contract.write_whole(str(self.folder.gangs / f"{gang.id}.json"), json.dumps(gang.to_wire()).encode())
        self.gangs[gang.id] = gang
        if gang.state != ASKED and gang.id in self._settled:
            self._settled[gang.id].set()

    def _read_spec(self) -> None:
        changed = (self.folder.path / "cluster.json").stat().st_mtime_ns
        if changed != self._spec_time:
            self._spec_time = changed
            self.spec = self.folder.spec()
            self.pool = pool_class(self.spec.pool)(self.folder, self.spec)
            self.head.write_autoscaler()

    def _look_at_nodes(self) -> None:
        self.nodes = {
            name: NodeView(
                name, r["asked_at"], (self.folder.node_root(name) / "up").exists(), is_process(r),
                bool(r.get("leaving")), r.get("ended_at"), r.get("why", ""),
            )
            for name, r in self.folder.all_nodes().items()
        }  # fmt: skip

    def _busy(self) -> set[str]:
        return {name for g in self.gangs.values() if g.state == PLACED for name in g.nodes}

    def _address(self, node: str) -> str:
        """Where the others of a gang find this one."""
        record = self.folder.machine(node) or self.folder.node(node)
        return str(record["address"]) if record else self.spec.address
