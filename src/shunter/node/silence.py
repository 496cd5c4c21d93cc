"""Ranks that fell silent: the first node hears of all ranks of a run, and names the one that the others wait for.

Each rank's keeper tells how long its rank has said nothing. As spans, not times: clocks of nodes differ. Nothing here needs a
server.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Report = Dict[str, Any]

TELL_SECONDS = 0.5
STOPPED, ENDED = "stopped", "ended"


def verdict(reports, world, bound, now, since):
    # type: (Dict[int, Report], int, float, float, float) -> str
    """Who is to blame, in words; empty while somebody speaks. `since`: when the run began, for ranks never heard of.

    A report: heard (when, by our clock), silent (seconds at that moment), state, last (its last line).
    """
    spans = {}  # type: Dict[int, float]
    for rank in range(world):
        report = reports.get(rank)
        if report is None:
            spans[rank] = now - since
            continue
        spans[rank] = report["silent"] + now - report["heard"]
    missing = [r for r in range(world) if r not in reports or (
        reports[r]["state"] != ENDED and now - reports[r]["heard"] > max(bound, 10 * TELL_SECONDS))]  # fmt: skip
    if missing and min(spans[r] for r in missing) > bound:
        return "%s gone: nothing was heard of %s for %d s." % (
            _ranks(missing), "it" if len(missing) == 1 else "them", min(spans[r] for r in missing),
        )  # fmt: skip
    running = [r for r in range(world) if r in reports and reports[r]["state"] != ENDED]
    if not running or min(spans[r] for r in running) <= bound:
        return ""
    gone = [r for r in reports if reports[r]["state"] == ENDED]
    if gone:
        words = "Rank %d ended %d s ago, and the others have said nothing for %d s."
        return words % (gone[0], spans[gone[0]], min(spans[r] for r in running))
    # A stopped process is to blame for certain; else the one that was silent first.
    worst = max(running, key=lambda r: (reports[r]["state"] == STOPPED, round(spans[r], 1), -r))
    last = reports[worst].get("last") or ""
    words = "Rank %d has said nothing for %d s%s%s" % (
        worst, spans[worst], " while the others wait" if world > 1 else "",
        ": its process is stopped." if reports[worst]["state"] == STOPPED else ".",
    )  # fmt: skip
    return words + (" Its last line: " + last if last else "")


def _ranks(numbers):
    # type: (List[int]) -> str
    if len(numbers) == 1:
        return "Rank %d is" % numbers[0]
    return "Ranks %s are" % ", ".join(map(str, numbers))


def state_of(pid):
    # type: (int) -> str
    """"stopped" for a process that somebody stopped; empty for any other."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            data = file.read()
    except OSError:
        return ""
    return STOPPED if data[data.rfind(b")") + 2 :][:1] in (b"T", b"t") else ""


class Hearing:
    """On the first node: listens for what the keepers of other ranks tell. One thread for each of them.

    `here`: how many ranks this node has. When those are all, nobody is listened for.
    """

    def __init__(self, spec, here=0):
        # type: (Dict[str, Any], int) -> None
        self.bound = float(spec["seconds"])
        self.world = int(spec["world"])
        self.secret = str(spec["secret"])
        self.since = time.monotonic()
        self.reports = {}  # type: Dict[int, Report]
        self._place = (str(spec["address"]), int(spec["port"]))
        self._closed = threading.Event()
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._hears = here >= self.world
        if not self._hears:
            self._bind()
            threading.Thread(target=self._accept, daemon=True).start()

    def put(self, told):
        # type: (List[Report]) -> None
        for report in told:
            self.reports[int(report["rank"])] = dict(report, heard=time.monotonic())

    def close(self) -> None:
        self._closed.set()
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()

    def verdict(self) -> str:
        if not self._hears:
            return ""
        return verdict(dict(self.reports), self.world, self.bound, time.monotonic(), self.since)

    def _bind(self) -> None:
        try:
            self._listener.bind(self._place)
            self._listener.listen(64)
        except OSError:
            return
        self.since = time.monotonic()
        self._hears = True

    def _accept(self) -> None:
        while not self._hears:  # somebody else's connection may have taken the port for a while: the tellers try again
            if self._closed.wait(TELL_SECONDS):
                return
            self._bind()
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection):
        # type: (socket.socket) -> None
        with connection, connection.makefile("rb") as file:
            for line in file:
                try:
                    told = json.loads(line)
                    if not hmac.compare_digest(str(told["secret"]), self.secret):
                        return
                    self.put(told["ranks"])
                except (ValueError, KeyError, TypeError):
                    return


class Teller:
    """On any node: tells the first one. What cannot be told now is told later; nobody waits for it."""

    def __init__(self, spec):
        # type: (Dict[str, Any]) -> None
        self.place = (str(spec["address"]), int(spec["port"]))
        self.secret = str(spec["secret"])
        self._connection = None  # type: Optional[socket.socket]
        self._next = 0.0

    def tell(self, ranks, now=False):
        # type: (List[Report], bool) -> None
        if time.monotonic() < self._next and not now:
            return
        self._next = time.monotonic() + TELL_SECONDS
        try:
            if self._connection is None:
                self._connection = socket.create_connection(self.place, timeout=2)
            self._connection.sendall(json.dumps({"secret": self.secret, "ranks": ranks}).encode() + b"\n")
        except OSError:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def newest(paths):
    # type: (List[str]) -> float
    """When one of these files was last written, by this machine's clock; 0.0 when none is there."""
    times = [0.0]
    for path in paths:
        try:
            times.append(os.stat(path).st_mtime)
        except OSError:
            pass
    return max(times)
