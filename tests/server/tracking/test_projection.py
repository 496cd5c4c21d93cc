"""Our runs in MLflow's tables: whole, once, and only in tables that we know."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from shunter.errors import NotFound, ServerError, UsageError
from shunter.model.run import Event, Run, Status
from shunter.node.mlflow_words import run_folder
from shunter.server.storage.database import Database, sqlite_url
from shunter.server.storage.files import RunFiles
from shunter.server.storage.metrics import NUMBER, Batch, Metrics
from shunter.server.storage.runs import SqlRuns
from shunter.server.tracking.artifacts import Artifacts
from shunter.server.tracking.projection import Projection
from shunter.server.tracking.tables import FileTables

#: The columns of MLflow 3.17 that matter here; the journey runs on the real tables.
TABLES = """
CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, artifact_location TEXT,
    lifecycle_stage TEXT, creation_time BIGINT, last_update_time BIGINT);
CREATE TABLE runs (run_uuid TEXT PRIMARY KEY, name TEXT, source_type TEXT, source_name TEXT, user_id TEXT, status TEXT,
    start_time BIGINT, end_time BIGINT, lifecycle_stage TEXT, artifact_uri TEXT, experiment_id INTEGER);
CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN,
    PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan));
CREATE TABLE latest_metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN,
    PRIMARY KEY (key, run_uuid));
CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT, PRIMARY KEY (key, run_uuid));
CREATE TABLE tags (key TEXT, value TEXT, run_uuid TEXT, PRIMARY KEY (key, run_uuid));
"""


class Place:
    def __init__(self, folder: Path) -> None:
        self.database = Database.open(sqlite_url(folder / "shunter.db"))
        self.runs = SqlRuns(self.database)
        self.metrics = Metrics(self.database, RunFiles(folder / "runs"))
        self.file = folder / "mlflow.db"
        connection = sqlite3.connect(self.file)
        connection.executescript(TABLES)
        connection.close()

    def projection(self) -> Projection:
        found = Projection(self.runs, self.metrics, FileTables(self.file))
        self.runs.on_write = self.metrics.on_write = found.mark
        return found

    def add(self, number: int, **about: Any) -> Run:
        run = Run(
            id=f"{number:032x}", workspace="default", experiment="e", name=f"r{number}", target="local", status=Status.QUEUED,
            snapshot_id="s", script="t.py", arguments=(), config={}, submitted_at=1000.0 + number, since=1000.0, **about,
        )  # fmt: skip
        return self.runs.add(run, Event(run.id, 1.0, "state", run.status, "", {}))

    def log(self, run: Run, offset: int, *points: Any) -> None:
        self.metrics.add([Batch(run.id, "loss", NUMBER, [v for p in points for v in p])], run.id + ".1.0", "metrics", offset)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.file)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()


@pytest.fixture
def place(tmp_path: Path) -> Any:
    found = Place(tmp_path)
    yield found
    found.database.close()


def test_runs_are_there_with_their_points_and_change_with_ours(place: Place) -> None:
    run = place.add(1, tags={"a": "1", "b": "2"}, properties={"param.lr": "0.1", "other": "x"})
    place.log(run, 10, (0, 5.0, 3.0), (1, 6.0, math.nan), (2, 7.0, math.inf))
    projection = place.projection()
    assert projection.bring() == 1
    assert place.rows("SELECT name, status, start_time, end_time FROM runs") == [("r1", "SCHEDULED", 1001000, None)]
    assert place.rows("SELECT key, value FROM params") == [("lr", "0.1")]
    assert [row[0] for row in place.rows("SELECT is_nan FROM metrics ORDER BY step")] == [0, 1, 0]
    assert place.rows("SELECT step, value FROM latest_metrics") == [(2, 1.7976931348623157e308)]
    place.runs.change(run.id, tags={"b": "3"})
    place.log(run, 20, (1, 9.0, 1.0))
    assert projection.bring() == 1
    assert dict(place.rows("SELECT key, value FROM tags WHERE key IN ('a', 'b')")) == {"b": "3"}
    assert place.rows("SELECT count(*) FROM metrics") == [(4,)]
    assert place.rows("SELECT step FROM latest_metrics") == [(2,)]
    assert projection.bring() == 0


def test_a_new_server_takes_only_what_differs_and_nothing_twice(place: Place) -> None:
    runs = [place.add(i) for i in range(30)]
    place.projection().bring()
    place.runs.change(runs[3].id, name="renamed")
    place.log(runs[4], 10, (0, 1.0, 1.0))
    assert place.projection().bring() == 2
    assert place.projection().bring() == 0
    assert place.rows("SELECT name FROM runs WHERE name = 'renamed'") == [("renamed",)]
    assert place.rows("SELECT count(*) FROM runs") == [(30,)]


def test_a_deleted_run_is_deleted_there_too(place: Place) -> None:
    run, kept = place.add(1, tags={"secret": "x"}), place.add(2)
    place.log(run, 10, (0, 1.0, 1.0))
    projection = place.projection()
    projection.bring()
    place.runs.delete(run.id)
    projection.bring()
    for table in ("runs", "tags", "metrics", "latest_metrics"):
        assert place.rows(f"SELECT count(*) FROM {table} WHERE run_uuid = '{run.id}'") == [(0,)]
    assert place.rows("SELECT run_uuid FROM runs") == [(kept.id,)]


def test_tables_that_are_not_those_we_know_are_refused_in_words(place: Place) -> None:
    connection = sqlite3.connect(place.file)
    connection.execute("ALTER TABLE metrics RENAME COLUMN step TO phase")
    connection.close()
    place.add(1)
    with pytest.raises(ServerError, match="keeps its metrics otherwise than we know: no step"):
        place.projection().bring()
    assert place.rows("SELECT count(*) FROM runs") == [(0,)]


def test_a_locked_database_is_an_error_in_words_and_nothing_is_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.server.tracking.tables.BUSY_SECONDS", 0.1)
    projection = place.projection()
    projection.bring()
    place.add(1)
    other = sqlite3.connect(place.file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ServerError, match="locked"):
        projection.bring()
    other.execute("ROLLBACK")
    other.close()
    assert projection.bring() == 1


def test_artifacts_lie_only_where_they_may(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    (tmp_path / "token").write_text("secret")
    folder = tmp_path / run_folder("a" * 32)
    folder.mkdir(parents=True)
    (folder / "out").symlink_to(tmp_path)
    (folder / "x").write_text("x")
    assert artifacts.file(run_folder("a" * 32) + "/x").read_text() == "x"
    assert artifacts.list(run_folder("a" * 32))["files"] == [{"path": "x", "is_dir": False, "file_size": 1}]
    for bad in ("token", "", "runs", "mlflow/mlflow.db", "mlflow/artifacts/../mlflow.db", run_folder("a" * 32) + "/out/token",
                run_folder("a" * 32) + "/../1.0/log", "runs/bb/" + "a" * 32 + "/files/x"):  # fmt: skip
        with pytest.raises((NotFound, UsageError)):
            artifacts.file(bad)
