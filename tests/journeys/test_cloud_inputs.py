"""Inputs from object stores, each read by the package of its cloud from a store that speaks its protocol."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import shunter
from shunter.errors import NotFound
from shunter.testing.clouds import Cloud, cloud
from shunter.testing.house import House

#: Larger than the pieces in which a node reads.
LARGE = "".join(f"{i},{i * i}\n" for i in range(700_000))
SHOW = """
import json, os
from shunter.run import Run
found = {}
for name, path in Run.get_context().input_datasets.items():
    files = [os.path.join(h, n) for h, _, names in os.walk(path) for n in names] or [path]
    found[name] = [len(files), sum(os.path.getsize(f) for f in files)]
    assert all(os.stat(f).st_mode & 0o222 == 0 for f in files) or "launches" in path
print(json.dumps(found))
"""


@pytest.fixture(scope="module", params=["s3", "az", "gs"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A store with files in it, and a server that has its credentials in its environment."""
    with cloud(request.param) as found, pytest.MonkeyPatch.context() as patch:
        if found is None:
            pytest.skip(f"no store for {request.param}:// here: scripts/parts/azurite and pyproject.toml bring them")
        home = tmp_path_factory.mktemp(request.param) / "home"
        home.mkdir(mode=0o700)
        for name in [n for n in os.environ if n.startswith("SHUNTER_")]:
            patch.delenv(name)
        for name, value in {**found.env, "SHUNTER_HOME": str(home)}.items():
            patch.setenv(name, value)
        files = {f"data/images/{kind}/{i}.txt": f"{kind} {i:02}" for kind in ("cat", "dog") for i in range(20)}
        found.put({**files, "data/large.csv": "a,b\n" + LARGE})
        yield found
        House(home).end_all()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "show.py").write_text(SHOW)
    return tmp_path


def test_a_file_and_a_folder_are_brought_tried_in_part_and_then_whole(store: Cloud, source: Path) -> None:
    ws = shunter.Workspace.from_config()
    inputs = {"table": f"{store.scheme}://data/large.csv", "images": f"{store.scheme}://data/images"}
    run = ws.submit("show.py", source_directory=source, inputs=inputs, sample="10%").wait()
    assert run.status == "Completed", (run.error, run.logs())
    part = json.loads(run.logs())
    assert part["images"] == [4, 4 * 6]
    assert 0.08 * len(LARGE) < part["table"][1] < 0.12 * len(LARGE)
    whole = run.rerun(full=True).wait()
    assert json.loads(whole.logs()) == {"table": [1, len(LARGE) + 4], "images": [40, 40 * 6]}


def test_one_that_changed_since_submit_is_refused_a_new_submit_takes_it(store: Cloud, source: Path) -> None:
    ws = shunter.Workspace.from_config()
    store.put({"data/small/a.txt": "before", "data/small/b.txt": "b"})
    given = {"folder": f"{store.scheme}://data/small", "file": f"{store.scheme}://data/small/a.txt"}
    first = {n: ws.submit("show.py", source_directory=source, inputs={n: u}).wait() for n, u in given.items()}
    assert {run.status for run in first.values()} == {"Completed"}
    store.put({"data/small/a.txt": "after!"})
    kept = Path(os.environ["SHUNTER_HOME"], "node", "inputs")
    for path in kept.rglob("*"):
        path.chmod(0o755)
    shutil.rmtree(kept)  # as on a machine that has not had it yet
    for run in first.values():
        again = run.rerun().wait()
        assert again.error is not None
        assert again.error["code"] == "input_changed"
    anew = ws.submit("show.py", source_directory=source, inputs=given).wait()
    assert json.loads(anew.logs()) == {"folder": [2, 7], "file": [1, 6]}


def test_what_is_not_there_is_refused_at_submit(store: Cloud, source: Path) -> None:
    with pytest.raises(NotFound, match="nothing at"):
        shunter.Workspace.from_config().submit(
            "show.py", source_directory=source, inputs={"x": f"{store.scheme}://data/none.csv"}
        )
