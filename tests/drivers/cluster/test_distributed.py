"""Distributed training for real: PyTorch's gloo and MPI on the nodes of a cluster, several processes on each."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from scripts_here import GLOO, HERE, MPI, MPI_TALKS

from shunter.node import distributed
from shunter.sdk.compute import Compute
from shunter.sdk.workspace import Workspace

WAIT = 200.0
EXAMPLE = Path(__file__).parents[3] / "examples" / "handwriting-torch"
torch_there = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="scripts/parts/torch brings PyTorch")
mpi_there = pytest.mark.skipif(shutil.which("mpirun") is None, reason="scripts/parts/mpi brings mpirun")
mpi4py_there = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="scripts/parts/mpi brings mpi4py")


def job(**changes: Any) -> dict[str, Any]:
    gang = {"addresses": ["10.0.0.1", "10.0.0.2"], "ports": [4001, 4002]}
    return {"id": "r.1.1", "node_index": 1, "node_count": 2, "gang": gang, "home": {"token": "t"}, **changes}


def test_a_process_is_told_who_it_is_and_where_the_first_one_listens() -> None:
    found = distributed.environment(job(processes_per_node=2), local_rank=1)
    assert (found["RANK"], found["LOCAL_RANK"], found["NODE_RANK"], found["WORLD_SIZE"]) == ("3", "1", "1", "4")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("10.0.0.1", "4001")
    assert "TF_CONFIG" not in found


def test_tensorflow_is_told_all_workers() -> None:
    found = json.loads(distributed.environment(job(framework="TensorFlow"))["TF_CONFIG"])
    assert found == {"cluster": {"worker": ["10.0.0.1:4001", "10.0.0.2:4002"]}, "task": {"type": "worker", "index": 1}}


def test_a_run_of_one_process_is_left_alone() -> None:
    assert not distributed.is_distributed({"id": "r.1.0", "node_index": 0, "node_count": 1})


def test_several_processes_on_this_machine_keep_their_logs_apart(ws: Workspace, source: Path) -> None:
    (source / "train.py").write_text("import os\nprint('I am', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])")
    run = ws.submit("train.py", source_directory=source, target="local", processes_per_node=2).wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Completed", run.data["reason"]
    assert sorted(run.logs().splitlines()) == ["[rank 0] I am 0 of 2", "[rank 1] I am 1 of 2"]
    assert {f["path"] for f in run.files()} == {"logs/rank_0.txt", "logs/rank_1.txt"}


def test_the_rank_that_fails_is_named_with_its_last_line(ws: Workspace, source: Path) -> None:
    code = "import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit('out of eggs')\ntime.sleep(600)"
    (source / "train.py").write_text(code)
    run = ws.submit("train.py", source_directory=source, target="local", processes_per_node=2).wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Failed"
    assert "Rank 1 ended with exit code 1: out of eggs" in run.data["reason"]


@torch_there
def test_gloo_on_two_nodes_with_two_processes_each(ws: Workspace, cpu: Compute, source: Path) -> None:
    (source / "train.py").write_text(GLOO)
    run = ws.submit("train.py", source_directory=source, target="cpu", node_count=2, processes_per_node=2, environment=HERE)
    run.wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Completed", run.logs() + run.logs(node=1)
    said = sorted((run.logs() + run.logs(node=1)).splitlines())
    assert [line.partition("] ")[2] for line in said] == [f"rank {r} of 4 local {r % 2} sum 10" for r in range(4)]


@torch_there
def test_the_example_learns_on_one_node_and_on_two_without_a_change(
    ws: Workspace, cpu: Compute, record_property: Any
) -> None:
    table = ["the handwriting model in PyTorch, same script:"]
    for nodes in (1, 2):
        run = ws.submit(
            "train.py", source_directory=EXAMPLE, target="cpu", node_count=nodes, arguments=["--epochs", 10], environment=HERE
        )
        run.wait(timeout_seconds=WAIT)
        assert run.data["status"] == "Completed", run.logs()
        last = run.logs().splitlines()[-1]
        assert float(last.split()[1].rstrip("%")) > 88, last
        table.append(f"  {nodes} node{'s' if nodes > 1 else ''}: {last}")
    record_property("table", table)


def test_workers_of_tensorflow_find_the_same_list_on_every_node(ws: Workspace, cpu: Compute, source: Path) -> None:
    (source / "train.py").write_text("import os\nprint(os.environ['TF_CONFIG'])")
    run = ws.submit("train.py", source_directory=source, target="cpu", node_count=2, framework="TensorFlow")
    run.wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Completed", run.data["reason"]
    said = [json.loads(run.logs(node=node)) for node in (0, 1)]
    assert [one["task"] for one in said] == [{"type": "worker", "index": node} for node in (0, 1)]
    assert said[0]["cluster"] == said[1]["cluster"]
    assert len(set(said[0]["cluster"]["worker"])) == 2


#: Rank 1 says its last word first, however late its node starts it.
FALLS_SILENT = """
import os, sys, time
print("step 1")
while os.environ["RANK"] == "0" and not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
time.sleep(0.6 * (os.environ["RANK"] == "0"))
print("waiting")
open(sys.argv[1], "w").close()
time.sleep(600)
"""


def test_a_rank_on_another_node_that_falls_silent_is_named(
    ws: Workspace, cpu: Compute, source: Path, tmp_path: Path
) -> None:
    (source / "train.py").write_text(FALLS_SILENT)
    asked: dict[str, Any] = {"node_count": 2, "max_silence_seconds": 8, "grace_seconds": 1}
    run = ws.submit("train.py", source_directory=source, arguments=[tmp_path / "waits"], target="cpu", **asked)
    run.wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Failed"
    assert "Rank 1 has said nothing for" in run.data["reason"]
    assert "Its last line: waiting" in run.data["reason"]


@mpi_there
def test_a_real_mpirun_starts_a_rank_on_each_node(ws: Workspace, cpu: Compute, source: Path) -> None:
    (source / "train.py").write_text(MPI)
    run = ws.submit("train.py", source_directory=source, target="cpu", node_count=2, communicator="Mpi")
    run.wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Completed", run.logs() + run.logs(node=1)
    assert sorted(run.logs().splitlines()) == [f"[rank {r}] rank {r} of 2 {run.id}" for r in (0, 1)]
    assert {Path(f["path"]).name for f in run.files()} == {"rank_0.txt", "rank_1.txt"}, "a file for each rank"


@mpi_there
@mpi4py_there
def test_ranks_of_mpi_talk_within_a_node_and_between_nodes(ws: Workspace, cpu: Compute, source: Path) -> None:
    (source / "train.py").write_text(MPI_TALKS)
    asked: dict[str, Any] = {"communicator": "Mpi", "node_count": 2, "processes_per_node": 2}
    run = ws.submit("train.py", source_directory=source, target="cpu", environment=HERE, **asked).wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Completed", run.logs() + run.logs(node=1)
    assert sorted(run.logs().splitlines()) == [f"[rank {r}] rank {r} of 4 sum 10" for r in range(4)]


@mpi_there
def test_the_rank_of_mpi_that_fails_is_named_with_its_last_line(ws: Workspace, cpu: Compute, source: Path) -> None:
    code = "import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit('out of milk')\ntime.sleep(600)"
    (source / "train.py").write_text(code)
    run = ws.submit("train.py", source_directory=source, target="cpu", node_count=2, communicator="Mpi", grace_seconds=1)
    run.wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Failed"
    assert "Rank 1 ended with exit code 1: out of milk" in run.data["reason"]
