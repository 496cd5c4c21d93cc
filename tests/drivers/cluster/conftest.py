"""One home, one server and one Ray for all tests of a module; at the end nothing of it is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shunter.drivers.cluster.folder import ClusterFolder
from shunter.sdk.compute import Compute
from shunter.sdk.workspace import Workspace
from shunter.testing.clusters import ClusterHouse, end_clusters, own_processes
from shunter.testing.house import end


@pytest.fixture(scope="module")
def shared_home(module_home: Path) -> Iterator[Path]:
    yield module_home
    end_clusters(module_home)
    end(own_processes(module_home))


@pytest.fixture
def home(shared_home: Path) -> Path:
    """Shared, as a cluster takes seconds to come up: takes the place of the home that every test has for itself."""
    return shared_home


@pytest.fixture
def ws(home: Path) -> Workspace:
    return Workspace.from_config()


@pytest.fixture
def cpu(ws: Workspace) -> Compute:
    """A cluster of up to two nodes. The same again is fine, so every test may ask for it."""
    known = [c for c in ws.compute.list() if c.name == "cpu"]
    return known[0] if known else ws.compute.create(
        "cpu", kind="cluster", vm_size="standard_D2_v2", max_nodes=2, idle_seconds_before_scaledown=20
    )


@pytest.fixture
def house(home: Path, cpu: Compute) -> ClusterHouse:
    return ClusterHouse(ClusterFolder(home / "clusters" / f"default.{cpu.name}"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    return tmp_path / "src"
