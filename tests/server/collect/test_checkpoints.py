"""Checkpoints are kept whole, the newest of them, with one before each."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shunter.errors import UsageError
from shunter.server.collect.checkpoints import CheckpointTaker
from shunter.server.storage.checkpoints import Checkpoints, Version, sort_out
from shunter.server.storage.database import Database, sqlite_url
from shunter.server.storage.files import RunFiles

RUN = "ab" * 16


class Bench:
    def __init__(self, folder: Path) -> None:
        self.store = Checkpoints(Database.open(sqlite_url(folder / "db")), RunFiles(folder / "runs"))
        self.now = 0.0
        self.taker = CheckpointTaker(self.store, self.clock)
        self.run: Any = SimpleNamespace(id=RUN, config={})

    def clock(self) -> float:
        self.now += 1
        return self.now

    def send(self, name: str, data: bytes, attempt: int = 1, node: int = 0) -> None:
        sha = hashlib.sha256(data).hexdigest()
        launch = f"{RUN}.{attempt}.{node}"
        self.taker.blob(self.run, launch, {"blob": sha, "offset": 0, "total": len(data)}, data)
        self.taker.commit(
            self.run, launch, {"checkpoint": {"name": name, "files": [[name, len(data), sha, 0o644]]}}, b""
        )

    def newest(self, node: int = 0) -> dict[str, bytes]:
        found = self.store.to_restore(RUN, node)
        assert found is not None
        return {
            unit["name"]: self.store.read(RUN, unit["versions"][0]["files"][0][2], 0, 1000) for unit in found["units"]
        }


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_newest_version_is_restored_and_the_one_before_is_kept(bench: Bench) -> None:
    for epoch in range(5):
        bench.send("last.pt", b"epoch %d" % epoch)
    assert bench.newest() == {"last.pt": b"epoch 4"}
    assert [v.version for v in bench.store.list(RUN)] == [5, 4]
    assert len(list((bench.store.run_files.of(RUN) / "checkpoints").iterdir())) == 2


def test_only_the_newest_checkpoints_are_kept(bench: Bench) -> None:
    bench.run.config["keep_checkpoints"] = 2
    for epoch in range(6):
        bench.send(f"epoch{epoch}.pt", b"epoch %d" % epoch)
    assert bench.newest() == {"epoch5.pt": b"epoch 5", "epoch4.pt": b"epoch 4"}


def test_a_damaged_content_is_not_taken(bench: Bench) -> None:
    sha = hashlib.sha256(b"good").hexdigest()
    _, held = bench.taker.blob(bench.run, f"{RUN}.1.0", {"blob": sha, "offset": 0, "total": 4}, b"evil")
    assert held == 0
    with pytest.raises(UsageError, match="not here"):
        bench.taker.commit(bench.run, f"{RUN}.1.0", {"checkpoint": {"name": "x", "files": [["x", 4, sha, 0o644]]}}, b"")


def test_what_an_old_attempt_still_sends_does_not_become_the_newest(bench: Bench) -> None:
    bench.send("last.pt", b"attempt 2", attempt=2)
    bench.send("last.pt", b"attempt 1, late", attempt=1)
    assert bench.newest() == {"last.pt": b"attempt 2"}


def test_a_version_said_twice_is_one(bench: Bench) -> None:
    bench.send("last.pt", b"x")
    bench.send("last.pt", b"x")
    assert len(bench.store.list(RUN)) == 1


def test_each_node_gets_its_own_else_those_of_the_first(bench: Bench) -> None:
    bench.send("rank.pt", b"zero", node=0)
    bench.send("rank.pt", b"one", node=1)
    assert bench.newest(1) == {"rank.pt": b"one"}
    assert bench.newest(2) == {"rank.pt": b"zero"}


def version(name: str, number: int, node: int = 0) -> Version:
    return Version(RUN, node, name, number, 1, 0.0, 0, ())


def test_which_versions_go_is_a_table() -> None:
    newest_first = [
        version("a", 3),
        version("b", 2),
        version("a", 2),
        version("b", 1),
        version("a", 1),
        version("c", 1),
    ]
    kept, gone = sort_out(newest_first, keep=2)
    assert kept == newest_first[:4]
    assert gone == newest_first[4:]
