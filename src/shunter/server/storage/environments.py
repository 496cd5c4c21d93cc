"""Environments by name and version, and the locks that were made of them."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from shunter.errors import AlreadyExists, NotFound
from shunter.model.environment import Environment
from shunter.server.environments.resolve import Lock
from shunter.server.storage.database import Database
from shunter.server.storage.schema import environment_locks, environments


class Environments:
    def __init__(self, database: Database) -> None:
        self.database = database

    def add(self, workspace: str, environment: Environment, at: float) -> Environment:
        """Keep a version. Without one in the value: the next number, or the newest if that has the same content."""
        with self.database.begin() as connection:
            rows = connection.execute(_OF_NAME, {"workspace": workspace, "name": environment.name}).fetchall()
            if not environment.version:
                if rows and rows[-1].content_id == environment.content_id:
                    return _environment(rows[-1])
                numbers = [int(row.version) for row in rows if row.version.isdigit()]
                environment = environment.evolve(version=str(max(numbers, default=0) + 1))
            values = {
                "workspace": workspace, "name": environment.name, "version": environment.version, "created_at": at,
                "content": json.dumps(environment.to_wire()), "content_id": environment.content_id,
            }  # fmt: skip
            try:
                connection.execute(sa.insert(environments), values)
            except IntegrityError as error:
                raise AlreadyExists(
                    f"{environment.label} is there already.", hint="Leave out the version: the next number is taken."
                ) from error
        return environment

    def get(self, workspace: str, name: str, version: str = "") -> Environment | None:
        with self.database.read() as connection:
            rows = connection.execute(_OF_NAME, {"workspace": workspace, "name": name}).fetchall()
        for row in reversed(rows):
            if not version or row.version == version:
                return _environment(row)
        return None

    def list(self, workspace: str) -> list[tuple[Environment, float]]:
        """All versions, by name and age."""
        with self.database.read() as connection:
            rows = connection.execute(_ALL, {"workspace": workspace}).fetchall()
        return [(_environment(row), float(row.created_at)) for row in rows]

    def delete(self, workspace: str, name: str, version: str = "") -> int:
        query = sa.delete(environments).where(environments.c.workspace == workspace, environments.c.name == name)
        if version:
            query = query.where(environments.c.version == version)
        with self.database.begin() as connection:
            return int(connection.execute(query).rowcount)


class Locks:
    """Locks by request. What a run was given stays: a request that is solved again gets a new row in front."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def find(self, request: str) -> Lock | None:
        with self.database.read() as connection:
            row = connection.execute(_LOCK_BY_REQUEST, {"request": request}).first()
        return Lock.from_wire(json.loads(row.content)) if row else None

    def keep(self, request: str, lock: Lock, at: float = 0.0) -> Lock:
        import time

        values = {
            "request": request,
            "lock_id": lock.id,
            "content": json.dumps(lock.to_wire()),
            "created_at": at or time.time(),
        }
        with self.database.begin() as connection:
            connection.execute(sa.insert(environment_locks), values)
        return lock

    def get(self, lock_id: str) -> Lock:
        """A lock by its id, or the beginning of it."""
        with self.database.read() as connection:
            row = connection.execute(_LOCK_BY_ID, {"low": lock_id, "high": lock_id + "g"}).first()
        if row is None:
            raise NotFound(f"There is no lock {lock_id}.", hint="`shunter run show RUN` tells the lock of a run.")
        return Lock.from_wire(json.loads(row.content))


_OF_NAME = (
    sa.select(environments)
    .where(environments.c.workspace == sa.bindparam("workspace"), environments.c.name == sa.bindparam("name"))
    .order_by(environments.c.seq)
)
_ALL = (
    sa.select(environments)
    .where(environments.c.workspace == sa.bindparam("workspace"))
    .order_by(environments.c.name, environments.c.seq)
)
_LOCK_BY_REQUEST = (
    sa.select(environment_locks)
    .where(environment_locks.c.request == sa.bindparam("request"))
    .order_by(environment_locks.c.seq.desc())
    .limit(1)
)
_LOCK_BY_ID = (
    sa.select(environment_locks)
    .where(environment_locks.c.lock_id >= sa.bindparam("low"), environment_locks.c.lock_id < sa.bindparam("high"))
    .limit(1)
)


def _environment(row: Any) -> Environment:
    return Environment.from_wire({**json.loads(row.content), "name": row.name, "version": row.version})
