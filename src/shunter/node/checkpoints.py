"""What a script writes under SHUNTER_CHECKPOINT_DIR: brought home while it runs, and back before the next attempt.

Each file or folder at the top of the directory is one checkpoint. It goes home when it has stood still for a moment,
all of it or nothing; a file that is plainly cut off is held back, so that the one before it counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time

from shunter.node import intact
from shunter.node.contract import read_json, write_whole
from shunter.node.home import Home, Refused
from shunter.node.spool import say
from shunter.node.transfer import PIECE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    #: path below the directory, size, time of change, inode
    Stamp = Tuple[Tuple[str, int, int, int], ...]

FOLDER = "checkpoints"
#: What is home already, for the launcher that takes over when this one is killed.
SENT = "checkpoints.sent"
SETTLE_SECONDS = 1.0
GET_BYTES = 8 << 20


class CheckpointPusher:
    """A thread of its own, with a connection of its own: a large checkpoint must not hold up the log."""

    def __init__(self, folder, job, hear, patience):
        # type: (str, Dict[str, Any], Callable[[Dict[str, Any]], None], Callable[[int], float]) -> None
        self.folder = folder
        self.top = os.path.join(folder, FOLDER)
        self.home = Home(job["id"], job["home"])
        self.hear = hear
        self.patience = patience
        self._seen = {}  # type: Dict[str, Tuple[Stamp, float]]
        self._sent = _read_sent(folder)
        self._broken = {}  # type: Dict[str, Stamp]
        self._digests = {}  # type: Dict[Tuple[str, int, int, int], str]
        self._killed = False
        self._stop = threading.Event()
        self._thread = None  # type: Optional[threading.Thread]

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self, stop_trying, killed=False):
        # type: (Callable[[], bool], bool) -> None
        """The script is over: bring home what is left, however long the server is away.

        `killed`: it did not end by itself, and what it was writing then may be half.
        """
        self._killed = killed
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        tries = 0
        while not stop_trying():
            try:
                self.push(final=True)
                return
            except Refused as error:
                if error.status in (401, 403, 404, 410):
                    return
                tries += 1
            except OSError:
                tries += 1
            time.sleep(self.patience(tries))

    def push(self, final=False):
        # type: (bool) -> None
        """Send the checkpoints that stand still and are not home yet. Raises OSError, Refused."""
        now = time.monotonic()
        for name, stamp in sorted(stamps(self.top).items(), key=lambda item: max([s[2] for s in item[1]] or [0])):
            seen = self._seen.get(name)
            if seen is None or seen[0] != stamp:
                self._seen[name] = (stamp, now)
                if not final:
                    continue
            elif now - seen[1] < SETTLE_SECONDS and not final:
                continue
            if not stamp or stamp in (self._sent.get(name), self._broken.get(name)):
                continue
            if self._killed and self._may_be_half(name, stamp):
                self._broken[name] = stamp
                self._hold_back(name, "was being written when the script was killed")
                continue
            self._send(name, stamp)

    def _hold_back(self, name, why):
        # type: (str, str) -> None
        reason = "Checkpoint %s %s; the one before it counts." % (name, why)
        say(self.folder, "checkpoint_broken", name=name, reason=reason)

    def _may_be_half(self, name, stamp):
        # type: (str, Stamp) -> bool
        """Written in the last moment, in a format that does not tell, and there is one before it to go on from."""
        newest = max(entry[2] for entry in stamp) / 1e9
        if name not in self._sent or time.time() - newest > 5 * SETTLE_SECONDS:
            return False
        return not all(intact.is_known(os.path.join(self.top, entry[0])) for entry in stamp if entry[1])

    def _send(self, name, stamp):
        # type: (str, Stamp) -> None
        files = []
        for entry in stamp:
            path, size = entry[0], entry[1]
            full = os.path.join(self.top, path)
            try:
                why = intact.problem(full)
                if why:
                    self._broken[name] = stamp
                    self._hold_back(name, "is not whole (%s: %s)" % (path, why))
                    return
                sha256 = self._digests.get(entry) or digest(full)
                self._digests[entry] = sha256
                self._send_blob(full, size, sha256)
                files.append([path, size, sha256, os.stat(full).st_mode & 0o777])
            except FileNotFoundError:
                return
        if stamps(self.top).get(name) != stamp:
            return  # it changed meanwhile: it is looked at again
        self._post([({"checkpoint": {"name": name, "files": files}}, b"")])
        self._sent[name] = stamp
        write_whole(os.path.join(self.folder, SENT), json.dumps(self._sent).encode())

    def _send_blob(self, path, size, sha256):
        # type: (str, int, str) -> None
        header = {"blob": sha256, "total": size}
        name = "blob/" + sha256
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            held = self._post([(dict(header, offset=0, size=0), b"")]).get(name, 0)
            for _ in range(3):
                while held <= size:
                    data = os.pread(fd, PIECE_BYTES, held)
                    if not data:
                        break
                    before, held = held, self._post([(dict(header, offset=held, size=len(data)), data)]).get(name, 0)
                    if held <= before and held == 0:
                        break  # it arrived, and is not what its digest says: it changed under our hands
                if held > size:
                    return
            raise FileNotFoundError(path)
        finally:
            os.close(fd)

    def _post(self, frames):
        # type: (List[Any]) -> Dict[str, int]
        answer = self.home.post(frames)
        self.hear(answer)
        return {str(k): int(v) for k, v in (answer.get("held") or {}).items()}

    def _run(self) -> None:
        tries = 0
        while not self._stop.wait(self.patience(tries) if tries else SETTLE_SECONDS / 2):
            try:
                self.push()
                tries = 0
            except Refused as error:
                if error.status in (401, 403, 404, 410):
                    return
                tries += 1
            except OSError:
                tries += 1


def restore(folder, job, patience):
    # type: (str, Dict[str, Any], Callable[[int], float]) -> None
    """Put the checkpoints of the attempt before (or of another run) where the script will look for them."""
    top = os.path.join(folder, FOLDER)
    home = Home(job["id"], job["home"])
    source = str(job["restore"]["run"])
    try:
        for unit in job["restore"]["units"]:
            name = str(unit["name"])
            for version in unit["versions"]:
                why = _restore_version(home, source, top, version, patience)
                if not why:
                    say(folder, "checkpoint_restored", name=name, version=version["version"],
                        reason="Checkpoint %s is here again (version %d)." % (name, version["version"]))  # fmt: skip
                    break
                number = version["version"]
                reason = "Checkpoint %s (version %d) cannot be used: %s. The one before is tried." % (name, number, why)
                say(folder, "checkpoint_broken", name=name, version=number, reason=reason)
                _remove(os.path.join(top, name))
    finally:
        home.close()


def _restore_version(home, source, top, version, patience):
    # type: (Home, str, str, Dict[str, Any], Callable[[int], float]) -> str
    """Fetch one version; why it cannot be used, else empty."""
    for path, size, sha256, mode in version["files"]:
        if path.startswith("/") or ".." in path.split("/"):
            return "its path leads out"
        target = os.path.join(top, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        found = hashlib.sha256()
        done, tries = 0, 0
        with open(target, "wb") as file:
            while done < size:
                try:
                    suffix = "/checkpoint/%s?run=%s&offset=%d&size=%d" % (
                        sha256,
                        source,
                        done,
                        min(GET_BYTES, size - done),
                    )
                    data = home.request("GET", suffix)
                except Refused as error:
                    if error.status < 500:
                        return "it is not there any more"
                    tries += 1
                    time.sleep(patience(tries))
                    continue
                except OSError:
                    tries += 1
                    time.sleep(patience(tries))
                    continue
                if not data:
                    return "%s is cut off" % path
                file.write(data)
                found.update(data)
                done += len(data)
        if found.hexdigest() != sha256:
            return "%s is damaged" % path
        os.chmod(target, mode | 0o600)
    return ""


def stamps(top):
    # type: (str) -> Dict[str, Stamp]
    """Each checkpoint below `top` with what tells one state of it from another."""
    found = {}
    try:
        entries = list(os.scandir(top))
    except OSError:
        return {}
    for entry in entries:
        if entry.is_symlink() or entry.name.endswith((".tmp", ".part")) or entry.name.startswith("."):
            continue
        if entry.is_file(follow_symlinks=False):
            found[entry.name] = _stamp(top, [entry.name])
        elif entry.is_dir(follow_symlinks=False):
            inner = []
            for here, folders, names in os.walk(entry.path):
                folders.sort()
                inner += [os.path.relpath(os.path.join(here, n), top) for n in sorted(names)]
            found[entry.name] = _stamp(top, inner)
    return found


def _read_sent(folder):
    # type: (str) -> Dict[str, Stamp]
    try:
        found = read_json(os.path.join(folder, SENT)) or {}
    except (OSError, ValueError):
        return {}
    return {name: tuple(tuple(entry) for entry in stamp) for name, stamp in found.items()}


def digest(path):
    # type: (str) -> str
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while True:
            block = file.read(1 << 20)
            if not block:
                return found.hexdigest()
            found.update(block)


def _stamp(top, paths):
    # type: (str, List[str]) -> Stamp
    found = []
    for path in paths:
        try:
            stat = os.lstat(os.path.join(top, path))
        except OSError:
            continue
        if (stat.st_mode & 0o170000) == 0o100000:
            found.append((path.replace(os.sep, "/"), stat.st_size, stat.st_mtime_ns, stat.st_ino))
    return tuple(found)


def _remove(path):
    # type: (str) -> None
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.exists(path):
        os.unlink(path)
