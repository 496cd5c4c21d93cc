"""A machine's disk: the longest unused goes first, of whatever kind, and nothing that a launch needs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from shunter.node import housekeeping
from shunter.node.store import Store

KEYS = [c * 32 for c in "abcd"]


def fill(folder: Path, size: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "data").write_bytes(b"x" * size)
    return folder


def an_input(root: Path, key: str, used_at: float) -> Path:
    path = fill(root / "inputs" / key, 8192)
    whole = root / "inputs" / f"{key}.whole"
    whole.touch()
    path.chmod(0o555)
    for one in (path, whole):
        os.utime(one, (used_at, used_at))
    return path


def an_environment(root: Path, key: str, used_at: float) -> Path:
    path = fill(root / "environments" / f"{key}.12345678", 8192)
    (root / "environments" / f"{key}.json").write_text(
        json.dumps({"folder": str(path), "lock_id": key, "made_at": used_at})
    )
    (root / "environments" / f"{key}.lock").touch()
    os.utime(root / "environments" / f"{key}.lock", (used_at, used_at))
    return path


def a_tool(root: Path, digest: str, used_at: float) -> Path:
    path = fill(root / "tools" / digest, 8192)
    os.utime(path, (used_at, used_at))
    return path


def launch(root: Path, name: str, job: dict[str, Any], done: bool = False) -> None:
    folder = root / "launches" / name
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps(job))
    if done:
        (folder / "done").touch()


def test_the_longest_unused_goes_first_whatever_it_is(tmp_path: Path) -> None:
    things = [
        an_environment(tmp_path, KEYS[0], 4000.0),
        an_input(tmp_path, KEYS[1], 1000.0),
        a_tool(tmp_path, "t", 2000.0),
        an_input(tmp_path, KEYS[2], 3000.0),
    ]
    found = housekeeping.measure(str(tmp_path))
    assert sum(t["bytes"] for t in found) == 4 * 8192
    freed = housekeeping.free(str(tmp_path), Store(str(tmp_path)), found, 2 * 8192)
    assert freed == {"freed_bytes": 2 * 8192, "kept_bytes": 2 * 8192}
    assert [path.exists() for path in things] == [True, False, False, True]


def test_what_a_launch_needs_stays_though_the_limit_is_passed(tmp_path: Path) -> None:
    kept = [
        an_environment(tmp_path, KEYS[0], 1.0),
        an_input(tmp_path, KEYS[1], 1.0),
        a_tool(tmp_path, "t", 1.0),
    ]
    gone = an_input(tmp_path, KEYS[2], 1.0)
    job = {
        "environment": {"lock_id": KEYS[0]},
        "inputs": [{"key": KEYS[1]}],
        "tools": {"uv": str(tmp_path / "tools" / "t" / "uv")},
    }
    launch(tmp_path, "1.1.0", job)
    launch(tmp_path, "2.1.0", {"inputs": [{"key": KEYS[2]}]}, done=True)
    housekeeping.free(str(tmp_path), Store(str(tmp_path)), housekeeping.measure(str(tmp_path)), 0)
    assert all(path.exists() for path in kept)
    assert not gone.exists()


def test_a_launch_that_came_while_it_was_measured_keeps_what_it_needs(tmp_path: Path) -> None:
    path, tool = an_input(tmp_path, KEYS[1], 1.0), a_tool(tmp_path, "t", 1.0)
    found = housekeeping.measure(str(tmp_path))
    launch(tmp_path, "1.1.0", {"inputs": [{"key": KEYS[1]}], "tools": {"uv": str(tool / "uv")}})
    assert housekeeping.free(str(tmp_path), Store(str(tmp_path)), found, 0)["freed_bytes"] == 0
    assert path.exists()
    assert tool.exists()


def test_trees_of_earlier_releases_go_and_ours_stays(tmp_path: Path) -> None:
    for name in ("ours", "old", "young"):
        (tmp_path / "tree" / name).mkdir(parents=True)
    for name in ("ours", "old"):
        os.utime(tmp_path / "tree" / name, (1000, 1000))
    assert housekeeping.drop_old_trees(str(tmp_path), "ours") == 1
    assert sorted(p.name for p in (tmp_path / "tree").iterdir()) == ["ours", "young"]
