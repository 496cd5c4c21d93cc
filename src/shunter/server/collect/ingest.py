"""Takes in what launchers report: streams by offset, state messages, files. One report is one answer: what we hold."""

from __future__ import annotations

import json
import logging
import os
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from shunter.drivers.base import Driver
from shunter.errors import ServerError, ShunterError, UsageError
from shunter.model.clock import in_our_time
from shunter.model.run import Launch, Outcome, Run, parse_launch_id
from shunter.server.collect.arrivals import Arrivals
from shunter.server.collect.clocks import Clocks
from shunter.server.collect.masking import Masker
from shunter.server.collect.streams import Handlers
from shunter.server.dispatch import reconcile
from shunter.server.dispatch.loop import Dispatcher
from shunter.server.storage.files import RunFiles, check_path

log = logging.getLogger("shunter.collect")

MOST_BYTES = 64 << 20
STREAMS = ("log", "usage", "events", "metrics")


class Ingest:
    def __init__(
        self,
        files: RunFiles,
        handlers: Handlers,
        clock: Callable[[], float],
        on_stream: Callable[[str], None] = lambda run_id: None,
        node_folder: Callable[[Run, Launch], Path | None] = lambda run, launch: None,
    ) -> None:
        self.files = files
        self.arrivals = Arrivals(files)
        self.clocks = Clocks(files)
        self.handlers = handlers
        self.clock = clock
        self.on_stream = on_stream
        self.node_folder = node_folder
        self.dispatch: Dispatcher | None = None
        self.wanted: dict[str, set[str]] = {}
        #: Frames that others take in, by the key that marks them: (run, launch id, header, payload) → name, bytes held.
        self.takers: dict[str, Callable[[Run, str, dict[str, Any], bytes], tuple[str, int]]] = {}
        self.masker: Callable[[Run], Masker | None] = lambda run: None
        self._locks: dict[str, threading.Lock] = {}

    def receive(self, launch_id: str, body: bytes) -> dict[str, Any]:
        """Store a report and return the answer. Streams are stored before a state message of the same report counts."""
        assert self.dispatch is not None
        run_id, _, _ = parse_launch_id(launch_id)
        held: dict[str, int] = {}
        arrived: dict[str, int] = {}
        marks: list[dict[str, Any]] = []
        with self._locks.setdefault(run_id, threading.Lock()):
            run, launches = self.dispatch.current(run_id)
            masker = self.masker(run)
            frames = list(decode(body))
            off = 0.0
            over = masker is not None and any("outcome" in header for header, _ in frames)
            for header, payload in frames:
                if "stream" in header:
                    name = str(header["stream"])
                    if "total" in header:
                        self.files.cut(launch_id, name, int(header["total"]))
                    if masker is not None:
                        payload = masker.take(payload, last=over or bool(header.get("last")))
                    held[name] = self.files.append(launch_id, name, int(header["offset"]), payload)
                elif (kind := next((k for k in self.takers if k in header), None)) is not None:
                    name, size = self.takers[kind](run, launch_id, header, payload)
                    arrived[name] = size
                elif "move" in header:
                    self._take(run, launches, launch_id, header)
                elif "clock" in header:
                    off = self.clocks.heard(launch_id, float(header["clock"]) - self.clock())
                else:
                    marks.append(header if masker is None else masker.words(header))
            for name in held:
                self._handle(name, run, launch_id)
            if "log" in held or any("outcome" in m for m in marks):
                self.on_stream(run_id)
            if marks:
                run = self._hear(launch_id, [in_our_time(mark, off) for mark in marks])
                if any("outcome" in mark for mark in marks):
                    self.arrivals.forget(launch_id)
            self.dispatch.heard[launch_id] = self.clock()
        if run.is_over:
            self._locks.pop(run_id, None)
            self.wanted.pop(run_id, None)
            self.clocks.forget(launch_id)
        want = sorted(self.wanted.pop(run_id, ()))
        return {"held": held | arrived, "cancel": run.cancel_requested, "want": want}

    async def fetch(self, driver: Driver, run: Run, launch: Launch) -> None:
        """Read from the node what its launcher can no longer push. Used by dispatch before it believes an outcome."""
        import asyncio

        off = getattr(driver, "clock_off_seconds", 0.0)
        if off:
            await asyncio.to_thread(self.clocks.heard, launch.id, off)
        for stream in STREAMS:
            while True:
                held = await asyncio.to_thread(self.files.append, launch.id, stream, 0, b"")
                data = await driver.fetch(launch.handle, stream, held)
                if not data:
                    break
                masker = self.masker(run)
                data = data if masker is None else masker.take(data) or masker.take(data, last=True)
                await asyncio.to_thread(self.files.append, launch.id, stream, held, data)
            await asyncio.to_thread(self._handle, stream, run, launch.id)
        folder = self.node_folder(run, launch)
        if folder is not None:
            await asyncio.to_thread(self._take_all, run, folder, launch.id)
        elif hasattr(driver, "files"):
            await self._fetch_files(driver, run, launch)
            await asyncio.to_thread(self.arrivals.forget, launch.id)
        self.on_stream(run.id)

    async def _fetch_files(self, driver: Any, run: Run, launch: Launch) -> None:
        import asyncio

        masker = self.masker(run)
        for path, size, mtime_ns in await driver.files(launch.handle):
            header = {"file": check_path(path), "total": size, "mtime_ns": mtime_ns}
            held = await asyncio.to_thread(self.arrivals.put, launch.id, {**header, "offset": 0, "last": not size}, b"")
            while held < size:
                data = await driver.fetch(launch.handle, "files/" + path, held)
                if not data:
                    break  # cut off since it was listed
                last = held + len(data) >= size
                held = await asyncio.to_thread(self.arrivals.put, launch.id, {**header, "offset": held, "last": last}, data)
            if masker is not None and path.startswith("logs/"):
                await asyncio.to_thread(masker.hide_in_file, self.arrivals.target(launch.id, path))

    def _hear(self, launch_id: str, marks: list[dict[str, Any]]) -> Run:
        assert self.dispatch is not None
        now = self.clock()

        def step(mark: dict[str, Any], run: Run, launch: Launch, members: list[Launch]) -> reconcile.Change:
            if "started" in mark:
                return reconcile.on_started(run, launch, members, float(mark["started"]["at"]), now)
            if "preparing" in mark:
                return reconcile.on_preparing(run, launch, str(mark["preparing"].get("what", "Preparing.")), now)
            if "ended" in mark:
                return reconcile.on_ended(run, launch, now)
            if "outcome" in mark:
                return reconcile.on_outcome(run, launch, members, Outcome.from_wire(mark["outcome"]), now)
            raise UsageError(f"A report has a part that is not known: {sorted(mark)}.")

        steps = [partial(step, mark) for mark in marks]
        return self.dispatch.hear(launch_id, lambda run, mine, gang: reconcile.in_turn(run, mine, gang, steps))

    def _handle(self, stream: str, run: Run, launch_id: str) -> None:
        try:
            self.handlers.stored(stream, run, launch_id, self.files.stream_path(launch_id, stream))
        except ServerError:
            raise  # a full disk or a locked database: the node keeps what it has and sends it again
        except (ShunterError, ValueError, OSError):
            # The bytes are kept; what could not be understood must not stop a run from coming home.
            log.exception("run %s: stream %s could not be taken in", run.id, stream)

    def _take(self, run: Run, launches: list[Launch], launch_id: str, header: dict[str, Any]) -> None:
        launch = next((m for m in launches if m.id == launch_id), None)
        folder = self.node_folder(run, launch) if launch else None
        if folder is None:
            raise UsageError("This target's files cannot be moved; they must be sent.")
        path = check_path(str(header["move"]))
        top = "uploads" if header.get("from") == "uploads" else "work"
        self._keep(run, launch_id, folder / top / path, path)

    def _take_all(self, run: Run, folder: Path, launch_id: str) -> None:
        for base, top in ((folder / "work", "outputs"), (folder / "work", "logs"), (folder / "uploads", "")):
            for here, _, names in os.walk(base / top):
                for name in names:
                    full = Path(here, name)
                    if full.is_file() and not full.is_symlink():
                        self._keep(run, launch_id, full, str(full.relative_to(base)))

    def _keep(self, run: Run, launch_id: str, source: Path, path: str) -> None:
        """Move a file of a node that shares our disk to where it belongs."""
        target = self.arrivals.target(launch_id, path)
        self.files.take(source, target, path)
        masker = self.masker(run)
        if masker is not None and path.startswith("logs/") and target.is_file():
            masker.hide_in_file(target)


def decode(body: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The frames of a report (see `node/home.py`)."""
    at = 0
    view = memoryview(body)
    try:
        while at < len(body):
            (length,) = struct.unpack_from(">I", body, at)
            header = json.loads(bytes(view[at + 4 : at + 4 + length]))
            at += 4 + length
            size = int(header.get("size", 0))
            if size < 0 or at + size > len(body):
                raise ValueError("a stream is cut off")
            yield header, bytes(view[at : at + size])
            at += size
    except (struct.error, ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"The report cannot be read: {error}.") from error
