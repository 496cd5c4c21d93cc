"""Old databases are brought up to date, newer ones refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from shunter.errors import DatabaseTooNew, StaleState
from shunter.home import network_file_system
from shunter.model.run import Event, Launch, LaunchState, Run, Status
from shunter.server.storage import schema
from shunter.server.storage.database import Database, sqlite_url
from shunter.server.storage.migrations import upgrade
from shunter.server.storage.runs import RunStore, SqlRuns
from shunter.testing.runs import MemoryRuns


def tables(database: Database) -> dict[str, list[str]]:
    inspector = sa.inspect(database.engine)
    return {t: sorted(c["name"] for c in inspector.get_columns(t)) for t in inspector.get_table_names()}


def test_migrating_an_empty_database_gives_the_tables_that_a_new_one_has(tmp_path: Path) -> None:
    new = Database.open(sqlite_url(tmp_path / "new.db"))
    old = Database(sqlite_url(tmp_path / "old.db"))
    with old.begin() as connection:
        upgrade(connection)
    assert tables(old) == tables(new)
    assert Database.open(old.url)._revision() == schema.REVISION
    new.close()
    old.close()


def test_a_database_of_the_first_revision_gets_the_index_of_the_queue(tmp_path: Path) -> None:
    old = Database.open(sqlite_url(tmp_path / "old.db"))
    with old.begin() as connection:
        connection.execute(sa.text("DROP INDEX runs_by_turn"))
        connection.execute(sa.text("CREATE INDEX runs_by_queue ON runs (workspace, target, status)"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
    old.close()
    opened = Database.open(sqlite_url(tmp_path / "old.db"))
    names = {index["name"] for index in sa.inspect(opened.engine).get_indexes("runs")}
    assert "runs_by_turn" in names
    assert "runs_by_queue" not in names
    opened.close()


def test_a_newer_database_is_refused_in_words(tmp_path: Path) -> None:
    database = Database.open(sqlite_url(tmp_path / "a.db"))
    with database.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(DatabaseTooNew, match="9999") as caught:
        Database.open(database.url)
    assert "SHUNTER_HOME" in caught.value.hint


def test_a_failed_transaction_leaves_nothing_and_the_next_works(tmp_path: Path) -> None:
    database = Database.open(sqlite_url(tmp_path / "a.db"))
    row = {"name": "a", "value": "1"}

    def fail() -> None:
        with database.begin() as connection:
            connection.execute(sa.insert(schema.settings), row)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with database.begin() as connection:
        connection.execute(sa.insert(schema.settings), row)
    with database.read() as connection:
        assert connection.execute(sa.select(schema.settings.c.value)).scalar() == "1"
    database.close()


def a_run(index: int = 0, **changes: object) -> Run:
    run = Run(
        id=f"{index:032x}", workspace="w", experiment="e", name="", target="t", status=Status.QUEUED,
        snapshot_id="0" * 64, script="train.py", arguments=("a", "ü"), config={"cpus": 1}, submitted_at=float(index),
        since=float(index), tags={"k": "v"},
    )  # fmt: skip
    return run.evolve(**changes)


@pytest.fixture(params=["sql", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunStore]:
    if request.param == "memory":
        yield MemoryRuns()
        return
    database = Database.open(sqlite_url(tmp_path / "a.db"))
    yield SqlRuns(database)
    database.close()


def test_what_is_applied_is_what_is_read(store: RunStore) -> None:
    before = store.add(a_run(), Event(a_run().id, 0.0, "state", Status.QUEUED, "Submitted."))
    launch = Launch(before.id, 1, 0, LaunchState.INTENDED, 2.0, handle={"launch": "x"})
    written = store.apply(before.evolve(status=Status.STARTING, attempt=1), before, (launch,), ())
    assert store.get(before.id) == written
    assert store.launches(before.id) == [launch]
    assert [r.id for r in store.placed()] == [before.id]
    assert store.slots_in_use("w", "t") == [(before.id, 1)]
    assert store.queued("w", "t", 10) == []


def test_an_apply_that_was_decided_on_an_older_version_is_refused_whole(store: RunStore) -> None:
    before = store.add(a_run(), Event(a_run().id, 0.0, "state", Status.QUEUED, "Submitted."))
    store.apply(before.evolve(status=Status.STARTING), before)
    with pytest.raises(StaleState):
        store.apply(before.evolve(status=Status.CANCELED), before, (Launch(before.id, 1, 0, LaunchState.INTENDED, 2.0),))
    assert store.get(before.id).status == Status.STARTING
    assert store.launches(before.id) == []


def test_the_queue_is_by_priority_then_by_age(store: RunStore) -> None:
    for index, priority in enumerate([0, 0, 5]):
        run = a_run(index, priority=priority)
        store.add(run, Event(run.id, 0.0, "state", Status.QUEUED, "Submitted."))
    assert [int(r.id, 16) for r in store.queued("w", "t", 10)] == [2, 0, 1]
    assert len(store.queued("w", "t", 1)) == 1
    assert store.queues() == [("w", "t")]


def test_a_run_is_found_by_its_name_without_a_look_at_the_others(tmp_path: Path) -> None:
    database = Database.open(sqlite_url(tmp_path / "runs.db"))
    runs = SqlRuns(database)
    runs.add(a_run(name="the best"), Event("0" * 32, 1.0, "state", Status.QUEUED, "", {}))
    with database.begin() as connection:  # of two that seem equal SQLite takes the younger index
        connection.execute(sa.text("DROP INDEX runs_by_time"))
        connection.execute(sa.text("CREATE INDEX runs_by_time ON runs (workspace, submitted_at)"))
    asked: list[tuple[str, Any]] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *a: asked.append((a[2], a[3])))
    assert runs.find("the best", "w").id == a_run().id
    with database.read() as connection:
        plans = [str(connection.exec_driver_sql("EXPLAIN QUERY PLAN " + q, v).fetchall()) for q, v in list(asked)]
    assert any("runs_by_name (name=?" in plan for plan in plans), plans
    assert not any("SCAN" in plan or "runs_by_time" in plan for plan in plans)
    database.close()


def test_a_network_file_system_is_recognised(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    assert network_file_system(tmp_path / "deep", str(mounts)) == "nfs4"
    assert network_file_system(Path("/"), str(mounts)) is None
