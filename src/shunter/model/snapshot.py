"""A snapshot: the source folder as it was at submit, as a list of entries with the digests of their contents.

The canonical encoding is what travels and what is hashed. It is one UTF-8 text: a first line, then for each entry, in
the order of the paths, `f <644|755> <size> <digest> <path>` NUL, or `l <path>` NUL `<target>` NUL for a symbolic link.
Neither times nor the folder's own place enter, so equal trees have equal ids wherever they were frozen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal, NamedTuple

from blake3 import blake3

from shunter.errors import SnapshotError

FILE_MODES = (0o644, 0o755)
MAX_PATH_BYTES = 4096
MAX_PART_BYTES = 255
SHOWN_PROBLEMS = 20  # a message names at most so many offenders


class Entry(NamedTuple):
    """One path of a snapshot. `digest` is empty for links, `target` is empty for files."""

    path: str
    kind: Literal["file", "link"]
    mode: int
    size: int
    digest: str
    target: str = ""

    @classmethod
    def file(cls, path: str, *, size: int, digest: str, executable: bool = False) -> Entry:
        return cls(path, "file", 0o755 if executable else 0o644, size, digest)

    @classmethod
    def link(cls, path: str, target: str) -> Entry:
        return cls(path, "link", 0o644, 0, "", target)


class GitState(NamedTuple):
    """What git said about the folder when it was frozen; noted beside the snapshot, never part of its id.

    `dirty` counts changes below the folder, untracked files included; None means that git did not answer in time.
    """

    commit: str | None
    branch: str | None
    dirty: bool | None
    remote: str | None


class Manifest:
    """The entries of a snapshot, sorted by path: a frozen value around the canonical encoding.

    Every Manifest made by `of` or `from_bytes` was checked and is safe to write below an empty folder.

    >>> one = Manifest.of([Entry.file("train.py", size=0, digest="0" * 64), Entry.link("latest", "train.py")])
    >>> [entry.path for entry in one.entries]
    ['latest', 'train.py']
    >>> Manifest.from_bytes(one.to_bytes()) == one
    True
    """

    def __init__(self, encoded: bytes) -> None:
        """Trusts its argument; outside of this module use `of`, `of_walk` or `from_bytes`."""
        self._encoded = encoded

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Manifest:
        """The manifest of these entries in any order. Raises SnapshotError naming all offenders."""
        ordered = tuple(sorted(entries))
        _check(ordered)
        return cls(_encode(_record(entry) for entry in ordered))

    @classmethod
    def of_walk(cls, files: Iterable[tuple[str, bool, int, str]], links: Mapping[str, str]) -> Manifest:
        """The manifest of (path, executable, size, digest) in any order, made without a check and without an object
        per file: for the walk over a folder, which has seen to everything itself."""
        records = [
            (path, f"f {'755' if executable else '644'} {size} {digest} {path}\0")
            for path, executable, size, digest in files
        ]
        records += [(path, f"l {path}\0{target}\0") for path, target in links.items()]
        records.sort()
        return cls(_encode(record for _, record in records))

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read the canonical encoding. It comes from outside: whatever is not exactly canonical and safe is refused."""
        entries = tuple(_decode(data))
        _check(entries)
        manifest = cls(bytes(data))
        manifest.__dict__["entries"] = entries
        return manifest

    def to_bytes(self) -> bytes:
        return self._encoded

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(_decode(self._encoded))

    @cached_property
    def snapshot_id(self) -> str:
        """64 hex digits: the BLAKE3 digest of `to_bytes()`."""
        return blake3(self._encoded).hexdigest()

    @cached_property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.entries)

    @cached_property
    def blobs(self) -> Mapping[str, int]:
        """Digest → size of every distinct content; equal files are one blob."""
        return {entry.digest: entry.size for entry in self.entries if entry.digest}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manifest) and other._encoded == self._encoded

    def __hash__(self) -> int:
        return hash(self._encoded)

    def __repr__(self) -> str:
        return f"<Manifest {self.snapshot_id[:12]}>"


def link_problem(path: str, target: str, links: Mapping[str, str]) -> str | None:
    """Why the link at `path` may not be kept, or None. `links` are all links of the tree, by path.

    The target is followed through the other links as the kernel would: `a/b/up -> ../..` is fine and so is what
    `x -> a/b/up/..` says, yet together they leave the tree.
    """
    if not target or "\0" in target or "\\" in target or len(target) > MAX_PATH_BYTES:
        return "has a target that cannot be kept"
    if target.startswith("/") or _DRIVE.match(target):
        return f"leads to an absolute path, {target}"
    here = path.split("/")[:-1]
    todo = target.split("/")[::-1]
    hops = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                return f"leads out of the folder, to {target}"
            here.pop()
            continue
        here.append(part)
        onward = links.get("/".join(here))
        if onward is not None:
            hops += 1
            if hops > _MAX_HOPS:
                return f"goes round in circles, by {target}"
            here.pop()
            todo.extend(onward.split("/")[::-1])
    return None


