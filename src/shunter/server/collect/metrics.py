"""Takes in what scripts say, line by line and each line once: metrics, tags, properties, child runs."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from shunter.model.run import Run
from shunter.server.storage.metrics import NUMBER, Batch, Entry, Metrics

log = logging.getLogger("shunter.collect")

STREAM = "metrics"
#: What makes a run's id into that of a launch that there never is, for what came by none.
OUTSIDE = ".0.0"
READ_BYTES = 2 << 20
#: A longer line is not understood; it stays in the stored stream.
LONGEST_LINE = 32 << 20
MAX_NAME = 255
#: Among so many of a metric's last points one that is said from outside is looked for.
REPEATS = 10_000
_EXACT = 1 << 53
_STEP_LIMIT = 1 << 62
#: The kinds of entries beside numbers; anything else in a line is something to do.
ENTRY_KINDS = frozenset({"value", "list", "row", "table", "image", "object"})


class Says(Protocol):
    """What else a script may say about its run; every call may come twice."""

    def child(self, parent: Run, child_id: str, about: Mapping[str, Any], at: float) -> None: ...
    def family(self, run: Run) -> frozenset[str]: ...
    def change(self, run_id: str, kind: str, value: Any, at: float) -> None: ...


@dataclass(slots=True)
class Understood:
    """The lines of a chunk, sorted into points and things to do."""

    batches: dict[tuple[str, str, str], Batch] = field(default_factory=dict)
    todo: list[tuple[str, str, Any, float]] = field(default_factory=list)
    bad_lines: int = 0


class MetricIngest:
    """The handler of the stream `metrics`. Bytes are stored before it is called; it goes on where it had come to."""

    def __init__(self, store: Metrics, says: Says, on_points: Callable[[str], None] = lambda run_id: None) -> None:
        self.store = store
        self.says = says
        self.on_points = on_points
        #: Seconds that the clock of a launch's machine is ahead of ours.
        self.off: Callable[[str], float] = lambda launch_id: 0.0
        #: Points of a run are taken in by one at a time. Runs share locks, so that none need be forgotten.
        self._locks = [threading.Lock() for _ in range(64)]
        self._offsets: dict[str, int] = {}

    def __call__(self, run: Run, launch_id: str, path: Path) -> None:
        with self._alone(run.id):
            self._take_in(run, launch_id, path)
            if run.is_over:
                self._offsets.pop(launch_id, None)

    def hear(self, run: Run, lines: bytes) -> None:
        """Take in what somebody else than its launch says about a run, except what was said already: callers ask again."""
        found = understand(lines, run.id)
        with self._alone(run.id):
            self._act(run, found)
            self._leave_out_known(run.id, found.batches)
            self.store.add(list(found.batches.values()), run.id + OUTSIDE, STREAM, 0, found.bad_lines)
        self.on_points(run.id)

    def _leave_out_known(self, run_id: str, batches: dict[tuple[str, str, str], Batch]) -> None:
        for metric in self.store.list(run_id, [name for _, name, _ in batches]):
            batch = batches.get((run_id, metric.name, NUMBER))
            if metric.kind != NUMBER or batch is None:
                continue
            known = {_exactly(*point) for point in zip(*self.store.points(metric, max(0, metric.count - REPEATS)), strict=True)}
            new = zip(batch.numbers[0::3], batch.numbers[1::3], batch.numbers[2::3], strict=True)
            batch.numbers = [part for point in new if _exactly(*point) not in known for part in point]
        for key in [key for key, batch in batches.items() if not batch.numbers and not batch.entries]:
            del batches[key]

    def _alone(self, run_id: str) -> threading.Lock:
        return self._locks[hash(run_id) % len(self._locks)]

    def _take_in(self, run: Run, launch_id: str, path: Path) -> None:
        offset = self._offsets.get(launch_id)
        if offset is None:
            offset = self.store.offset(launch_id, STREAM)
        for data, behind in whole_lines(path, offset):
            found = understand(data, run.id)
            in_our_time(found, self.off(launch_id))
            self._act(run, found)
            try:
                self.store.add(list(found.batches.values()), launch_id, STREAM, behind, found.bad_lines)
            except BaseException:
                self._offsets.pop(launch_id, None)
                raise
            self._offsets[launch_id] = behind
            if found.bad_lines:
                log.warning("run %s: %d lines of its metrics could not be understood", run.id, found.bad_lines)
            for run_id in {key[0] for key in found.batches}:
                self.on_points(run_id)

    def _act(self, run: Run, found: Understood) -> None:
        """Do what was said, before it counts as understood. Lines about runs that are not this run's are dropped."""
        for run_id, kind, value, at in found.todo:
            if kind == "child" and isinstance(value, dict):
                self.says.child(run, run_id, value, at)
        others = {key[0] for key in found.batches} | {todo[0] for todo in found.todo}
        family = self.says.family(run) if others - {run.id} else frozenset()
        for run_id, kind, value, at in found.todo:
            if run_id == run.id or run_id in family:
                if kind != "child":
                    self.says.change(run_id, kind, value, at)
            else:
                found.bad_lines += 1
        for key in [k for k in found.batches if k[0] != run.id and k[0] not in family]:
            batch = found.batches.pop(key)
            found.bad_lines += len(batch.numbers) // 3 + len(batch.entries)


