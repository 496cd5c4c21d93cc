"""Runs that a script makes below its own, and what it says about them: they live and end by its word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shunter.errors import AlreadyExists, NameInvalid, NotFound, StaleState
from shunter.model.names import check_run_id
from shunter.model.run import Event, Run, RunError, Status
from shunter.server.dispatch.moves import move
from shunter.server.services.interactive import INTERACTIVE
from shunter.server.storage.runs import SqlRuns

MOST_CHILDREN = 10_000
#: Properties of this prefix are what the script logged as parameters.
PARAM = "param."


class ScriptSays:
    """Does what lines of the stream `metrics` say. Every call may come twice: the second changes nothing."""

    def __init__(
        self, runs: SqlRuns, clock: Callable[[], float], on_change: Callable[[Run], None] = lambda run: None
    ) -> None:
        self.runs = runs
        self.clock = clock
        self.on_change = on_change
        self._families: dict[str, set[str]] = {}
        self._open_parents: set[str] | None = None

    def child(self, parent: Run, child_id: str, about: Mapping[str, Any], at: float) -> None:
        """A script made a child run. It is running from then on; it takes no slot of its own."""
        try:
            check_run_id(child_id)
        except NameInvalid:
            return
        family = self._family(parent)
        above = str(about.get("parent") or parent.id)
        if child_id in family or len(family) >= MOST_CHILDREN or not (above == parent.id or above in family):
            return
        tags = {str(k): str(v) for k, v in dict(about.get("tags") or {}).items()}
        run = Run(
            id=child_id, workspace=parent.workspace, experiment=parent.experiment,
            name=str(about.get("name") or "")[:200], target=parent.target, status=Status.RUNNING,
            snapshot_id=parent.snapshot_id, script=parent.script, arguments=parent.arguments,
            config={"made_by_script": True}, submitted_at=at, since=at, slots=0,
            parent_id=above, started_at=at, reason="Started by its parent's script.", tags=tags,
        )  # fmt: skip
        try:
            run = self.runs.add(run, Event(run.id, at, "state", run.status, run.reason, {}))
        except AlreadyExists:
            found = self.runs.get(child_id)
            if found.parent_id != above or not found.config.get("made_by_script"):
                return  # somebody else's run: not to be touched
            run = found
        family.add(child_id)
        self._parents().add(above)
        self.on_change(run)

    def family(self, run: Run) -> frozenset[str]:
        """The runs that this run's script made, and theirs."""
        return frozenset(self._family(run))

    def change(self, run_id: str, kind: str, value: Any, at: float) -> None:
        if kind in ("tags", "properties") and isinstance(value, dict):
            self._merge(run_id, kind, {str(k)[:255]: str(v) for k, v in value.items()})
        elif kind == "params" and isinstance(value, dict):
            # MLflow's parameters, written once as properties are.
            self._merge(run_id, "properties", {PARAM + str(k): str(v) for k, v in value.items()})
        elif kind == "name" and isinstance(value, str) and value:
            self.runs.change(run_id, name=value[:200])
        elif kind == "untag" and isinstance(value, list):
            run = self.runs.get(run_id)
            self.runs.change(run_id, tags={k: v for k, v in run.tags.items() if k not in value})
        elif kind in _ENDS:
            words = value if isinstance(value, dict) else {}
            self._end(run_id, _ENDS[kind], at, words)

    def on_parent_over(self, parent: Run) -> None:
        """What a script left open ends with it, as it did."""
        if not parent.is_over or parent.id not in self._parents():
            return
        for child in self.runs.list(parent.workspace, parent_id=parent.id, limit=MOST_CHILDREN):
            if child.config.get("made_by_script"):
                if not child.is_over:
                    words = {"code": "parent_over", "message": f"Its parent ended as {parent.status}."}
                    self._end(child.id, parent.status, parent.ended_at or self.clock(), words, by_parent=True)
                self.on_parent_over(self.runs.get(child.id))
        self._families.pop(parent.id, None)
        self._parents().discard(parent.id)

    def catch_up(self) -> None:
        """At the start of a server: one before it may have died between a run's end and that of its children."""
        for parent_id in list(self._parents()):
            try:
                self.on_parent_over(self.runs.get(parent_id))
            except NotFound:
                continue

    def _parents(self) -> set[str]:
        """Runs with children that a script made: nearly always none, and then an ending run costs nothing here."""
        if self._open_parents is None:
            self._open_parents = {run.parent_id for run in self.runs.placed() if run.slots == 0 and run.parent_id}
        return self._open_parents

    def _family(self, run: Run) -> set[str]:
        found = self._families.get(run.id)
        if found is None:
            found = set()
            todo = [run.id]
            while todo:
                for child in self.runs.list(run.workspace, parent_id=todo.pop(), limit=MOST_CHILDREN):
                    if child.config.get("made_by_script"):
                        found.add(child.id)
                        todo.append(child.id)
            self._families[run.id] = found
        return found

    def _merge(self, run_id: str, column: str, new: Mapping[str, str]) -> None:
        run = self.runs.get(run_id)
        old: Mapping[str, Any] = getattr(run, column)
        # Properties are written once: what is there stays.
        merged = {**new, **old} if column == "properties" else {**old, **new}
        if merged != dict(old):
            self.runs.change(run_id, **{column: merged})

    def _end(self, run_id: str, to: Status, at: float, words: Mapping[str, Any], by_parent: bool = False) -> None:
        """Only runs that a script made end by its word, and interactive ones; its own ends with the script."""
        for _ in range(3):
            try:
                run = self.runs.get(run_id)
            except NotFound:
                return
            if run.is_over or not (run.config.get("made_by_script") or run.config.get(INTERACTIVE)):
                return
            error = None
            if to == Status.FAILED:
                error = RunError(str(words.get("code") or "script_said_so"), str(words.get("message") or "")[:2000])
            reason = (error.message if error else "") or (
                "Ended with its parent." if by_parent
                else "The program that logs into it says so." if run.config.get(INTERACTIVE)
                else "Its script says so."
            )
            moved, event = move(run, to, at, reason, ended_at=at, error=error)
            try:
                written = self.runs.apply(moved, run, (), (event,))
            except StaleState:
                continue
            self.on_change(written)
            if run.config.get(INTERACTIVE):
                self.on_parent_over(written)
            return


_ENDS = {"complete": Status.COMPLETED, "fail": Status.FAILED, "cancel": Status.CANCELED}
