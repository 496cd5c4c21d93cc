"""Metrics of runs: a row for each, with its count and latest value, and a file with its points.

    runs/ab/RUN/metrics/ID      numbers: 24 bytes a point (step, time, value), in the order they were logged
    runs/ab/RUN/metrics/ID.json anything else: a JSON line each

A file counts as far as its row says. So a crash between file and row leaves bytes that nobody counts, and the next
write goes over them: every point is there once.
"""

from __future__ import annotations

import json
import math
import os
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sqlalchemy as sa

from shunter.server.storage.database import Database
from shunter.server.storage.files import RunFiles, full_disk
from shunter.server.storage.schema import ingested, metrics

POINT = struct.Struct("<qdd")
NUMBER = "number"


class Entry(NamedTuple):
    """A logged thing that is not a number. `step` None: the count is the step.

    `place`: how many points of the name, of whatever kind, came before it (in its batch, as long as it is in one).
    """

    step: int | None
    at: float
    value: Any
    place: int | None = None


@dataclass(slots=True)
class Batch:
    """Points of one metric of one run that came home together: numbers flat as step, time, value; or entries."""

    run_id: str
    name: str
    kind: str
    numbers: list[Any] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Metric:
    """What is known of a metric without reading its points."""

    id: int
    run_id: str
    name: str
    kind: str
    count: int
    bytes: int
    integral: bool
    last: Any
    last_step: int
    min_value: float | None
    max_value: float | None
    updated_at: float


class Points(NamedTuple):
    """Points in the order they were logged."""

    steps: array[int]
    times: array[float]
    values: array[float]


