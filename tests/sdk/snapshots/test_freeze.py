"""Freezing a folder: what enters, what is left out, what is refused, and what a second time costs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from blake3 import blake3

from shunter.errors import SnapshotChanged, SnapshotError, SnapshotTooLarge
from shunter.model.snapshot import Manifest
from shunter.packs import Blob, Piece, read_pack
from shunter.sdk.snapshots import Frozen, Progress, freeze, hashing
from shunter.sdk.snapshots.cache import StatCache
from shunter.sdk.snapshots.git import without_credentials
from shunter.sdk.snapshots.sending import contents

LONG_AGO = 1_700_000_000 * 10**9 + 5


@pytest.fixture
def tree() -> Iterator[Path]:
    # Not in tmp_path, which only its owner may enter: some tests are nobody for a while.
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield filled(Path(place).resolve() / "source")


def filled(folder: Path) -> Path:
    write(folder, {"train.py": "print(1)", "lib/net.py": "layers = 3", "lib/data/a.bin": "x" * 1000})
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o775)
    age(folder)
    return folder


def test_a_snapshot_holds_every_file_with_its_digest_and_its_executable_bit(tree: Path) -> None:
    frozen = freeze(tree, cache_dir=None)
    assert [(entry.path, entry.mode, entry.digest) for entry in frozen.manifest.entries] == [
        ("lib/data/a.bin", 0o644, blake3(b"x" * 1000).hexdigest()),
        ("lib/net.py", 0o644, blake3(b"layers = 3").hexdigest()),
        ("run.sh", 0o755, blake3(b"#!/bin/sh\n").hexdigest()),
        ("train.py", 0o644, blake3(b"print(1)").hexdigest()),
    ]
    assert Manifest.from_bytes(frozen.manifest.to_bytes()) == frozen.manifest
    assert frozen.ignored.count == 0
    assert frozen.git is None


def test_neither_times_nor_the_folders_place_enter_the_id(tree: Path, tmp_path: Path) -> None:
    before = freeze(tree, cache_dir=None).manifest.snapshot_id
    moved = tree.rename(tmp_path / "elsewhere")
    (moved / "train.py").touch()
    assert freeze(moved, cache_dir=None).manifest.snapshot_id == before
    (moved / "train.py").write_text("print(2)")
    assert freeze(moved, cache_dir=None).manifest.snapshot_id != before


def test_amlignore_counts_instead_of_gitignore(tree: Path) -> None:
    write(tree, {".amlignore": "lib/data/\n", ".gitignore": "*.py\n"})
    frozen = freeze(tree, cache_dir=None)
    assert paths(frozen) == [".amlignore", ".gitignore", "lib/net.py", "run.sh", "train.py"]
    assert frozen.ignored.paths == [("lib/data/", "lib/data/ (.amlignore)")]


def test_nested_gitignores_count_from_their_folder_and_the_inner_one_decides(tree: Path) -> None:
    write(tree, {".gitignore": "*.bin\n/net.py\n", "lib/data/.gitignore": "!a.bin\n", "lib/b.bin": "b"})
    frozen = freeze(tree, cache_dir=None)
    assert "lib/data/a.bin" in paths(frozen)
    assert "lib/net.py" in paths(frozen)
    assert frozen.ignored.paths == [("lib/b.bin", "*.bin (.gitignore)")]


def test_what_belongs_to_this_machine_is_left_out_and_named_with_its_rule(tree: Path) -> None:
    write(
        tree,
        {
            ".git/HEAD": "", "outputs/model.pkl": "", "logs/a.txt": "", "lib/outputs/kept.txt": "",
            "lib/logs/kept.txt": "", "lib/__pycache__/net.pyc": "", ".ipynb_checkpoints/x": "", ".venv/bin/python": "",
            "env/pyvenv.cfg": "", "env/lib/huge.so": "", ".mypy_cache/x": "", "conda/conda-meta/history": "",
        },
    )  # fmt: skip
    (tree / ".git").joinpath("HEAD").unlink()
    frozen = freeze(tree, cache_dir=None)
    left_out = dict(frozen.ignored.paths)
    assert set(left_out) == {
        ".git/", "outputs/", "logs/", "lib/__pycache__/",
        ".ipynb_checkpoints/", ".venv/", "env/", ".mypy_cache/", "conda/",
    }  # fmt: skip
    assert left_out["env/"] == "environment (pyvenv.cfg in it)"
    assert left_out["outputs/"] == "outputs (never sent)"
    assert frozen.ignored.count == sum(frozen.ignored.by_rule.values()) == 9
    assert {"lib/outputs/kept.txt", "lib/logs/kept.txt"} <= set(paths(frozen))


def test_links_inside_the_tree_stay_links_also_absolute_ones(tree: Path) -> None:
    (tree / "lib" / "up").symlink_to("../train.py")
    (tree / "whole").symlink_to("lib")
    (tree / "lib" / "absolute").symlink_to(tree / "lib" / "data" / "a.bin")
    (tree / "dangling").symlink_to("outputs/latest")
    frozen = freeze(tree, cache_dir=None)
    assert {entry.path: entry.target for entry in frozen.manifest.entries if entry.kind == "link"} == {
        "lib/up": "../train.py",
        "whole": "lib",
        "lib/absolute": "data/a.bin",
        "dangling": "outputs/latest",
    }
    assert Manifest.from_bytes(frozen.manifest.to_bytes()) == frozen.manifest


def test_everything_that_cannot_be_frozen_is_named_at_once(tree: Path) -> None:
    (tree / "escape").symlink_to("../elsewhere")
    (tree / "absolute").symlink_to("/etc/passwd")
    os.mkfifo(tree / "lib" / "pipe")
    open(os.fsencode(tree) + b"/bad\xff.txt", "w").close()
    write(tree, {"back\\slash": "", "secret.txt": "x"})
    (tree / "secret.txt").chmod(0)
    here = os.getcwd()
    os.chdir(tree)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("sock")
    finally:
        os.chdir(here)
    with without_root(), pytest.raises(SnapshotError) as caught:
        freeze(tree, cache_dir=None)
    message = str(caught.value)
    for part in (
        "'escape' leads out of the folder", "'absolute' leads to an absolute path", "'lib/pipe' is a named pipe",
        "'sock' is a socket", "'bad\\udcff.txt' is not valid UTF-8", "'back\\\\slash' is not",
        "'secret.txt' cannot be read", ".amlignore",
    ):  # fmt: skip
        assert part in message
    write(tree, {".amlignore": "escape\nabsolute\nlib/pipe\nsock\nbad*\nback\\\\slash\nsecret.txt\n"})
    assert "train.py" in paths(freeze(tree, cache_dir=None))


def test_an_unreadable_file_or_folder_is_refused_by_name(tree: Path) -> None:
    (tree / "lib" / "net.py").chmod(0)
    with without_root(), pytest.raises(SnapshotError, match=r"'lib/net\.py' cannot be read: Permission denied"):
        freeze(tree, cache_dir=None)
    (tree / "lib").chmod(0)
    try:
        with without_root(), pytest.raises(SnapshotError, match="'lib/' cannot be read: Permission denied"):
            freeze(tree, cache_dir=None)
    finally:
        (tree / "lib").chmod(0o755)


def test_a_folder_without_files_is_refused_and_so_is_none(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="does not exist"):
        freeze(tmp_path / "nowhere", cache_dir=None)
    write(tmp_path, {"file": "", "empty/outputs/x": ""})
    with pytest.raises(SnapshotError, match="not a folder"):
        freeze(tmp_path / "file", cache_dir=None)
    with pytest.raises(SnapshotError, match="1 paths are left out") as caught:
        freeze(tmp_path / "empty", cache_dir=None)
    assert "outputs" in caught.value.hint
    shutil.rmtree(tmp_path / "empty" / "outputs")
    with pytest.raises(SnapshotError, match="no files to run"):
        freeze(tmp_path / "empty", cache_dir=None)


def test_a_large_folder_is_refused_before_it_is_read_naming_paths_and_rules(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "hash_file", None)
    with pytest.raises(SnapshotTooLarge) as caught:
        freeze(tree, cache_dir=None, max_bytes=500)
    assert "'lib/data/a.bin'" in caught.value.message
    assert "`/lib/data/a.bin` (-1.0 kB)" in caught.value.hint


def test_an_unchanged_folder_is_not_read_again_and_one_changed_file_is(
    tree: Path, tmp_path: Path, reads: list[str]
) -> None:
    cache = tmp_path / "cache"
    first = freeze(tree, cache_dir=cache)
    assert len(reads) == 4
    reads.clear()
    assert freeze(tree, cache_dir=cache).manifest == first.manifest
    assert reads == []
    (tree / "train.py").write_text("print(2)")
    changed = freeze(tree, cache_dir=cache)
    assert reads == ["train.py"]
    assert set(changed.manifest.blobs) - set(first.manifest.blobs) == {blake3(b"print(2)").hexdigest()}


def test_a_change_that_keeps_size_and_mtime_is_seen(tree: Path, tmp_path: Path) -> None:
    first = freeze(tree, cache_dir=tmp_path / "cache")
    then = (tree / "train.py").stat()
    (tree / "train.py").write_text("print(7)")
    os.utime(tree / "train.py", ns=(then.st_atime_ns, then.st_mtime_ns))
    assert freeze(tree, cache_dir=tmp_path / "cache").manifest != first.manifest


@pytest.mark.parametrize(
    ("mtime_ns", "before_ns", "trusted"),
    [
        (LONG_AGO, 60_000_000, True),
        (LONG_AGO, 10_000_000, False),
        (LONG_AGO, -(10**9), False),
        (LONG_AGO - LONG_AGO % 10**9, 60_000_000, False),  # a clock of whole seconds
        (LONG_AGO - LONG_AGO % 10**9, 2_100_000_000, True),
    ],
)
def test_a_file_touched_in_the_moment_of_the_freeze_is_not_trusted(
    tree: Path, tmp_path: Path, mtime_ns: int, before_ns: int, trusted: bool
) -> None:
    """The racy case: a change after the freeze, in the same tick of the clock, leaves the stat as it was."""
    os.utime(tree / "train.py", ns=(mtime_ns, mtime_ns))
    seen = (tree / "train.py").stat()
    digest = blake3(b"print(1)").hexdigest()
    StatCache.of("folder", tmp_path).save([("train.py", seen, digest)], hashed_from_ns=seen.st_ctime_ns + before_ns)
    known, unknown = StatCache.of("folder", tmp_path).split([("train.py", seen)])
    assert known == ([("train.py", seen, digest)] if trusted else [])
    assert len(known) + len(unknown) == 1


@pytest.mark.parametrize("damage", [b"", b"rubbish", None])
def test_a_broken_cache_is_an_empty_one(tree: Path, tmp_path: Path, reads: list[str], damage: bytes | None) -> None:
    cache = tmp_path / "cache"
    first = freeze(tree, cache_dir=cache)
    [file] = cache.iterdir()
    assert file.stat().st_mode & 0o77 == 0
    good = file.read_bytes()
    file.write_bytes(good[:-7] + b"0000000" if damage is None else damage)
    reads.clear()
    assert freeze(tree, cache_dir=cache).manifest == first.manifest
    assert len(reads) == 4
    assert file.read_bytes() == good


def test_a_cache_that_cannot_be_written_does_no_harm(tree: Path, tmp_path: Path) -> None:
    write(tmp_path, {"not-a-folder": ""})
    assert freeze(tree, cache_dir=tmp_path / "not-a-folder" / "cache").manifest.entries


def test_a_deleted_file_leaves_the_snapshot_and_the_cache(tree: Path, tmp_path: Path) -> None:
    freeze(tree, cache_dir=tmp_path / "cache")
    (tree / "run.sh").unlink()
    assert "run.sh" not in paths(freeze(tree, cache_dir=tmp_path / "cache"))
    assert b"run.sh" not in next((tmp_path / "cache").iterdir()).read_bytes()


def test_a_pack_holds_exactly_what_was_asked_for(tree: Path) -> None:
    write(tree, {"copy.py": "print(1)", "large.bin": "y" * (3 << 20), "empty": ""})
    frozen = freeze(tree, cache_dir=None)
    wanted = [blake3(data).hexdigest() for data in (b"print(1)", b"y" * (3 << 20), b"")]
    for compress in (True, False):
        blobs = unpack(frozen.pack([*wanted, frozen.manifest.snapshot_id], compress=compress))
        assert list(blobs) == [*wanted, frozen.manifest.snapshot_id]
        assert blobs[frozen.manifest.snapshot_id] == frozen.manifest.to_bytes()
    assert unpack(frozen.pack([])) == {}


@pytest.mark.parametrize("change", ["edit", "grow", "cut", "delete", "pipe", "folder"])
def test_a_file_that_changed_since_the_freeze_is_a_clear_error(tree: Path, change: str) -> None:
    file = tree / "train.py"
    frozen = freeze(tree, cache_dir=None)
    if change in ("delete", "pipe", "folder"):
        file.unlink()
    match change:
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case "edit" | "grow" | "cut":
            file.write_text({"edit": "print(9)", "grow": "print(1)\n", "cut": "print"}[change])
    with pytest.raises(SnapshotChanged, match=r"'train\.py'") as caught:
        list(frozen.pack(frozen.manifest.blobs))
    assert "again" in caught.value.hint


def test_a_file_of_which_only_the_stat_changed_is_sent(tree: Path) -> None:
    frozen = freeze(tree, cache_dir=None)
    (tree / "train.py").touch()
    (tree / "run.sh").chmod(0o644)
    assert len(unpack(frozen.pack(frozen.manifest.blobs))) == 4


def test_a_change_in_the_moment_of_the_freeze_does_not_go_unseen(tree: Path) -> None:
    """The file is younger than the freeze by less than a tick, and its stat does not move: only the hash can tell."""
    file = tree / "train.py"
    seen = file.stat()
    blob = Blob(blake3(b"print(0)").hexdigest(), 8)
    with pytest.raises(SnapshotChanged):
        list(contents(str(tree), "train.py", blob, seen, frozen_ns=seen.st_ctime_ns + 1_000_000))


def test_a_file_touched_while_it_is_sent_is_an_error(tree: Path) -> None:
    write(tree, {"large.bin": "y" * (3 << 20)})
    age(tree)
    frozen = freeze(tree, cache_dir=None)
    chunks = frozen.pack([blake3(b"y" * (3 << 20)).hexdigest()], compress=False)
    assert sum(len(next(chunks)) for _ in range(3)) > 1 << 20
    os.utime(tree / "large.bin")
    with pytest.raises(SnapshotChanged, match="while it was being sent"):
        list(chunks)


def test_a_file_that_never_keeps_still_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fstat

    def touched(handle: int) -> os.stat_result:
        os.utime(handle)
        return real(handle)

    monkeypatch.setattr(os, "fstat", touched)
    with pytest.raises(SnapshotChanged, match=r"'train\.py' changes all the time"):
        freeze(tree, cache_dir=None)


def test_progress_counts_up_to_the_whole(tree: Path) -> None:
    write(tree, {f"many/{number}": str(number) * 50_000 for number in range(400)})
    heard: list[Progress] = []
    freeze(tree, cache_dir=None, progress=heard.append)
    assert len(heard) > 1
    assert heard == sorted(heard)
    assert (
        heard[-1].bytes_done == heard[-1].bytes_total == sum(f.stat().st_size for f in tree.rglob("*") if f.is_file())
    )
    assert heard[-1].files_done == heard[-1].files_total == 404


def test_the_largest_paths_and_the_rules_against_them(tree: Path) -> None:
    write(tree, {f"checkpoints/{n}.ckpt": "c" * 5000 for n in range(5)} | {"data[1]/one.bin": "d" * 9000})
    frozen = freeze(tree, cache_dir=None)
    assert [item.path for item in frozen.largest(2)] == ["checkpoints/", "data[1]/one.bin"]
    rules = [suggestion.rule for suggestion in frozen.suggest_rules(3)]
    assert rules[:2] == ["/checkpoints/", "*.ckpt"]
    write(tree, {".amlignore": "\n".join(item.rule for item in frozen.suggest_rules(9))})
    assert freeze(tree, cache_dir=None).manifest.total_bytes < 2000


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_state_of_git_is_noted_without_credentials(tree: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *who, *arguments], cwd=tree, check=True, capture_output=True, text=True).stdout

    git("init", "-q", "-b", "trunk")
    unborn = freeze(tree, cache_dir=None).git
    assert unborn is not None
    assert (unborn.commit, unborn.branch, unborn.dirty, unborn.remote) == (None, "trunk", True, None)
    git("add", ".")
    git("commit", "-q", "-m", "first")
    git("remote", "add", "origin", "https://me:s3cret@example.org/team/repo.git")
    state = freeze(tree, cache_dir=None).git
    assert state is not None
    assert state.commit == git("rev-parse", "HEAD").strip()
    assert (state.branch, state.dirty, state.remote) == ("trunk", False, "https://example.org/team/repo.git")
    write(tree, {"lib/new.py": ""})
    inside = freeze(tree / "lib", cache_dir=None).git
    assert inside is not None
    assert inside.dirty is True
    git("checkout", "-q", "--detach")
    detached = freeze(tree, cache_dir=None).git
    assert detached is not None
    assert detached.branch is None


def test_a_folder_in_a_repository_without_git_on_the_path_is_frozen(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / ".git").mkdir()
    monkeypatch.setenv("PATH", str(tree))
    frozen = freeze(tree, cache_dir=None)
    assert frozen.git is None


@pytest.mark.parametrize(
    ("url", "stored"),
    [
        ("git@example.org:team/repo.git", "git@example.org:team/repo.git"),
        ("ssh://me:pw@example.org:22/repo", "ssh://example.org:22/repo"),
        ("https://token@example.org/repo#x", "https://example.org/repo"),
        ("../other", "../other"),
    ],
)
def test_remotes_are_stored_without_secrets(url: str, stored: str) -> None:
    assert without_credentials(url) == stored


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were hashed."""
    seen: list[str] = []
    real = hashing.hash_file

    def spy(root: str, path: str, found: os.stat_result) -> hashing.Hashed:
        seen.append(path)
        return real(root, path, found)

    monkeypatch.setattr(hashing, "hash_file", spy)
    return seen


def write(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def age(folder: Path) -> None:
    """Make the files old enough for the cache: it trusts nothing that was touched a moment ago."""
    for file in folder.rglob("*"):
        os.utime(file, ns=(LONG_AGO, LONG_AGO))
    newest = max(file.stat().st_ctime_ns for file in folder.rglob("*"))
    while newest + 60_000_000 > time.time_ns():
        pass


def paths(frozen: Frozen) -> list[str]:
    return [entry.path for entry in frozen.manifest.entries]


def unpack(chunks: Iterator[bytes]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for part in read_pack(chunks):
        if isinstance(part, Piece):
            found[part.blob.digest] = found.get(part.blob.digest, b"") + part.data
    return found


@contextmanager
def without_root() -> Iterator[None]:
    """Root reads everything; be nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
