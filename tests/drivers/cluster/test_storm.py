"""Ten seeded kills of each part of one cluster, while runs come and go. More of them: scripts/soak_cluster.py."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from shunter.sdk.workspace import Workspace
from shunter.testing.cluster_faults import Storm
from shunter.testing.clusters import ClusterHouse, own_processes
from shunter.testing.house import wait_until

SEEDS = range(10)
WAIT = 150.0


@pytest.fixture(scope="module")
def storm(shared_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Storm:
    ws = Workspace.from_config()
    ws.compute.create("cpu", kind="cluster", vm_size="Standard_A1_v2", max_nodes=2, idle_seconds_before_scaledown=10)
    return Storm(ws, shared_home, tmp_path_factory.mktemp("storm"), "cpu", seed=7)


@pytest.mark.parametrize("part", ["server", "autoscaler", "head", "node", "busy node"])
def test_no_run_is_lost_or_run_twice_when_a_part_is_killed(storm: Storm, part: str) -> None:
    """Each seed is one kill, at its own moment after the last; runs are on their way the whole time."""
    killed = 0
    for seed in SEEDS:
        dice = random.Random(f"{part} {seed}")
        open_runs = sum(run.refresh().data["status"] != "Completed" for run in storm.runs[-6:])
        storm.submit(max(0, 4 - open_runs), longest_seconds=1.5)  # for both nodes, so that one is there while one is missed
        wait_until(lambda: storm.house.nodes() or "node" not in part, WAIT, "a node")
        time.sleep(dice.uniform(0.0, 1.0))
        wait_until(lambda: storm.kill(part), WAIT, f"a {part} to kill")
        killed += 1
    assert killed == len(SEEDS)
    assert storm.lies(WAIT) == []


def test_nothing_is_left_behind(storm: Storm, shared_home: Path) -> None:
    storm.ws.compute.get("cpu").update(idle_seconds_before_scaledown=1)
    [house] = ClusterHouse.all(shared_home)
    wait_until(lambda: not house.nodes() and house.head is None and house.keeper is None, WAIT, "zero")
    assert not house.scripts()
    wait_until(lambda: not own_processes(shared_home, "ray"), 60, "the end of Ray's processes")
