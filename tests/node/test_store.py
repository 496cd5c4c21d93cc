"""What a node keeps: sent once, crash-safe, within its limit."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shunter.node import contract, housekeeping
from shunter.node.store import Store

A, B, C = "a" * 64, "b" * 64, "c" * 64


def put(store: Store, name: str, contents: dict[str, bytes]) -> None:
    data = b"".join(contents.values())
    store.write(name, 0, data[:3], None)
    store.write(name, 3, data[3:], [(digest, len(text)) for digest, text in contents.items()])


def test_contents_are_found_again_by_the_next_agent(tmp_path: Path) -> None:
    put(Store(str(tmp_path)), "p1", {A: b"first", B: b"second"})
    again = Store(str(tmp_path))
    assert again.lacking([A, B, C]) == [C]
    assert again.layout("s", [("x", "file", 0o644, B), ("l", "link", 0, "x")]) == []
    layout = json.loads(Path(again.layout_file("s")).read_text())
    assert layout[0][3:] == [str(tmp_path / "blobs" / "p1.pack"), 5, 6]
    assert layout[1][:4] == ["l", "link", 0, "x"]


def test_a_layout_names_what_is_lacking(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store, "p1", {A: b"first"})
    assert store.layout("s", [("x", "file", 0o644, A), ("y", "file", 0o644, C)]) == [C]
    assert store.use_layout("s") is None


def test_a_pack_that_was_cut_off_does_not_count_and_is_gone(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store, "p1", {A: b"first"})
    store.write("p2", 0, b"half", None)
    again = Store(str(tmp_path))
    assert again.lacking([A, B]) == [B]
    assert sorted(p.name for p in (tmp_path / "blobs").glob("*.pack")) == ["p1.pack"]


def test_a_torn_line_of_the_index_is_not_believed(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store, "p1", {A: b"first"})
    with (tmp_path / "blobs" / "index").open("a") as file:
        file.write(f"b {B} p1 0 5")
    again = Store(str(tmp_path))
    assert again.lacking([A, B]) == [B]
    put(again, "p3", {C: b"third"})
    assert Store(str(tmp_path)).lacking([A, C]) == []


def test_after_a_restart_only_what_was_safe_on_disk_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    monkeypatch.setattr(store, "_sync_later", lambda name: None)
    put(store, "p1", {A: b"first"})
    store._add_lines(["s p1"])
    put(store, "p2", {B: b"second"})
    monkeypatch.setattr(contract, "_boot", "another boot")
    assert Store(str(tmp_path)).lacking([A, B]) == [B]


def test_above_the_limit_the_longest_unused_goes_and_what_is_in_use_stays(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for n, digest in enumerate((A, B, C)):
        put(store, f"p{n}", {digest: bytes([n]) * 1000})
        store.layout(f"s{n}", [("x", "file", 0o644, digest)])
        os.utime(store.layout_file(f"s{n}"), (1000 + n, 1000 + n))
    launch = tmp_path / "launches" / "0.1.0"
    launch.mkdir(parents=True)
    (launch / "job.json").write_text(json.dumps({"snapshot_id": "s0"}))
    assert housekeeping.free(str(tmp_path), store, [], 2500) == {"freed_bytes": 1000, "kept_bytes": 2000}
    assert [store.use_layout(f"s{n}") is not None for n in range(3)] == [True, False, True]
    assert store.lacking([A, B, C]) == [B]
    assert Store(str(tmp_path)).lacking([A, B, C]) == [B]


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a name"):
        Store(str(tmp_path)).write(name, 0, b"x", [])


def test_a_disk_that_fills_up_on_the_way_is_told_with_the_last_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    store.write("p", 0, b"first", None)

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            store.write("p", 5, b"second", None)
    with pytest.raises(OSError, match="No space left"):
        store.write("p", 11, b"third", [(A, 16)])
    put(store, "p", {A: b"first and second"})
    assert store.lacking([A]) == []
