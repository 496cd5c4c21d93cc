"""Interactive runs: launched nowhere. A program somewhere logs into one as a script does into its own, and ends it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shunter.errors import AlreadyExists, Conflict, StaleState
from shunter.model.names import check_run_id, check_title
from shunter.model.run import Event, Run, RunError, Status, launch_id
from shunter.server.dispatch.moves import move

if TYPE_CHECKING:
    from shunter.server.services.parts import Parts

log = logging.getLogger("shunter.interactive")

#: What marks such a run.
INTERACTIVE = "interactive"
#: The program says that it is there more often than this; after so long it does not respond, and after so long it is lost.
SILENT_SECONDS = 120.0
LOST_SECONDS = 3600.0
LOOK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Begin:
    """What a program says when it begins. The id is minted by it: sending it again begins once."""

    id: str
    workspace: str
    experiment: str
    name: str = ""
    snapshot_id: str = ""
    tags: Mapping[str, str] | None = None
    properties: Mapping[str, Any] | None = None


def start_logging(parts: Parts, asked: Begin) -> Run:
    """A run that is running from now on. It takes no slot of any target."""
    check_run_id(asked.id)
    check_title("experiment", asked.experiment)
    if asked.name:
        check_title("run", asked.name)
    parts.workspaces.check(asked.workspace)
    if asked.snapshot_id:
        parts.snapshots.require(asked.snapshot_id)
    now = parts.clock()
    run = Run(
        id=asked.id, workspace=asked.workspace, experiment=asked.experiment, name=asked.name, target="local",
        status=Status.RUNNING, snapshot_id=asked.snapshot_id, script="", arguments=(), config={INTERACTIVE: True},
        submitted_at=now, since=now, slots=0, attempt=1, started_at=now, reason="A program logs into it.",
        tags=dict(asked.tags or {}), properties=dict(asked.properties or {}),
    )  # fmt: skip
    try:
        run = parts.runs.add(run, Event(run.id, now, "state", run.status, run.reason, {}))
    except AlreadyExists:
        return parts.runs.get(asked.id)
    parts.context.interactive.heard(run.id)
    return run


def report(parts: Parts, run_id: str, body: bytes) -> dict[str, Any]:
    """Take in what the program said, as a launcher reports it, and answer how much of it is held."""
    run = parts.runs.get(run_id)
    if not run.config.get(INTERACTIVE):
        raise Conflict(f"Run {run_id[:8]} is not interactive: only its own launcher reports for it.")
    if run.is_over:
        raise Conflict(f"Run {run_id[:8]} is over: it is {run.status}.", hint="Start a new one.")
    parts.context.interactive.heard(run_id)
    try:
        return parts.ingest.receive(launch_id(run_id, 1, 0), body)
    finally:
        parts.dispatch.forget(run_id)  # it may have ended by its own word, which dispatch does not hear


class Watch:
    """Looks after interactive runs whose program fell silent: nobody else would ever end them."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.pause = threading.Event()
        self._heard: dict[str, float] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        for run in parts.runs.placed():
            if run.config.get(INTERACTIVE):
                self.heard(run.id)

    def heard(self, run_id: str) -> None:
        self._heard[run_id] = self.parts.clock()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, daemon=True, name="interactive")
                self._thread.start()

    def look(self) -> None:
        """Once over all of them."""
        now = self.parts.clock()
        for run_id, at in list(self._heard.items()):
            try:
                run = self.parts.runs.get(run_id)
                moved = on_silence(run, now - at, now)
                if moved is not None:
                    run = self.parts.runs.apply(moved[0], run, (), (moved[1],))
                    self.parts.dispatch.forget(run_id)
                    self.parts.dispatch.on_change(run)
            except StaleState:
                continue
            if run.is_over:
                self._heard.pop(run_id, None)

    def _watch(self) -> None:
        while True:
            self.pause.wait(LOOK_SECONDS)
            try:
                self.look()
            except Exception:
                log.exception("interactive runs could not be looked at")
            with self._lock:
                if not self._heard:
                    self._thread = None
                    return


def on_silence(run: Run, silent: float, now: float) -> tuple[Run, Event] | None:
    """What becomes of a run whose program has said nothing for so long. Pure."""
    if run.is_over:
        return None
    if silent >= LOST_SECONDS:
        words = f"The program that logged into it has said nothing for {silent / 60:.0f} minutes."
        return move(run, Status.FAILED, now, words, ended_at=now - silent, error=RunError("program_lost", words))
    if silent >= SILENT_SECONDS and run.status == Status.RUNNING:
        return move(run, Status.NOT_RESPONDING, now, f"The program that logs into it has said nothing for {silent:.0f} s.")
    if silent < SILENT_SECONDS and run.status == Status.NOT_RESPONDING:
        return move(run, Status.RUNNING, now, "The program that logs into it is back.")
    return None


