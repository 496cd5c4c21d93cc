"""What a node keeps so that it travels once: contents of snapshots in packs, layouts, tools. One agent at a time writes here.

    ROOT/blobs/NAME.pack        contents, one after the other
    ROOT/blobs/index            line by line: b DIGEST PACK OFFSET SIZE · p PACK BOOT (written) · s PACK (safe on disk)
    ROOT/snapshots/ID.json      where each file of a snapshot lies here
    ROOT/tools/DIGEST/NAME      programs that environments need

A crash loses at most what was under way: a pack counts when its lines are in the index, a line when it is whole, and after
a restart of the machine only what was safe on disk.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import threading
import time

from shunter.node import contract

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

    Place = Tuple[str, int, int]

BLOBS = "blobs"
TOOLS = "tools"
#: A launch folder whose run is home is kept for so long, for people who look into it.
KEEP_SECONDS = 3600.0
QUIET_SECONDS = 2.0
#: A pack that no snapshot names yet may be part of one that is on its way.
SENDING_SECONDS = 600.0


class Store:
    def __init__(self, root):
        # type: (str) -> None
        self.root = root
        self.folder = os.path.join(root, BLOBS)
        self._places = None  # type: Optional[Dict[str, Place]]
        self._open = {}  # type: Dict[str, int]
        self._failed = {}  # type: Dict[str, OSError]
        self._to_sync = queue.Queue()  # type: queue.Queue[str]
        self._syncer = None  # type: Optional[threading.Thread]
        self._wrote_at = 0.0

    def lacking(self, digests):
        # type: (Iterable[str]) -> List[str]
        places = self.places()
        return [digest for digest in digests if digest not in places]

    def places(self):
        # type: () -> Dict[str, Place]
        if self._places is None:
            self._places = self._load()
        return self._places

    def write(self, name, offset, data, table):
        # type: (str, int, bytes, Optional[List[Tuple[str, int]]]) -> None
        """The next bytes of a pack; with `table` (digest and size of each content) they are the last and it counts."""
        path = self._pack(_plain(name))
        if name in self._failed:  # only the last piece is answered: it tells what became of the first that failed
            raise self._failed[name] if table is None else self._failed.pop(name)
        fd = self._open.get(name)
        if fd is None:
            if offset:
                raise ValueError("the beginning of pack " + name + " is not here")
            os.makedirs(self.folder, 0o700, exist_ok=True)
            fd = self._open[name] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._wrote_at = time.monotonic()
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if table is None:
                return
            self._enter(name, table)
        except OSError as error:
            os.unlink(path)
            os.close(self._open.pop(name))
            if table is None:
                self._failed[name] = error
            raise
        os.close(self._open.pop(name))
        self._sync_later(name)

    def _enter(self, name, table):
        # type: (str, List[Tuple[str, int]]) -> None
        places = self.places()
        lines = ["p %s %s" % (name, contract.boot_id())]
        at = 0
        found = {}
        for digest, size in table:
            lines.append("b %s %s %d %d" % (_plain(digest), name, at, size))
            found[digest] = (name, at, size)
            at += size
        self._add_lines(lines)
        places.update(found)

    def layout(self, snapshot, entries):
        # type: (str, List[Tuple[str, str, int, str]]) -> List[str]
        """Write down where the files of a snapshot lie: (path, kind, mode, digest or link target). Returns what is lacking."""
        places = self.places()
        lacking = sorted({e[3] for e in entries if e[1] == "file" and e[3] not in places})
        if lacking:
            return lacking
        found = []
        for path, kind, mode, what in entries:
            if kind == "link":
                found.append((path, kind, 0, what, 0, 0))
            else:
                pack, offset, size = places[what]
                found.append((path, kind, mode, os.path.join(self.folder, pack + ".pack"), offset, size))
        os.makedirs(os.path.join(self.root, contract.SNAPSHOTS), 0o700, exist_ok=True)
        contract.write_whole(self.layout_file(snapshot), json.dumps(found).encode())
        return []

    def layout_file(self, snapshot):
        # type: (str) -> str
        return os.path.join(self.root, contract.SNAPSHOTS, _plain(snapshot) + ".json")

    def use_layout(self, snapshot):
        # type: (str) -> Optional[str]
        """The layout's file, marked as used now; None when it is not here."""
        path = self.layout_file(snapshot)
        try:
            os.utime(path)  # what is used is kept longest
        except OSError:
            return None
        return path

    def kept_bytes(self):
        # type: () -> int
        """How much the contents take that were sent here."""
        return sum(os.stat(os.path.join(self.folder, n)).st_size for n in _names(self.folder) if n.endswith(".pack"))

    def tool(self, digest, name):
        # type: (str, str) -> str
        return os.path.join(self.root, TOOLS, _plain(digest), _plain(name))

    def make_tool(self, digest, name, entries):
        # type: (str, str, List[Tuple[str, int, str]]) -> None
        """Write out a tool from contents that are here: (path below it, or empty for a single file; mode; digest)."""
        final = os.path.join(self.root, TOOLS, _plain(digest))
        if os.path.isdir(final):
            return
        aside = final + ".tmp" + str(os.getpid())
        shutil.rmtree(aside, ignore_errors=True)
        places = self.places()
        for path, mode, what in entries:
            target = os.path.join(aside, _plain(name), path) if path else os.path.join(aside, _plain(name))
            os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
            pack, offset, size = places[what]
            _copy(os.path.join(self.folder, pack + ".pack"), offset, size, target, mode)
        os.rename(aside, final)

    def drop_old_launches(self):
        # type: () -> int
        """Remove folders of runs that are home for a while. Returns how many."""
        folders = self._old_launches()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        return len(folders)

    def layouts(self):
        # type: () -> List[Tuple[float, str]]
        """The snapshots that are here, and when each was last used."""
        base = os.path.join(self.root, contract.SNAPSHOTS)
        return [(os.stat(os.path.join(base, n)).st_mtime, n[:-5]) for n in _names(base) if n.endswith(".json")]

    def drop_layout(self, snapshot):
        # type: (str) -> int
        """Forget a snapshot, and the packs that only it needs. Returns the bytes."""
        own = self._packs_of(snapshot)
        os.unlink(self.layout_file(snapshot))
        return self._drop_packs(own - self._named())

    def drop_unnamed(self):
        # type: () -> int
        """Remove packs that no snapshot names and that are not just being sent. Returns the bytes."""
        packs = {n[:-5] for n in _names(self.folder) if n.endswith(".pack")} - self._named() - set(self._open)
        now = time.time()
        return self._drop_packs({p for p in packs if now - os.stat(self._pack(p)).st_mtime > SENDING_SECONDS})

    def _named(self):
        # type: () -> Set[str]
        return {pack for _, snapshot in self.layouts() for pack in self._packs_of(snapshot)}

    def _packs_of(self, snapshot):
        # type: (str) -> Set[str]
        with open(self.layout_file(snapshot), "rb") as file:
            return {os.path.basename(e[3])[:-5] for e in json.loads(file.read()) if e[1] == "file"}

    def _pack(self, name):
        # type: (str) -> str
        return os.path.join(self.folder, name + ".pack")

    # Cleaning

    def _old_launches(self):
        # type: () -> List[str]
        base = os.path.join(self.root, contract.LAUNCHES)
        found = []
        for name in _names(base):
            try:
                if time.time() - os.stat(os.path.join(base, name, "done")).st_mtime > KEEP_SECONDS:
                    found.append(os.path.join(base, name))
            except OSError:
                continue
        return found

    def _drop_packs(self, dead):
        # type: (Set[str]) -> int
        dead = {pack for pack in dead if os.path.exists(self._pack(pack))}
        if not dead:
            return 0
        freed = sum(os.stat(self._pack(pack)).st_size for pack in dead)
        places = self.places()
        for digest in [d for d, place in places.items() if place[0] in dead]:
            del places[digest]
        index = os.path.join(self.folder, "index")
        with open(index) as file:
            lines = [
                line for line in file if line.endswith("\n") and (line.split()[2 if line[0] == "b" else 1]) not in dead
            ]
        contract.write_whole(index, "".join(lines).encode(), sync=True)
        for pack in dead:
            os.unlink(self._pack(pack))
        return freed

    # The index

    def _load(self):
        # type: () -> Dict[str, Place]
        blobs = []
        written, safe = {}, set()
        try:
            with open(os.path.join(self.folder, "index")) as file:
                for line in file:
                    words = line.split()
                    if not line.endswith("\n") or not words:
                        continue
                    if words[0] == "b" and len(words) == 5:
                        blobs.append(words)
                    elif words[0] == "p" and len(words) == 3:
                        written[words[1]] = words[2]
                    elif words[0] == "s" and len(words) == 2:
                        safe.add(words[1])
        except FileNotFoundError:
            return {}
        there = set(_names(self.folder))
        good = {
            pack
            for pack, boot in written.items()
            if pack + ".pack" in there and (pack in safe or boot == contract.boot_id())
        }
        for name in there:
            if name.endswith(".pack") and name[:-5] not in good and name[:-5] not in self._open:
                os.unlink(os.path.join(self.folder, name))
        return {w[1]: (w[2], int(w[3]), int(w[4])) for w in blobs if w[2] in good}

    def _add_lines(self, lines):
        # type: (List[str]) -> None
        data = ("\n".join(lines) + "\n").encode()
        fd = os.open(os.path.join(self.folder, "index"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data  # a writer before us was cut off
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def _sync_later(self, name):
        # type: (str) -> None
        if self._syncer is None:
            self._syncer = threading.Thread(target=self._sync, daemon=True)
            self._syncer.start()
        self._to_sync.put(name)

    def _sync(self) -> None:
        while True:
            name = self._to_sync.get()
            while time.monotonic() - self._wrote_at < QUIET_SECONDS:
                time.sleep(QUIET_SECONDS)  # a disk that must sync takes in the rest of a transfer much more slowly
            try:
                fd = os.open(os.path.join(self.folder, name + ".pack"), os.O_RDONLY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
                self._add_lines(["s " + name])
            except OSError:
                continue  # it stays unsafe: after a restart of the machine it is sent again


def _copy(pack, offset, size, target, mode):
    # type: (str, int, int, str, int) -> None
    with open(pack, "rb") as source, open(target, "wb") as out:
        source.seek(offset)
        while size:
            data = source.read(min(size, 1 << 20))
            if not data:
                raise OSError("short copy of " + target)
            out.write(data)
            size -= len(data)
    os.chmod(target, mode)


def _names(folder):
    # type: (str) -> List[str]
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _plain(name):
    # type: (str) -> str
    """A name that is one part of a path."""
    if not name or "/" in name or name.startswith(".") or "\0" in name or any(c.isspace() for c in name):
        raise ValueError(repr(name) + " cannot be a name here")
    return name
