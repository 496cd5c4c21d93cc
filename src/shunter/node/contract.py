"""What server and node agree on: the files of one launch, the words in them, and how a process is known again.

    ROOT/parent.sock            the warm parent listens here
    ROOT/snapshots/ID.json      where each file of a snapshot lies on this machine (written by the driver)
    ROOT/launches/LAUNCH/       one launcher's folder:
        job.json                what to do (0600: it holds the run's token)
        claim                   who took it, line by line: launcher PID START BOOT · starting · script PID START
        cancel                  somebody wants it over
        exit                    wait status of the script: from its launcher or, when that died, from the warm parent
        outcome                 how it ended: written and synced before anybody is told
        log, usage, events, …   streams: only ever appended to, pushed home by offset
        done                    everything is home
        work/                   the snapshot, outputs/ and logs/: the script's folder
"""

from __future__ import annotations

import errno
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

VERSION = 1
LAUNCHES = "launches"
SNAPSHOTS = "snapshots"
PARENT_SOCKET = "parent.sock"

#: Streams a launcher pushes beside the files under `files/`.
STREAMS = ("log", "usage", "events", "metrics")


class Claim:
    """Who took a launch and how far they came. A process is known by its id, its start time and the boot it lives in."""

    __slots__ = ("boot", "launcher", "script", "starting")

    def __init__(self) -> None:
        self.launcher = None  # type: Optional[Tuple[int, int]]
        self.script = None  # type: Optional[Tuple[int, int]]
        self.boot = ""
        self.starting = False

    @classmethod
    def read(cls, folder):
        # type: (str) -> Optional[Claim]
        """The claim of the launch in `folder`, None when nobody took it."""
        try:
            with open(os.path.join(folder, "claim")) as file:
                lines = file.read().split("\n")
        except FileNotFoundError:
            return None
        claim = cls()
        for line in lines:
            words = line.split()
            if not words:
                continue
            if words[0] == "launcher" and len(words) == 4:
                claim.launcher = (int(words[1]), int(words[2]))
                claim.boot = words[3]
            elif words[0] == "starting":
                claim.starting = True
            elif words[0] == "script" and len(words) == 3:
                claim.script = (int(words[1]), int(words[2]))
        return claim

    def same_boot(self) -> bool:
        return self.boot == boot_id()

    def launcher_alive(self) -> bool:
        return self.launcher is not None and self.same_boot() and is_alive(*self.launcher)

    def script_alive(self) -> bool:
        return self.script is not None and self.same_boot() and is_alive(*self.script)


def take(folder, words):
    # type: (str, str) -> bool
    """Claim the launch in `folder`; False when somebody has it. The one place where "started once" is decided."""
    path = os.path.join(folder, "claim")
    if os.path.exists(path):
        return False
    # Whole at once: a claim without words would be taken for that of a launcher that is dead, however busy this machine is.
    whole = path + ".tmp" + str(os.getpid())
    try:
        _write(whole, words, os.O_TRUNC)
        os.link(whole, path)
        return True
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    finally:
        if os.path.exists(whole):
            os.unlink(whole)
    try:
        _write(path, words, os.O_EXCL)
    except FileExistsError:
        return False
    return True


#: What a file system says that has no links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def _write(path, words, how):
    # type: (str, str, int) -> None
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
    try:
        os.write(fd, words.encode() + b"\n")
    finally:
        os.close(fd)


def add_to_claim(folder, words):
    # type: (str, str) -> None
    fd = os.open(os.path.join(folder, "claim"), os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, words.encode() + b"\n")
    finally:
        os.close(fd)


def write_whole(path, data, sync=False):
    # type: (str, bytes, bool) -> None
    """Put `data` at `path` so that a reader sees all of it or nothing."""
    temporary = path + ".tmp" + str(os.getpid())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    except OSError:
        os.unlink(temporary)  # half a file on a full disk is in the way of everything else
        raise
    finally:
        os.close(fd)
    os.rename(temporary, path)


def read_json(path):
    # type: (str) -> Optional[Dict[str, Any]]
    try:
        found = json.loads(read_bytes(path))
    except FileNotFoundError:
        return None
    return found  # type: ignore[no-any-return]


def read_bytes(path):
    # type: (str) -> bytes
    """All of a small file, in three system calls instead of nine."""
    fd = os.open(path, os.O_RDONLY)
    try:
        parts = []  # type: List[bytes]
        while True:
            part = os.read(fd, 65536)
            parts.append(part)
            if len(part) < 65536:
                return b"".join(parts)
    finally:
        os.close(fd)


def boot_id() -> str:
    global _boot
    if not _boot:
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                _boot = file.read().strip()
        except OSError:
            _boot = "unknown"
    return _boot


_boot = ""


def start_time(pid):
    # type: (int) -> int
    """When a process started, in clock ticks since boot; 0 when it is gone (a zombie is gone)."""
    try:
        fd = os.open("/proc/" + str(pid) + "/stat", os.O_RDONLY)
    except OSError:
        return 0
    try:
        data = os.read(fd, 1024)
    except OSError:
        return 0
    finally:
        os.close(fd)
    fields = data[data.rfind(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return 0
    return int(fields[19])


def is_alive(pid, started):
    # type: (int, int) -> bool
    # 0: it was over before anybody could ask when it had started.
    return started != 0 and start_time(pid) == started


def find_processes(launch_id):
    # type: (str) -> List[int]
    """Processes that carry this launch's id in their environment: for the moment between `starting` and `script`."""
    mark = b"SHUNTER_LAUNCH_ID=" + launch_id.encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/" + name + "/environ", "rb") as file:
                if mark in file.read().split(b"\0") and start_time(int(name)):
                    found.append(int(name))
        except OSError:
            continue
    return sorted(found)
