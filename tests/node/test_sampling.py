"""A small part of the data is always the same part, and a whole one."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

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
