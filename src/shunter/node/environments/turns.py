"""Who builds an environment, who waits for it, and who uses it: one lock and one list of names for each."""

from __future__ import annotations

import os
import socket
import time

from shunter.node import contract

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from shunter.node.environments import Job

#: A folder that another host began to build is left alone for so long.
FOREIGN_SECONDS = 86400.0
#: The locks of environments in use: held for the life of the launcher.
held = []  # type: List[int]


def at_work(folder, pid):
    # type: (str, int) -> None
    """Note who builds there: the launcher first, then the installers it starts."""
    line = "%s %s %d %d\n" % (socket.gethostname(), contract.boot_id(), pid, contract.start_time(pid))
    with open(folder + ".builder", "a") as file:
        file.write(line)


def being_built(folder):
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


def wait_for_turn(work, base, look):
    # type: (Job, str, Callable[[str], object]) -> Optional[int]
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


def hold(base):
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
    held.append(lock)
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
