"""The manifest: canonical, stable, and a wall against what comes from outside."""

from __future__ import annotations

import random

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import SnapshotError
from shunter.model.snapshot import Entry, Manifest, describe_problems, link_problem

DIGEST = blake3(b"x").hexdigest()
FIRST_LINE = b"shunter snapshot 1\n"

parts = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="/\\\0"), min_size=1, max_size=8
).filter(lambda part: part not in (".", ".."))
digests = st.binary(max_size=4).map(lambda data: (blake3(data).hexdigest(), len(data)))


@st.composite
def trees(draw: st.DrawFn) -> list[Entry]:
    """Files below folders whose names no file has."""
    names = draw(st.lists(st.tuples(parts, parts), max_size=8, unique=True))
    entries = []
    for folder, name in names:
        digest, size = draw(digests)
        entries.append(Entry.file(f"d{folder}/{name}", size=size, digest=digest, executable=draw(st.booleans())))
    for number in range(draw(st.integers(0, 2))):
        entries.append(Entry.link(f"link{number}", draw(st.sampled_from(["a/b", "d/../c", ".", "x y"]))))
    return entries


@settings(deadline=None)
@given(trees(), st.integers())
def test_a_manifest_comes_back_as_it_was_and_the_order_of_entries_does_not_matter(
    entries: list[Entry], seed: int
) -> None:
    manifest = Manifest.of(entries)
    shuffled = list(entries)
    random.Random(seed).shuffle(shuffled)
    again = Manifest.from_bytes(manifest.to_bytes())
    assert again == manifest == Manifest.of(shuffled)
    assert again.entries == manifest.entries == tuple(sorted(entries))
    assert again.snapshot_id == manifest.snapshot_id == blake3(manifest.to_bytes()).hexdigest()
    walked = Manifest.of_walk(
        [(e.path, e.mode == 0o755, e.size, e.digest) for e in shuffled if e.kind == "file"],
        {e.path: e.target for e in shuffled if e.kind == "link"},
    )
    assert walked == manifest


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_rubbish_is_refused_in_words(data: bytes) -> None:
    for rubbish in (data, FIRST_LINE + data):
        try:
            manifest = Manifest.from_bytes(rubbish)
        except SnapshotError:
            continue
        assert manifest.to_bytes() == Manifest.of(manifest.entries).to_bytes() == rubbish


@settings(deadline=None)
@given(trees().filter(bool), st.data())
def test_a_manifest_that_is_cut_or_changed_is_refused_or_is_another(entries: list[Entry], data: st.DataObject) -> None:
    whole = Manifest.of(entries).to_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    for other in (whole[:at], bytes(damaged)):
        try:
            read = Manifest.from_bytes(other)
        except SnapshotError:
            continue
        assert read.snapshot_id != Manifest(whole).snapshot_id
        assert Manifest.of(read.entries).to_bytes() == other


@pytest.mark.parametrize(
    "path",
    [
        *("", "/etc/passwd", "../up", "a/../../b", "a/..", "./a", "a//b", "a/", ".", "..", "a\\b", "a\\..\\b"),
        *("x" * 256, "é" * 128, "/".join(["abcdefgh"] * 500), "bad\udcff", "bad\udcff" * 30),
    ],
)
def test_a_path_that_is_not_plain_is_refused_by_name(path: str) -> None:
    with pytest.raises(SnapshotError, match="cannot be part of a snapshot"):
        Manifest.of([Entry.file(path, size=1, digest=DIGEST)])
    if "\udcff" not in path:
        record = f"f 644 1 {DIGEST} {path}\0".encode()
        with pytest.raises(SnapshotError):
            Manifest.from_bytes(FIRST_LINE + record)


