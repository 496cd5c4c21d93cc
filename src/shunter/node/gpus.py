"""Which of a machine's GPUs a launch gets: those that no other launch holds, whichever server or user it belongs to.

Servers and users of one machine meet in one folder (`MEETING`), where each GPU that is held has a file:
INDEX.UID.LAUNCH, with the processes that hold it. A holder counts while one of them lives; nobody needs to clean up.
"""

from __future__ import annotations

import fcntl
import os
import stat

from shunter.node import contract, machine, signs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

MEETING = "/tmp/shunter-gpus"


class Busy(Exception):
    """Others hold GPUs that are needed."""


def assign(root, launch, count):
    # type: (str, str, int) -> Dict[str, str]
    """The environment that shows a launch its GPUs. Raises Busy when other launches hold too many of them."""
    have = [int(card["index"]) for card in machine.gpus()]
    lock = _enter()
    try:
        holders = {index: who for index, who in _held(root, launch) if index in have}
        free = [index for index in have if index not in holders]
        if len(free) < count:
            users = sorted({_user(uid) for uid, _ in holders.values()})
            raise Busy("%d of its %d GPUs are free and it needs %d; the others are held by runs of %s"
                       % (len(free), len(have), count, ", ".join(users) or "nobody"))  # fmt: skip
        chosen = free[:count]
        text = ",".join(str(index) for index in chosen)
        contract.write_whole(os.path.join(signs.launch_folder(root, launch), "gpus"), text.encode())
        _write(chosen, launch, [os.getpid()])  # for the moment until its launcher is there
    finally:
        if lock is not None:
            os.close(lock)
    return {"CUDA_VISIBLE_DEVICES": text, "NVIDIA_VISIBLE_DEVICES": text or "none"}


def hand_over(root, launch, pid):
    # type: (str, str, int) -> None
    """From us to the launcher that was just told."""
    _write(held_by(root, launch), launch, [pid])


def hold(root, launch):
    # type: (str, str) -> None
    """Say which processes hold the GPUs of a launch now; nobody, when it is over. May be repeated."""
    folder = signs.launch_folder(root, launch)
    chosen = _own(folder)
    if not chosen:
        return
    claim = contract.Claim.read(folder)
    over = os.path.exists(os.path.join(folder, "outcome"))
    found = [] if claim is None or over else [claim.launcher, claim.script]
    pids = [process[0] for process in found if process is not None and contract.is_alive(*process)]
    if over or (claim is not None and not pids):
        release(launch, chosen)
    elif pids:
        _write(chosen, launch, pids)


def release(launch, indexes):
    # type: (str, List[int]) -> None
    for index in indexes if _is_usable(MEETING) else ():
        try:
            os.unlink(_file(index, launch))
        except OSError:
            continue


def held_by(root, launch):
    # type: (str, str) -> List[int]
    return _own(signs.launch_folder(root, launch))


def _held(root, but):
    # type: (str, str) -> List[Tuple[int, Tuple[int, str]]]
    """Each GPU that another launch holds, with its user and launch."""
    found = []
    for name in _names(MEETING) if _is_usable(MEETING) else ():
        index, _, rest = name.partition(".")
        uid, _, launch = rest.partition(".")
        if not index.isdigit() or not uid.isdigit() or launch == but:
            continue
        own = signs.launch_folder(root, launch)
        if os.path.isdir(own):
            hold(root, launch)  # what the file says may be old; the launch's own folder is right
        if _is_alive(os.path.join(MEETING, name)):
            found.append((int(index), (int(uid), launch)))
        elif int(uid) == os.getuid():
            release(launch, [int(index)])
    if not _is_usable(MEETING):
        base = os.path.join(root, contract.LAUNCHES)
        others = [n for n in _names(base) if n != but and not os.path.exists(os.path.join(base, n, "outcome"))]
        found += [(index, (os.getuid(), n)) for n in others for index in _own(os.path.join(base, n))]
    return found


def _own(folder):
    # type: (str) -> List[int]
    try:
        with open(os.path.join(folder, "gpus")) as file:
            return [int(word) for word in file.read().split(",") if word]
    except (OSError, ValueError):
        return []


def _write(indexes, launch, pids):
    # type: (List[int], str, List[int]) -> None
    if not _is_usable(MEETING):
        return  # a machine where users cannot meet: our own launches are still kept apart
    text = "".join("%d %d %s\n" % (pid, contract.start_time(pid), contract.boot_id()) for pid in pids)
    for index in indexes:
        try:
            fd = os.open(_file(index, launch), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        except OSError:
            continue
        try:
            os.fchmod(fd, 0o644)
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def _is_alive(path):
    # type: (str) -> bool
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        lines = os.read(fd, 4096).decode("ascii", "replace").splitlines()
    finally:
        os.close(fd)
    for line in lines:
        words = line.split()
        if len(words) == 3 and words[2] == contract.boot_id() and contract.is_alive(int(words[0]), int(words[1])):
            return True
    return False


def _enter():
    # type: () -> Optional[int]
    """The lock that is held while GPUs are chosen; None where there is no place to meet."""
    path = os.path.join(MEETING, "lock")
    try:
        try:
            os.mkdir(MEETING, 0o700)
            os.chmod(MEETING, 0o1777)
        except FileExistsError:
            pass
        if not _is_usable(MEETING):
            return None
        try:
            # Without O_CREAT first: systems that protect sticky folders refuse it for the file of another user.
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            os.fchmod(lock, 0o666)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock
    except OSError:
        return None


def _is_usable(folder):
    # type: (str) -> bool
    try:
        mode = os.lstat(folder).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX) and os.access(folder, os.W_OK)


def _file(index, launch):
    # type: (int, str) -> str
    return os.path.join(MEETING, "%d.%d.%s" % (index, os.getuid(), launch))


def _user(uid):
    # type: (int) -> str
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return "user %d" % uid


def _names(folder):
    # type: (str) -> List[str]
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