def _exactly(step: int, at: float, value: float) -> tuple[int, float, str]:
    return step, at, repr(float(value))  # NaN differs from itself


def whole_lines(path: Path, offset: int) -> Iterator[tuple[bytes, int]]:
    """The whole lines of a file from `offset` on, in chunks, each with the offset behind it."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(offset)
        held = b""
        while True:
            data = file.read(READ_BYTES)
            if not data:
                return
            held += data
            end = held.rfind(b"\n") + 1
            if end:
                chunk, held = held[:end], held[end:]
                offset += end
                yield chunk, offset
            elif len(held) > LONGEST_LINE:
                # Not a line of ours. Pass over it: what comes after its end can be understood again.
                offset += len(held)
                held = b""
                yield b"\n", offset


def understand(data: bytes, run_id: str) -> Understood:
    """Sort whole lines into points by metric, and things to do. Pure; a line that makes no sense is counted."""
    found = Understood()
    batches = found.batches
    for line in _parse(data):
        try:
            kind = line.get("k")
            value = line["v"]
            at = line["t"]
            of = line.get("r", run_id)
            if kind is None:
                name = line["n"]
                step = line.get("s")
                # The way of nearly every line.
                if type(value) is float or (type(value) is int and -_EXACT < value < _EXACT):
                    batch = batches.get((of, name, NUMBER))
                    if batch is None:
                        batch = _batch(batches, of, name, NUMBER)
                    if step is not None and not -_STEP_LIMIT < step < _STEP_LIMIT:
                        step = None
                    batch.numbers += (step, float(at), value)
                    continue
                kind = "value"
            else:
                step = line.get("s")
            if kind in ENTRY_KINDS:
                batch = _batch(batches, of, line["n"], kind)
                batch.entries.append(Entry(step, float(at), value, _so_far(batches, of, batch.name)))
            elif isinstance(of, str) and isinstance(kind, str):
                found.todo.append((of, kind, value, float(at)))
            else:
                found.bad_lines += 1
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            found.bad_lines += 1
    return found


def in_our_time(found: Understood, off_seconds: float) -> None:
    """Correct the times of a machine whose clock is `off_seconds` ahead of ours."""
    if not off_seconds:
        return
    for batch in found.batches.values():
        batch.numbers[1::3] = [at - off_seconds for at in batch.numbers[1::3]]
        batch.entries[:] = [entry._replace(at=entry.at - off_seconds) for entry in batch.entries]
    found.todo[:] = [(run_id, kind, value, at - off_seconds) for run_id, kind, value, at in found.todo]


def _batch(batches: dict[tuple[str, str, str], Batch], run_id: Any, name: Any, kind: str) -> Batch:
    if not isinstance(run_id, str) or not isinstance(name, str) or not name:
        raise ValueError("no name")
    key = (run_id, name, kind)
    found = batches.get(key)
    if found is None:
        clean = name.encode("utf-8", "replace").decode().replace("\0", "�")[:MAX_NAME]
        found = batches.get((run_id, clean, kind))
        if found is None:
            found = batches[(run_id, clean, kind)] = Batch(run_id, clean, kind)
    return found


def _so_far(batches: dict[tuple[str, str, str], Batch], run_id: str, name: str) -> int:
    """How many points of a name there are among these, of whatever kind."""
    several = [batches[key] for kind in (NUMBER, *ENTRY_KINDS) if (key := (run_id, name, kind)) in batches]
    return sum(len(batch.numbers) // 3 + len(batch.entries) for batch in several)


def _parse(data: bytes) -> Iterator[Any]:
    lines = data.count(b"\n")
    try:
        # All at once is several times quicker than line by line; a torn line makes it fail, or changes the count.
        found = json.loads(b"[" + data[:-1].replace(b"\n", b",") + b"]")
        if len(found) == lines:
            yield from found
            return
    except ValueError:
        pass
    for line in data.split(b"\n"):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError:
                yield None
