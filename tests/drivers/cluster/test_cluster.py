"""Clusters with a real Ray: what every target must keep, gangs, faults, and the way back to zero. In this order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from scripts_here import LEDGER, lines, submit

import shunter
from shunter.drivers.cluster.folder import ClusterFolder
from shunter.errors import Conflict, Infeasible
from shunter.sdk.compute import Compute
from shunter.sdk.workspace import Workspace
from shunter.testing.clusters import ClusterHouse, own_processes
from shunter.testing.drivers import DriverContract
from shunter.testing.faults import CHECKPOINTED
from shunter.testing.house import wait_until

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
    idle = dict.fromkeys(cpu.show()["node_counts"], 0) | {"idle": 2}
    wait_until(lambda: cpu.show()["node_counts"] == idle, 60, f"two idle nodes and no other: {cpu.show()['node_counts']}")


def test_its_nodes_are_listed_for_people(ws: Workspace, cpu: Compute, source: Path) -> None:
    submit(ws, source, "").wait(timeout_seconds=WAIT)
    env = {**os.environ, "PYTHONPATH": str(Path(shunter.__file__).parents[1])}
    shown = subprocess.run([sys.executable, "-m", "shunter.cli", "compute", "nodes", "cpu"], env=env, capture_output=True,
                           text=True, check=True).stdout.splitlines()  # fmt: skip
    assert shown[0].split()[:2] == ["NODE", "STATE"]
    assert {line.split()[1] for line in shown[1:]} <= {"idle", "running", "leaving"}, "one may have been idle for long"
    assert all(" ago" in line for line in shown[1:])


def test_parts_of_a_node_are_given_out_and_the_rest_waits(ws: Workspace, cpu: Compute, source: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    runs = [submit(ws, source, LEDGER, tmp_path / "ledger", gate, cpus=1) for _ in range(5)]
    wait_until(lambda: len(lines(tmp_path / "ledger")) == 4, WAIT, "four runs at once")
    assert runs[4].refresh().data["status"] == "Queued"
    assert "4 slots and 0 of them are free" in " ".join(runs[4].why()["reasons"])
    gate.touch()
    assert {run.wait(timeout_seconds=WAIT).data["status"] for run in runs} == {"Completed"}


def test_a_gang_waits_until_it_can_start_whole(ws: Workspace, cpu: Compute, source: Path, tmp_path: Path) -> None:
    one = submit(ws, source, LEDGER, tmp_path / "one", tmp_path / "gate")
    wait_until(lambda: lines(tmp_path / "one"), WAIT, "the run on one node")
    both = submit(ws, source, LEDGER, tmp_path / "both", tmp_path / "gate", node_count=2)
    wait_until(lambda: "2 of them are free; it needs 4" in " ".join(both.why()["reasons"]), 60, "what it waits for")
    assert both.refresh().data["status"] == "Queued"
    assert not lines(tmp_path / "both"), "no half of it has begun, though a node is free"
    (tmp_path / "gate").touch()
    assert [run.wait(timeout_seconds=WAIT).data["status"] for run in (one, both)] == ["Completed"] * 2
    assert sorted(lines(tmp_path / "both")) == ["off 1 0", "off 1 1", "on 1 0", "on 1 1"]


def test_a_script_has_the_ray_that_it_brings(ws: Workspace, cpu: Compute, source: Path) -> None:
    (source / "ray").mkdir()
    (source / "ray" / "__init__.py").write_text("__version__ = '1.2.3'")
    run = submit(ws, source, "import ray\nprint(ray.__version__)").wait(timeout_seconds=WAIT)
    assert run.logs().split() == ["1.2.3"]


def test_nobody_talks_to_its_ray_without_the_token(ws: Workspace, cpu: Compute, source: Path, house: ClusterHouse) -> None:
    submit(ws, source, "").wait(timeout_seconds=WAIT)
    place = house.folder.place()
    code = f"from ray._raylet import GcsClient\nprint(len(GcsClient(address={place.gcs!r}).get_all_node_info(timeout=30)))"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | {"HOME": str(source)}
    with_token = clean | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": place.token_file}
    asked = [subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False)
             for env in (with_token, clean)]  # fmt: skip
    assert asked[0].returncode == 0, asked[0].stderr
    assert asked[1].returncode != 0, asked[1].stdout
    assert "auth" in asked[1].stderr.lower(), asked[1].stderr
    assert Path(place.token_file).stat().st_mode & 0o077 == 0


def test_a_raylet_that_dies_while_the_head_starts_costs_seconds(ws: Workspace, home: Path, source: Path) -> None:
    """Ray itself would wait for it for two minutes."""
    ws.compute.create("young", kind="cluster", vm_size="Standard_A1_v2", max_nodes=1)
    young = ClusterHouse(ClusterFolder(home / "clusters" / "default.young"))
    try:
        run = submit(ws, source, "print('up')", target="young")
        wait_until(lambda: young.head and young.part(young.head, "raylet/raylet"), WAIT, "a raylet")
        head = young.head
        assert head
        os.kill(young.part(head, "raylet/raylet")[0], signal.SIGKILL)
        wait_until(lambda: young.head != head, 60, "the end of a head without it")
        assert run.wait(timeout_seconds=WAIT).data["status"] == "Completed"
    finally:
        ws.compute.get("young").delete(force=True)  # later tests look for what is left of all clusters


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
    assert house.nodes().items() & nodes.items(), "the node of before is used again"


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


def test_a_run_whose_node_was_killed_goes_on_from_its_checkpoint(ws: Workspace, source: Path, house: ClusterHouse) -> None:
    run = submit(ws, source, CHECKPOINTED, max_attempts=2)
    wait_until(run.checkpoints, WAIT, "a checkpoint")
    [node] = [n["name"] for n in ws.compute.get("cpu").show()["nodes"] if run.id in n["runs"]]
    os.kill(house.nodes()[node], signal.SIGKILL)
    assert run.wait(timeout_seconds=WAIT).data["status"] == "Completed"
    assert run.logs(attempt=1) == "from 0\n"
    assert run.logs(attempt=2) == "from 3\ndone 6\n"


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


def test_resized_while_in_use_what_waits_gets_a_node_and_what_runs_goes_on(
    ws: Workspace, cpu: Compute, source: Path, tmp_path: Path
) -> None:
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    runs = [submit(ws, source, LEDGER, ledger, gate) for _ in range(3)]
    wait_until(lambda: len(lines(ledger)) == 2, WAIT, "two runs on two nodes")
    assert "Queued" in [run.refresh().data["status"] for run in runs]
    cpu.update(max_nodes=3)
    wait_until(lambda: len(lines(ledger)) == 3, WAIT, "the third on a third node")
    cpu.update(max_nodes=2)
    gate.touch()
    assert {run.wait(timeout_seconds=WAIT).data["status"] for run in runs} == {"Completed"}
    assert sorted(lines(ledger)) == ["off 1 0"] * 3 + ["on 1 0"] * 3


def test_resized_and_idle_it_goes_to_zero_with_its_head(
    ws: Workspace, cpu: Compute, home: Path, source: Path, house: ClusterHouse
) -> None:
    submit(ws, source, "").wait(timeout_seconds=WAIT)
    cpu.update(idle_seconds_before_scaledown=2)
    assert cpu.show()["config"]["idle_seconds_before_scaledown"] == 2
    wait_until(lambda: not house.nodes(), WAIT, "the last node's end")
    wait_until(lambda: house.head is None and house.keeper is None, WAIT, "the head's end")
    wait_until(lambda: not own_processes(home, "ray"), 60, "the end of Ray's processes")
    assert sum(cpu.show()["node_counts"][s] for s in ("idle", "running", "preparing")) == 0


def test_cancel_while_its_nodes_come_up(ws: Workspace, cpu: Compute, source: Path, house: ClusterHouse) -> None:
    run = submit(ws, source, "", node_count=2)
    wait_until(lambda: run.refresh().data["status"] == "Provisioning", WAIT, "provisioning")
    run.cancel()
    assert run.wait(timeout_seconds=WAIT).data["status"] == "Canceled"


def test_deleted_nothing_is_left(ws: Workspace, home: Path, cpu: Compute, house: ClusterHouse) -> None:
    cpu.delete()
    assert not house.folder.path.exists()
    wait_until(lambda: not own_processes(home, "cluster"), 60, "the end of its processes")
