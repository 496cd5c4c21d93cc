"""The stat cache: which digest a file had when it looked exactly as it looks now.

One file per source folder, read in a millisecond or two for ten thousand files: columns instead of objects, with a
checksum over all. A cache that is missing, damaged or of another version is an empty one; one that cannot be written
costs time at the next submit and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from array import array
from collections.abc import Iterable
from pathlib import Path

from blake3 import blake3

Found = tuple[str, os.stat_result]
Known = tuple[str, os.stat_result, str]  # with its digest

INO_MASK = (1 << 63) - 1
_MAGIC = b"shunter stat cache 1\n"
_HEAD = struct.Struct("=QQQ")
_FINE_NS = 50_000_000  # clocks of file systems tick every 1 to 10 ms …
_COARSE_NS = 2_000_000_000  # … or every second or two, where times have no fraction


class StatCache:
    """Digests by path and stat: a digest is known when size, both times and the inode are the same as then."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._index: dict[str, int] = {}
        self._stats: array[int] = array("q")
        self._digests = ""
        if file is not None:
            self._load(file)

    @classmethod
    def of(cls, folder: str, cache_dir: Path | None) -> StatCache:
        """The cache of this source folder; without a cache_dir one that holds nothing."""
        if cache_dir is None:
            return cls(None)
        return cls(cache_dir / f"{blake3(os.fsencode(folder)).hexdigest()[:32]}.stat")

    def __len__(self) -> int:
        return len(self._index)

    def split(self, files: Iterable[Found]) -> tuple[list[Known], list[Found]]:
        """The files whose digest is known since they look as they did, and the others. One loop for all: this is
        where an unchanged folder spends its time."""
        known: list[Known] = []
        unknown: list[Found] = []
        where, stats, digests = self._index.get, self._stats, self._digests
        for found in files:
            path, now = found
            at = where(path)
            if at is not None:
                four = at * 4
                if (
                    stats[four] == now.st_size
                    and stats[four + 1] == now.st_mtime_ns
                    and stats[four + 2] == now.st_ctime_ns
                    and stats[four + 3] == now.st_ino & INO_MASK
                ):
                    known.append((path, now, digests[at * 64 : at * 64 + 64]))
                    continue
            unknown.append(found)
        return known, unknown

    def save(self, files: Iterable[Known], *, hashed_from_ns: int) -> None:
        """Keep these digests for the next time.

        `hashed_from_ns` is when reading began. A file that was not settled then is left out: it is hashed again next
        time.
        """
        if self._file is None:
            return
        paths: list[str] = []
        stats: array[int] = array("q")
        digests: list[str] = []
        for path, seen, digest in files:
            if not is_settled(seen, hashed_from_ns) or seen.st_mtime_ns < 0:
                continue
            paths.append(path)
            stats.extend((seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino & INO_MASK))
            digests.append(digest)
        names = "\0".join(paths).encode()
        body = b"".join(
            [_HEAD.pack(len(paths), len(names), 0), names, stats.tobytes(), "".join(digests).encode("ascii")]
        )
        with contextlib.suppress(OSError):
            _write(self._file, _MAGIC + blake3(body).digest() + body)

    def _load(self, file: Path) -> None:
        try:
            data = file.read_bytes()
        except OSError:
            return
        start = len(_MAGIC) + 32
        body = memoryview(data)[start:]
        if not data.startswith(_MAGIC) or blake3(body).digest() != data[len(_MAGIC) : start]:
            return
        count, length, _ = _HEAD.unpack_from(body)
        names_end = _HEAD.size + length
        stats_end = names_end + count * 32
        self._stats.frombytes(body[names_end:stats_end])
        self._digests = str(body[stats_end:], "ascii")
        names = str(body[_HEAD.size : names_end], "utf-8")
        self._index = dict(zip(names.split("\0"), range(count), strict=True)) if count else {}


def is_settled(seen: os.stat_result, at_ns: int) -> bool:
    """Was the file touched long enough before `at_ns` that any later change must show in its stat?

    A change in the same tick of the file system's clock would not (git calls such entries racy).
    """
    tick = _FINE_NS if seen.st_mtime_ns % 1_000_000_000 else _COARSE_NS
    return max(seen.st_mtime_ns, seen.st_ctime_ns) + tick <= at_ns


def _write(file: Path, data: bytes) -> None:
    """Whole or not at all, and for nobody else to read: it names the user's files."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = f"{file}.{os.getpid()}.{threading.get_ident()}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
    try:
        with open(handle, "wb") as out:
            out.write(data)
        os.replace(temporary, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
