"""The packages of a list on a cluster with a real Ray: installed on its node once, and used by all runs there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts_here import submit

from shunter.sdk.environment import Environment
from shunter.sdk.workspace import Workspace
from shunter.testing.packages import Index, make_wheel

WAIT = 150.0
SHOW = "import alpha, os, sys\nprint('alpha', alpha.__version__, sys.prefix, os.getcwd())\n"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    (tmp_path / "wheels").mkdir()
    make_wheel(tmp_path / "wheels", "alpha", "1.0")
    with Index(tmp_path / "wheels") as found:
        yield found


def test_a_list_of_packages_is_built_on_the_node_once_and_taken_warm_after(
    ws: Workspace, source: Path, index: Index
) -> None:
    ws.compute.create("cpu", kind="cluster", vm_size="Standard_D2_v2", max_nodes=1, idle_seconds_before_scaledown=20)
    asked = Environment(packages=["alpha"], index_url=index.url)
    first = [submit(ws, source, SHOW, cpus=1, environment=asked) for _ in range(2)]
    for run in first:
        assert run.wait(timeout_seconds=WAIT).data["status"] == "Completed", run.data["error"]
    index.calls.clear()
    second = submit(ws, source, SHOW, environment=asked).wait(timeout_seconds=WAIT)
    assert second.data["status"] == "Completed", second.data["error"]
    records = [run.details()["properties"]["environment"]["nodes"]["0"] for run in (*first, second)]
    assert sorted(bool(r["built_now"]) for r in records[:2]) == [False, True]
    assert not records[2]["built_now"]
    assert len({r["interpreter"] for r in records}) == 1
    for run in (*first, second):
        said = run.logs().splitlines()[-1].split()
        assert said[:2] == ["alpha", "1.0"]
        prefix, folder = said[2:]
        assert prefix.split("/environments/")[0] == folder.split("/launches/")[0], "both belong to the node"
    assert "building" not in second.logs()
    assert index.calls == []
