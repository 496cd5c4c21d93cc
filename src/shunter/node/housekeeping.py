"""What our files take on a machine, and which of them go when that is too much: the longest unused first.

Measuring walks over large folders, so the agent leaves it to a process of its own (`main`). What can be had again goes:
environments, copies of inputs, tools, caches of packages, and (from `store.py`) snapshots. What a launch that is not over
names stays, whatever it takes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time

from shunter.node import contract
from shunter.node.environments import cleanup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Set

    from shunter.node.store import Store

    Thing = Dict[str, Any]

INPUTS = "inputs"
TOOLS = "tools"
#: Caches of packages beside the environments; environments share their files, so what is counted is what nobody shares.
CACHES = ("uv-cache", "conda-packages", "wheels")
#: A launcher tree that no process can be using any more.
TREE_SECONDS = 3600.0


def measure(root):
    # type: (str) -> List[Thing]
    """All that may grow here, beside snapshots: kind, path, bytes, when it was last used, whether it is in use."""
    found = []
    for entry in cleanup.survey(root):
        found.append({"kind": "environment", "path": entry["folder"], "bytes": entry["bytes"], "used_at": entry["used_at"],
                      "in_use": entry["in_use"], "entry": entry})  # fmt: skip
    jobs = unfinished_jobs(root)
    found += inputs(root, jobs)
    tools = _tools(jobs)
    for name in _names(os.path.join(root, TOOLS)):
        path = os.path.join(root, TOOLS, name)
        found.append(_thing("tool", path, path in tools))
    for name in CACHES:
        path = os.path.join(root, "environments", name)
        if os.path.isdir(path):
            found.append(_thing("cache", path, bool(jobs)))
    return found


def inputs(root, jobs):
    # type: (str, Iterable[Dict[str, Any]]) -> List[Thing]
    """The copies of inputs, those that came only in part too."""
    base = os.path.join(root, INPUTS)
    needed = {str(given.get("key")) for job in jobs for given in job.get("inputs") or ()}
    found = []
    for name in _names(base):
        path = os.path.join(base, name)
        if os.path.isdir(path):
            thing = _thing("input", path, name in needed)
            thing["used_at"] = max(thing["used_at"], _time(path + ".whole"))
            found.append(thing)
    return found


def free(root, store, things, limit_bytes):
    # type: (str, Store, List[Thing], int) -> Dict[str, int]
    """Make room until all that is kept is within the limit, or nothing is left that may go."""
    needed = unfinished_jobs(root)
    keep = {str(job.get("snapshot_id")) for job in needed}
    total = store.kept_bytes() + sum(thing["bytes"] for thing in things)
    freed = 0
    going = [t for t in things if not t["in_use"]]
    going += [{"kind": "snapshot", "path": name, "used_at": at} for at, name in store.layouts() if name not in keep]
    for thing in sorted(going, key=lambda t: float(t["used_at"])):
        if total - freed <= limit_bytes:
            break
        freed += store.drop_layout(thing["path"]) if thing["kind"] == "snapshot" else remove(root, thing)
    if total - freed > limit_bytes:
        freed += store.drop_unnamed()
    return {"freed_bytes": freed, "kept_bytes": total - freed}


def remove(root, thing):
    # type: (str, Thing) -> int
    """Remove one thing, unless somebody has begun to use it since. Returns the bytes."""
    path = thing["path"]
    if thing["kind"] == "environment":
        return int(thing["bytes"]) if cleanup._remove(root, thing["entry"]) else 0
    jobs = unfinished_jobs(root)
    if thing["kind"] == "input":
        return int(thing["bytes"]) if _remove_input(path, jobs) else 0
    if thing["kind"] == "cache" and jobs:
        return 0
    if thing["kind"] == "tool" and path in _tools(jobs):
        return 0
    shutil.rmtree(path, ignore_errors=True)
    return int(thing["bytes"])


def drop_old_trees(root, own):
    # type: (str, str) -> int
    """Remove launcher trees of earlier releases; only called when nothing of ours runs here."""
    base = os.path.join(root, "tree")
    old = [n for n in _names(base) if n != own and time.time() - _time(os.path.join(base, n)) > TREE_SECONDS]
    for name in old:
        shutil.rmtree(os.path.join(base, name), ignore_errors=True)
    return len(old)


def unfinished_jobs(root):
    # type: (str) -> List[Dict[str, Any]]
    """What launches that are not over are to do: what these name is needed."""
    base = os.path.join(root, contract.LAUNCHES)
    found = []
    for name in _names(base):
        if os.path.exists(os.path.join(base, name, "done")):
            continue
        try:
            job = contract.read_json(os.path.join(base, name, "job.json"))
        except (OSError, ValueError):
            continue
        if job:
            found.append(job)
    return found


def main(root):
    # type: (str) -> None
    os.nice(19)
    json.dump(measure(root), sys.stdout)


def _remove_input(path, jobs):
    # type: (str, Iterable[Dict[str, Any]]) -> bool
    import fcntl

    if any(str(given.get("key")) == os.path.basename(path) for job in jobs for given in job.get("inputs") or ()):
        return False
    with open(path + ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False  # somebody is just bringing it
        if os.path.exists(path + ".whole"):
            os.unlink(path + ".whole")  # first: from here on nobody takes it for whole
        for here, _, _ in os.walk(path):
            os.chmod(here, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    return True


def _tools(jobs):
    # type: (Iterable[Dict[str, Any]]) -> Set[str]
    return {os.path.dirname(str(path)) for job in jobs for path in (job.get("tools") or {}).values()}


def _thing(kind, path, in_use):
    # type: (str, str, bool) -> Thing
    return {"kind": kind, "path": path, "bytes": cleanup._size(path), "used_at": _time(path), "in_use": in_use}


def _time(path):
    # type: (str) -> float
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _names(folder):
    # type: (str) -> List[str]
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
