"""Reading measured tables: rows, numbers, medians, fingerprints."""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

Row = dict[str, str]


def read_table(path: Path) -> list[Row]:
    """Rows of a CSV file, or of a TSV file by its ending; an absent file has none."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def number(row: Row, name: str) -> float:
    """The value as a number; NaN when it is absent or not one."""
    try:
        return float(row[name])
    except (KeyError, ValueError, TypeError):
        return math.nan


def middle(values: Iterable[float]) -> float:
    """Median without the missing ones; NaN when nothing is left."""
    kept = [value for value in values if not math.isnan(value)]
    return float(np.median(kept)) if kept else math.nan


def fingerprint(rows: Sequence[Row]) -> str:
    """A short hash of what was measured; the order of rows does not matter, names do not count."""
    measured = sorted(
        "|".join(f"{number(row, name):.6g}" for name in row if not math.isnan(number(row, name))) for row in rows
    )
    return hashlib.sha256("\n".join(measured).encode()).hexdigest()[:16]


def group_rows(rows: Iterable[Row], *names: str) -> dict[tuple[str, ...], list[Row]]:
    """Rows by the values of some columns."""
    out: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        out.setdefault(tuple(row[name] for name in names), []).append(row)
    return out