def path_problem(path: str) -> str | None:
    """Why this path cannot be part of a snapshot, or None."""
    if _BAD_PATH.search(path):
        return "is not a plain relative path"
    if len(path) > _SHORT:  # only then can a limit in bytes be reached
        try:
            raw = path.encode()
        except UnicodeEncodeError:
            return "is not valid UTF-8"
        if len(raw) > MAX_PATH_BYTES or any(len(part) > MAX_PART_BYTES for part in raw.split(b"/")):
            return "is too long"
    elif not path.isascii() and any("\ud800" <= letter <= "\udfff" for letter in path):
        return "is not valid UTF-8"
    return None


def describe_problems(problems: Iterable[tuple[str, str]]) -> str:
    """The offenders in one message, one line each; paths are quoted, since they may hold anything."""
    listed = list(problems)
    lines = [f"  {path!r} {why}" for path, why in listed[:SHOWN_PROBLEMS]]
    if len(listed) > SHOWN_PROBLEMS:
        lines.append(f"  … and {len(listed) - SHOWN_PROBLEMS} more")
    return "\n".join(lines)


_FIRST_LINE = "shunter snapshot 1\n"
_MAX_HOPS = 40  # as Linux
_SHORT = 63  # four bytes a letter at most
# A part that is empty, "." or ".." anywhere (so also a leading, trailing or double slash). The backslash is Windows'
# separator: a snapshot must mean the same everywhere.
_BAD_PATH = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|[\\\0]")
_DRIVE = re.compile(r"[A-Za-z]:")
_FILE_RECORD = re.compile(r"f (644|755) (0|[1-9][0-9]{0,15}) ([0-9a-f]{64}) (.*)", re.DOTALL)
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _record(entry: Entry) -> str:
    if entry.kind == "link":
        return f"l {entry.path}\0{entry.target}\0"
    return f"f {entry.mode:o} {entry.size} {entry.digest} {entry.path}\0"


def _encode(records: Iterable[str]) -> bytes:
    return (_FIRST_LINE + "".join(records)).encode()


def _decode(data: bytes) -> Iterable[Entry]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SnapshotError(f"the snapshot's manifest is not UTF-8 (byte {error.start})") from error
    if not text.startswith(_FIRST_LINE):
        raise SnapshotError("this is no snapshot manifest of version 1", hint="Is the client newer than the server?")
    records = iter(text[len(_FIRST_LINE) :].split("\0"))
    last = ""
    match = _FILE_RECORD.fullmatch
    for record in records:
        last = record
        if found := match(record):
            mode, size, digest, path = found.groups()
            yield Entry(path, "file", 0o755 if mode == "755" else 0o644, int(size), digest)
        elif record.startswith("l "):
            target = next(records, "")
            yield Entry.link(record[2:], target)
        elif record:
            raise SnapshotError(f"the snapshot's manifest has a record that cannot be read: {record[:200]!r}")
        elif next(records, None) is not None:
            raise SnapshotError("the snapshot's manifest has an empty record")
    if last:
        raise SnapshotError(f"the snapshot's manifest is cut off at {last[:200]!r}")


def _check(entries: tuple[Entry, ...]) -> None:
    problems: list[tuple[str, str]] = []
    parents: set[str] = set()
    links: dict[str, str] = {}
    sizes: dict[str, int] = {}
    previous = ""
    for path, kind, mode, size, digest, target in entries:
        if why := path_problem(path):
            problems.append((path, why))
        if path <= previous:
            problems.append((path, "is named twice" if path == previous else "is out of order"))
        previous = path
        folder = path.rpartition("/")[0]
        while folder and folder not in parents:
            parents.add(folder)
            folder = folder.rpartition("/")[0]
        if kind == "link":
            links[path] = target
            if digest or size or mode != FILE_MODES[0]:
                problems.append((path, "is a link with contents"))
            continue
        if kind != "file" or mode not in FILE_MODES:
            problems.append((path, f"has the mode {mode:o}, not 644 or 755"))
        if target or size < 0 or not _DIGEST.fullmatch(digest):
            problems.append((path, "has no proper size and digest"))
        elif sizes.setdefault(digest, size) != size:
            problems.append((path, "has the digest of another file of another size"))
    problems += [(entry[0], "is both a file and a folder") for entry in entries if entry[0] in parents]
    problems += [(path, why) for path, target in links.items() if (why := link_problem(path, target, links))]
    if problems:
        raise SnapshotError(f"these paths cannot be part of a snapshot:\n{describe_problems(problems)}")
