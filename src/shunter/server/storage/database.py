"""The one database: opened, checked, migrated. SQLite in WAL mode embedded, PostgreSQL for teams; one code path."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from shunter.errors import DatabaseBusy, DatabaseTooNew, StorageFull
from shunter.server.storage import schema

BUSY_SECONDS = 30.0
IMPATIENT_SECONDS = 0.005


class Database:
    """Connections to the database. `begin` is one transaction that writes; `read` one that does not.

    SQLite lets one writer in at a time and makes the others sleep: a lock of ours hands over without sleeping.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite")
        self.engine = _engine(url)
        self._writer = threading.Lock()
        self._writing: sa.Connection | None = None
        self._mood = threading.local()

    @classmethod
    def open(cls, url: str) -> Database:
        """Open the database at `url`, bringing an old one up to date. A newer one is refused."""
        database = cls(url)
        database._bring_up_to_date()
        return database

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """In here, this thread does not wait for another writer: it gets DatabaseBusy at once, with nothing written."""
        self._mood.on = True
        try:
            yield
        finally:
            self._mood.on = False

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        impatient = getattr(self._mood, "on", False)
        if not self._writer.acquire(blocking=not impatient):
            raise DatabaseBusy("Another transaction is being written.")
        try:
            if self._writing is None or self._writing.closed:
                self._writing = self.engine.connect()
                # Take the write lock at once: a read that turns into a write could not be retried.
                self._writing.info["writes"] = True
            connection = self._writing
            self._set_patience(connection, IMPATIENT_SECONDS if impatient else BUSY_SECONDS)
            try:
                with _our_errors(), connection.begin():
                    yield connection
            except BaseException:
                if connection.invalidated or connection.in_transaction():
                    connection.close()
                    self._writing = None
                raise
        finally:
            self._writer.release()

    def _set_patience(self, connection: sa.Connection, seconds: float) -> None:
        """How long SQLite waits for another process that is writing."""
        if self.is_sqlite and (connection.info.get("patience") != seconds):
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            raw.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}").close()
            connection.info["patience"] = seconds

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        with _our_errors(), self.engine.connect() as connection:
            yield connection

    def close(self) -> None:
        if self._writing is not None:
            self._writing.close()
        self.engine.dispose()

    def _bring_up_to_date(self) -> None:
        found = self._revision()
        if found == schema.REVISION:
            return
        if found is None:
            with self.begin() as connection:
                schema.metadata.create_all(connection)
                connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)"))
                connection.execute(sa.text("INSERT INTO alembic_version VALUES (:r)"), {"r": schema.REVISION})
            return
        from shunter.server.storage.migrations import known_revisions, upgrade

        if found not in known_revisions():
            raise DatabaseTooNew(
                f"The database {self.engine.url.render_as_string()} is at revision {found}; "
                f"this release of Shunter knows up to {schema.REVISION}.",
                hint="Use the release that wrote it, or a newer one; or point SHUNTER_HOME at another folder.",
            )
        with self.begin() as connection:
            upgrade(connection)

    def _revision(self) -> str | None:
        """What the database says of itself. Alembic, slow to import, is asked only when there is something to do."""
        with self.read() as connection:
            if not sa.inspect(connection).has_table("alembic_version"):
                return None
            return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


def _engine(url: str) -> sa.Engine:
    if not url.startswith("sqlite"):
        return sa.create_engine(url, pool_pre_ping=True)
    engine = sa.create_engine(
        url,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False, "isolation_level": None},
        pool_size=8,
        max_overflow=32,
    )

    @sa.event.listens_for(engine, "connect")
    def _on_connect(connection: sqlite3.Connection, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        # NORMAL outlives kill -9. What the last moments before a power cut held, nodes send again by offset.
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")

    @sa.event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.info.get("writes") else "BEGIN")

    return engine


@contextmanager
def _our_errors() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        text = str(error.orig)
        if "locked" in text or "busy" in text:
            raise DatabaseBusy(
                f"The database stayed locked for {BUSY_SECONDS:.0f} s.", hint="Who else has it open? Try again."
            ) from error
        if "disk is full" in text or "disk I/O" in text:
            raise StorageFull("The server's disk is full: the database could not be written.") from error
        raise
