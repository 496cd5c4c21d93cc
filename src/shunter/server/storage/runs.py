"""Runs, their launches and their events. The dispatch path: statements are built once, one call is one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from shunter.errors import AlreadyExists, NotFound, StaleState
from shunter.model.run import (
    PLACED,
    WAITING,
    Event,
    Launch,
    LaunchState,
    Outcome,
    Run,
    RunError,
    Status,
)
from shunter.server.storage.database import Database
from shunter.server.storage.prepared import Prepared
from shunter.server.storage.schema import events, experiments, launches, runs


class RunStore(Protocol):
    """What dispatch and collect need of a store. `testing.MemoryRuns` is the other implementation."""

    def add(self, run: Run, event: Event) -> Run: ...
    def get(self, run_id: str) -> Run: ...
    def launches(self, run_id: str) -> list[Launch]: ...
    def queued(self, workspace: str, target: str, limit: int) -> list[Run]: ...
    def placed(self) -> list[Run]: ...
    def slots_in_use(self, workspace: str, target: str) -> list[tuple[str, int]]: ...
    def queues(self) -> list[tuple[str, str]]: ...

    def apply(self, run: Run, before: Run, changed: Sequence[Launch] = (), happened: Sequence[Event] = ()) -> Run:
        """Write `run` if nobody moved it since `before`, with launches and events, all or nothing; else StaleState."""
        ...


class SqlRuns:
    def __init__(self, database: Database) -> None:
        self.database = database
        #: Called with the id of every run that was added, changed or deleted.
        self.on_write: Callable[[str], None] = lambda run_id: None

    def add(self, run: Run, event: Event) -> Run:
        """Add a run and give it its number in the experiment. The same id twice is refused: AlreadyExists."""
        key = {"workspace": run.workspace, "name": run.experiment}
        with self.database.begin() as connection:
            found = _NEXT_NUMBER.run(connection, {"b_" + k: v for k, v in key.items()}).scalar()
            if found is None:
                connection.execute(sa.insert(experiments), key | {"created_at": run.submitted_at, "last_number": 1})
                found = 1
            run = run.evolve(number=found, name=run.name or f"{run.experiment}-{found}")
            try:
                _ADD.run(connection, _row(run) | {"alias": run.alias})
            except IntegrityError as error:
                raise AlreadyExists(f"A run with the id {run.id} is there already.") from error
            _ADD_EVENT.run(connection, _event_row(event))
        self.on_write(run.id)
        return run

    def get(self, run_id: str) -> Run:
        with self.database.read() as connection:
            row = _GET.run(connection, {"id": run_id}).first()
        if row is None:
            raise NotFound(f"There is no run {run_id}.", hint="`shunter run list` shows the newest.")
        return _run(row)

    def get_many(self, run_ids: Sequence[str]) -> list[Run]:
        """These runs, in any order; NotFound when one is not there."""
        found: list[Run] = []
        with self.database.read() as connection:
            for start in range(0, len(run_ids), 500):
                part = list(run_ids[start : start + 500])
                found += [_run(row) for row in connection.execute(_GET_MANY, {"ids": part})]
        for missing in set(run_ids) - {run.id for run in found}:
            raise NotFound(f"There is no run {missing}.", hint="`shunter run list` shows the newest.")
        return found

    def launches(self, run_id: str) -> list[Launch]:
        with self.database.read() as connection:
            return [_launch(row) for row in _LAUNCHES.run(connection, {"run_id": run_id})]

    def queued(self, workspace: str, target: str, limit: int) -> list[Run]:
        """The head of the queue: by priority, then by age. Its cost does not depend on the queue's length."""
        with self.database.read() as connection:
            rows = _QUEUED.run(connection, {"workspace": workspace, "target": target, "limit": limit})
            return [_run(row) for row in rows]

    def placed(self) -> list[Run]:
        with self.database.read() as connection:
            return [_run(row) for row in connection.execute(_PLACED)]

    def slots_in_use(self, workspace: str, target: str) -> list[tuple[str, int]]:
        """The runs that are on a target, with the slots each holds."""
        with self.database.read() as connection:
            rows = _IN_USE.run(connection, {"workspace": workspace, "target": target})
            return [(row.id, row.slots * row.node_count) for row in rows]

    def queues(self) -> list[tuple[str, str]]:
        with self.database.read() as connection:
            return [(row.workspace, row.target) for row in connection.execute(_QUEUES)]

    def apply(self, run: Run, before: Run, changed: Sequence[Launch] = (), happened: Sequence[Event] = ()) -> Run:
        run = run.evolve(version=before.version + 1)
        with self.database.begin() as connection:
            row = _row(run)
            # Only what the state machine owns: any other column given here would be set too, over what others changed.
            state = {name: row[name] for name in _STATE_COLUMNS}
            result = _UPDATE.run(connection, state | {"b_id": run.id, "b_version": before.version})
            if result.rowcount != 1:
                raise StaleState(f"Run {run.id} has moved on from version {before.version}.")
            for launch in changed:
                row = _launch_row(launch)
                is_new = launch.attempt > before.attempt
                if is_new or not _UPDATE_LAUNCH.run(connection, row).rowcount:
                    _ADD_LAUNCH.run(connection, row)
            _ADD_EVENT.run_many(connection, [_event_row(event) for event in happened])
        self.on_write(run.id)
        return run

    def change(self, run_id: str, **columns: Any) -> Run:
        """Set what is not part of the state machine (tags, properties, name) and return the run."""
        values = {k: json.dumps(_sayable(v)) if k in _JSON else _sayable(v) for k, v in columns.items()}
        with self.database.begin() as connection:
            if not connection.execute(sa.update(runs).where(runs.c.id == run_id).values(**values)).rowcount:
                raise NotFound(f"There is no run {run_id}.")
        self.on_write(run_id)
        return self.get(run_id)

    def log(self, event: Event) -> None:
        with self.database.begin() as connection:
            _ADD_EVENT.run(connection, _event_row(event))

    def events(self, run_id: str) -> list[Event]:
        with self.database.read() as connection:
            return [_event(row) for row in _EVENTS.run(connection, {"run_id": run_id})]

    def find(self, text: str, workspace: str | None = None) -> Run:
        """A run by its id, the beginning of it, its first-SDK id, or its name (the newest of that name)."""
        with self.database.read() as connection:
            rows = connection.execute(_FIND, {"id": text, "low": text, "high": text + "g"}).fetchall()
            if not rows:
                named = sa.select(runs).where(runs.c.name == text).order_by(runs.c.submitted_at.desc()).limit(1)
                if workspace:  # as an expression: SQLite would take the index of workspaces, and look at every run in it
                    named = named.where(runs.c.workspace.concat("") == workspace)
                rows = connection.execute(named).fetchall()
        exact = [row for row in rows if text in (row.id, row.alias)]
        found = exact or rows
        if not found:
            raise NotFound(f"There is no run {text!r}.", hint="`shunter run list` shows the newest.")
        if len(found) > 1:
            shown = ", ".join(row.id[:12] for row in found[:5])
            raise NotFound(f"Several runs begin with {text!r}: {shown}.", hint="Give a few more digits.")
        return _run(found[0])

    def list(
        self,
        workspace: str,
        *,
        experiment: str | None = None,
        target: str | None = None,
        statuses: Iterable[Status] = (),
        parent_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        before: float | None = None,
        limit: int = 50,
    ) -> list[Run]:
        """The newest first. `before`: only runs submitted before that time, to page on."""
        query = sa.select(runs).where(runs.c.workspace == workspace).order_by(runs.c.submitted_at.desc()).limit(limit)
        if experiment is not None:
            query = query.where(runs.c.experiment == experiment)
        if target is not None:
            query = query.where(runs.c.target == target)
        if parent_id is not None:
            query = query.where(runs.c.parent_id == parent_id)
        if before is not None:
            query = query.where(runs.c.submitted_at < before)
        wanted = [str(s) for s in statuses]
        if wanted:
            query = query.where(runs.c.status.in_(wanted))
        for name, value in (tags or {}).items():
            query = query.where(runs.c.tags.contains(f"{json.dumps(name)}: {json.dumps(value)}", autoescape=True))
        with self.database.read() as connection:
            return [_run(row) for row in connection.execute(query)]

    def count_by_status(self, workspace: str, experiment: str | None = None) -> dict[str, int]:
        query = sa.select(runs.c.status, sa.func.count()).where(runs.c.workspace == workspace).group_by(runs.c.status)
        if experiment is not None:
            query = query.where(runs.c.experiment == experiment)
        with self.database.read() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def ahead_of(self, run: Run) -> int:
        """How many runs wait before this one."""
        with self.database.read() as connection:
            return connection.execute(_AHEAD, {"workspace": run.workspace, "target": run.target,
                                               "priority": run.priority, "at": run.submitted_at}).scalar() or 0  # fmt: skip

    def delete(self, run_id: str) -> None:
        with self.database.begin() as connection:
            for table in (events, launches):
                connection.execute(sa.delete(table).where(table.c.run_id == run_id))
            connection.execute(sa.delete(runs).where(runs.c.id == run_id))
        self.on_write(run_id)

    def uses_snapshot(self, snapshot_id: str) -> bool:
        query = sa.select(runs.c.id).where(runs.c.snapshot_id == snapshot_id).limit(1)
        with self.database.read() as connection:
            return connection.execute(query).first() is not None


