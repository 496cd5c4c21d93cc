"""A cluster on two machines over SSH, each with its own network, processes and home: lent for work, given back after it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines_here import Machine, is_possible, two_machines
from scripts_here import GLOO, HERE, LEDGER, MPI, MPI_TALKS, lines, submit

from shunter.drivers.cluster.folder import ClusterFolder
from shunter.drivers.cluster.machines import address_among, free_machine
from shunter.drivers.cluster.ray_engine import Place
from shunter.errors import UsageError
from shunter.sdk.compute import Compute
from shunter.sdk.workspace import Workspace
from shunter.testing.clusters import ClusterHouse
from shunter.testing.house import wait_until

torch_there = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="scripts/parts/torch brings PyTorch")
mpi_there = pytest.mark.skipif(shutil.which("mpirun") is None, reason="scripts/parts/mpi brings mpirun")
mpi4py_there = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="scripts/parts/mpi brings mpi4py")
WAIT = 150.0
LEASE_SECONDS = 15


@pytest.fixture(scope="module")
def machines() -> Iterator[list[Machine]]:
    if not is_possible():
        pytest.skip("needs root, sshd and network namespaces: scripts/parts/ssh")
    folder = Path(tempfile.mkdtemp(prefix="pool-"))
    folder.chmod(0o755)
    made = two_machines(folder)
    try:
        yield made
    finally:
        for machine in made:
            machine.down()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def team(ws: Workspace, machines: list[Machine]) -> Compute:
    """One machine is attached and known by its name, the other is only an address."""
    known = {c.name: c for c in ws.compute.list()}
    if "team" in known:
        return known["team"]
    ws.compute.attach("vm", kind="ssh", **machines[0].options())
    login = {k: v for k, v in machines[1].options().items() if k != "address"}
    return ws.compute.create(
        "team", kind="cluster", pool="ssh", machines=["vm", machines[1].address], lease_seconds=LEASE_SECONDS,
        idle_seconds_before_scaledown=15, **login,
    )  # fmt: skip


@pytest.fixture
def pool(home: Path, team: Compute) -> ClusterHouse:
    return ClusterHouse(ClusterFolder(home / "clusters" / f"default.{team.name}"))


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that the tests and the machines' users see at the same place."""
    folder = Path(tempfile.mkdtemp(prefix="shunter-shared-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def machine_of(pool: ClusterHouse, machines: list[Machine], run_id: str, ws: Workspace) -> tuple[str, Machine]:
    """The node that a run is on, and its machine."""
    [node] = [n["name"] for n in ws.compute.get("team").show()["nodes"] if run_id in n["runs"]]
    record = pool.folder.node(node)
    assert record is not None
    return node, machines[0] if record["machine"] == "vm" else machines[1]


@torch_there
def test_gloo_on_two_machines(ws: Workspace, team: Compute, source: Path) -> None:
    run = submit(ws, source, GLOO, target="team", node_count=2, processes_per_node=1, environment=HERE)
    run.wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Completed", run.logs() + run.logs(node=1)
    said = [next(line for line in run.logs(node=node).splitlines() if line.startswith("rank")) for node in (0, 1)]
    assert said == [f"rank {r} of 2 local 0 sum 3" for r in (0, 1)]


@mpi_there
def test_mpirun_on_two_machines(ws: Workspace, team: Compute, source: Path) -> None:
    run = submit(ws, source, MPI, target="team", node_count=2, communicator="Mpi", processes_per_node=2)
    run.wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Completed", run.logs() + run.logs(node=1)
    assert sorted(run.logs().splitlines()) == [f"[rank {r}] rank {r} of 4 {run.id}" for r in range(4)]
    assert {Path(f["path"]).name for f in run.files()} == {f"rank_{r}.txt" for r in range(4)}, "a file for each rank"


@mpi_there
@mpi4py_there
def test_mpi_ranks_on_two_machines_talk_to_each_other(ws: Workspace, team: Compute, source: Path) -> None:
    options = {"node_count": 2, "communicator": "Mpi", "processes_per_node": 2, "environment": HERE}
    run = submit(ws, source, MPI_TALKS, target="team", **options)
    run.wait(timeout_seconds=WAIT)
    assert run.data["status"] == "Completed", run.logs() + run.logs(node=1)
    assert sorted(run.logs().splitlines()) == [f"[rank {r}] rank {r} of 4 sum 10" for r in range(4)]


def test_no_port_of_ray_is_open_to_others(ws: Workspace, team: Compute, source: Path, pool: ClusterHouse) -> None:
    submit(ws, source, "", target="team").wait(timeout_seconds=WAIT)
    place: Place = pool.folder.place()
    assert place.is_loopback
    inodes = set()
    for pid in [pool.head, *pool.nodes().values()]:
        assert pid
        for child in pool.part(pid, ""):
            for fd in Path(f"/proc/{child}/fd").iterdir():
                try:
                    inodes.add(os.readlink(fd))
                except OSError:
                    continue
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    ours = [words[1].partition(":")[0] for words in rows if words[3] == "0A" and f"socket:[{words[9]}]" in inodes]
    assert ours
    assert {address[-8:] for address in ours} == {"0100007F"}, "only 127.0.0.1, also as IPv6 writes it"


def test_a_machine_that_is_cut_off_ends_its_run_before_another_attempt_starts(
    ws: Workspace, team: Compute, source: Path, machines: list[Machine], pool: ClusterHouse, shared: Path
) -> None:
    ledger, gate = shared / "ledger", shared / "gate"
    code = LEDGER.replace('note("off")', 'note("off")').replace("    time.sleep(0.05)", "    note('at'); time.sleep(0.2)")
    (ledger).touch()
    ledger.chmod(0o666)
    run = submit(ws, source, code, ledger, gate, target="team", max_attempts=2)
    wait_until(lambda: lines(ledger), WAIT, "the run")
    node, machine = machine_of(pool, machines, run.id, ws)
    machine.cut()
    try:
        wait_until(lambda: "on 2 0" in lines(ledger), WAIT, "the second attempt")
        assert any("lease" in e["reason"] for e in run.events()), [e["reason"] for e in run.events()]
    finally:
        machine.heal()
    gate.touch()
    assert run.wait(timeout_seconds=WAIT).data["status"] == "Completed"
    said = lines(ledger)
    assert not [line for line in said[said.index("on 2 0") :] if line.split()[1] == "1"], "the first said nothing more"
    assert "off 1 0" not in said
    assert node not in pool.nodes()


def test_a_killed_node_process_ends_its_run_on_the_machine_at_once(
    ws: Workspace, team: Compute, source: Path, machines: list[Machine], pool: ClusterHouse, shared: Path
) -> None:
    ledger, gate = shared / "ledger", shared / "gate"
    ledger.touch()
    ledger.chmod(0o666)
    run = submit(ws, source, LEDGER, ledger, gate, target="team", max_attempts=2)
    wait_until(lambda: lines(ledger), WAIT, "the run")
    node, _ = machine_of(pool, machines, run.id, ws)
    os.kill(pool.nodes()[node], signal.SIGKILL)
    wait_until(lambda: "on 2 0" in lines(ledger), WAIT, "the second attempt")
    gate.touch()
    assert run.wait(timeout_seconds=WAIT).data["status"] == "Completed"
    assert lines(ledger) == ["on 1 0", "on 2 0", "off 2 0"]


def test_idle_machines_are_given_back_and_nothing_of_ours_runs_there(
    ws: Workspace, team: Compute, machines: list[Machine], pool: ClusterHouse
) -> None:
    team.update(idle_seconds_before_scaledown=2)
    wait_until(lambda: not pool.nodes(), WAIT, "the last node's end")
    wait_until(lambda: not any(m.processes("shunter") for m in machines), 60, "the end of what ran there")
    wait_until(lambda: len(machines[1].processes("sshd")) == 1, 60, "the logout")


def test_a_machine_that_is_switched_off_is_passed_over_and_named(
    ws: Workspace, team: Compute, source: Path, machines: list[Machine]
) -> None:
    machines[0].cut()
    try:
        run = submit(ws, source, "print('here')", target="team", node_count=1)
        run.wait(timeout_seconds=WAIT)
        assert run.data["status"] == "Completed", run.data["reason"]
    finally:
        machines[0].heal()


def test_deleted_nothing_is_left_on_the_machines(
    ws: Workspace, team: Compute, machines: list[Machine], pool: ClusterHouse
) -> None:
    team.delete()
    assert not pool.folder.path.exists()
    left = [p for m in machines for p in (m.home / ".shunter-node").glob("*")]
    assert len(left) == 1, "only that of the machine which is also attached by itself"


def test_what_cannot_be_is_refused_in_words(ws: Workspace, machines: list[Machine]) -> None:
    with pytest.raises(UsageError, match="needs machines"):
        ws.compute.create("x", kind="cluster", pool="ssh")
    with pytest.raises(UsageError, match="max_nodes is 2, and the pool has 1 machines"):
        ws.compute.create("x", kind="cluster", pool="ssh", machines=["vm"], max_nodes=2)
    with pytest.raises(UsageError, match=r"vm has \d+ CPUs.*Standard_D64_v3 has 64 CPUs"):
        ws.compute.create("x", kind="cluster", pool="ssh", machines=["vm"], vm_size="Standard_D64_v3")
    with pytest.raises(UsageError, match="local is of kind 'local'"):
        ws.compute.create("x", kind="cluster", pool="ssh", machines=["local"])
    with pytest.raises(UsageError, match=r"No address of this machine is in 192\.168\.77\.0/24"):
        ws.compute.create("x", kind="cluster", vm_size="Standard_A1_v2", subnet="192.168.77.0/24")
    with pytest.raises(UsageError, match=r"no address 198\.51\.100\.7"):
        ws.compute.create("x", kind="cluster", vm_size="Standard_A1_v2", bind_address="198.51.100.7")
    assert "x" not in {c.name for c in ws.compute.list()}


def test_secrets_of_machines_are_not_written_down_in_clear(ws: Workspace, home: Path, machines: list[Machine]) -> None:
    made = ws.compute.create("sealed", kind="cluster", pool="ssh", machines="vm")
    try:
        key = machines[0].key.read_text().splitlines()[1]
        for file in home.rglob("*"):
            if file.is_file():
                assert key.encode() not in file.read_bytes(), file
    finally:
        made.delete()


@pytest.mark.parametrize(
    ("taken", "failed", "expected"),
    [((), {}, "a"), (("a",), {}, "b"), (("a", "b"), {}, None), ((), {"a": 5.0}, "b"), ((), {"a": 9.0, "b": 5.0}, "b")],
)
def test_the_machine_that_did_not_come_up_lately_is_lent_last(
    taken: tuple[str, ...], failed: dict[str, float], expected: str | None
) -> None:
    assert free_machine(["a", "b"], taken, failed) == expected


def test_the_address_that_others_find_a_machine_at() -> None:
    own = ["127.0.0.1", "10.0.0.5", "192.168.1.5"]
    assert address_among(own, "192.168.1.5", None) == "192.168.1.5"
    assert address_among(own, "192.168.1.5", "10.0.0.0/8") == "10.0.0.5"
    assert address_among(own, "203.0.113.9", None) == "10.0.0.5"
    with pytest.raises(UsageError, match=r"172\.16"):
        address_among(own, "192.168.1.5", "172.16.0.0/12")
