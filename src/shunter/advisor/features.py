"""From points to numbers: log features for the physics, scaled ones for the flexible part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shunter.advisor.errors import MixedUnits
from shunter.advisor.values import Array, Point, Probe, one_unit

# Nobody measures one workload over six decades of data; two units under one name do look like that.
WIDEST_DATA_RANGE = 1e5
# A parameter may be zero; then the term that it multiplies is this small a share of its largest.
ZERO_SHARE = 0.02
# Between two values of a parameter nothing changes when so many pairs of probes differ by this log share or less.
ENOUGH_PAIRS = 3
NO_CHANGE = 0.02


@dataclass(frozen=True)
class Columns:
    """Raw values of points: nodes first, then the data size if there is one, then parameters.

    Parameters that never change, or that the columns before them already determine, are left out.
    """

    names: tuple[str, ...]
    has_data: bool
    values: Array
    machines: tuple[str, ...]
    cores: Array

    def logs(self, shift: float, reference: Array) -> Array:
        """Log features; `shift` nodes of each cluster only coordinate."""
        floor = np.maximum(reference.max(axis=0), 1e-300) * ZERO_SHARE
        out = np.log(np.maximum(self.values, floor))
        out[:, 0] = np.log(self.values[:, 0] - shift)
        return np.asarray(out)

    @property
    def first_parameter(self) -> int:
        """Where the parameters start."""
        return 2 if self.has_data else 1

    def without_parameters(self) -> Columns:
        """Nodes and data only."""
        kept = self.first_parameter
        return Columns(self.names[:kept], self.has_data, self.values[:, :kept], self.machines, self.cores)

    def scaled(self, reference: Array) -> Array:
        """Features of the flexible part: logs, or shares of the largest where a value can be zero."""
        out = np.empty_like(self.values)
        for j in range(self.values.shape[1]):
            if (reference[:, j] > 0).all() and (self.values[:, j] > 0).all():
                out[:, j] = np.log(self.values[:, j])
            else:
                # Where all that was measured is zero, what is asked gives the scale.
                largest = float(reference[:, j].max()) or float(self.values[:, j].max()) or 1.0
                out[:, j] = 2 * self.values[:, j] / largest
        return out


def columns_of(probes: Sequence[Probe], points: Sequence[Point]) -> tuple[Columns, Columns]:
    """The columns of the measured and of the asked points, with the same names in the same order."""
    every = [probe.point for probe in probes] + list(points)
    one_unit(every)
    names = sorted({name for point in every for name in point.parameters})
    for point in every:
        missing = [name for name in names if name not in point.parameters]
        if missing:
            raise MixedUnits(f"parameter {missing[0]} is missing in some points", hint="Give it in all or in none.")
    has_data = every[0].data_size is not None
    rows = [
        [p.nodes, *([p.data_size] if has_data else []), *[p.parameters[name] for name in names]] for p in every
    ]
    raw = np.array(rows, dtype=float)
    if has_data and raw[:, 1].max() / raw[:, 1].min() > WIDEST_DATA_RANGE:
        raise MixedUnits(
            f"data sizes from {raw[:, 1].min():g} to {raw[:, 1].max():g}", hint="Are they all in the same unit?"
        )
    keep = _independent(raw, 2 if has_data else 1)
    labels = ("nodes", *(("data",) if has_data else ()), *names)
    machines = tuple(p.machine.name if p.machine else "" for p in every)
    cores = np.array([p.machine.vcpu if p.machine else 1.0 for p in every])
    both = Columns(tuple(labels[j] for j in keep), has_data, raw[:, keep], machines, cores)
    return _part(both, slice(0, len(probes))), _part(both, slice(len(probes), None))


def within_reach(known: Columns, asked: Columns, log_seconds: Array) -> tuple[Columns, Columns]:
    """The columns with every parameter cut where it stops to matter: a limit that is never reached changes nothing.

    More rounds than it takes to converge, for example. Only pairs of probes that are alike in all else can tell.
    """
    low, high = np.full(len(known.names), -np.inf), np.full(len(known.names), np.inf)
    for j in range(known.first_parameter, len(known.names)):
        levels = np.unique(known.values[:, j]).tolist()
        while len(levels) > 2 and _no_change(known, log_seconds, j, levels[-1], levels[-2]):
            levels.pop()
            high[j] = levels[-1]
        while len(levels) > 2 and _no_change(known, log_seconds, j, levels[0], levels[1]):
            levels.pop(0)
            low[j] = levels[0]
    cut = [replace(columns, values=np.clip(columns.values, low, high)) for columns in (known, asked)]
    return cut[0], cut[1]


def _no_change(known: Columns, log_seconds: Array, column: int, one: float, other: float) -> bool:
    alike: dict[tuple[object, ...], dict[float, list[float]]] = {}
    for row, machine, log in zip(known.values.tolist(), known.machines, log_seconds.tolist(), strict=True):
        if row[column] in (one, other):
            pair = alike.setdefault((machine, *row[:column], *row[column + 1 :]), {})
            pair.setdefault(row[column], []).append(log)
    gaps = [abs(np.mean(pair[one]) - np.mean(pair[other])) for pair in alike.values() if len(pair) == 2]
    return len(gaps) >= ENOUGH_PAIRS and float(np.mean(gaps)) <= NO_CHANGE


def _part(columns: Columns, rows: slice) -> Columns:
    return Columns(
        columns.names, columns.has_data, columns.values[rows], columns.machines[rows], columns.cores[rows]
    )


def _independent(raw: Array, first: int) -> list[int]:
    logs = np.log(np.maximum(raw, np.maximum(raw.max(axis=0), 1e-300) * ZERO_SHARE))
    logs = logs - logs.mean(axis=0)
    keep = list(range(first))
    for j in range(first, raw.shape[1]):
        known = logs[:, keep]
        left = logs[:, j] - known @ np.linalg.lstsq(known, logs[:, j], rcond=None)[0]
        if left.std() > 0.03:
            keep.append(j)
    return keep
