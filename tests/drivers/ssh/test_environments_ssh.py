"""The same environment on a machine over SSH that has no package index, no uv and no packages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import Machine

import shunter
from shunter.testing.packages import Index, make_wheel


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    (tmp_path / "wheels").mkdir()
    make_wheel(tmp_path / "wheels", "alpha", "1.0")
    with Index(tmp_path / "wheels") as found:
        yield found


def test_a_machine_without_an_index_gets_tools_and_wheels_from_the_server(
    ws: shunter.Workspace, machine: Machine, tmp_path: Path, index: Index
) -> None:
    if "vm-env" not in [c.name for c in ws.compute.list()]:
        ws.compute.create("vm-env", "ssh", **machine.options())
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "show.py").write_text("import alpha, sys\nprint('alpha', alpha.__version__, sys.prefix)\n")
    asked = shunter.Environment(packages=["alpha"], index_url=index.url, offline=True)
    runs = [ws.submit("show.py", source_directory=folder, target="vm-env", environment=asked) for _ in range(3)]
    for run in runs:
        run.wait()
        assert run.status == "Completed", run.data["error"]
        assert "alpha 1.0" in run.logs()
    records = [run.details()["properties"]["environment"]["nodes"]["0"] for run in runs]
    assert sum(bool(r["built_now"]) for r in records) == 1
    assert {r["host"]["machine"] for r in records}


def test_without_a_named_environment_a_machine_gets_what_the_folder_asks_for(
    ws: shunter.Workspace, machine: Machine, tmp_path: Path, index: Index
) -> None:
    if "vm-env" not in [c.name for c in ws.compute.list()]:
        ws.compute.create("vm-env", "ssh", **machine.options())
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "requirements.txt").write_text(f"--no-index\n--find-links {index.folder}\nalpha\n")
    (folder / "show.py").write_text("import alpha\nprint('alpha', alpha.__version__)\n")
    told: list[str] = []
    run = ws.submit("show.py", source_directory=folder, target="vm-env", on_environment=told.append)
    run.wait()
    assert run.status == "Completed", run.data["error"]
    assert "alpha 1.0" in run.logs()
    assert told == ["Environment: from requirements.txt"]
