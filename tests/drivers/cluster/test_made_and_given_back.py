"""Clusters made for one run, or with nodes that stay, and given back; what is refused; and what is not touched."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scripts_here import LEDGER, lines, submit

import shunter
from shunter.drivers.cluster.folder import ClusterFolder, free_port
from shunter.errors import Conflict, Infeasible, NotFound, UsageError
from shunter.sdk.connect import connect
from shunter.sdk.workspace import Workspace
from shunter.testing.clusters import ClusterHouse
from shunter.testing.house import House, wait_until

WAIT = 150.0


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
    wait_until(lambda: name not in {c.name for c in ws.compute.list()}, WAIT, "the target's end")
    wait_until(lambda: not made.folder.path.exists(), WAIT, "its folder's end")


@pytest.mark.parametrize("how", ["canceled", "refused"])
def test_made_for_a_run_that_comes_to_nothing_it_goes_too(ws: Workspace, home: Path, source: Path, how: str) -> None:
    def made() -> list[str]:
        return [c.name for c in ws.compute.list() if c.name.startswith("run-")]

    if how == "refused":
        with pytest.raises(Infeasible, match="64 CPUs"):
            submit(ws, source, "", target="local", vm_size="Standard_A1_v2", cpus=64)
        assert made() == []
        return
    run = submit(ws, source, "", target="local", vm_size="Standard_A1_v2", node_count=2)
    assert made() == [run.data["target"]]
    run.cancel()
    assert run.wait(timeout_seconds=WAIT).data["status"] == "Canceled"
    wait_until(lambda: made() == [], WAIT, "the target's end")
    wait_until(lambda: not [h for h in ClusterHouse.all(home) if "run-" in h.folder.path.name], WAIT, "its folder's end")


def test_what_a_deletion_left_half_done_goes(ws: Workspace, home: Path) -> None:
    half = ws.compute.create("half", kind="cluster", vm_size="Standard_A1_v2")
    folder = ClusterFolder(home / "clusters" / "default.half")
    folder.nodes.mkdir(parents=True)  # with nothing that says what it is
    half.delete()
    assert "half" not in {c.name for c in ws.compute.list()}
    assert not folder.path.exists()


def test_a_folder_is_removed_whole_whoever_writes_into_it(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "clusters" / "w.c")
    stop = threading.Event()

    def write() -> None:
        for n in itertools.count():
            if stop.is_set():
                return
            with contextlib.suppress(OSError):
                (folder.path / f"{n % 50}").touch()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(30):
            folder.path.mkdir(parents=True)
            time.sleep(0.005)
            folder.remove()
            assert not folder.path.exists()
    finally:
        stop.set()
        thread.join()
    assert not list((tmp_path / "removed").iterdir())


@contextmanager
def another_ray(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The first process of a Ray that somebody else started on this machine."""
    import ray

    program = Path(ray.__file__).parent / "core" / "src" / "ray" / "gcs" / "gcs_server"
    words = [f"--log_dir={folder}", f"--gcs_server_port={free_port()}", "--node-ip-address=127.0.0.1", "--session-name=other"]
    with subprocess.Popen([program, *words, "--config_list=e30="], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
        try:
            yield one
        finally:
            one.kill()


def test_nodes_that_stay_are_waited_for_with_progress_and_given_back(ws: Workspace, home: Path, tmp_path: Path) -> None:
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
    with another_ray(tmp_path) as other:
        kept.delete()
        assert other.poll() is None, "a Ray that is not ours is left alone"
    assert not house.folder.path.exists()
    assert "kept" not in {c.name for c in ws.compute.list()}


def test_what_cannot_be_had_is_refused_in_words(ws: Workspace) -> None:
    with pytest.raises(NotFound, match="Did you mean 'Standard_D2_v2'"):
        ws.compute.create("x", kind="cluster", vm_size="Standard_D2v2")
    with pytest.raises(UsageError, match=r"min_nodes \(3\) is more than max_nodes \(2\)"):
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
