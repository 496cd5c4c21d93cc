"""Where MLflow keeps its tables, and a connection to them: a file of its own, or a schema of its own in our PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from shunter.errors import ServerError

BUSY_SECONDS = 30.0
SCHEMA = "mlflow"

Row = Sequence[Any]


class Connection(Protocol):
    """As much of a connection as is needed; statements have `?` for values, transactions are begun and ended by hand."""

    def execute(self, statement: str, values: Row = ..., /) -> Any: ...
    def executemany(self, statement: str, rows: Iterable[Row], /) -> Any: ...
    def columns(self, table: str) -> set[str]: ...
    def tables(self) -> list[str]: ...


class Tables(Protocol):
    #: For MLflow.
    url: str

    def prepare(self) -> None: ...
    def open(self) -> Any: ...


def tables_of(database_url: str, file: Path) -> Tables:
    """Beside our own database: in the same PostgreSQL, or in `file`."""
    return PostgresTables(database_url) if database_url.startswith("postgresql") else FileTables(file)


class FileTables:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.url = f"sqlite:///{file}"

    def prepare(self) -> None:
        """MLflow makes it."""

    @contextmanager
    def open(self) -> Iterator[Connection]:
        connection = sqlite3.connect(self.file, timeout=BUSY_SECONDS, isolation_level=None, factory=_File)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            yield connection
        except sqlite3.OperationalError as error:
            raise _unwritable(error, f"Who else has {self.file} open? Try again.") from error
        finally:
            connection.close()


class PostgresTables:
    def __init__(self, database_url: str) -> None:
        url = sa.make_url(database_url).set(drivername="postgresql+psycopg")
        self.url = url.update_query_dict({"options": f"-csearch_path={SCHEMA}"}).render_as_string(hide_password=False)
        self._plain = url.set(drivername="postgresql").render_as_string(hide_password=False)

    def prepare(self) -> None:
        """A schema of its own: its tables have the names of ours."""
        with self.open() as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")

    @contextmanager
    def open(self) -> Iterator[Connection]:
        import psycopg

        try:
            with psycopg.connect(self._plain, autocommit=True, options=f"-csearch_path={SCHEMA}") as raw:
                yield _Postgres(raw)
        except psycopg.OperationalError as error:
            raise _unwritable(error, "Is PostgreSQL there? Try again.") from error


class _File(sqlite3.Connection):
    def columns(self, table: str) -> set[str]:
        return {row[1] for row in self.execute(f"PRAGMA table_info({table})")}

    def tables(self) -> list[str]:
        return [row[0] for row in self.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


class _Postgres:
    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def execute(self, statement: str, values: Row = (), /) -> Any:
        if statement.startswith("BEGIN"):
            statement = "BEGIN"
        return self._raw.execute(statement.replace("?", "%s"), [_text(v) for v in values])

    def executemany(self, statement: str, rows: Iterable[Row], /) -> Any:
        with self._raw.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s"), [[_text(v) for v in row] for row in rows])

    def columns(self, table: str) -> set[str]:
        asked = "SELECT column_name FROM information_schema.columns WHERE table_schema = ? AND table_name = ?"
        return {row[0] for row in self.execute(asked, (SCHEMA, table))}

    def tables(self) -> list[str]:
        asked = "SELECT table_name FROM information_schema.tables WHERE table_schema = ?"
        return [row[0] for row in self.execute(asked, (SCHEMA,))]


def _text(value: Any) -> Any:
    """PostgreSQL takes no NUL and no half of a character."""
    if isinstance(value, str) and ("\0" in value or not value.isascii()):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return value


def _unwritable(error: Exception, hint: str) -> ServerError:
    return ServerError(f"MLflow's database could not be written: {error}.", hint=hint)