_JSON = {"arguments", "config", "tags", "properties", "usage"}
_COLUMNS = [c.name for c in runs.c if c.name != "alias"]

_NEXT_NUMBER = Prepared(
    sa.update(experiments)
    .where(experiments.c.workspace == sa.bindparam("b_workspace"), experiments.c.name == sa.bindparam("b_name"))
    .values(last_number=experiments.c.last_number + 1)
    .returning(experiments.c.last_number)
)
_ADD = Prepared(sa.insert(runs).inline(), [c.name for c in runs.c])
_GET = Prepared(sa.select(runs).where(runs.c.id == sa.bindparam("id")))
_STATE_COLUMNS = (
    "status", "attempt", "exit_code", "reason", "error", "since", "started_at", "ended_at", "deadline_at",
    "cancel_requested", "usage", "version",
)  # fmt: skip
_GET_MANY = sa.select(runs).where(runs.c.id.in_(sa.bindparam("ids", expanding=True)))
_UPDATE = Prepared(
    sa.update(runs)
    .where(runs.c.id == sa.bindparam("b_id"), runs.c.version == sa.bindparam("b_version"))
    .values({name: sa.bindparam(name) for name in _STATE_COLUMNS})
)
_LAUNCHES = Prepared(
    sa.select(launches)
    .where(launches.c.run_id == sa.bindparam("run_id"))
    .order_by(launches.c.attempt, launches.c.node_index)
)
_ADD_LAUNCH = Prepared(sa.insert(launches).inline(), [c.name for c in launches.c])
_UPDATE_LAUNCH = Prepared(
    sa.update(launches)
    .where(
        launches.c.run_id == sa.bindparam("b_run_id"),
        launches.c.attempt == sa.bindparam("b_attempt"),
        launches.c.node_index == sa.bindparam("b_node_index"),
    )
    .values({
        name: sa.bindparam(name)
        for name in ("state", "node", "handle", "started_at", "ended_at", "outcome", "evidence")
    })
)  # fmt: skip
_ADD_EVENT = Prepared(sa.insert(events).inline(), [c.name for c in events.c if c.name != "seq"])
_EVENTS = Prepared(sa.select(events).where(events.c.run_id == sa.bindparam("run_id")).order_by(events.c.seq))
_BY_QUEUE = (
    runs.c.workspace == sa.bindparam("workspace"),
    runs.c.target == sa.bindparam("target"),
    runs.c.status == str(Status.QUEUED),
)
_QUEUED = Prepared(
    sa.select(runs)
    .where(*_BY_QUEUE)
    .order_by(runs.c.priority.desc(), runs.c.submitted_at)
    .limit(sa.bindparam("limit"))
)
_AHEAD = (
    sa.select(sa.func.count())
    .select_from(runs)
    .where(
        *_BY_QUEUE,
        sa.or_(
            runs.c.priority > sa.bindparam("priority"),
            sa.and_(runs.c.priority == sa.bindparam("priority"), runs.c.submitted_at < sa.bindparam("at")),
        ),
    )
)
_PLACED = sa.select(runs).where(runs.c.status.in_([str(s) for s in PLACED]))
_IN_USE = Prepared(
    sa.select(runs.c.id, runs.c.slots, runs.c.node_count).where(
        runs.c.workspace == sa.bindparam("workspace"),
        runs.c.target == sa.bindparam("target"),
        sa.or_(*(runs.c.status == str(s) for s in PLACED)),
    )
)
_QUEUES = sa.select(runs.c.workspace, runs.c.target).where(runs.c.status.in_([str(s) for s in WAITING])).distinct()
_FIND = (
    sa.select(runs)
    .where(
        sa.or_(
            runs.c.id == sa.bindparam("id"),
            runs.c.alias == sa.bindparam("id"),
            sa.and_(runs.c.id >= sa.bindparam("low"), runs.c.id < sa.bindparam("high")),
        )
    )
    .limit(6)
)


