"""Which of a machine's GPUs a launch gets: those that no other launch holds, whichever server or user it belongs to.

Servers and users of one machine meet in one folder (`MEETING`), where each launch that holds GPUs has a file, UID.LAUNCH:
a line with their numbers, then the processes that hold them, one to a line. It is only ever replaced as a whole. A holder
counts while one of its processes lives; nobody needs to clean up.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat

from shunter.node import contract, machine, signs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple

MEETING = "/tmp/shunter-gpus"


class Busy(Exception):
    """Others hold GPUs that are needed."""


def assign(root, launch, count):
    # type: (str, str, int) -> Dict[str, str]
    """The environment that shows a launch its GPUs. Raises Busy when other launches hold too many of them."""
    have = [int(card["index"]) for card in machine.gpus()]
    with _alone():
        holders = {index: uid for index, uid in _held(root, launch) if index in have}
        free = [index for index in have if index not in holders]
        if len(free) < count:
            users = sorted({_user(uid) for uid in holders.values()})
            raise Busy("%d of its %d GPUs are free and it needs %d; the others are held by runs of %s"
                       % (len(free), len(have), count, ", ".join(users) or "nobody"))  # fmt: skip
        chosen = free[:count]
        text = ",".join(str(index) for index in chosen)
        contract.write_whole(os.path.join(signs.launch_folder(root, launch), "gpus"), text.encode())
        _write(chosen, launch, [os.getpid()])  # for the moment until its launcher is there
    return {"CUDA_VISIBLE_DEVICES": text, "NVIDIA_VISIBLE_DEVICES": text or "none"}


def hand_over(root, launch, pid):
    # type: (str, str, int) -> None
    """From us to the launcher that was just told, unless it has said more itself by now."""
    with _alone():
        if contract.Claim.read(signs.launch_folder(root, launch)) is None:
            _write(held_by(root, launch), launch, [pid])
        else:
            _hold(root, launch)


def hold(root, launch):
    # type: (str, str) -> None
    """Say which processes hold the GPUs of a launch now; nobody, when it is over. May be repeated."""
    if held_by(root, launch):
        with _alone():
            _hold(root, launch)


def release(launch):
    # type: (str) -> None
    _remove("%d.%s" % (os.getuid(), launch))


def held_by(root, launch):
    # type: (str, str) -> List[int]
    try:
        with open(os.path.join(signs.launch_folder(root, launch), "gpus")) as file:
            return _numbers(file.read())
    except OSError:
        return []


def _hold(root, launch):
    # type: (str, str) -> None
    folder = signs.launch_folder(root, launch)
    claim = contract.Claim.read(folder)
    over = os.path.exists(os.path.join(folder, "outcome"))
    found = [] if claim is None or over else [claim.launcher, claim.script]
    pids = [process[0] for process in found if process is not None and contract.is_alive(*process)]
    if over or (claim is not None and not pids):
        release(launch)
    elif pids:
        _write(held_by(root, launch), launch, pids)


def _held(root, but):
    # type: (str, str) -> List[Tuple[int, int]]
    """Each GPU that another launch holds, with its user."""
    found = []
    for name in _names(MEETING) if _is_usable(MEETING) else ():
        uid, _, launch = name.partition(".")
        if not uid.isdigit() or launch == but:
            continue
        if held_by(root, launch):
            _hold(root, launch)  # what the file says may be old; the launch's own folder is right
        indexes = _living(os.path.join(MEETING, name))
        found += [(index, int(uid)) for index in indexes]
        if not indexes and int(uid) == os.getuid():
            _remove(name)
    if not _is_usable(MEETING):
        base = os.path.join(root, contract.LAUNCHES)
        others = [n for n in _names(base) if n != but and not os.path.exists(os.path.join(base, n, "outcome"))]
        found += [(index, os.getuid()) for n in others for index in held_by(root, n)]
    return found


def _write(indexes, launch, pids):
    # type: (List[int], str, List[int]) -> None
    if not indexes or not _is_usable(MEETING):
        return  # a machine where users cannot meet: our own launches are still kept apart
    lines = [",".join(map(str, indexes))]
    lines += ["%d %d %s" % (pid, contract.start_time(pid), contract.boot_id()) for pid in pids]
    name = "%d.%s" % (os.getuid(), launch)
    new = ".%s.%d" % (name, os.getpid())
    _remove(new)
    try:
        # Anybody may write into this folder: what lies there under our name is not followed.
        fd = os.open(os.path.join(MEETING, new), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            os.fchmod(fd, 0o644)
            os.write(fd, "\n".join(lines).encode())
        finally:
            os.close(fd)
        os.rename(os.path.join(MEETING, new), os.path.join(MEETING, name))
    except OSError:
        _remove(new)


def _living(path):
    # type: (str) -> List[int]
    """The GPUs in a launch's file; none when no process in it lives."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return []
    try:
        indexes, *lines = os.read(fd, 4096).decode("ascii", "replace").split("\n")
    finally:
        os.close(fd)
    for line in lines:
        words = line.split()
        if len(words) == 3 and words[2] == contract.boot_id() and contract.is_alive(int(words[0]), int(words[1])):
            return _numbers(indexes)
    return []


def _remove(name):
    # type: (str) -> None
    try:
        os.unlink(os.path.join(MEETING, name))
    except OSError:
        return


def _numbers(text):
    # type: (str) -> List[int]
    return [int(word) for word in text.split(",") if word.isdigit()]


@contextlib.contextmanager
def _alone():
    # type: () -> Iterator[None]
    """While GPUs are chosen, or it is said who holds them, nobody else on this machine does."""
    lock = _lock()
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _lock():
    # type: () -> Optional[int]
    """None where there is no place to meet."""
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
