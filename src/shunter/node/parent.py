"""The warm parent: one per node and user, apart from the server. Forks a launcher for each run, at once.

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

from shunter.node import contract, launcher, workfolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

IDLE_SECONDS = 3600.0
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
        self.launchers = {}  # type: Dict[int, str]
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
            waiting = [self.listener, self.wake_read, *self.connections.values()]  # type: List[Any]
            ready = select.select(waiting, [], [], self._until_tidy())[0]
            for one in ready:
                if one is self.listener:
                    connection, _ = self.listener.accept()
                    self.connections[connection.fileno()] = connection
                    self.buffers[connection.fileno()] = b""
                elif one is self.wake_read:
                    os.read(self.wake_read, 4096)
                else:
                    self._hear(one)
            self._reap()
            self._tidy()
            if ready or self.launchers:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > IDLE_SECONDS or not os.path.isdir(self.root):
                return 0
        return 0

    def _until_tidy(self) -> float:
        return 60.0 if self.untidy_since is None or self.launchers else TIDY_SECONDS

    def _tidy(self) -> None:
        """Clear away what launches that are over have left, in a child with the least priority, when nothing runs."""
        since = self.untidy_since
        waited = since is not None and time.monotonic() - since
        if not waited or waited < (TIDY_AT_LAST_SECONDS if self.launchers else TIDY_SECONDS):
            return
        self.untidy_since = None
        if os.fork():
            return
        try:
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
        data = connection.recv(65536)
        if not data:
            self._drop(fd)
            return
        *lines, self.buffers[fd] = (self.buffers[fd] + data).split(b"\n")
        for line in lines:
            try:
                answer = self._do(json.loads(line))
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                self._drop(fd)
                return

    def _drop(self, fd):
        # type: (int) -> None
        self.connections.pop(fd).close()
        self.buffers.pop(fd)

    def _do(self, message):
        # type: (Dict[str, str]) -> Dict[str, object]
        if "launch" in message:
            return {"pid": self._fork(os.path.join(self.root, contract.LAUNCHES, message["launch"]), launcher.run)}
        if "adopt" in message:
            folder = os.path.join(self.root, contract.LAUNCHES, message["adopt"])
            if folder not in self.launchers.values():
                self._fork(folder, launcher.adopt)
        if "stop" in message:
            self.stopping = True
        return {"pid": os.getpid(), "launchers": len(self.launchers), "version": contract.VERSION, "tree": __file__}

    def _fork(self, folder, work):
        # type: (str, Callable[[str], None]) -> int
        pid = os.fork()
        if pid:
            self.launchers[pid] = folder
            return pid
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for connection in self.connections.values():
                connection.close()
            self.listener.close()
            for fd in (self.wake_read, self.wake_write, self.lock):
                os.close(fd)
            become_reaper()
            work(folder)
            code = 0
        except SystemExit:
            pass
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            folder = self.launchers.pop(pid, None)
            if folder is not None and self.untidy_since is None:
                self.untidy_since = time.monotonic()
            if folder is None:
                self._on_orphan_ended(pid, status)
            elif status != 0 and not os.path.exists(os.path.join(folder, "done")):
                self._fork(folder, launcher.adopt)

    def _on_orphan_ended(self, pid, status):
        # type: (int, int) -> None
        """A script whose launcher died before it: whoever adopted the launch reads the status here."""
        for folder in [*self.launchers.values(), *self._unfinished()]:
            claim = contract.Claim.read(folder)
            if claim is not None and claim.script is not None and claim.script[0] == pid:
                contract.write_whole(os.path.join(folder, "exit"), str(status).encode())
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
