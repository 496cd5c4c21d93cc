"""What ties the work on a machine to the cluster that it was lent to: a process that ends all of it with its lease.

The cluster renews the lease over SSH. The lease runs from a moment that this machine named itself, so a word that was long
on its way never makes it longer than the cluster thinks. Launchers watch this process and end their scripts without it.

    ROOT/tethers/NAME.json      until when the lease of node NAME runs; its process
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from shunter.node import contract, interfaces
from shunter.node.monitor.cpu import descendants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

LOOK_SECONDS = 0.2
#: Launchers see within a moment that the process is gone; what still runs after so long is killed.
KILL_SECONDS = 2.0
#: How long an answer may wait for a launch to end.
WAIT_SECONDS = 2.0


def now():
    # type: () -> float
    """Seconds since this machine was started, those that it slept too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def hold(root, name, seconds, granted=None, known=()):
    # type: (str, str, float, float | None, tuple[str, ...] | list[str]) -> Dict[str, Any]
    """Begin the lease of a node, or renew it from `granted` on: a moment that an earlier answer named.

    Waits a little for a launch to end that is not among `known`, so that the caller hears of it at once.
    """
    folder = os.path.join(root, "tethers")
    path = os.path.join(folder, name + ".json")
    record = contract.read_json(path)
    if record is None:
        os.makedirs(folder, 0o700, exist_ok=True)
        os.makedirs(os.path.join(root, contract.LAUNCHES), 0o700, exist_ok=True)
        _write(path, {"until": now() + seconds})
        record = _start(root, name, path)
    elif granted is not None:
        record["until"] = max(float(record["until"]), granted + seconds)
        _write(path, record)
    alive = _is_alive(record)
    until = time.monotonic() + WAIT_SECONDS
    taken, over = launches(root, name)
    while alive and granted is not None and set(over) <= set(known) and time.monotonic() < until:
        time.sleep(0.1)
        taken, over = launches(root, name)
        alive = _is_alive(record)
    return {
        "now": now(), "alive": alive, "watch": record.get("process"), "taken": taken, "over": over,
        "addresses": interfaces.addresses(),
    }  # fmt: skip


def end(root, name, all_of_it=False):
    # type: (str, str, bool) -> Dict[str, Any]
    """End the lease and all work that ran under it. Returns when that is over.

    `all_of_it`: also launchers that still bring something home; nobody is there to take it any more.
    """
    path = os.path.join(root, "tethers", name + ".json")
    record = contract.read_json(path) or {}
    process = record.get("process")
    if process and contract.is_alive(*process):
        os.kill(process[0], signal.SIGTERM)
        _wait(lambda: not contract.is_alive(*process), 5.0)
    end_scripts(root, name)
    if all_of_it:
        _kill_launchers(root)
    left = _scripts(root, name)
    if not left and os.path.exists(path):
        os.unlink(path)
    return {"running": len(left), "pushing": _stop_parent(root)}


def main(root, name):
    # type: (str, str) -> int
    """Stay while the lease runs. What must end then is ended by a child, as launchers wait for this process to be gone."""
    stop = []  # type: List[int]
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    path = os.path.join(root, "tethers", name + ".json")
    while not stop:
        record = contract.read_json(path)
        if record is None or now() > float(record["until"]):
            break
        time.sleep(LOOK_SECONDS)
    if os.fork() == 0:
        os.setsid()
        end_scripts(root, name)
    return 0


def end_scripts(root, name):
    # type: (str, str) -> None
    """Give launchers a moment to end their scripts in order, then kill what is left of them."""
    _wait(lambda: not _scripts(root, name), KILL_SECONDS)
    for pid in _scripts(root, name):
        for one in descendants(pid):
            try:
                os.kill(one, signal.SIGKILL)
            except OSError:
                pass
    _wait(lambda: not _scripts(root, name), KILL_SECONDS)


def launches(root, name):
    # type: (str, str) -> Tuple[List[str], List[str]]
    """Launches of this node that somebody took and that go on, and those whose outcome is written."""
    base = os.path.join(root, contract.LAUNCHES)
    taken, over = [], []
    for launch in sorted(os.listdir(base)) if os.path.isdir(base) else ():
        folder = os.path.join(base, launch)
        if not _belongs(folder, name):
            continue
        if os.path.exists(os.path.join(folder, "outcome")):
            over.append(launch)
        elif os.path.exists(os.path.join(folder, "claim")):
            taken.append(launch)
    return taken, over


def _scripts(root, name):
    # type: (str, str) -> List[int]
    base = os.path.join(root, contract.LAUNCHES)
    found = []
    for launch in os.listdir(base) if os.path.isdir(base) else ():
        folder = os.path.join(base, launch)
        claim = contract.Claim.read(folder)
        if claim is None or not _belongs(folder, name):
            continue
        if claim.script is not None and claim.script_alive():
            found.append(claim.script[0])
        elif claim.starting and claim.script is None and claim.same_boot():
            found += contract.find_processes(launch)
    return found


def _belongs(folder, name):
    # type: (str, str) -> bool
    known = _nodes.get(folder)
    if known is None:
        try:
            job = contract.read_json(os.path.join(folder, "job.json"))
        except ValueError:
            return False
        if job is None:
            return False  # its folder was just made: remembering that would hide the launch for good
        known = _nodes[folder] = str(job.get("node"))
    return known == name


_nodes = {}  # type: Dict[str, str]


def _start(root, name, path):
    # type: (str, str, str) -> Dict[str, Any]
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = "import sys; sys.path.insert(0, %r); from shunter.node import tether; sys.exit(tether.main(*sys.argv[1:]))" % tree
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-E", "-c", code, root, name],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
    )  # fmt: skip
    record = contract.read_json(path) or {}
    record.update(process=[process.pid, contract.start_time(process.pid)], boot=contract.boot_id())
    _write(path, record)
    return record


def _kill_launchers(root):
    # type: (str) -> None
    base = os.path.join(root, contract.LAUNCHES)
    _kill_parent(root)  # first: it would have others adopt what they leave
    for launch in os.listdir(base) if os.path.isdir(base) else ():
        claim = contract.Claim.read(os.path.join(base, launch))
        for pid in descendants(claim.launcher[0]) if claim is not None and claim.launcher and claim.launcher_alive() else ():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass


def _kill_parent(root):
    # type: (str) -> None
    try:
        with open(os.path.join(root, "parent.lock")) as file:
            pid, started = (int(word) for word in file.read().split())
        if contract.is_alive(pid, started):
            os.kill(pid, signal.SIGTERM)
            _wait(lambda: not contract.is_alive(pid, started), 2.0)
    except (OSError, ValueError):
        pass


def _stop_parent(root):
    # type: (str) -> int
    """End the warm parent when nothing needs it. Returns how many launchers still bring something home."""
    base = os.path.join(root, contract.LAUNCHES)
    names = os.listdir(base) if os.path.isdir(base) else []
    unfinished = [launch for launch in names if not os.path.exists(os.path.join(base, launch, "done"))]
    claims = [contract.Claim.read(os.path.join(base, launch)) for launch in unfinished]
    pushing = sum(claim is not None and claim.launcher_alive() for claim in claims)
    if not pushing:
        _kill_parent(root)
    return pushing


def _is_alive(record):
    # type: (Dict[str, Any]) -> bool
    process = record.get("process")
    return process is not None and record.get("boot") == contract.boot_id() and contract.is_alive(process[0], process[1])


def _write(path, record):
    # type: (str, Dict[str, Any]) -> None
    contract.write_whole(path, json.dumps(record).encode())


def _wait(condition, seconds):
    # type: (Any, float) -> None
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
