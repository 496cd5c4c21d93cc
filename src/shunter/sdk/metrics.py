"""Metrics of a run, read back: values, series thinned on the server, and pictures of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.errors import ExtraMissing, UsageError

if TYPE_CHECKING:
    from shunter.sdk.run import Run

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


@dataclass(frozen=True, slots=True)
class Series:
    """A metric over its steps. `count` points were logged; those here show their shape."""

    name: str
    count: int
    steps: list[int]
    times: list[float]
    values: list[float]

    @property
    def last(self) -> float:
        return self.values[-1]


def read_metrics(run: Run, name: str | None = None, recursive: bool = False) -> dict[str, Any]:
    """All metrics: a value, a list when it was logged repeatedly, rows and tables as dicts of lists."""
    query = {"name": name, "recursive": "true" if recursive else None}
    found: dict[str, Any] = readable(run.workspace.client.get(run.path + "/metrics", **query)["metrics"])
    return found


def read_series(run: Run, names: Sequence[str] = (), points: int = 1000) -> list[Series]:
    """Number metrics with their steps and times, thinned on the server to about `points` each."""
    from urllib.parse import urlencode

    query = urlencode([("points", points), *(("name", name) for name in names)])
    found = run.workspace.client.get(f"{run.path}/series?{query}")["series"]
    return [
        Series(s["name"], s["count"], s["steps"], s["times"], [float(v) for v in s["values"]])
        for s in found
    ]  # fmt: skip


def readable(found: Any) -> Any:
    """The wire writes what JSON has no number for as {"float": "nan"}."""
    if isinstance(found, dict):
        if found.keys() == {"float"}:
            return float(found["float"])
        return {k: readable(v) for k, v in found.items()}
    if isinstance(found, list):
        return [readable(v) for v in found]
    return found


def draw(series: Series, width: int = 72, height: int = 12) -> str:
    """The series as a picture of letters, four by two dots each.

    >>> print(draw(Series("x", 2, [0, 1], [0.0, 1.0], [0.0, 1.0]), width=8, height=1).splitlines()[0])
    x · 2 points · last 1
    """
    title = f"{series.name} · {series.count} point{'s' if series.count != 1 else ''} · last {number(series.last)}"
    pairs = [(s, v) for s, v in zip(series.steps, series.values, strict=True) if math.isfinite(v)]
    if not pairs:
        return f"{title}\n(no finite values)"
    low, high = min(v for _, v in pairs), max(v for _, v in pairs)
    first, last = min(s for s, _ in pairs), max(s for s, _ in pairs)
    labels = [number(high), number(low)]
    margin = max(len(label) for label in labels)
    columns = max(width - margin - 2, 4)
    cells = [[0] * columns for _ in range(height)]
    before: tuple[int, int] | None = None
    for step, value in pairs:
        x = round((step - first) / (last - first) * (columns * 2 - 1)) if last > first else 0
        y = round((high - value) / (high - low) * (height * 4 - 1)) if high > low else height * 2
        for dot_x, dot_y in _line(before, (x, y)):
            cells[dot_y // 4][dot_x // 2] |= _DOTS[dot_y % 4][dot_x % 2]
        before = (x, y)
    lines = [title]
    for number_, row in enumerate(cells):
        label = labels[0] if number_ == 0 else labels[1] if number_ == height - 1 else ""
        lines.append(f"{label:>{margin}} │" + "".join(chr(0x2800 + cell) for cell in row).rstrip("\u2800"))
    lines.append(" " * margin + f" └ step {first} to {last}")
    return "\n".join(lines)


def write_png(run_series: Iterable[tuple[str, Sequence[Series]]], path: str | Path) -> Path:
    """A chart for each metric, with a line for each run that logged it. Needs matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ExtraMissing("Plots as PNG need matplotlib.", hint="pip install matplotlib") from error
    by_name: dict[str, list[tuple[str, Series]]] = {}
    for label, several in run_series:
        for series in several:
            by_name.setdefault(series.name, []).append((label, series))
    if not by_name:
        raise UsageError("There are no numbers to plot.")
    columns = min(3, len(by_name))
    rows = -(-len(by_name) // columns)
    figure = Figure(figsize=(5.5 * columns, 3.4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (name, lines) in enumerate(by_name.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        for label, series in lines:
            axes.plot(
                series.steps, series.values, linewidth=1.2, marker="." if len(series.steps) < 30 else "", label=label
            )
        axes.set_title(name.replace("$", r"\$"), fontsize=10)
        axes.set_xlabel("step", fontsize=8)
        axes.grid(True, linewidth=0.3)
        if len(lines) > 1:
            axes.legend(fontsize=7)
    target = Path(path)
    figure.savefig(target, dpi=110)
    return target


def number(value: Any) -> str:
    """A number as a person reads it.

    >>> number(0.123456789), number(3), number(1e-9)
    ('0.1235', '3', '1e-09')
    """
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _line(a: tuple[int, int] | None, b: tuple[int, int]) -> Iterable[tuple[int, int]]:
    if a is None:
        return [b]
    count = max(abs(b[0] - a[0]), abs(b[1] - a[1]), 1)
    return [
        (round(a[0] + (b[0] - a[0]) * i / count), round(a[1] + (b[1] - a[1]) * i / count)) for i in range(1, count + 1)
    ]
