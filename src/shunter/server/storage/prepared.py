"""Statements of the dispatch path, compiled once: SQLAlchemy's own way costs as much again as the database does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa


class Prepared:
    """A statement that is compiled at its first use and then handed to the driver as text.

    For plain columns (text, numbers, booleans) only: values go to the driver as they are.
    """

    def __init__(self, statement: sa.Executable, columns: Sequence[str] = ()) -> None:
        """`columns`: those that an INSERT names; the database fills in the others."""
        self.statement = statement
        self.columns = list(columns) or None
        self._texts: dict[str, tuple[str, list[str] | None, dict[str, Any]]] = {}

    def run(self, connection: sa.Connection, values: Mapping[str, Any]) -> sa.CursorResult[Any]:
        text, order, fixed = self._texts.get(connection.dialect.name) or self._compile(connection)
        given: Any = {**fixed, **values}
        return connection.exec_driver_sql(text, given if order is None else tuple([given[name] for name in order]))

    def run_many(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            self.run(connection, row)

    def _compile(self, connection: sa.Connection) -> tuple[str, list[str] | None, dict[str, Any]]:
        compiled = self.statement.compile(dialect=connection.dialect, column_keys=self.columns)  # type: ignore[attr-defined]
        fixed = {name: value for name, value in compiled.params.items() if value is not None}
        found = str(compiled), list(compiled.positiontup) if compiled.positional else None, fixed
        self._texts[connection.dialect.name] = found
        return found
