"""System-managed: built on this node once for each lock, then shared by all runs here.

    CACHE/LOCK.json         which folder holds the finished environment; written last, so a half-built one is never used
    CACHE/LOCK.lock         held while it is built (exclusively) and while it is used (shared)
    CACHE/LOCK.log          what the installer says, for all who wait
    CACHE/LOCK.XXXXXXXX/    the environment itself, built where it stays: nothing in it has to be rewritten

A warm hit reads the small file, asks whether the interpreter is there, and opens the lock. Nothing else is touched. So a
damaged file is looked for when there is a reason to: the machine was restarted, a script failed, or somebody asks.
"""

from __future__ import annotations

import json
import os
import shutil
import time

from shunter.node import contract
from shunter.node.environments import Prepared, Unavailable, turns
from shunter.node.environments.damage import damaged
from shunter.node.environments.existing import activation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from shunter.node.environments import Job


#: The environments that this process prepared.
used = []  # type: List[str]


def prepare_built(work):
    # type: (Job) -> Prepared
    from shunter.node.environments.install import install

    found = get_or_build(work, work.spec["lock_id"], install)
    interpreter = found["interpreter"]
    env = dict(activation(interpreter), **(work.spec.get("env") or {}))
    return Prepared([interpreter], env, {
        "kind": "built", "lock": work.spec["lock_id"], "interpreter": interpreter, "python": found.get("python", ""),
        "built_now": found.get("built_now", False),
    })  # fmt: skip


def get_or_build(work, key, build):
    # type: (Job, str, Callable[[Job, str], Dict[str, Any]]) -> Dict[str, Any]
    """The finished environment `key`: what is remembered of it. Built if it is not there, or broken."""
    if not key.isalnum():
        raise Unavailable("environment_unknown", repr(key) + " is not the id of a lock.")
    base = os.path.join(work.cache, key)
    used.append(base)
    found = look(base)
    if found is not None and work.spec.get("verify"):
        found = _verify(work, base, found)
    if found is not None and turns.hold(base):
        # Between the look and the lock a clean-up may have taken it away.
        if look(base) is not None:
            return found
        turns.held.pop()
    if not work.spec.get("prepare", True):
        raise Unavailable(
            "environment_not_prepared",
            "The environment is not built on this node, and the run says not to prepare it.",
            "Leave out auto_prepare_environment=False, or run `shunter env build` first.",
        )
    os.makedirs(work.cache, exist_ok=True)
    lock = turns.wait_for_turn(work, base, look)
    try:
        found = look(base)
        if found is None:
            found = _build(work, base, build)
    finally:
        if lock is not None:
            os.close(lock)
    turns.hold(base)
    return found


def look(base):
    # type: (str) -> Optional[Dict[str, Any]]
    """What is remembered of a finished environment; None when there is none, or it was damaged."""
    try:
        with open(base + ".json", "rb") as file:
            found = json.loads(file.read())
        # Without reading the environment: its interpreter is there, and no package folder was removed.
        there = os.path.lexists if found.get("inside") else _is_executable
        if not there(found["interpreter"]):
            return None
        packages = found.get("packages_folder")
        if packages and os.stat(packages).st_nlink < found["packages_links"]:
            return None
        if found.get("boot") != contract.boot_id():
            # The machine was restarted since: what was written just before may not have reached the disk.
            if damaged(packages, found.get("odd") or ()):
                return None
            found["boot"] = contract.boot_id()
            contract.write_whole(base + ".json", json.dumps(found).encode())
    except (OSError, ValueError, KeyError):
        return None
    return found  # type: ignore[no-any-return]


def after_failure():
    # type: () -> Dict[str, str]
    """A script failed: was its environment damaged? Then it is forgotten, and these words tell; else there are none."""
    for base in used:
        try:
            with open(base + ".json", "rb") as file:
                found = json.loads(file.read())
            bad = damaged(found.get("packages_folder"), found.get("odd") or ())
        except (OSError, ValueError):
            continue
        if bad:
            _remove(base + ".json")
            return {
                "code": "environment_damaged", "bad": ", ".join(bad),
                "hint": "`shunter run rerun`: the environment is built again.",
            }  # fmt: skip
    return {}


def _verify(work, base, found):
    # type: (Job, str, Dict[str, Any]) -> Optional[Dict[str, Any]]
    """Read every file of every package; an environment that is not what was installed is forgotten."""
    work.say("comparing the environment with what was installed")
    bad = damaged(found.get("packages_folder"), found.get("odd") or (), read=True)
    if not bad:
        work.write("the environment is as it was installed")
        return found
    work.write("damaged, and built again: " + ", ".join(bad))
    _remove(base + ".json")
    return None


def _is_executable(path):
    # type: (str) -> bool
    return os.access(path, os.X_OK)


def remember(folder, interpreter, python, packages, inside=False):
    # type: (str, str, str, str, bool) -> Dict[str, Any]
    """What `look` checks later."""
    found = {
        "folder": folder, "interpreter": interpreter, "python": python, "made_at": time.time(),
        "boot": contract.boot_id(),
    }  # type: Dict[str, Any]  # fmt: skip
    if inside:
        found["inside"] = True
    if packages:
        found["packages_folder"] = packages
        found["packages_links"] = os.stat(packages).st_nlink
    return found


def _build(work, base, build):
    # type: (Job, str, Callable[[Job, str], Dict[str, Any]]) -> Dict[str, Any]
    forget(base)
    work.say("building the environment")
    work.write("building environment " + os.path.basename(base))
    began = time.monotonic()
    folder = base + "." + os.urandom(4).hex()
    os.mkdir(folder)
    try:
        turns.at_work(folder, os.getpid())
        found = build(work, folder)
        found["lock_id"] = work.spec["lock_id"]
        found["seconds"] = round(time.monotonic() - began, 3)
        # Not synced: that would wait for every file of the environment. After a restart `look` looks closer.
        contract.write_whole(base + ".json", json.dumps(found).encode())
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (28, 122):
            raise Unavailable(
                "node_disk_full", "The disk of the node is full (" + work.cache + ").",
                "Free some space there (`shunter env gc`), then `shunter run rerun`.",
            ) from error  # fmt: skip
        raise
    finally:
        _remove(folder + ".builder")
    work.write("environment ready after %.1f s" % found["seconds"])
    return dict(found, built_now=True)


def forget(base):
    # type: (str) -> int
    """Remove what is left of an environment that is not finished or broken. Returns how many folders went."""
    _remove(base + ".json")
    key, gone = os.path.basename(base) + ".", 0
    for name in os.listdir(os.path.dirname(base)):
        path = os.path.join(os.path.dirname(base), name)
        if name.startswith(key) and os.path.isdir(path) and not turns.being_built(path):
            shutil.rmtree(path, ignore_errors=True)
            _remove(path + ".builder")
            gone += 1
    return gone


def _remove(path):
    # type: (str) -> None
    try:
        os.unlink(path)
    except OSError:
        pass
