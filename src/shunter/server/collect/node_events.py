"""What a node did for a run (an input brought, a checkpoint restored or found broken), kept among the run's events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shunter.model.run import Event, Run
from shunter.server.collect.metrics import whole_lines
from shunter.server.storage.metrics import Metrics
from shunter.server.storage.runs import SqlRuns

STREAM = "events"


class NodeEvents:
    """The handler of the stream `events`. A line becomes an event once, unless a crash falls between two writes."""

    def __init__(self, runs: SqlRuns, offsets: Metrics, on_change: Callable[[str], None] = lambda run_id: None) -> None:
        self.runs = runs
        self.offsets = offsets
        self.on_change = on_change
        #: Seconds that the clock of a launch's machine is ahead of ours.
        self.off: Callable[[str], float] = lambda launch_id: 0.0

    def __call__(self, run: Run, launch_id: str, path: Path) -> None:
        start = self.offsets.offset(launch_id, STREAM)
        for data, behind in whole_lines(path, start):
            for line in data.splitlines():
                found = read_event(run, line, self.off(launch_id))
                if found is not None:
                    self.runs.log(found)
            self.offsets.add((), launch_id, STREAM, behind)
            self.on_change(run.id)


def read_event(run: Run, line: bytes, off_seconds: float = 0.0) -> Event | None:
    """A line of the stream as an event in our time; None when it is none. Pure."""
    try:
        about: Any = json.loads(line)
        at, kind, reason = float(about.pop("at")), str(about.pop("kind")), str(about.pop("reason", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Event(run.id, at - off_seconds, kind[:32], run.status, reason[:2000], about)
