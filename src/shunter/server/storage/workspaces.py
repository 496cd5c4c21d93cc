"""Workspaces and the experiments in them."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from shunter.errors import AlreadyExists, NotFound, nearest
from shunter.server.storage.database import Database
from shunter.server.storage.schema import experiments, workspaces

DEFAULT = "default"


class Workspaces:
    def __init__(self, database: Database) -> None:
        self.database = database
        self._known: set[str] = set()

    def add(self, name: str, now: float, exist_ok: bool = False) -> None:
        try:
            with self.database.begin() as connection:
                connection.execute(sa.insert(workspaces).values(name=name, created_at=now))
        except IntegrityError as error:
            if not exist_ok:
                raise AlreadyExists(f"There is a workspace {name!r} already.", hint="`exist_ok=True` takes it.") from error

    def check(self, name: str) -> None:
        """Raise NotFound for a workspace that is not there."""
        if name in self._known:
            return
        names = [w["name"] for w in self.list()]
        if name not in names:
            raise NotFound(f"There is no workspace {name!r}.", hint=nearest(name, names))
        self._known.update(names)

    def list(self) -> list[dict[str, Any]]:
        with self.database.read() as connection:
            rows = connection.execute(sa.select(workspaces).order_by(workspaces.c.name))
            return [
                {"name": r.name, "created_at": r.created_at, "settings": json.loads(r.settings), "tags": json.loads(r.tags)}
                for r in rows
            ]

    def get(self, name: str) -> dict[str, Any]:
        self.check(name)
        return next(w for w in self.list() if w["name"] == name)

    def change(self, name: str, settings: dict[str, Any]) -> dict[str, Any]:
        merged = {k: v for k, v in {**self.get(name)["settings"], **settings}.items() if v is not None}
        with self.database.begin() as connection:
            connection.execute(
                sa.update(workspaces).where(workspaces.c.name == name).values(settings=json.dumps(merged))
            )
        return self.get(name)


class Experiments:
    def __init__(self, database: Database) -> None:
        self.database = database

    def list(self, workspace: str) -> list[dict[str, Any]]:
        query = sa.select(experiments).where(experiments.c.workspace == workspace).order_by(experiments.c.name)
        with self.database.read() as connection:
            return [
                {"name": r.name, "created_at": r.created_at, "runs": r.last_number, "tags": json.loads(r.tags)}
                for r in connection.execute(query)
            ]

    def get(self, workspace: str, name: str) -> dict[str, Any]:
        found = self.list(workspace)
        for experiment in found:
            if experiment["name"] == name:
                return experiment
        raise NotFound(f"There is no experiment {name!r}.", hint=nearest(name, [e["name"] for e in found]))

    def add(self, workspace: str, name: str, now: float) -> None:
        try:
            with self.database.begin() as connection:
                connection.execute(sa.insert(experiments).values(workspace=workspace, name=name, created_at=now))
        except IntegrityError:
            pass
