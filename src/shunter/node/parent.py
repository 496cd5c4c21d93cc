"""The warm parent: one per node and user, apart from the server. Finds a launcher for each run, at once.

A launcher is forked, and rests for a moment when its run was a short and simple one: the next run spares the fork, which
costs more than all that a launcher does.

It is the reaper of orphans: when a launcher dies, its script comes to us, and its wait status is not lost. If the parent
itself dies, launchers and scripts go on; the next parent adopts what has no launcher. It has one thread, so forking is safe.
"""

from __future__ import annotations

import encodings.idna
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback

from shunter.node import contract, exits, launcher, workfolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set

    from shunter.node.home import Home

IDLE_SECONDS = 3600.0
REST_SECONDS = 2.0
TIDY_SECONDS = 2.0
TIDY_AT_LAST_SECONDS = 60.0
KEEP_SECONDS = 86400.0
PR_SET_CHILD_SUBREAPER = 36


def main(root):
    # type: (str) -> int
    """Serve until told to stop, or idle for an hour with nothing to look after."""
    import fcntl

    os.makedirs(os.path.join(root, contract.LAUNCHES), exist_ok=True)
    os.chdir(root)
    lock = os.open("parent.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 0  # one is there
    os.ftruncate(lock, 0)
    os.write(lock, ("%d %d" % (os.getpid(), contract.start_time(os.getpid()))).encode())
    become_reaper()
    # The socket's path is relative: a long home would not fit into its 108 bytes.
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.unlink(contract.PARENT_SOCKET)
    except FileNotFoundError:
        pass
    os.umask(0o077)
    listener.bind(contract.PARENT_SOCKET)
    listener.listen(512)
    return Parent(root, listener, lock).serve()


class Parent:
    def __init__(self, root, listener, lock):
        # type: (str, socket.socket, int) -> None
        self.root = root
        self.listener = listener
        self.lock = lock
        self.forked = set()  # type: Set[int]
        self.launchers = {}  # type: Dict[int, str]
        self.lines = {}  # type: Dict[int, socket.socket]
        self.resting = {}  # type: Dict[int, float]
        self.connections = {}  # type: Dict[int, socket.socket]
        self.buffers = {}  # type: Dict[int, bytes]
        self.stopping = False
        self.untidy_since = None  # type: Optional[float]
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_write, False)
        os.set_blocking(self.wake_read, False)

    def serve(self) -> int:
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # What is there now is there for good: a launcher's collector must not touch, and so copy, our pages.
        gc.collect()
        gc.freeze()
        self._adopt_orphans()
        quiet_since = time.monotonic()
        while not self.stopping:
            waiting = [self.listener, self.wake_read, *self.connections.values(), *self.lines.values()]  # type: List[Any]
            ready = select.select(waiting, [], [], self._until_tidy())[0]
            for one in ready:
                if one is self.listener:
                    connection, _ = self.listener.accept()
                    self.connections[connection.fileno()] = connection
                    self.buffers[connection.fileno()] = b""
                elif one is self.wake_read:
                    os.read(self.wake_read, 4096)
                elif one.fileno() in self.connections:
                    self._hear(one)
                else:
                    self._on_line(one)
            self._reap()
            self._send_home()
            self._tidy()
            if ready or self.launchers:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > IDLE_SECONDS or not os.path.isdir(self.root):
                return 0
        return 0

    def _until_tidy(self) -> float:
        if self.resting:
            return REST_SECONDS
        return 60.0 if self.untidy_since is None or self.launchers else TIDY_SECONDS

    def _tidy(self) -> None:
        """Clear away what launches that are over have left, in a child with the least priority, when nothing runs."""
        since = self.untidy_since
        waited = since is not None and time.monotonic() - since
        if not waited or waited < (TIDY_AT_LAST_SECONDS if self.launchers else TIDY_SECONDS):
            return
        self.untidy_since = None
        pid = os.fork()
        if pid:
            self.forked.add(pid)
            return
        try:
            # A parent that dies meanwhile must not seem to be there: neither its lock nor its socket may outlive it here.
            self._let_go()
            os.nice(19)
            clear(os.path.join(self.root, contract.LAUNCHES), time.time())
        finally:
            os._exit(0)

    def _on_term(self, *_):
        # type: (*object) -> None
        self.stopping = True

    def _hear(self, connection):
        # type: (socket.socket) -> None
        fd = connection.fileno()
        try:
            data = connection.recv(65536)
        except OSError:
            data = b""  # whoever asked was killed before it read our answer: that must not end us
        if not data:
            self._drop(fd)
            return
        *lines, self.buffers[fd] = (self.buffers[fd] + data).split(b"\n")
        for line in lines:
            try:
                answer = self._do(json.loads(line))
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except (OSError, ValueError):
                self._drop(fd)
                return

    def _drop(self, fd):
        # type: (int) -> None
        self.connections.pop(fd).close()
        self.buffers.pop(fd)

    def _do(self, message):
        # type: (Dict[str, str]) -> Dict[str, object]
        if "launch" in message:
            return {"pid": self._launch(os.path.join(self.root, contract.LAUNCHES, message["launch"]))}
        if "adopt" in message:
            folder = os.path.join(self.root, contract.LAUNCHES, message["adopt"])
            if folder not in self.launchers.values():
                self._fork(folder, launcher.adopt)
        if "stop" in message:
            self.stopping = True
        return {"pid": os.getpid(), "launchers": len(self.launchers), "version": contract.VERSION, "tree": __file__}

    def _launch(self, folder):
        # type: (str) -> int
        """Give the launch to a launcher that rests, the one that worked last, or to a new one."""
        while self.resting:
            pid, _ = self.resting.popitem()
            try:
                self.lines[pid].sendall(folder.encode() + b"\n")
            except OSError:
                continue  # it was killed: we shall hear of it
            self.launchers[pid] = folder
            return pid
        ours, line = socket.socketpair()
        pid = self._fork(folder, lambda first: _launch_on(first, line), ours)
        line.close()
        self.lines[pid] = ours
        return pid

    def _on_line(self, line):
        # type: (socket.socket) -> None
        """A launcher says that its run is home and that it could take another; or it is gone."""
        pid = next((p for p, one in self.lines.items() if one is line), 0)
        try:
            rests = bool(pid and line.recv(16))
        except OSError:
            rests = False
        if not rests:
            line.close()
            self.lines.pop(pid, None)
            self.resting.pop(pid, None)
        elif self.launchers.pop(pid, None) is not None:
            self.resting[pid] = time.monotonic()
            self.untidy_since = self.untidy_since or time.monotonic()

    def _send_home(self) -> None:
        """Launchers that have rested for long go: a closed line is the word for that."""
        now = time.monotonic()
        for pid in [p for p, since in self.resting.items() if now - since >= REST_SECONDS]:
            del self.resting[pid]
            self.lines.pop(pid).close()

    def _fork(self, folder, work, ours=None):
        # type: (str, Callable[[str], object], Optional[socket.socket]) -> int
        pid = os.fork()
        if pid:
            self.forked.add(pid)
            self.launchers[pid] = folder
            return pid
        code = 1
        try:
            os.setsid()
            self._let_go()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if ours is not None:
                ours.close()
            become_reaper()
            work(folder)
            code = 0
        except SystemExit:
            pass
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _let_go(self) -> None:
        """In a child: of all that is the parent's own."""
        signal.set_wakeup_fd(-1)
        for connection in [*self.connections.values(), *self.lines.values()]:
            connection.close()
        self.listener.close()
        for fd in (self.wake_read, self.wake_write, self.lock):
            os.close(fd)

    def _reap(self) -> None:
        while True:
            try:
                ended = exits.next_ended()
            except ChildProcessError:
                return
            if ended is None:
                return
            pid, status = ended
            if pid not in self.forked:
                self._on_orphan_ended(pid, status)
            os.waitpid(pid, 0)
            folder = self.launchers.pop(pid, None)
            if folder is not None and self.untidy_since is None:
                self.untidy_since = time.monotonic()
            self.forked.discard(pid)
            if folder is None:
                continue
            if status != 0 and not os.path.exists(os.path.join(folder, "done")):
                self._fork(folder, launcher.adopt)

    def _on_orphan_ended(self, pid, status):
        # type: (int, int) -> None
        """A script whose launcher died before it: whoever adopted the launch reads the status here."""
        for folder in [*self.launchers.values(), *self._unfinished()]:
            claim = contract.Claim.read(folder)
            if claim is not None and claim.script is not None and claim.script[0] == pid:
                exits.write_exit(folder, status)
                return

    def _adopt_orphans(self) -> None:
        """What an earlier parent left behind: launches whose launcher is gone."""
        for folder in self._unfinished():
            claim = contract.Claim.read(folder)
            if claim is not None and claim.same_boot() and not claim.launcher_alive():
                self._fork(folder, launcher.adopt)

    def _unfinished(self):
        # type: () -> list[str]
        base = os.path.join(self.root, contract.LAUNCHES)
        folders = [os.path.join(base, name) for name in os.listdir(base)]
        return [f for f in folders if not os.path.exists(os.path.join(f, "done"))]


def _launch_on(folder, line):
    # type: (str, socket.socket) -> None
    """In a launcher: this launch, then those that the parent has for us while we rest. It hangs up when it has none."""
    way = None  # type: Optional[Home]
    while folder:
        way = launcher.run(folder, way)
        if way is None:
            return
        try:
            line.sendall(b".")
            folder = line.recv(4096).decode().rstrip("\n")
        except OSError:
            return


def clear(launches, now):
    # type: (str, float) -> None
    """Work folders of launches that are home go at once; the rest, a few small files, is kept for a day."""
    for name in os.listdir(launches):
        folder = os.path.join(launches, name)
        try:
            age = now - os.stat(os.path.join(folder, "done")).st_mtime
        except OSError:
            continue
        workfolder.remove(folder if age > KEEP_SECONDS else os.path.join(folder, "work"))


def become_reaper() -> None:
    """Processes that lose their parent come to us instead of to init (Linux; elsewhere nothing happens)."""
    global _prctl
    if _prctl is None:
        try:
            import ctypes

            _prctl = ctypes.CDLL(None).prctl
        except (ImportError, OSError, AttributeError):
            return
    _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


_prctl = None  # type: Optional[Callable[..., int]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
