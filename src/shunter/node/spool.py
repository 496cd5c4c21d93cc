"""One launch's spool: what there is to push, how far the server has it, and a pusher that never tires."""

from __future__ import annotations

import json
import os
import time

from shunter.node.contract import STREAMS
from shunter.node.home import CHUNK_BYTES, Home, Refused
from shunter.node.transfer import Changing, send_file
from shunter.node.workfolder import kept_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

    from shunter.node.home import Frame


class Unwanted(Exception):
    """The server no longer knows this launch, or may not be told: there is nobody to push to."""


class Spool:
    """Everything in `folder` that must come home. Offsets are the server's word; nothing is kept but its answers."""

    def __init__(self, folder, job):
        # type: (str, Dict[str, Any]) -> None
        self.folder = folder
        self.home = Home(job["id"], job["home"])
        self.held = {}  # type: Dict[str, int]
        self.marks = []  # type: List[Dict[str, Any]]
        self.canceled = False
        self.wanted = []  # type: List[str]
        self.heard_at = time.monotonic()
        self.collect = job.get("collect", "push")
        self.over = False
        self.interrupted = bool  # type: Callable[[], bool]

    def mark(self, header):
        # type: (Dict[str, Any]) -> None
        """A state message (`started`, `outcome`): sent with the next report, kept until it is answered."""
        self.marks.append(header)

    def behind(self):
        # type: () -> bool
        return bool(self.marks) or any(size > self.held.get(name, 0) for name, size in self._streams())

    def push(self, beat=False, last=None):
        # type: (bool, Optional[Dict[str, Any]]) -> bool
        """One report of what the server does not have. True when nothing is left. Raises OSError, Refused, Unwanted.

        The mark `last` goes with the report that leaves nothing to say.
        """
        frames, whole = self._frames()
        if whole and last is not None and last not in self.marks:
            self.marks.append(last)
        if not frames and not self.marks and not beat:
            return True
        sent = list(self.marks)
        try:
            answer = self.home.post([(m, b"") for m in sent] + frames)
        except Refused as error:
            if error.status in (401, 403, 404, 410):
                raise Unwanted(str(error)) from error
            raise
        self._take(answer)
        self.marks = [m for m in self.marks if m not in sent]
        return whole and all(self.held.get(h["stream"], 0) >= h["offset"] + h["size"] for h, _ in frames)

    def push_all(self, last, patience):
        # type: (Optional[Dict[str, Any]], Callable[[int], float]) -> None
        """Push until everything is home, the mark `last` in the final report. Waits as long as it takes."""
        tries = 0
        while True:
            before = (sum(self.held.values()), len(self.marks))
            try:
                # What is over does not grow: after a whole report there is nothing left to look for.
                if self.push(last=last) and (self.over or not self.behind()):
                    return
                if before != (sum(self.held.values()), len(self.marks)):
                    tries = 0
                    continue
            except (OSError, Refused):
                pass
            if not os.path.isdir(self.folder):
                raise Unwanted("the launch's folder is gone")
            tries += 1
            time.sleep(patience(tries))

    def _take(self, answer):
        # type: (Dict[str, Any]) -> None
        held = answer.get("held") or {}
        self.held.update({str(k): int(v) for k, v in held.items() if not k.startswith("file/")})
        self.hear(answer)

    def hear(self, answer):
        # type: (Dict[str, Any]) -> None
        """What the server wants of us, told with any answer."""
        self.heard_at = time.monotonic()
        self.canceled = self.canceled or bool(answer.get("cancel"))
        self.wanted += [top for top in answer.get("want") or [] if top not in self.wanted]

    def _streams(self):
        # type: () -> List[Tuple[str, int]]
        found = []
        for name in STREAMS:
            try:
                found.append((name, os.stat(os.path.join(self.folder, name)).st_size))
            except OSError:
                continue
        work = os.path.join(self.folder, "work")
        for path, size, _ in kept_files(work, "logs"):
            found.append(("files/" + path, size))
        return found

    def _frames(self):
        # type: () -> Tuple[List[Frame], bool]
        """At most about a chunk of what the server lacks, and whether that is all."""
        frames = []  # type: List[Frame]
        room = CHUNK_BYTES
        for name, size in self._streams():
            offset = self.held.get(name, 0)
            if size <= offset:
                continue
            if room <= 0:
                return frames, False
            data = self._read(name, offset, min(room, size - offset))
            if data:
                header = {"stream": name, "offset": offset, "size": len(data)}  # type: Dict[str, Any]
                if self.over and offset + len(data) == size:
                    header["last"] = True  # nothing will follow: a secret half said is not waited for
                frames.append((header, data))
                room -= len(data)
            if offset + len(data) < size:
                return frames, False
        return frames, True

    def _read(self, name, offset, size):
        # type: (str, int, int) -> bytes
        path = os.path.join(self.folder, "work", name[6:]) if name.startswith("files/") else os.path.join(self.folder, name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return b""
        try:
            return os.pread(fd, size, offset)
        finally:
            os.close(fd)

    def send_files(self, top, patience):
        # type: (str, Callable[[int], float]) -> None
        """Bring all regular files below work/`top` home: moved where the server shares the disk, else pushed by offset."""
        work = os.path.join(self.folder, "work")
        files = list(kept_files(work, top))
        for start in range(0, len(files), 500):
            self._send_some(files[start : start + 500], patience)

    def _send_some(self, files, patience):
        # type: (List[Tuple[str, int, int]], Callable[[int], float]) -> None
        tries = 0
        while files:
            try:
                if self.collect == "move":
                    moves = [({"move": path, "total": size, "mtime": at / 1e9}, b"") for path, size, at in files]
                    self._take(self.home.post(moves))
                    return
                path, size, mtime = files[0]
                self._send_one(path, size, mtime)
                files = files[1:]
                tries = 0
            except Refused as error:
                if error.status in (401, 403, 404, 410):
                    raise Unwanted(str(error)) from error
                tries += 1
                time.sleep(patience(tries))
            except OSError:
                tries += 1
                time.sleep(patience(tries))

    def _send_one(self, path, size, mtime):
        # type: (str, int, int) -> None
        name = "files/" + path
        if not path.startswith("logs/"):
            try:
                send_file(self.post_pieces, os.path.join(self.folder, "work", path), path)
            except Changing:
                pass  # it is asked for while it is being written; at the end it stands still
            return
        # A log was streamed while it grew: what the server lacks is its end.
        self._take(self.home.post([({"stream": name, "offset": 0, "size": 0, "total": size, "mtime": mtime / 1e9}, b"")]))
        while self.held.get(name, 0) < size:
            offset = self.held.get(name, 0)
            data = self._read(name, offset, min(4 * CHUNK_BYTES, size - offset))
            if not data:
                return
            header = {"stream": name, "offset": offset, "size": len(data), "total": size, "last": offset + len(data) == size}
            self._take(self.home.post([(header, data)]))

    def post_pieces(self, frames):
        # type: (List[Frame]) -> Dict[str, int]
        """Send pieces of files and return what the server holds of each. Ends early when something else is due."""
        if self.interrupted():
            raise InterruptedError("something else is due")
        if self.behind():
            self.push()  # what is said meanwhile does not wait for the end of a large file
        answer = self.home.post(frames)
        self._take(answer)
        return {str(k): int(v) for k, v in (answer.get("held") or {}).items()}

    # What the script uploads while it runs: whole copies in the folder `uploads`, gone from there when they are home.

    def send_uploads(self) -> None:
        """Bring home what was uploaded so far. Raises OSError, Refused; what is left is tried again."""
        for path, size, mtime in list(self.uploads()):
            source = os.path.join(self.folder, path)
            name = path[8:]
            if self.collect == "move":
                self._take(self.home.post([({"move": name, "from": "uploads", "total": size, "mtime": mtime / 1e9}, b"")]))
            elif send_file(self.post_pieces, source, name):
                try:
                    os.unlink(source)
                except OSError:
                    pass

    def push_uploads(self, patience):
        # type: (Callable[[int], float]) -> None
        """All of them, as long as it takes."""
        tries = 0
        while next(self.uploads(), None) is not None:
            try:
                self.send_uploads()
            except Refused as error:
                if error.status in (401, 403, 404, 410):
                    raise Unwanted(str(error)) from error
                if error.status < 500 and tries > 3:
                    return  # the server will not have one of them: said in its log, and no reason to hang
                tries += 1
                time.sleep(patience(tries))
            except OSError:
                tries += 1
                time.sleep(patience(tries))

    def uploads(self):
        # type: () -> Iterator[Tuple[str, int, int]]
        return kept_files(self.folder, "uploads")

    # For those who wait until all that was said is home.

    def extent(self):
        # type: () -> Tuple[Dict[str, int], List[str]]
        """How much the script has said and uploaded by now. Its log is not waited for: it is brought home anyway."""
        sizes = {name: size for name, size in self._streams() if name == "metrics"}
        return sizes, [path for path, _, _ in self.uploads()]

    def has_reached(self, extent):
        # type: (Tuple[Dict[str, int], List[str]]) -> bool
        sizes, uploads = extent
        return all(self.held.get(name, 0) >= size for name, size in sizes.items()) and not any(
            os.path.exists(os.path.join(self.folder, path)) for path in uploads
        )


def say(folder, kind, **data):
    # type: (str, str, **Any) -> None
    """Append to the stream `events`: what the node is doing, for people who wait."""
    line = json.dumps(dict(data, at=round(time.time(), 3), kind=kind))
    with open(os.path.join(folder, "events"), "a") as file:
        file.write(line + "\n")
