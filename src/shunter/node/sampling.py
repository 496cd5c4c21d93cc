"""A small part of the data, the same one every time: rows of a table, files of a folder. Standard library only."""

from __future__ import annotations

import os
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Dict, Iterable, Iterator, List, Sequence

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".csv.gz", ".tsv.gz", ".jsonl.gz", ".ndjson.gz")
_PARTS = 1000000


class CannotSample(Exception):
    """There is no way to take a part of this."""


def is_table(path):
    # type: (str) -> bool
    return path.lower().endswith(TABLES)


def sample_table(source, target, percent):
    # type: (str, str, float) -> int
    """Write about `percent` of the rows of a table, its header first, and return how many: at least one."""
    if not is_table(source):
        raise CannotSample(
            "%s: only tables (%s) and folders can be sampled." % (os.path.basename(source), ", ".join(TABLES))
        )
    has_header = not source.lower().replace(".gz", "").endswith(("jsonl", "ndjson"))
    taken = 0
    first = b""
    with _open(source, "rb") as lines, _open(target, "wb") as out:
        for number, row in enumerate(_rows(lines, has_header)):
            if number == 0 and has_header:
                out.write(row)
            elif not first:
                first = row
            if not (number == 0 and has_header) and chosen(str(number), percent):
                out.write(row)
                taken += 1
        if not taken and first:
            out.write(first)
            taken = 1
    return taken


def sample_parquet(source, target, percent):
    # type: (str, str, float) -> int
    """As `sample_table`, for a file in columns. Raises ImportError without pyarrow."""
    import pyarrow as arrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from pyarrow import parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]

    taken = number = 0
    with parquet.ParquetFile(source) as table, parquet.ParquetWriter(target, table.schema_arrow) as writer:
        for batch in table.iter_batches(65536):
            rows = [i for i in range(batch.num_rows) if chosen(str(number + i + 1), percent)]
            number += batch.num_rows
            if not taken and not rows and number >= table.metadata.num_rows:
                rows = [batch.num_rows - 1]
            taken += len(rows)
            if rows:
                writer.write_batch(batch.take(arrow.array(rows, arrow.int64())))
    return taken


def sample_parquet_apart(interpreters, source, target, percent):
    # type: (Sequence[str], str, str, float) -> None
    """In a process of the first interpreter that has pyarrow: the launcher itself has nothing but Python."""
    import subprocess

    for interpreter in interpreters:
        try:
            done = subprocess.run(
                [interpreter, os.path.abspath(__file__), source, target, str(percent)], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
        except OSError:
            continue
        if done.returncode == 0:
            return
        if b"No module named" not in done.stdout:
            lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
            raise CannotSample("%s: %s" % (os.path.basename(source), lines[-1] if lines else "it cannot be read."))
    raise CannotSample(
        "%s: sampling a parquet file needs the package pyarrow on the node, or where it is sent from."
        % os.path.basename(source)
    )


def sample_files(paths, percent):
    # type: (Sequence[str], float) -> List[str]
    """About `percent` of the files of each folder, at least one of each: classes that are folders all stay."""
    by_folder = {}  # type: Dict[str, List[str]]
    for path in paths:
        by_folder.setdefault(os.path.dirname(path), []).append(path)
    kept = []  # type: List[str]
    for inside in by_folder.values():
        count = max(1, round(len(inside) * percent / 100.0))
        kept += sorted(inside, key=lambda path: (_share(path), path))[:count]
    return sorted(kept)


def chosen(key, percent):
    # type: (str, float) -> bool
    return _share(key) < percent / 100.0 * _PARTS


def _share(key):
    # type: (str) -> int
    # Twice: the check sums of numbers in a row are not spread well enough.
    return zlib.crc32(b"%d" % zlib.crc32(key.encode("utf-8", "surrogateescape"))) % _PARTS


def _rows(lines, quoted):
    # type: (Iterable[bytes], bool) -> Iterator[bytes]
    """Rows of a table: a quoted cell may hold line ends."""
    held = b""
    for line in lines:
        held += line
        if quoted and held.count(b'"') % 2:
            continue
        yield held
        held = b""
    if held:
        yield held


def _open(path, mode):
    # type: (str, str) -> IO[bytes]
    if path.lower().endswith(".gz"):
        import gzip

        return gzip.open(path, mode)  # type: ignore[return-value]
    return open(path, mode)


if __name__ == "__main__":
    import sys

    sample_parquet(sys.argv[1], sys.argv[2], float(sys.argv[3]))
