"""System-managed: built on this node once for each lock, then shared by all runs here.

    CACHE/LOCK.json         which folder holds the finished environment; written last, so a half-built one is never used
    CACHE/LOCK.lock         held while it is built (exclusively) and while it is used (shared)
    CACHE/LOCK.log          what the installer says, for all who wait
    CACHE/LOCK.XXXXXXXX/    the environment itself, built where it stays: nothing in it has to be rewritten

A warm hit reads the small file, asks whether the interpreter is there, and opens the lock. Nothing else is touched.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
import time

from shunter.node import contract
from shunter.node.environments import Prepared, Unavailable
from shunter.node.environments.existing import activation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from shunter.node.environments import Job

#: A folder that another host began to build is left alone for so long.
FOREIGN_SECONDS = 86400.0
#: The locks of environments in use: held for the life of the launcher.
_held = []  # type: List[int]


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
    found = look(base)
    if found is not None and _hold(base):
        # Between the look and the lock a clean-up may have taken it away.
        if look(base) is not None:
            return found
        _held.pop()
    if not work.spec.get("prepare", True):
        raise Unavailable(
            "environment_not_prepared",
            "The environment is not built on this node, and the run says not to prepare it.",
            "Leave out auto_prepare_environment=False, or run `shunter env build` first.",
        )
    os.makedirs(work.cache, exist_ok=True)
    lock = _wait_for_turn(work, base)
    try:
        found = look(base)
        if found is None:
            found = _build(work, base, build)
    finally:
        if lock is not None:
            os.close(lock)
    _hold(base)
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
            if not is_whole(packages):
                return None
            found["boot"] = contract.boot_id()
            contract.write_whole(base + ".json", json.dumps(found).encode())
    except (OSError, ValueError, KeyError):
        return None
    return found  # type: ignore[no-any-return]


def is_whole(packages):
    # type: (Optional[str]) -> bool
    """Whether every file that the installed packages list is there, with the size that they say."""
    for name in os.listdir(packages) if packages else ():
        record = os.path.join(str(packages), name, "RECORD")
        if not name.endswith(".dist-info") or not os.path.exists(record):
            continue
        with open(record) as file:
            for row in csv.reader(file):
                if len(row) == 3 and row[2].isdigit() and _size(os.path.join(str(packages), row[0])) != int(row[2]):
                    return False
    return True


def _size(path):
    # type: (str) -> int
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


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
        at_work(folder, os.getpid())
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
        if name.startswith(key) and os.path.isdir(path) and not _being_built(path):
            shutil.rmtree(path, ignore_errors=True)
            _remove(path + ".builder")
            gone += 1
    return gone


def at_work(folder, pid):
    # type: (str, int) -> None
    """Note who builds there: the launcher first, then the installers it starts."""
    line = "%s %s %d %d\n" % (socket.gethostname(), contract.boot_id(), pid, contract.start_time(pid))
    with open(folder + ".builder", "a") as file:
        file.write(line)


def _being_built(folder):
    # type: (str) -> bool
    """Whether somebody is at work there. An installer whose launcher was killed is ended: nobody waits for it."""
    try:
        with open(folder + ".builder") as file:
            lines = [line.split() for line in file.read().splitlines()]
        age = time.time() - os.stat(folder + ".builder").st_mtime
    except OSError:
        return False
    lines = [line for line in lines if len(line) == 4]
    if not lines:
        return False
    if [lines[0][0], lines[0][1]] != [socket.gethostname(), contract.boot_id()]:
        return age < FOREIGN_SECONDS  # another host of a shared cache, where our lock may not reach
    alive = [int(pid) for _, _, pid, started in lines if contract.is_alive(int(pid), int(started))]
    if int(lines[0][2]) in alive:
        return True
    for pid in alive:
        try:
            os.killpg(pid, 9)
        except OSError:
            pass
    return False


def _wait_for_turn(work, base):
    # type: (Job, str) -> Optional[int]
    """Take the build lock; while another run has it, what its installer says goes into our log too."""
    import fcntl

    lock = os.open(base + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    follow, told = None, False
    pause = 0.01
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            pass
        except OSError:
            # A file system without locks: two may build at once, each in its own folder, and the last one counts.
            os.close(lock)
            return None
        if look(base) is not None:
            break  # somebody uses it: it is finished
        if not told:
            told = True
            work.say("waiting for another run that builds the environment")
            work.write("another run here builds this environment; waiting for it")
            follow = _Follower(base + ".log", work.log)
        if follow is not None:
            follow.copy()
        if work.canceled():
            os.close(lock)
            work.check()
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    if follow is not None:
        follow.copy()
    return lock


def _hold(base):
    # type: (str) -> bool
    """Hold the environment as long as this process lives, so that a clean-up leaves it alone."""
    import fcntl

    try:
        lock = os.open(base + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    except OSError:
        pass
    _held.append(lock)
    try:
        os.utime(lock)  # when it was last used, for whoever cleans up
    except OSError:
        pass
    return True


class _Follower:
    """Copies what is appended to one file into another."""

    def __init__(self, source, target):
        # type: (str, str) -> None
        self.source, self.target, self.offset = source, target, 0

    def copy(self) -> None:
        try:
            with open(self.source, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return
        if data:
            self.offset += len(data)
            with open(self.target, "ab") as out:
                out.write(data)


def _remove(path):
    # type: (str) -> None
    try:
        os.unlink(path)
    except OSError:
        pass
