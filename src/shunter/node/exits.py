"""How a script ended: its wait status is written down before it is waited for, so that no death in between hides it."""

from __future__ import annotations

import os
import time

from shunter.node import contract

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Tuple

#: The warm parent writes down how an orphan ended within a moment after it heard of that.
STATUS_SECONDS = 2.0


def next_ended():
    # type: () -> Optional[Tuple[int, int]]
    """A child that is over, with its wait status: still to be waited for, so that whoever dies now hides nothing.

    None when there is none. Raises ChildProcessError without any child.
    """
    found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    if found.si_code == os.CLD_EXITED:
        return found.si_pid, found.si_status << 8
    return found.si_pid, found.si_status | (0x80 if found.si_code == os.CLD_DUMPED else 0)


def write_exit(folder, status):
    # type: (str, int) -> None
    """Keep a script's wait status, before it is waited for: whoever is killed after that does not take it along."""
    try:
        contract.write_whole(os.path.join(folder, "exit"), str(status).encode())
    except OSError:
        pass  # a full disk: then only a kill at this very moment hides it


def wait_for_status(folder, pid, started):
    # type: (str, int, int) -> Optional[int]
    """The wait status of a script that we adopted, from our parent, its reaper; None when nobody can know it any more."""
    parent = os.getppid()
    until = time.monotonic() + STATUS_SECONDS
    while True:
        waits = pid and is_unreaped(pid, started, parent)  # a busy machine lets the parent wait for its turn
        try:
            with open(os.path.join(folder, "exit")) as file:
                return int(file.read())
        except (OSError, ValueError):
            if not waits and time.monotonic() > until:
                return None
            time.sleep(0.02)


def is_unreaped(pid, started, parent):
    # type: (int, int, int) -> bool
    """Over, and `parent` has yet to hear of it: until then nobody else can know how it ended."""
    try:
        with open("/proc/" + str(pid) + "/stat", "rb") as file:
            data = file.read()
    except OSError:
        return False
    fields = data[data.rfind(b")") + 2 :].split()
    return fields[0] == b"Z" and int(fields[1]) == parent and int(fields[19]) == started
