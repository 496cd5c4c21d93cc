"""A small part of the data is always the same part, and a whole one."""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

import pytest

from shunter.node import sampling
from shunter.node.sampling import CannotSample, sample_files, sample_table


def test_rows_with_line_ends_in_them_stay_whole(tmp_path: Path) -> None:
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        writer.writerows([[i, f'line one "{i}"\nline two'] for i in range(2000)])
    taken = sample_table(str(tmp_path / "t.csv"), str(tmp_path / "s.csv"), 10)
    with (tmp_path / "s.csv").open(newline="") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["id", "text"]
    assert len(rows) == taken
    assert 120 < taken < 280
    assert all(row[1] == f'line one "{row[0]}"\nline two' for row in rows)


def test_the_same_sample_is_taken_again(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("".join(f'{{"a": {i}}}\n' for i in range(500)))
    for name in ("one.jsonl", "two.jsonl"):
        sample_table(str(tmp_path / "t.jsonl"), str(tmp_path / name), 5)
    assert (tmp_path / "one.jsonl").read_text() == (tmp_path / "two.jsonl").read_text() != ""


def test_a_compressed_table_stays_compressed(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"h\n" + b"".join(b"%d\n" % i for i in range(1000))))
    taken = sample_table(str(tmp_path / "t.csv.gz"), str(tmp_path / "s.csv.gz"), 20)
    assert gzip.decompress((tmp_path / "s.csv.gz").read_bytes()).count(b"\n") == taken + 1


def test_at_least_one_row_is_taken(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("h\n1\n2\n")
    assert sample_table(str(tmp_path / "t.csv"), str(tmp_path / "s.csv"), 0.001) == 1


def test_every_class_folder_keeps_files() -> None:
    paths = [f"{kind}/{i}.png" for kind in ("cat", "dog", "emu") for i in range(40)]
    kept = sample_files(paths, 10)
    assert [sum(p.startswith(kind) for p in kept) for kind in ("cat", "dog", "emu")] == [4, 4, 4]
    assert sample_files(paths, 1) != []


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"x")
    with pytest.raises(CannotSample, match="folders"):
        sample_table(str(tmp_path / "x.bin"), str(tmp_path / "y.bin"), 5)


def test_rows_of_a_parquet_file_are_taken_also_where_the_launcher_has_nothing_but_python(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"i": list(range(5000)), "text": [f"row {i}" for i in range(5000)]})
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=700)
    taken = sampling.sample_parquet(str(tmp_path / "t.parquet"), str(tmp_path / "a.parquet"), 10)
    found = parquet.read_table(tmp_path / "a.parquet")
    assert found.schema == table.schema
    assert 400 < taken == found.num_rows < 600
    bare = tmp_path / "bare"  # an interpreter that has no pyarrow
    bare.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S \"$@\"\n")
    bare.chmod(0o755)
    several = [str(tmp_path / "none"), str(bare), sys.executable]
    sampling.sample_parquet_apart(several, str(tmp_path / "t.parquet"), str(tmp_path / "b.parquet"), 10)
    assert parquet.read_table(tmp_path / "b.parquet") == found
    assert sampling.sample_parquet(str(tmp_path / "t.parquet"), str(tmp_path / "c.parquet"), 0.0001) == 1
    with pytest.raises(sampling.CannotSample, match="pyarrow"):
        sampling.sample_parquet_apart(several[:2], str(tmp_path / "t.parquet"), str(tmp_path / "d.parquet"), 10)
