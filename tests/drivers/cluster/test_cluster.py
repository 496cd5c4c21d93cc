"""Clusters with a real Ray: what every target must keep, gangs, faults, and the way back to zero. In this order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts_here import LEDGER, lines, submit

import shunter
from shunter.errors import Conflict, Infeasible, NotFound, UsageError
from shunter.sdk.compute import Compute
from shunter.sdk.connect import connect
from shunter.sdk.workspace import Workspace
from shunter.testing.clusters import ClusterHouse, own_processes
from shunter.testing.drivers import DriverContract
from shunter.testing.house import House, wait_until

WAIT = 150.0
WHERE = """
import os
node = os.getcwd().split("/nodes/")[1].split("/")[0]
print(os.environ["SHUNTER_NODE_INDEX"], node, [k for k in os.environ if k.startswith("RAY_")])
"""


class TestCluster(DriverContract):
    @pytest.fixture
    def target(self, ws: Workspace, cpu: Compute) -> str:
        return cpu.name


def test_a_gang_runs_on_two_nodes_and_sees_nothing_of_ray(ws: Workspace, cpu: Compute, source: Path) -> None:
    run = submit(ws, source, WHERE, node_count=2).wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Completed", run.data["reason"]
    said = [run.logs(node=node).split() for node in (0, 1)]
    assert [words[0] for words in said] == ["0", "1"]
    assert said[0][1] != said[1][1]
    assert [words[2] for words in said] == ["[]", "[]"]
    assert cpu.show()["node_counts"] == dict.fromkeys(cpu.show()["node_counts"], 0) | {"idle": 2}


def test_its_nodes_are_listed_for_people(ws: Workspace, cpu: Compute, source: Path) -> None:
    submit(ws, source, "").wait(timeout_seconds=WAIT)
    env = {**os.environ, "PYTHONPATH": str(Path(shunter.__file__).parents[1])}
    shown = subprocess.run([sys.executable, "-m", "shunter.cli", "compute", "nodes", "cpu"], env=env, capture_output=True,
                           text=True, check=True).stdout.splitlines()  # fmt: skip
    assert shown[0].split()[:2] == ["NODE", "STATE"]
    assert {line.split()[1] for line in shown[1:]} <= {"idle", "running"}
    assert all(" ago" in line for line in shown[1:])


def test_parts_of_a_node_are_given_out_and_the_rest_waits(ws: Workspace, cpu: Compute, source: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    runs = [submit(ws, source, LEDGER, tmp_path / "ledger", gate, cpus=1) for _ in range(5)]
    wait_until(lambda: len(lines(tmp_path / "ledger")) == 4, WAIT, "four runs at once")
    assert runs[4].refresh().data["status"] == "Queued"
    assert "4 slots and 0 of them are free" in " ".join(runs[4].why()["reasons"])
    gate.touch()
    assert {run.wait(timeout_seconds=WAIT).data["status"] for run in runs} == {"Completed"}


def test_the_heads_death_ends_nothing(ws: Workspace, source: Path, house: ClusterHouse, tmp_path: Path) -> None:
    run = submit(ws, source, LEDGER, tmp_path / "ledger", tmp_path / "gate")
    wait_until(lambda: lines(tmp_path / "ledger"), WAIT, "the run")
    head, nodes = house.head, house.nodes()
    assert head
    os.kill(head, signal.SIGKILL)
    wait_until(lambda: house.head not in (None, head) and house.autoscaler(), WAIT, "another head")
    (tmp_path / "gate").touch()
    assert run.wait(timeout_seconds=WAIT).data["status"] == "Completed"
    assert lines(tmp_path / "ledger") == ["on 1 0", "off 1 0"]
    assert submit(ws, source, "", node_count=2).wait(timeout_seconds=WAIT).data["status"] == "Completed"
    assert house.nodes() == nodes, "the nodes of before are used again"


def test_the_keepers_and_the_autoscalers_death_end_nothing(
    ws: Workspace, source: Path, house: ClusterHouse, tmp_path: Path
) -> None:
    run = submit(ws, source, LEDGER, tmp_path / "ledger", tmp_path / "gate")
    wait_until(lambda: lines(tmp_path / "ledger"), WAIT, "the run")
    wait_until(house.autoscaler, WAIT, "the autoscaler")
    keeper, autoscaler = house.keeper, house.autoscaler()
    assert keeper
    os.kill(autoscaler[0], signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: house.keeper not in (None, keeper), WAIT, "another keeper")
    wait_until(lambda: house.autoscaler() not in ([], autoscaler), WAIT, "another autoscaler")
    (tmp_path / "gate").touch()
    assert run.wait(timeout_seconds=WAIT).data["status"] == "Completed"
    assert lines(tmp_path / "ledger") == ["on 1 0", "off 1 0"]


def test_a_killed_node_takes_its_script_along_and_the_run_starts_again(
    ws: Workspace, source: Path, house: ClusterHouse, tmp_path: Path
) -> None:
    run = submit(ws, source, LEDGER, tmp_path / "ledger", tmp_path / "gate", max_attempts=2)
    wait_until(lambda: lines(tmp_path / "ledger"), WAIT, "the run")
    [node] = [n["name"] for n in ws.compute.get("cpu").show()["nodes"] if run.id in n["runs"]]
    os.kill(house.nodes()[node], signal.SIGKILL)
    wait_until(lambda: len(lines(tmp_path / "ledger")) == 2, WAIT, "the second attempt")
    (tmp_path / "gate").touch()
    assert run.wait(timeout_seconds=WAIT).data["status"] == "Completed"
    assert lines(tmp_path / "ledger") == ["on 1 0", "on 2 0", "off 2 0"]
    assert any("was lost" in e["reason"] for e in run.events())
    assert node not in {n["name"] for n in ws.compute.get("cpu").show()["nodes"] if n["state"] != "unusable"}


def test_one_members_failure_ends_the_gang_with_its_last_line(ws: Workspace, cpu: Compute, source: Path) -> None:
    code = "import os, sys, time\nif os.environ['SHUNTER_NODE_INDEX'] == '1':\n    sys.exit('no more eggs')\ntime.sleep(600)"
    run = submit(ws, source, code, node_count=2, grace_seconds=0.5).wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Failed"
    assert "Node 1" in run.data["reason"]
    assert "no more eggs" in run.data["reason"]


def test_a_run_is_refused_that_could_never_start(ws: Workspace, cpu: Compute, source: Path) -> None:
    with pytest.raises(Infeasible, match="3 nodes, the target has 2"):
        submit(ws, source, "", node_count=3)
    with pytest.raises(Infeasible, match="8 CPUs"):
        submit(ws, source, "", cpus=8)


def test_a_busy_cluster_is_not_deleted(ws: Workspace, cpu: Compute, source: Path, tmp_path: Path) -> None:
    run = submit(ws, source, LEDGER, tmp_path / "ledger", tmp_path / "gate")
    with pytest.raises(Conflict, match=run.id[:8]):
        cpu.delete()
    (tmp_path / "gate").touch()
    run.wait(timeout_seconds=WAIT)


def test_resized_and_idle_it_goes_to_zero_with_its_head(
    ws: Workspace, cpu: Compute, home: Path, source: Path, house: ClusterHouse
) -> None:
    submit(ws, source, "").wait(timeout_seconds=WAIT)
    cpu.update(idle_seconds_before_scaledown=2)
    assert cpu.show()["config"]["idle_seconds_before_scaledown"] == 2
    wait_until(lambda: not house.nodes(), 60, "the last node's end")
    wait_until(lambda: house.head is None and house.keeper is None, 60, "the head's end")
    assert not own_processes(home, "ray")
    assert sum(cpu.show()["node_counts"][s] for s in ("idle", "running", "preparing")) == 0


def test_cancel_while_its_nodes_come_up(ws: Workspace, cpu: Compute, source: Path, house: ClusterHouse) -> None:
    run = submit(ws, source, "", node_count=2)
    wait_until(lambda: run.refresh().data["status"] == "Provisioning", WAIT, "provisioning")
    run.cancel()
    assert run.wait(timeout_seconds=WAIT).data["status"] == "Canceled"


def test_made_for_one_run_and_deleted_after_it_though_the_server_dies(
    ws: Workspace, home: Path, source: Path, tmp_path: Path
) -> None:
    run = submit(ws, source, LEDGER, tmp_path / "ledger", tmp_path / "gate", target="amlcompute", vm_size="Standard_A1_v2")
    name = str(run.data["target"])
    assert name in {c.name for c in ws.compute.list()}
    wait_until(lambda: lines(tmp_path / "ledger"), WAIT, "the run")
    made = next(h for h in ClusterHouse.all(home) if name in h.folder.path.name)
    assert House(home).kill_server()
    (tmp_path / "gate").touch()
    wait_until(lambda: not made.nodes() and made.head is None, WAIT, "its end without a server")
    run.workspace.client = ws.client = connect()
    assert run.wait(timeout_seconds=WAIT).data["status"] == "Completed"
    wait_until(lambda: name not in {c.name for c in ws.compute.list()}, 60, "the target's end")
    wait_until(lambda: not made.folder.path.exists(), 60, "its folder's end")


def test_deleted_nothing_is_left(ws: Workspace, home: Path, cpu: Compute, house: ClusterHouse) -> None:
    cpu.delete()
    assert not house.folder.path.exists()
    wait_until(lambda: not own_processes(home, "cluster"), 30, "the end of its processes")


def test_nodes_that_stay_are_waited_for_with_progress_and_given_back(ws: Workspace, home: Path) -> None:
    steps: list[dict[str, Any]] = []
    kept = ws.compute.create(
        "kept", kind="cluster", vm_size="Standard_A1_v2", min_nodes=1, idle_seconds_before_scaledown=1, on_step=steps.append
    )
    assert kept.state == "Succeeded", kept.data
    assert kept.show()["node_counts"]["idle"] == 1
    assert "1 preparing" in [step["message"] for step in steps]
    with pytest.raises(Conflict, match="vm_size"):
        kept.update(vm_size="Standard_D2_v2")
    house = next(h for h in ClusterHouse.all(home) if h.folder.path.name == "default.kept")
    kept.delete()
    assert not house.folder.path.exists()
    assert "kept" not in {c.name for c in ws.compute.list()}


def test_what_cannot_be_had_is_refused_in_words(ws: Workspace) -> None:
    with pytest.raises(NotFound, match="Did you mean 'Standard_D2_v2'"):
        ws.compute.create("x", kind="cluster", vm_size="Standard_D2v2")
    with pytest.raises(UsageError, match="min_nodes"):
        ws.compute.create("x", kind="cluster", vm_size="Standard_D2_v2", min_nodes=3, max_nodes=2)
    with pytest.raises(UsageError, match="GPU"):
        ws.compute.create("x", kind="cluster", vm_size="Standard_NC6")
    assert "x" not in {c.name for c in ws.compute.list()}


def test_without_ray_the_extra_that_brings_it_is_named() -> None:
    code = "import sys; sys.modules['ray'] = None\nfrom shunter.drivers.registry import driver_class\ndriver_class('cluster')"
    env = {**os.environ, "PYTHONPATH": str(Path(shunter.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert "ExtraMissing" in done.stderr
    assert "pip install 'shunter[cluster]'" in done.stderr
