"""Compute targets."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from shunter.errors import AlreadyExists, NotFound, StaleState, nearest
from shunter.model.compute import Compute
from shunter.server.storage.database import Database
from shunter.server.storage.schema import computes


class Computes:
    def __init__(self, database: Database) -> None:
        self.database = database

    def add(self, compute: Compute) -> Compute:
        try:
            with self.database.begin() as connection:
                connection.execute(sa.insert(computes), _row(compute))
        except IntegrityError as error:
            raise AlreadyExists(
                f"There is a compute target {compute.name!r} already.", hint="Take another name, or use it as it is."
            ) from error
        return compute

    def get(self, workspace: str, name: str) -> Compute:
        query = sa.select(computes).where(computes.c.workspace == workspace, computes.c.name == name)
        with self.database.read() as connection:
            row = connection.execute(query).first()
        if row is None:
            known = [c.name for c in self.list(workspace)]
            raise NotFound(f"There is no compute target {name!r}.", hint=nearest(name, known))
        return _compute(row)

    def list(self, workspace: str | None = None) -> list[Compute]:
        query = sa.select(computes).order_by(computes.c.workspace, computes.c.name)
        if workspace is not None:
            query = query.where(computes.c.workspace == workspace)
        with self.database.read() as connection:
            return [_compute(row) for row in connection.execute(query)]

    def update(self, compute: Compute) -> Compute:
        """Write it if nobody changed it since it was read."""
        changed = compute.evolve(version=compute.version + 1)
        query = sa.update(computes).where(
            computes.c.workspace == compute.workspace,
            computes.c.name == compute.name,
            computes.c.version == compute.version,
        )
        with self.database.begin() as connection:
            if not connection.execute(query.values(**_row(changed))).rowcount:
                raise StaleState(f"The compute target {compute.name!r} was changed by somebody else.")
        return changed

    def delete(self, workspace: str, name: str) -> None:
        with self.database.begin() as connection:
            connection.execute(sa.delete(computes).where(computes.c.workspace == workspace, computes.c.name == name))


_JSON = ("config", "facts", "tags")


def _row(compute: Compute) -> dict[str, Any]:
    row = asdict(compute)
    return row | {name: json.dumps(row[name]) for name in _JSON}


def _compute(row: Any) -> Compute:
    values = dict(row._mapping)
    return Compute(**{k: json.loads(v) if k in _JSON else v for k, v in values.items()})
