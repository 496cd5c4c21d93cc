"""One node of a cluster as a process: a Ray node, and the promise that nothing runs on without it.

Launchers on this node watch this process and end their scripts when it is gone. It ends by itself when Ray's part of it
dies, when the head cannot be reached for longer than the lease, and when its folder is taken away.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from shunter.drivers.cluster.folder import LEFT, ClusterFolder
from shunter.drivers.cluster.pools import pool_class
from shunter.drivers.cluster.ray_engine import RECONNECT_SECONDS, Place, WorkerNode, check_version
from shunter.errors import DriverError, ShunterError
from shunter.node.contract import write_whole

if TYPE_CHECKING:
    from shunter.drivers.cluster.tie import MachineTie

LOOK_SECONDS = 0.5
OPEN_SECONDS = 0.05
HEAD_SECONDS = 150.0
PING_SECONDS = 3.0


def main(arguments: list[str]) -> int:
    folder, name = ClusterFolder(Path(arguments[0])), arguments[1]
    check_version()
    leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    spec = folder.spec()
    tie = None
    # Takes as long as a login, or as the head that comes up beside us.
    threading.Thread(target=lambda: __import__("ray._private.node"), daemon=True).start()
    if not pool_class(spec.pool).shares_disk:
        try:
            tie = _tie(folder, name, leave)
        except ShunterError as error:
            _did_not_come_up(folder, name, error)
    if not _wait_for_head(folder, leave):
        if tie is not None:
            tie.close()
        _did_not_come_up(folder, name, DriverError(f"The head of {spec.name} did not come up."))
    node = WorkerNode(folder.place(), name, json.loads(arguments[2]), spec.address)
    # Ray's own handlers are for programs that are Ray and nothing else.
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    (folder.node_root(name) / "up").touch()
    lease = Lease(folder.place(), spec.lease_seconds)
    try:
        while not leave.wait(LOOK_SECONDS):
            why = _reason_to_leave(folder, name, node, lease) or (tie.reason_to_leave() if tie is not None else "")
            if why:
                break
        else:
            why = LEFT
        write_whole(str(folder.node_root(name) / "over"), why.encode())
        print(f"{name}: {why}", file=sys.stderr, flush=True)
    except OSError:
        pass  # its folder was taken away
    finally:
        if tie is not None:
            tie.close()
        node.stop()
    os._exit(0)  # Ray's threads have nothing left to say


def _wait_for_head(folder: ClusterFolder, leave: threading.Event) -> bool:
    until = time.monotonic() + HEAD_SECONDS
    while not folder.open_file.exists():
        if leave.wait(OPEN_SECONDS) or time.monotonic() > until or not folder.path.exists():
            return False
    return True


def _tie(folder: ClusterFolder, name: str, leave: threading.Event) -> MachineTie:
    """For a node that stands for a machine: the machine, logged in to and lent."""
    from shunter.drivers.cluster.tie import MachineTie

    tie = MachineTie(folder, name)
    tie.open(leave)
    return tie


def _did_not_come_up(folder: ClusterFolder, name: str, error: ShunterError) -> NoReturn:
    print(f"{name}: {error.message}", file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):  # its folder was taken away
        write_whole(str(folder.node_root(name) / "over"), error.message.encode())
    os._exit(1)  # without waiting for a login that is under way


def _reason_to_leave(folder: ClusterFolder, name: str, node: WorkerNode, lease: Lease) -> str:
    if not node.is_alive():
        return LEFT if node.was_released() else "Ray's part of it died."
    if lease.is_over():
        return "It could not reach the head for longer than its lease."
    record = folder.node(name)
    if record is None or record["pid"] != os.getpid():
        return "It is not written down: whoever asked for it died before."
    return ""


class Lease:
    """Whether the head answers. A node that is cut off must stop its work before the head gives that to another."""

    def __init__(self, place: Place, seconds: float = RECONNECT_SECONDS) -> None:
        self.place = place
        self.seconds = seconds
        self._heard = time.monotonic()
        self._next = 0.0

    def is_over(self) -> bool:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PING_SECONDS
            try:
                socket.create_connection((self.place.address, self.place.port), timeout=PING_SECONDS).close()
                self._heard = time.monotonic()
            except OSError:
                pass
        return now - self._heard > self.seconds
