"""Freeze a source folder: from here on the snapshot is what it was, whatever is edited later."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from shunter.errors import SnapshotChanged, SnapshotError, SnapshotTooLarge
from shunter.model.snapshot import GitState, Manifest, describe_problems
from shunter.packs import BLOCK_BYTES, Blob, write_pack
from shunter.sdk.snapshots import sending, sizes
from shunter.sdk.snapshots.cache import Found, Known, StatCache
from shunter.sdk.snapshots.git import GitProbe
from shunter.sdk.snapshots.hashing import hash_files
from shunter.sdk.snapshots.walk import Ignored, Walked, check_links, walk


class Progress(NamedTuple):
    """How far the hashing is; only files that the stat cache does not know are counted."""

    bytes_done: int
    bytes_total: int
    files_done: int
    files_total: int


@dataclass(frozen=True)
class Frozen:
    """A source folder as it was when `freeze` looked at it, ready to be sent."""

    folder: Path
    manifest: Manifest
    ignored: Ignored
    _git: GitProbe = field(repr=False)
    _files: Sequence[Known] = field(repr=False)
    _frozen_ns: int = field(repr=False)

    @property
    def git(self) -> GitState | None:
        """What git says of the folder; None without a repository or git. Asked at the freeze, waited for here."""
        return self._git.result()

    def largest(self, count: int = 5) -> list[sizes.Sized]:
        """The largest paths, folders summed up."""
        return sizes.largest(_sizes(self.manifest), count)

    def suggest_rules(self, count: int = 5) -> list[sizes.Suggestion]:
        """Which lines in the ignore file would leave the largest paths out."""
        return sizes.suggest_rules(_sizes(self.manifest), count)

    def pack(self, digests: Iterable[str], *, compress: bool = True) -> Iterator[bytes]:
        """A pack of exactly these blobs of the snapshot, read from the folder now and verified on the way.

        The manifest itself may be asked for by its snapshot id. A file that is no longer what was hashed raises
        SnapshotChanged; the stream then has no end and no receiver keeps anything of it.
        """
        known = {digest: (path, seen) for path, seen, digest in self._files}
        manifest_id, manifest = self.manifest.snapshot_id, self.manifest.to_bytes()

        def contents(blob: Blob) -> Iterator[bytes]:
            if blob.digest == manifest_id:
                return (manifest[at : at + BLOCK_BYTES] for at in range(0, len(manifest), BLOCK_BYTES))
            path, seen = known[blob.digest]
            return sending.contents(str(self.folder), path, blob, seen, frozen_ns=self._frozen_ns)

        wanted = [
            Blob(digest, len(manifest) if digest == manifest_id else known[digest][1].st_size)
            for digest in dict.fromkeys(digests)
        ]
        return write_pack(wanted, contents, compress=compress)


def freeze(
    folder: Path,
    *,
    cache_dir: Path | None,
    progress: Callable[[Progress], None] | None = None,
    max_bytes: int | None = None,
) -> Frozen:
    """Look at every file of the folder that is not left out, and hash those that the stat cache does not know.

    Raises SnapshotError naming every path that cannot be frozen, SnapshotTooLarge (before anything is hashed) when
    there is more than `max_bytes`, SnapshotChanged when a file does not keep still.
    """
    root = _existing(folder)
    started_ns = time.time_ns()
    git = GitProbe(root)
    found = walk(root)
    check_links(found)
    if found.problems:
        _refuse(root, found)
    if max_bytes is not None:
        _check_size(root, found, max_bytes)
    cache = StatCache.of(root, cache_dir)
    known, unknown = cache.split(found.files)
    if unknown:
        known += _hash(root, unknown, progress)
    if not known and not found.links:
        raise _empty(root, found.ignored)
    files = [(path, seen.st_mode & 0o100 != 0, seen.st_size, digest) for path, seen, digest in known]
    manifest = Manifest.of_walk(files, found.links)
    if unknown or len(known) != len(cache):
        cache.save(known, hashed_from_ns=started_ns)
    return Frozen(Path(root), manifest, found.ignored, git, known, started_ns)


def _existing(folder: Path) -> str:
    try:
        what = "" if stat.S_ISDIR(os.stat(folder).st_mode) else "is not a folder"
    except FileNotFoundError:
        what = "does not exist"
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
    if what:
        raise SnapshotError(f"the source folder {folder} {what}", hint="Name another one with --source.")
    return os.path.realpath(folder)


def _hash(root: str, unknown: list[Found], progress: Callable[[Progress], None] | None) -> list[Known]:
    files_done = bytes_done = 0
    bytes_total = sum(seen.st_size for _, seen in unknown)

    def done(files: int, size: int) -> None:
        nonlocal files_done, bytes_done
        files_done += files
        bytes_done += size
        if progress is not None:
            progress(Progress(bytes_done, bytes_total, files_done, len(unknown)))

    hashed = hash_files(root, unknown, done)
    problems = sorted((item.path, item.problem) for item in hashed if item.problem)
    if problems:
        changing = all(why.startswith("changes") for _, why in problems)
        raise (SnapshotChanged if changing else SnapshotError)(
            f"these files of {root} cannot be frozen:\n{describe_problems(problems)}", hint=_LEAVE_OUT
        )
    return [(item.path, item.stat, item.digest) for item in hashed if item.digest]


def _refuse(root: str, found: Walked) -> None:
    """All offenders at once, so also those that only reading would find."""
    for path, _ in found.files:
        if not os.access(f"{root}/{path}", os.R_OK, effective_ids=os.access in os.supports_effective_ids):
            found.problems.append((path, "cannot be read"))
    raise SnapshotError(
        f"these paths of {root} cannot be frozen:\n{describe_problems(sorted(found.problems))}", hint=_LEAVE_OUT
    )


def _check_size(root: str, found: Walked, max_bytes: int) -> None:
    files = [(path, seen.st_size) for path, seen in found.files]
    total = sum(size for _, size in files)
    if total <= max_bytes:
        return
    top = "\n".join(f"  {sizes.in_words(item.bytes):>10}  {item.path!r}" for item in sizes.largest(files))
    rules = ", ".join(f"`{item.rule}` (-{sizes.in_words(item.bytes)})" for item in sizes.suggest_rules(files, 3))
    raise SnapshotTooLarge(
        f"{root} holds {sizes.in_words(total)} in {len(files)} files, more than the set limit of "
        f"{sizes.in_words(max_bytes)}. The largest paths:\n{top}",
        hint=f"Lines for .amlignore that would leave them out: {rules}. Or raise the limit.",
    )


def _empty(root: str, ignored: Ignored) -> SnapshotError:
    if not ignored.count:
        return SnapshotError(f"{root} has no files to run", hint="Name the folder with the script with --source.")
    rules = ", ".join(rule for rule, _ in ignored.by_rule.most_common(3))
    return SnapshotError(
        f"{root} has no files left to run: {ignored.count} paths are left out",
        hint=f"The rules that leave most out: {rules}.",
    )


def _sizes(manifest: Manifest) -> Iterator[tuple[str, int]]:
    return ((entry.path, entry.size) for entry in manifest.entries)


_LEAVE_OUT = "Mend them, or leave them out with lines in .amlignore."
