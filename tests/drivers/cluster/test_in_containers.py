"""Several nodes whose ranks run in containers: they find each other, a real mpirun starts them, and one's failure ends all."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts_here import MPI, submit

from shunter.errors import Infeasible
from shunter.sdk.compute import Compute
from shunter.sdk.environment import Environment
from shunter.sdk.workspace import Workspace
from shunter.testing.containers import IMAGE, podman
from shunter.testing.house import wait_until

WAIT = 200.0
#: All ranks meet where the first listens, as `torch.distributed` does, and add up their numbers.
MEET = """
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    listener = socket.create_server(where)
    others = [listener.accept()[0] for _ in range(world - 1)]
    total = sum(int(o.recv(9)) for o in others) + 1
    for other in others:
        other.sendall(b"%d" % total)
else:
    while True:
        try:
            me = socket.create_connection(where)
            break
        except OSError:
            time.sleep(0.1)
    me.sendall(b"%d" % (rank + 1))
    total = int(me.recv(9))
print("rank", rank, "of", world, "sum", total, "boxed", os.path.exists("/run/.containerenv"), flush=True)
"""
BREAKS = "import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit('out of salt')\ntime.sleep(600)"
#: Open MPI as the nodes have it, in place of an image of its own.
MPI_OF_THE_NODE = ["/usr:/usr:ro", "/etc/alternatives:/etc/alternatives:ro", "/etc/openmpi:/etc/openmpi:ro"]
mpi_there = pytest.mark.skipif(
    shutil.which("mpirun", path="/usr/bin") is None or not Path("/usr/bin/python3").exists() or not Path("/etc/openmpi").exists(),
    reason="scripts/parts/mpi brings mpirun",
)  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> str:
    found = podman()
    if found is None:
        pytest.skip("podman is not set up: scripts/parts/podman does it")
    return found


@pytest.fixture(scope="module", autouse=True)
def _server_knows_the_engine(engine: str, shared_home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_CONTAINER_ENGINE", engine)
        yield


def containers_of(engine: str, run_id: str) -> list[str]:
    shown = subprocess.run([engine, "ps", "--all", "--format", "json"], capture_output=True, text=True, check=True).stdout
    return [name for one in json.loads(shown or "[]") for name in one["Names"] if run_id[:20] in name]


def test_two_nodes_with_two_ranks_each_meet(ws: Workspace, cpu: Compute, source: Path) -> None:
    boxed = Environment.from_image(IMAGE)
    run = submit(ws, source, MEET, node_count=2, processes_per_node=2, environment=boxed).wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Completed", run.logs() + run.logs(node=1)
    said = sorted((run.logs() + run.logs(node=1)).splitlines())
    assert said == [f"[rank {r}] rank {r} of 4 sum 10 boxed True" for r in range(4)]


@mpi_there
def test_mpirun_of_the_image_starts_ranks_in_the_containers_of_two_nodes(ws: Workspace, cpu: Compute, source: Path) -> None:
    boxed = Environment.from_image(IMAGE, mounts=MPI_OF_THE_NODE)
    code = MPI + "print('boxed', os.path.exists('/run/.containerenv'))\n"
    run = submit(ws, source, code, node_count=2, processes_per_node=2, communicator="Mpi", environment=boxed)
    run.wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Completed", run.logs() + run.logs(node=1)
    said = [f"[rank {r}] rank {r} of 4 {run.id}" for r in range(4)] + [f"[rank {r}] boxed True" for r in range(4)]
    assert sorted(run.logs().splitlines()) == sorted(said)
    assert {Path(f["path"]).name for f in run.files()} == {f"rank_{r}.txt" for r in range(4)}


@mpi_there
@pytest.mark.parametrize("communicator", [None, "Mpi"])
def test_one_ranks_failure_ends_the_containers_of_all_nodes(
    ws: Workspace, cpu: Compute, source: Path, engine: str, communicator: str | None
) -> None:
    boxed = Environment.from_image(IMAGE, mounts=MPI_OF_THE_NODE)
    run = submit(ws, source, BREAKS, node_count=2, communicator=communicator, environment=boxed, grace_seconds=1)
    run.wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Failed"
    assert "out of salt" in run.data["reason"]
    wait_until(lambda: not containers_of(engine, run.id), 60, "the end of its containers")


def test_without_mpirun_in_the_image_the_run_says_so(ws: Workspace, cpu: Compute, source: Path) -> None:
    run = submit(ws, source, MPI, node_count=2, communicator="Mpi", environment=Environment.from_image(IMAGE))
    run.wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Failed"
    assert "mpirun is not on this node" in run.data["reason"], run.data["reason"]


def test_nodes_in_networks_of_their_own_are_refused_at_submit(ws: Workspace, cpu: Compute, source: Path) -> None:
    with pytest.raises(Infeasible, match=r"(?s)2 nodes could not find each other.*Leave its network out"):
        submit(ws, source, "", node_count=2, environment=Environment.from_image(IMAGE, network="none"))