@pytest.mark.parametrize(
    "path", ["a", "a b", ".hidden", "...", "a..b", "ä/ö/ü", "line\nbreak", "a:b", "x" * 255, "-rf", "a$"]
)
def test_odd_but_honest_names_are_kept(path: str) -> None:
    manifest = Manifest.of([Entry.file(path, size=1, digest=DIGEST)])
    assert Manifest.from_bytes(manifest.to_bytes()).entries[0].path == path


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (f"f 644 1 {DIGEST} a\0f 644 1 {DIGEST} a\0", "named twice"),
        (f"f 644 1 {DIGEST} b\0f 644 1 {DIGEST} a\0", "out of order"),
        (f"f 644 1 {DIGEST} a\0f 644 1 {DIGEST} a/b\0", "both a file and a folder"),
        (f"l a\0b\0f 644 1 {DIGEST} a/b/c\0", "both a file and a folder"),
        (f"f 644 1 {DIGEST} a\0f 644 2 {DIGEST} b\0", "another size"),
        (f"f 777 1 {DIGEST} a\0", "cannot be read"),
        (f"f 4755 1 {DIGEST} a\0", "cannot be read"),
        (f"f 644 -1 {DIGEST} a\0", "cannot be read"),
        (f"f 644 01 {DIGEST} a\0", "cannot be read"),
        (f"f 644 99999999999999999999 {DIGEST} a\0", "cannot be read"),
        (f"f 644 1 {DIGEST.upper()} a\0", "cannot be read"),
        (f"f 644 1 {DIGEST[:-1]} a\0", "cannot be read"),
        (f"f 644 ١ {DIGEST} a\0", "cannot be read"),
        (f"f 644 1 {DIGEST} a", "cut off"),
        ("l a\0b", "cut off"),
        ("l a\0", "cut off"),
        (f"\0f 644 1 {DIGEST} a\0", "empty record"),
        (f"f 644 1 {DIGEST} a\0\0", "empty record"),
        ("l a\0\0", "cannot be kept"),
        ("l a\0/etc/passwd\0", "absolute"),
        ("l a\0C:/Windows\0", "absolute"),
        ("l a\0../up\0", "leads out"),
    ],
)
def test_a_manifest_that_is_not_canonical_or_not_safe_is_refused(records: str, why: str) -> None:
    with pytest.raises(SnapshotError, match=why):
        Manifest.from_bytes(FIRST_LINE + records.encode())


@pytest.mark.parametrize(
    "entry",
    [
        Entry("a", "file", 0o600, 1, DIGEST),
        Entry("a", "file", 0o644, -1, DIGEST),
        Entry("a", "file", 0o644, 1, ""),
        Entry("a", "file", 0o644, 1, DIGEST, "target"),
        Entry("a", "link", 0o644, 1, "", "target"),
        Entry("a", "folder", 0o755, 0, ""),  # type: ignore[arg-type]
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(entry: Entry) -> None:
    with pytest.raises(SnapshotError, match="'a'"):
        Manifest.of([entry])


def test_another_version_is_told_from_rubbish() -> None:
    with pytest.raises(SnapshotError, match="version 1") as caught:
        Manifest.from_bytes(b"shunter snapshot 2\n")
    assert "newer" in caught.value.hint
    with pytest.raises(SnapshotError, match="UTF-8"):
        Manifest.from_bytes(FIRST_LINE + b"\xff")


@pytest.mark.parametrize(
    ("links", "bad"),
    [
        ({"a": "b", "d/c": "../b", "d/e": ".././/b/.", "f": "."}, {}),
        ({"a": ".."}, {"a": "leads out"}),
        ({"d/a": "../.."}, {"d/a": "leads out"}),
        ({"d/e/up": "../..", "x": "d/e/up/.."}, {"x": "leads out"}),
        ({"d/e/up": "../..", "x": "d/e/up/ok"}, {}),
        ({"a": "b", "b": "a"}, {"a": "circles", "b": "circles"}),
        ({"a": "a/b"}, {"a": "circles"}),
        ({"a": "b\\c"}, {"a": "cannot be kept"}),
    ],
)
def test_links_are_followed_through_other_links(links: dict[str, str], bad: dict[str, str]) -> None:
    found = {path: why for path, target in links.items() if (why := link_problem(path, target, links))}
    assert found.keys() == bad.keys()
    assert all(bad[path] in why for path, why in found.items())


def test_equal_files_are_one_blob_and_totals_count_each_file() -> None:
    manifest = Manifest.of(
        [Entry.file("a", size=3, digest=DIGEST), Entry.file("b", size=3, digest=DIGEST), Entry.link("c", "a")]
    )
    assert manifest.blobs == {DIGEST: 3}
    assert manifest.total_bytes == 6
    assert manifest.snapshot_id[:12] in repr(manifest)
    assert {manifest: 1}[Manifest.from_bytes(manifest.to_bytes())] == 1


def test_the_mode_and_the_contents_enter_the_id() -> None:
    ids = {
        Manifest.of([Entry.file("a", size=1, digest=DIGEST)]).snapshot_id,
        Manifest.of([Entry.file("a", size=1, digest=DIGEST, executable=True)]).snapshot_id,
        Manifest.of([Entry.file("a", size=2, digest=DIGEST)]).snapshot_id,
        Manifest.of([Entry.file("b", size=1, digest=DIGEST)]).snapshot_id,
        Manifest.of([Entry.link("a", "b")]).snapshot_id,
    }
    assert len(ids) == 5


def test_a_message_names_a_bounded_number_of_offenders() -> None:
    text = describe_problems((f"p{number}", "is bad") for number in range(50))
    assert text.count("is bad") == 20
    assert "30 more" in text