class Metrics:
    def __init__(self, database: Database, files: RunFiles) -> None:
        self.database = database
        self.files = files
        #: Called with the id of every run that has new points.
        self.on_write: Callable[[str], None] = lambda run_id: None

    def offset(self, launch_id: str, stream: str) -> int:
        """How much of a stream has been understood."""
        with self.database.read() as connection:
            found = connection.execute(_OFFSET, {"launch_id": launch_id, "stream": stream}).scalar()
        return int(found or 0)

    def add(self, batches: Sequence[Batch], launch_id: str, stream: str, offset: int, bad_lines: int = 0) -> None:
        """Keep these points and that the stream is understood up to `offset`: both or neither."""
        known = self._known(batches)
        fresh = [_new_row(b) for b in batches if (b.run_id, b.name, b.kind) not in known]
        if fresh:
            # A row of nothing: it says where the points will lie. Nobody sees it before it counts some.
            with self.database.begin() as connection:
                for row in fresh:
                    row["id"] = connection.execute(sa.insert(metrics), row).inserted_primary_key[0]  # type: ignore[index]
                    known[(row["run_id"], row["name"], row["kind"])] = row
        rows = [known[(b.run_id, b.name, b.kind)] for b in batches]
        before: dict[tuple[str, str], int] = {}
        for (run_id, name, _), row in known.items():
            before[(run_id, name)] = before.get((run_id, name), 0) + int(row["count"])
        for batch, row in zip(batches, rows, strict=True):
            self._append(batch, row, before[(batch.run_id, batch.name)])
        key = {"launch_id": launch_id, "stream": stream}
        with self.database.begin() as connection:
            if rows:
                connection.execute(_UPDATE, [_bound(row) for row in rows])
            moved = {"b_launch": launch_id, "b_stream": stream, "offset": offset, "bad": bad_lines}
            if not connection.execute(_MOVE, moved).rowcount:
                connection.execute(sa.insert(ingested), key | {"offset": offset, "bad_lines": bad_lines})
        for batch in batches:
            self.on_write(batch.run_id)

    def list(self, run_id: str, names: Iterable[str] | None = None) -> list[Metric]:
        """The metrics of a run by the order they were first logged."""
        query = sa.select(metrics).where(metrics.c.run_id == run_id, metrics.c.count > 0).order_by(metrics.c.id)
        if names is not None:
            query = query.where(metrics.c.name.in_(list(names)))
        with self.database.read() as connection:
            return [_metric(row) for row in connection.execute(query)]

    def numbers_of(self, run_ids: Sequence[str]) -> dict[str, Sequence[Metric]]:
        """The number metrics of each of these runs (at most some hundred)."""
        found: dict[str, Any] = {run_id: [] for run_id in run_ids}
        query = sa.select(metrics).where(metrics.c.run_id.in_(run_ids), metrics.c.count > 0, metrics.c.kind == NUMBER)
        with self.database.read() as connection:
            for row in connection.execute(query.order_by(metrics.c.id)):
                found[row.run_id].append(_metric(row))
        return found

    def latest(self, run_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The last value of every metric of these runs, for tables of many runs."""
        found: dict[str, dict[str, Any]] = {run_id: {} for run_id in run_ids}
        with self.database.read() as connection:
            for start in range(0, len(run_ids), 500):
                query = sa.select(metrics.c.run_id, metrics.c.name, metrics.c.last).where(
                    metrics.c.run_id.in_(run_ids[start : start + 500]), metrics.c.kind == NUMBER
                )
                for row in connection.execute(query):
                    found[row.run_id][row.name] = json.loads(row.last)
        return found

    def points(self, metric: Metric, start: int = 0) -> Points:
        """The points of a number metric from the `start`th on."""
        raw = array("q")
        size = metric.count - start
        try:
            with open(self._path(metric.run_id, metric.id, metric.kind), "rb") as file:
                file.seek(start * POINT.size)
                raw.frombytes(_whole(file.read(size * POINT.size), POINT.size))
        except FileNotFoundError:
            pass
        times, values = array("d"), array("d")
        times.frombytes(raw[1::3].tobytes())
        values.frombytes(raw[2::3].tobytes())
        return Points(raw[0::3], times, values)

    def entries(self, metric: Metric) -> Iterator[Entry]:
        """The entries of any other metric, in the order they were logged."""
        try:
            with open(self._path(metric.run_id, metric.id, metric.kind), "rb") as file:
                left = metric.bytes
                for line in file:
                    left -= len(line)
                    if left < 0:
                        return
                    yield Entry(*json.loads(line))
        except FileNotFoundError:
            return

    def delete(self, run_id: str) -> None:
        """Forget the rows of a run; its files go with the run's folder."""
        with self.database.begin() as connection:
            connection.execute(sa.delete(metrics).where(metrics.c.run_id == run_id))
            connection.execute(
                sa.delete(ingested).where(ingested.c.launch_id >= run_id + ".", ingested.c.launch_id < run_id + "/")
            )

    def _known(self, batches: Sequence[Batch]) -> dict[tuple[str, str, str], dict[str, Any]]:
        names: dict[str, set[str]] = {}
        for batch in batches:
            names.setdefault(batch.run_id, set()).add(batch.name)
        found = {}
        with self.database.read() as connection:
            for run_id, wanted in names.items():
                listed = sorted(wanted)
                for start in range(0, len(listed), 500):
                    query = sa.select(metrics).where(
                        metrics.c.run_id == run_id, metrics.c.name.in_(listed[start : start + 500])
                    )
                    for row in connection.execute(query):
                        found[(row.run_id, row.name, row.kind)] = dict(row._mapping)
        return found

    def _append(self, batch: Batch, row: dict[str, Any], before: int) -> None:
        """Write the points behind those that count, and bring the row up to date. `before`: points of the name so far."""
        if batch.kind == NUMBER:
            data = _pack_numbers(batch.numbers, row)
        else:
            data = _pack_entries(batch.entries, row, before)
        path = self._path(batch.run_id, row["id"], batch.kind)
        try:
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                at = row["bytes"]
                view = memoryview(data)
                while view:
                    written = os.pwrite(fd, view, at)
                    at += written
                    view = view[written:]
                if os.fstat(fd).st_size > at:
                    os.ftruncate(fd, at)
            finally:
                os.close(fd)
        except OSError as error:
            raise full_disk(error) from error
        row["bytes"] += len(data)

    def _path(self, run_id: str, metric_id: int, kind: str) -> str:
        return f"{self.files.of(run_id)}/metrics/{metric_id}{'' if kind == NUMBER else '.json'}"


_OFFSET = sa.select(ingested.c.offset).where(
    ingested.c.launch_id == sa.bindparam("launch_id"), ingested.c.stream == sa.bindparam("stream")
)
_MOVE = (
    sa.update(ingested)
    .where(ingested.c.launch_id == sa.bindparam("b_launch"), ingested.c.stream == sa.bindparam("b_stream"))
    .values(offset=sa.bindparam("offset"), bad_lines=ingested.c.bad_lines + sa.bindparam("bad"))
)
_STATE = ("count", "bytes", "integral", "last", "last_step", "last_value", "min_value", "max_value", "updated_at")
_UPDATE = (
    sa.update(metrics).where(metrics.c.id == sa.bindparam("b_id")).values({name: sa.bindparam(name) for name in _STATE})
)


def _new_row(batch: Batch) -> dict[str, Any]:
    return {
        "run_id": batch.run_id, "name": batch.name, "kind": batch.kind, "count": 0, "bytes": 0, "integral": True,
        "last": "null", "last_step": 0, "last_value": None, "min_value": None, "max_value": None, "updated_at": 0.0,
    }  # fmt: skip


def _bound(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _STATE} | {"b_id": row["id"]}


def _pack_numbers(flat: list[Any], row: dict[str, Any]) -> bytes:
    count = len(flat) // 3
    begun = row["count"]
    steps = flat[0::3]
    if None in steps:
        steps = [begun + i if step is None else step for i, step in enumerate(steps)]
        flat[0::3] = steps
    values = flat[2::3]
    row["integral"] = bool(row["integral"]) and all(type(v) is int for v in values)
    real = [v for v in values if not math.isnan(v)] if math.isnan(sum(values)) else values
    if real:
        low, high = float(min(real)), float(max(real))
        row["min_value"] = low if row["min_value"] is None else min(low, row["min_value"])
        row["max_value"] = high if row["max_value"] is None else max(high, row["max_value"])
    last = values[-1]
    row["last"] = json.dumps(last)
    row["last_value"] = None if math.isnan(last) else float(last)
    row["last_step"] = steps[-1]
    row["updated_at"] = flat[-2]
    row["count"] = begun + count
    return struct.pack("<" + "qdd" * count, *flat)


def _pack_entries(entries: list[Entry], row: dict[str, Any], before: int) -> bytes:
    lines = []
    for entry in entries:
        step = row["count"] if entry.step is None else entry.step
        place = None if entry.place is None else before + entry.place
        lines.append(json.dumps([step, entry.at, entry.value, place]) + "\n")
        row["count"] += 1
        row["last_step"], row["updated_at"] = step, entry.at
    last = json.dumps(entries[-1].value)
    row["last"] = last if len(last) <= 2000 else json.dumps(f"({len(last)} bytes)")
    row["integral"] = False
    return "".join(lines).encode()


def _metric(row: Any) -> Metric:
    return Metric(
        id=row.id, run_id=row.run_id, name=row.name, kind=row.kind, count=row.count, bytes=row.bytes,
        integral=bool(row.integral), last=json.loads(row.last), last_step=row.last_step, min_value=row.min_value,
        max_value=row.max_value, updated_at=row.updated_at,
    )  # fmt: skip


def _whole(data: bytes, size: int) -> bytes:
    return data[: len(data) - len(data) % size]
