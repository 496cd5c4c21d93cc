"""The keeper's decisions, without a cluster."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from shunter.drivers.base import Capacity
from shunter.drivers.cluster import keeping
from shunter.drivers.cluster.folder import LEFT, ClusterFolder, Spec, process_record
from shunter.drivers.cluster.gangs import Gang, NodeView, Room, Zero, bundle_for, counts, failures, find_room, words
from shunter.drivers.cluster.pools.local import UP_SECONDS, LocalPool
from shunter.drivers.cluster.ray_engine import _AGENTS, _stub, worker_tags
from shunter.model.run import Run, Status
from shunter.server.dispatch.place import Pool, choose
from shunter.testing.clusters import own_processes
from shunter.testing.house import end, wait_until


def gang(**changes: object) -> Gang:
    return Gang("r.1", "r", {"CPU": 2.0}, 1, since=100.0).evolve(**changes)


def node(name: str, **changes: object) -> NodeView:
    given = {"asked_at": 100.0, "is_up": True, "is_alive": True, **changes}
    return NodeView(name, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((4, 0, 0), {"CPU": 4.0, "GPU": 2.0}),
        ((8, 0, 0), {"CPU": 4.0, "GPU": 2.0}),
        ((1, 0, 0), {"CPU": 1.0}),
        ((1, 1, 0), {"CPU": 1.0, "GPU": 1.0}),
        ((1, 0, 5), {"CPU": 1.0, "memory": 5.0}),
    ],
)
def test_a_member_takes_a_whole_node_unless_it_says_how_much(asked: tuple[int, int, int], expected: dict[str, float]) -> None:
    assert bundle_for(*asked, node_cpus=4, node_gpus=2) == expected


def test_room_is_handed_on_only_to_the_same_shape_and_on_living_nodes() -> None:
    room = Room("old.1", gang().key, ["a"], ["127.0.0.1"], 100.0)
    assert find_room([room], gang(id="s.1"), {"a": node("a")}) == room
    assert find_room([room], gang(count=2), {"a": node("a")}) is None
    assert find_room([room], gang(bundle={"CPU": 1.0}), {"a": node("a")}) is None
    assert find_room([room], gang(), {}) is None
    assert find_room([room], gang(), {"a": node("a", is_alive=False)}) is None
    assert find_room([room], gang(), {"a": node("a", is_leaving=True)}) is None


def test_nodes_are_counted_by_state() -> None:
    nodes = [
        node("a"), node("b"), node("c", is_up=False), node("d", is_leaving=True), node("e", is_alive=False, ended_at=101.0),
    ]  # fmt: skip
    assert counts(nodes, ["b"]) == {"idle": 1, "running": 1, "preparing": 1, "leaving": 1, "preempted": 0, "unusable": 1}


@pytest.mark.parametrize(
    ("head", "nodes", "busy", "expected"),
    [
        ("since 3 s", [], set(), "The head of cpu is being started (since 3 s)."),
        ("up", [], set(), "The autoscaler of cpu was asked for 1 node of size D2 7 s ago."),
        ("up", [node("a", is_up=False, asked_at=105.0)], set(), "1 node of size D2 coming up on cpu since 2 s; 0 there already."),
        ("up", [node("a"), node("b")], {"a", "b"}, "All 2 nodes of cpu are there, 2 in use; it needs 1."),
        ("up", [node("a", is_alive=False, is_up=False, ended_at=106.0, why="It did not come up.")], set(),
         "A node of cpu came to nothing (It did not come up.); another is asked for."),
        ("up", [node("a", is_alive=False, ended_at=106.0, why=LEFT)], set(),
         "The autoscaler of cpu was asked for 1 node of size D2 7 s ago."),
    ],
)  # fmt: skip
def test_a_waiting_gang_tells_what_it_waits_for(head: str, nodes: list[NodeView], busy: set[str], expected: str) -> None:
    assert words(gang(), "cpu", "D2", head, nodes, busy, most=2, now=107.0) == expected


def test_only_nodes_that_never_came_up_count_as_failures() -> None:
    nodes = [node("a", is_alive=False, ended_at=106.0), node("b", is_up=False, is_alive=False, ended_at=106.0), node("c")]
    assert [n.name for n in failures(nodes, since=100.0)] == ["b"]
    assert failures(nodes, since=101.0) == []


def test_a_node_that_does_not_come_up_is_given_up_after_its_deadline(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "home" / "clusters" / "w.cpu")
    folder.make(Spec("cpu", "D2", 2, 0, 1 << 30, 0, 2, 60.0, "local", "127.0.0.1"))
    hangs = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        record = {**process_record(hangs.pid), "tags": {}, "address": "127.0.0.1"}
        for late, there in ((UP_SECONDS - 20, ["a"]), (UP_SECONDS + 1, [])):
            said = json.dumps({**record, "asked_at": time.time() - late})
            (folder.nodes / "a.json").write_text(said)
            pool = LocalPool(folder, folder.spec())
            pool.nodes()
            assert [n.name for n in pool.nodes()] == there
        assert hangs.wait(60) == -15
        assert (folder.node("a") or {})["why"] == "It did not come up."
    finally:
        hangs.kill()


def test_however_often_a_keeper_is_asked_for_while_it_comes_up_there_is_one(tmp_path: Path) -> None:
    """A slow machine would be kept busy by those that find, when they are up at last, that one is there."""
    folder = ClusterFolder(tmp_path / "home" / "clusters" / "w.cpu")
    folder.make(Spec("cpu", "D2", 2, 0, 1 << 30, 0, 2, 0.0, "local", "127.0.0.1"))
    try:
        for _ in range(20):
            keeping.ensure(folder)
            assert len(own_processes(folder.path, "keeper")) <= 1
        wait_until(lambda: not own_processes(folder.path), 60, "its end, as there is nothing to keep")
        with keeping.hold(folder) as lock:
            assert lock, "it took the lock along"
        assert not keeping.log_tail(folder.path / "keeper.log")
    finally:
        end(own_processes(folder.path))


def test_a_cluster_is_at_zero_only_when_nothing_is_left() -> None:
    zero = Zero()
    assert zero.seen([gang()], [], [], 0, 10.0) == 0.0
    assert zero.seen([], [], [node("a")], 0, 11.0) == 0.0
    assert zero.seen([], [Room("g", "k", [], [], 0.0)], [], 0, 12.0) == 0.0
    assert zero.seen([], [], [], 1, 13.0) == 0.0
    assert zero.since is None
    assert zero.seen([gang(state="over")], [], [node("a", is_alive=False, ended_at=1.0)], 0, 14.0) == 0.0
    assert zero.seen([], [], [], 0, 20.0) == 6.0


def test_a_node_of_ours_carries_the_tags_that_rays_autoscaler_knows() -> None:
    """Written out in `ray_engine`, as the keeper must not take a second to import Ray."""
    from ray.autoscaler import tags

    assert worker_tags("D2") == {
        tags.TAG_RAY_NODE_KIND: tags.NODE_KIND_WORKER, tags.TAG_RAY_USER_NODE_TYPE: "D2",
        tags.TAG_RAY_NODE_STATUS: tags.STATUS_UP_TO_DATE,
    }  # fmt: skip


def test_a_raylet_never_finds_half_of_what_stands_for_its_agents(tmp_path: Path) -> None:
    """It dies when it reads such a file before a port is in it, which a busy machine makes likely."""
    command = [f"--session_dir={tmp_path}", "--node_id=a", "--dashboard_agent_command=python agent.py"]
    stub = _stub(command[-1], command).partition("=")[2]
    assert stub.count(".new && mv ") == stub.count("printf 1 > ") == len(_AGENTS["--dashboard_agent_command="])
    with subprocess.Popen(shlex.split(stub)) as waits:
        try:
            wait_until(lambda: len([*tmp_path.glob("*_port_a")]) == stub.count("mv "), 60, "the ports")
            assert {file.read_text() for file in tmp_path.iterdir()} == {"1"}
        finally:
            waits.kill()


def test_deciding_costs_the_same_for_a_long_queue_as_for_a_short_one() -> None:
    """A thousand nodes. Dispatch loads the head of the queue, however long that is, and a round decides on that alone."""

    def run(number: int) -> Run:
        return Run(f"{number:032x}", "w", "e", "", "cpu", Status.QUEUED, "s", "t.py", (), {}, 0.0, 0.0, slots=2)

    pool = Pool(Capacity(slots=2, nodes=1000, whole_nodes=True), [(f"{n:032x}", 2) for n in range(990)])
    took = {}
    for length in (2_000, 20_000):
        queue = [run(number) for number in range(length)]
        spent = []
        for _ in range(5):
            begun = time.process_time()  # of this process alone, and the least of several: others may keep the machine busy
            for _ in range(20):
                assert len(choose(queue, pool)) == 10
            spent.append(time.process_time() - begun)
        took[length] = min(spent)
    assert took[20_000] < 3 * took[2_000] + 0.05, took
