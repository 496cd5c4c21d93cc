"""Our runs in MLflow's own tables: written in batches when somebody asks, each thing once, however often it is done.

MLflow's schema is not ours. What we write is a handful of columns that have stood for years; before the first write we
look whether they are there, and a release that lacks one is refused in words instead of being half written.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from shunter.errors import NotFound, ServerError
from shunter.model.run import Run
from shunter.server.storage.metrics import Metric, Metrics
from shunter.server.storage.runs import SqlRuns
from shunter.server.storage.schema import metrics as metrics_table
from shunter.server.storage.schema import runs as runs_table
from shunter.server.tracking.rows import experiment_row, latest_of, metric_rows, params_of, run_row, tags_of
from shunter.server.tracking.tables import Connection, Tables

RUNS_AT_ONCE = 200
POINTS_AT_ONCE = 50_000
#: A run with no more new points than this is written with many others at once.
SHORT = 1000

_NEEDED = {
    "experiments": {"experiment_id", "name", "artifact_location", "lifecycle_stage", "creation_time", "last_update_time"},
    "runs": {"run_uuid", "name", "source_type", "source_name", "user_id", "status", "start_time", "end_time",
             "lifecycle_stage", "artifact_uri", "experiment_id"},
    "metrics": {"key", "value", "timestamp", "run_uuid", "step", "is_nan"},
    "latest_metrics": {"key", "value", "timestamp", "run_uuid", "step", "is_nan"},
    "params": {"key", "value", "run_uuid"},
    "tags": {"key", "value", "run_uuid"},
}  # fmt: skip


class Projection:
    """`mark` what changed, `bring` it into MLflow's tables. Before the first `bring` of a server all runs are looked at."""

    def __init__(self, runs: SqlRuns, metrics: Metrics, tables: Tables) -> None:
        self.runs = runs
        self.metrics = metrics
        self.tables = tables
        self._dirty: set[str] = set()
        self._is_complete = False
        self._lock = threading.Lock()

    def mark(self, run_id: str) -> None:
        """The run was made, changed or deleted. Costs nothing as long as nobody uses MLflow."""
        if self._is_complete:
            self._dirty.add(run_id)

    def bring(self) -> int:
        """Bring MLflow up to date; returns how many runs that took. MLflow must have made its tables before."""
        if self._is_complete and not self._dirty:
            return 0
        with self._lock, self.tables.open() as connection:
            if not self._is_complete:
                self._check(connection)
                self._is_complete = True  # what changes while we look is marked
                self._dirty |= self._differing(connection)
            taken = 0
            while self._dirty:
                some = [self._dirty.pop() for _ in range(min(RUNS_AT_ONCE, len(self._dirty)))]
                try:
                    self._project(connection, some)
                except NotFound:  # deleted while we looked
                    self._dirty.update(some)
                    continue
                except BaseException:
                    self._dirty.update(some)
                    raise
                taken += len(some)
            return taken

    def is_known(self, run_id: str) -> bool:
        """Whether the run is one of ours (MLflow may have others, made by its clients)."""
        with self.runs.database.read() as connection:
            return connection.execute(sa.select(runs_table.c.id).where(runs_table.c.id == run_id)).first() is not None

    def _check(self, connection: Connection) -> None:
        for table, needed in _NEEDED.items():
            found = connection.columns(table)
            if not needed <= found:
                raise ServerError(
                    f"This release of MLflow keeps its {table} otherwise than we know: no {', '.join(sorted(needed - found))}.",
                    hint="Install an MLflow that this release of Shunter was tested with. Runs go on without it.",
                )
        connection.execute(
            "CREATE TABLE IF NOT EXISTS shunter_runs (run_id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, state TEXT NOT NULL)"
        )

    def _differing(self, connection: Connection) -> set[str]:
        """Runs that are not in MLflow as they are here, and those that are there and no longer here."""
        held = dict(connection.execute("SELECT run_id, fingerprint FROM shunter_runs"))
        found = {run_id for run_id, print_ in self._fingerprints() if held.pop(run_id, None) != print_}
        return found | set(held)

    def _fingerprints(self, ids: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
        c = runs_table.c
        counts = sa.select(metrics_table.c.run_id, sa.func.sum(metrics_table.c.count)).group_by(metrics_table.c.run_id)
        query = sa.select(c.id, c.version, c.name, c.tags, c.properties)
        if ids is not None:
            counts, query = counts.where(metrics_table.c.run_id.in_(ids)), query.where(c.id.in_(ids))
        with self.runs.database.read() as reading:
            points = {row[0]: row[1] for row in reading.execute(counts)}
            for row in reading.execute(query):
                text = f"{row.name}\0{row.tags}\0{row.properties}"
                yield row.id, f"{row.version}:{points.get(row.id, 0)}:{zlib.crc32(text.encode('utf-8', 'surrogatepass')):x}"

    def _project(self, connection: Connection, ids: list[str]) -> None:
        prints = dict(self._fingerprints(ids))
        marks = ",".join("?" * len(ids))
        held = {
            row[0]: json.loads(row[1])
            for row in connection.execute(f"SELECT run_id, state FROM shunter_runs WHERE run_id IN ({marks})", ids)
        }
        here = self.runs.get_many(list(prints))
        metrics = self.metrics.numbers_of([run.id for run in here])
        states = {run.id: held.get(run.id) or {"tags": [], "counts": {}} for run in here}
        connection.execute("BEGIN IMMEDIATE")
        try:
            for run_id in ids:
                if run_id not in prints:
                    _delete(connection, run_id)
            rest = []
            for run in here:
                self._write_run(connection, run, states[run.id])
                fresh = sum(metric.count - _held(states[run.id], metric) for metric in metrics[run.id])
                is_short = fresh <= SHORT
                if is_short:
                    self._write_short(connection, metrics[run.id], states[run.id])
                else:
                    rest.append(run)
                # Its fingerprint counts when its points are there too.
                _remember(connection, run.id, prints[run.id] if is_short else "", states[run.id])
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        for run in rest:
            self._write_points(connection, metrics[run.id], states[run.id])
            _remember(connection, run.id, prints[run.id], states[run.id])

    def _write_run(self, connection: Connection, run: Run, state: dict[str, Any]) -> None:
        connection.execute(_EXPERIMENT, experiment_row(run))
        connection.execute(_RUN, run_row(run))
        tags = tags_of(run)
        gone = [(run.id, key) for key in state["tags"] if key not in tags]
        connection.executemany("DELETE FROM tags WHERE run_uuid = ? AND key = ?", gone)
        connection.executemany(_TAG, [(key, value, run.id) for key, value in tags.items()])
        state["tags"] = list(tags)
        connection.executemany(_PARAM, [(key, value, run.id) for key, value in params_of(run).items()])

    def _write_short(self, connection: Connection, metrics: Sequence[Metric], state: dict[str, Any]) -> None:
        """What is new of a run with few points, inside the transaction that writes the run."""
        points: list[tuple[Any, ...]] = []
        latest = []
        for metric in metrics:
            start = _held(state, metric)
            some = metric_rows(metric, self.metrics.points(metric, start), SHORT) if start < metric.count else []
            if some:
                points += some
                latest.append(latest_of(some))
            state["counts"][str(metric.id)] = metric.count  # also when its file is gone: nothing to come
        if points:
            connection.executemany(_POINT, points)
            connection.executemany(_LATEST, latest)

    def _write_points(self, connection: Connection, metrics: Sequence[Metric], state: dict[str, Any]) -> None:
        for metric in metrics:
            start = _held(state, metric)
            while start < metric.count:
                start = self._write_some(connection, metric, start, state)

    def _write_some(self, connection: Connection, metric: Metric, start: int, state: dict[str, Any]) -> int:
        some = metric_rows(metric, self.metrics.points(metric, start), POINTS_AT_ONCE)
        if not some:
            state["counts"][str(metric.id)] = metric.count  # its file is gone: nothing to come
            return metric.count
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(_POINT, some)
            connection.execute(_LATEST, latest_of(some))
            state["counts"][str(metric.id)] = start + len(some)
            _remember(connection, metric.run_id, "", state)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        return start + len(some)


def _held(state: Mapping[str, Any], metric: Metric) -> int:
    """How many points of a metric are there already."""
    return int(state["counts"].get(str(metric.id), 0))


def _remember(connection: Connection, run_id: str, fingerprint: str, state: Mapping[str, Any]) -> None:
    connection.execute(
        "INSERT INTO shunter_runs VALUES (?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET "
        "fingerprint = excluded.fingerprint, state = excluded.state",
        (run_id, fingerprint, json.dumps(state)),
    )


def _delete(connection: Connection, run_id: str) -> None:
    """Delete means delete: also in the tables that MLflow hangs on a run. Registered models stay."""
    # The run itself last: others refer to it.
    for table in sorted(connection.tables(), key=lambda name: name == "runs"):
        if table in ("model_versions", "logged_models"):
            continue
        for column in connection.columns(table) & {"run_uuid", "run_id"}:
            connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (run_id,))


_EXPERIMENT = (
    "INSERT INTO experiments (experiment_id, name, artifact_location, lifecycle_stage, creation_time, last_update_time) "
    "VALUES (?, ?, ?, 'active', ?, ?) ON CONFLICT DO NOTHING"
)
_RUN = (
    "INSERT INTO runs (run_uuid, name, source_type, source_name, user_id, status, start_time, end_time, lifecycle_stage, "
    "artifact_uri, experiment_id) VALUES (?, ?, 'PROJECT', ?, ?, ?, ?, ?, 'active', ?, ?) ON CONFLICT (run_uuid) DO UPDATE SET "
    "name = excluded.name, status = excluded.status, start_time = excluded.start_time, end_time = excluded.end_time"
)
_TAG = (
    "INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?) "
    "ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value"
)
_PARAM = "INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_POINT = "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_LATEST = (
    "INSERT INTO latest_metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value, timestamp = excluded.timestamp, "
    "step = excluded.step, is_nan = excluded.is_nan "
    "WHERE (excluded.step, excluded.timestamp, excluded.value) >= "
    "(latest_metrics.step, latest_metrics.timestamp, latest_metrics.value)"
)
