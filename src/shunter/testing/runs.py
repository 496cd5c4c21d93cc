"""A store of runs in memory: the same promises as `SqlRuns`, for tests of dispatch."""

from __future__ import annotations

from collections.abc import Sequence

from shunter.errors import AlreadyExists, NotFound, StaleState
from shunter.model.run import PLACED, WAITING, Event, Launch, Run, Status


class MemoryRuns:
    """`RunStore` without a database. `apply` is all or nothing and guarded by the version, as the real one."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.kept: dict[str, dict[str, Launch]] = {}
        self.happened: list[Event] = []

    def add(self, run: Run, event: Event) -> Run:
        if run.id in self.runs:
            raise AlreadyExists(f"A run with the id {run.id} is there already.")
        self.runs[run.id] = run
        self.kept[run.id] = {}
        self.happened.append(event)
        return run

    def get(self, run_id: str) -> Run:
        if run_id not in self.runs:
            raise NotFound(f"There is no run {run_id}.")
        return self.runs[run_id]

    def launches(self, run_id: str) -> list[Launch]:
        return list(self.kept[run_id].values())

    def queued(self, workspace: str, target: str, limit: int) -> list[Run]:
        found = [r for r in self.runs.values()
                 if r.status == Status.QUEUED and (r.workspace, r.target) == (workspace, target)]  # fmt: skip
        return sorted(found, key=lambda r: (-r.priority, r.submitted_at))[:limit]

    def placed(self) -> list[Run]:
        return [r for r in self.runs.values() if r.status in PLACED]

    def slots_in_use(self, workspace: str, target: str) -> list[tuple[str, int]]:
        return [(r.id, r.slots * r.node_count) for r in self.placed() if (r.workspace, r.target) == (workspace, target)]

    def queues(self) -> list[tuple[str, str]]:
        return sorted({(r.workspace, r.target) for r in self.runs.values() if r.status in WAITING})

    def apply(self, run: Run, before: Run, changed: Sequence[Launch] = (), happened: Sequence[Event] = ()) -> Run:
        if self.runs[run.id].version != before.version:
            raise StaleState(f"Run {run.id} has moved on from version {before.version}.")
        run = run.evolve(version=before.version + 1)
        self.runs[run.id] = run
        for launch in changed:
            self.kept[run.id][launch.id] = launch
        self.happened.extend(happened)
        return run
