"""What callers may ask about metrics: their values in the shapes scripts know, and series to plot."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from shunter.errors import NotFound, nearest
from shunter.server.services.parts import Parts
from shunter.server.storage.metrics import NUMBER, Entry, Metric, Metrics, Points

MOST_POINTS = 1_000_000


class Series(NamedTuple):
    """A number metric, thinned to be plotted: how many points there are, and those that show its shape."""

    name: str
    total: int
    last: Any
    min: float | None
    max: float | None
    points: Points


def metrics_of(parts: Parts, run_id: str, name: str | None = None) -> dict[str, Any]:
    """Every metric of a run: a value, a list when it was logged repeatedly, rows and tables as dicts of lists."""
    return read_metrics(parts.context.metrics, run_id, name)


def family_metrics(parts: Parts, run_id: str, name: str | None = None) -> dict[str, dict[str, Any]]:
    """The metrics of a run and of all below it, by run id."""
    run = parts.runs.get(run_id)
    found = {run.id: read_metrics(parts.context.metrics, run.id, name)}
    for child in parts.runs.list(run.workspace, parent_id=run.id, limit=10_000):
        found.update(family_metrics(parts, child.id, name))
    return found


def series_of(parts: Parts, run_id: str, names: Sequence[str] = (), points: int = 1000) -> list[Series]:
    """The number metrics of a run, each thinned to about so many points."""
    listed = [m for m in parts.context.metrics.list(run_id, names or None) if m.kind == NUMBER]
    missing = [n for n in names if n not in {m.name for m in listed}]
    if missing:
        known = [m.name for m in parts.context.metrics.list(run_id)]
        raise NotFound(f"Run {run_id[:8]} logged no numbers as {missing[0]!r}.", hint=nearest(missing[0], known))
    return [
        Series(m.name, m.count, m.last, m.min_value, m.max_value, thin(parts.context.metrics.points(m), points))
        for m in listed
    ]


def read_metrics(store: Metrics, run_id: str, name: str | None = None) -> dict[str, Any]:
    by_name: dict[str, list[Metric]] = {}
    for metric in store.list(run_id, None if name is None else [name]):
        by_name.setdefault(metric.name, []).append(metric)
    return {
        name: _read(store, several[0]) if len(several) == 1 else in_order(
            [value for m in several if m.kind == NUMBER for value in _as_list(_read(store, m))],
            [(m.kind, entry) for m in several if m.kind != NUMBER for entry in store.entries(m)],
        )
        for name, several in by_name.items()
    }  # fmt: skip


def in_order(numbers: Sequence[Any], entries: Iterable[tuple[str, Entry]]) -> list[Any]:
    """What was logged under one name in several ways, in the order it was logged: entries know their place. Pure."""
    left = iter(numbers)
    found: list[Any] = []
    count = 0
    for kind, entry in sorted(entries, key=lambda one: math.inf if one[1].place is None else one[1].place):
        for _ in range(count, len(numbers) + count if entry.place is None else entry.place):
            number = next(left, left)
            if number is left:
                break
            found.append(number)
            count += 1
        found += entry.value if kind == "list" else [entry.value]
        count += 1
    return [*found, *left]


def shape(kind: str, entries: Iterable[Entry]) -> Any:
    """Entries as scripts of the first SDK expect them back. Pure."""
    values = [entry.value for entry in entries]
    if kind == "list":
        return [one for value in values for one in value]
    if kind in ("row", "table"):
        if kind == "row" and len(values) == 1:
            return values[0]
        columns: dict[str, list[Any]] = {}
        for value in values:
            for column, cells in value.items():
                columns.setdefault(column, []).extend(cells if kind == "table" else [cells])
        return columns
    return values[0] if len(values) == 1 else values


def thin(points: Points, most: int) -> Points:
    """At most about `most` points that show the same shape: the first, the last, and the extremes of each stretch."""
    count = len(points.values)
    if count <= max(most, 4):
        return points
    stretches = max(most // 2 - 1, 1)
    kept = [0]
    values = points.values
    look = values.__getitem__
    for number in range(stretches):
        start, end = count * number // stretches, count * (number + 1) // stretches
        stretch = range(start, end)
        low, high = min(stretch, key=look), max(stretch, key=look)
        kept += (low, high) if low < high else (high, low)
    kept.append(count - 1)
    chosen = sorted(set(kept))
    return Points(
        array("q", [points.steps[i] for i in chosen]),
        array("d", [points.times[i] for i in chosen]),
        array("d", [values[i] for i in chosen]),
    )


def to_wire(found: Any) -> Any:
    """JSON has no NaN and no infinity: they travel as {"float": "nan"}."""
    if isinstance(found, float):
        return found if math.isfinite(found) else {"float": repr(found)}
    if isinstance(found, dict):
        return {k: to_wire(v) for k, v in found.items()}
    if isinstance(found, list):
        return found if _all_plain(found) else [to_wire(v) for v in found]
    return found


def series_to_wire(series: Series) -> dict[str, Any]:
    """For the wire and for charts: values that are no numbers travel as their names."""
    values: list[Any] = series.points.values.tolist()
    if not all(map(math.isfinite, values)):
        values = [v if math.isfinite(v) else repr(v) for v in values]
    return {
        "name": series.name, "count": series.total, "last": to_wire(series.last), "min": to_wire(series.min),
        "max": to_wire(series.max), "steps": series.points.steps.tolist(), "times": series.points.times.tolist(),
        "values": values,
    }  # fmt: skip


def _read(store: Metrics, metric: Metric) -> Any:
    if metric.kind != NUMBER:
        return shape(metric.kind, store.entries(metric))
    values: list[Any] = store.points(metric).values.tolist()
    if metric.integral:
        values = [int(v) for v in values]
    return values[0] if len(values) == 1 else values


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _all_plain(found: list[Any]) -> bool:
    """Long lists of finite numbers go through without a copy."""
    try:
        return math.isfinite(math.fsum(found)) if len(found) > 16 else False
    except (TypeError, OverflowError, ValueError):
        return False