def _sayable(value: Any) -> Any:
    """Half a character, as a script may say one, is nothing that an answer could carry: it becomes a question mark."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _row(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "workspace": run.workspace,
        "experiment": run.experiment,
        "name": run.name,
        "number": run.number,
        "target": run.target,
        "status": str(run.status),
        "snapshot_id": run.snapshot_id,
        "script": run.script,
        "arguments": json.dumps(run.arguments),
        "config": json.dumps(run.config),
        "node_count": run.node_count,
        "slots": run.slots,
        "attempt": run.attempt,
        "max_attempts": run.max_attempts,
        "parent_id": run.parent_id,
        "priority": run.priority,
        "exit_code": run.exit_code,
        "reason": run.reason,
        "error": json.dumps(asdict(run.error)) if run.error else None,
        "submitted_at": run.submitted_at,
        "since": run.since,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "deadline_at": run.deadline_at,
        "cancel_requested": run.cancel_requested,
        "tags": json.dumps(dict(run.tags)),
        "properties": json.dumps(dict(run.properties)),
        "usage": json.dumps(dict(run.usage)),
        "version": run.version,
    }


def _run(row: Any) -> Run:
    values = {name: getattr(row, name) for name in _COLUMNS}
    for name in _JSON:
        values[name] = json.loads(values[name])
    values["arguments"] = tuple(values["arguments"])
    values["status"] = Status(values["status"])
    values["cancel_requested"] = bool(values["cancel_requested"])
    values["error"] = RunError(**json.loads(values["error"])) if values["error"] else None
    return Run(**values)


def _launch_row(launch: Launch) -> dict[str, Any]:
    key = {"run_id": launch.run_id, "attempt": launch.attempt, "node_index": launch.node_index}
    return key | {"b_" + k: v for k, v in key.items()} | {
        "state": str(launch.state),
        "node": launch.node,
        "handle": json.dumps(dict(launch.handle)),
        "intended_at": launch.intended_at,
        "started_at": launch.started_at,
        "ended_at": launch.ended_at,
        "outcome": json.dumps(launch.outcome.to_wire()) if launch.outcome else None,
        "evidence": launch.evidence,
    }  # fmt: skip


def _launch(row: Any) -> Launch:
    return Launch(
        run_id=row.run_id,
        attempt=row.attempt,
        node_index=row.node_index,
        state=LaunchState(row.state),
        node=row.node,
        handle=json.loads(row.handle),
        intended_at=row.intended_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        outcome=Outcome.from_wire(json.loads(row.outcome)) if row.outcome else None,
        evidence=row.evidence,
    )


def _event_row(event: Event) -> dict[str, Any]:
    return {
        "run_id": event.run_id,
        "at": event.at,
        "kind": event.kind,
        "status": str(event.status),
        "reason": event.reason,
        "data": json.dumps(dict(event.data)),
    }


def _event(row: Any) -> Event:
    return Event(
        run_id=row.run_id,
        at=row.at,
        kind=row.kind,
        status=Status(row.status),
        reason=row.reason,
        data=json.loads(row.data),
        seq=row.seq,
    )
