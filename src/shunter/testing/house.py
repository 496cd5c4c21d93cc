"""A real server with real launchers in a home of its own, and the means to kill each part of it, by its id."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shunter.node import contract

END_SECONDS = 15.0


@dataclass(frozen=True)
class House:
    """The processes that belong to one SHUNTER_HOME."""

    home: Path

    @property
    def server(self) -> int | None:
        """The server's process id, None when none is running: the lock tells."""
        import fcntl

        try:
            with (self.home / "server.lock").open("r+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return int(file.read() or 0) or None
        except (OSError, ValueError):
            pass
        return None

    @property
    def parent(self) -> int | None:
        """The warm parent."""
        try:
            pid, started = map(int, (self.home / "node" / "parent.lock").read_text().split())
        except (OSError, ValueError):
            return None
        return pid if contract.is_alive(pid, started) else None

    def launchers(self) -> list[int]:
        return [c.launcher[0] for c in self.claims() if c.launcher and c.launcher_alive()]

    def scripts(self) -> list[int]:
        return [c.script[0] for c in self.claims() if c.script and c.script_alive()]

    def claims(self) -> list[contract.Claim]:
        folder = self.home / "node" / contract.LAUNCHES
        found = [contract.Claim.read(str(f)) for f in folder.iterdir()] if folder.is_dir() else []
        return [c for c in found if c is not None]

    def kill_server(self) -> bool:
        """kill -9. Returns when it is dead."""
        pid = self.server
        if pid is None:
            return False
        end([pid], signal.SIGKILL)
        # Its first thread may be gone while another still holds the lock.
        wait_until(lambda: self.server != pid, what="the server's end")
        return True

    def end_all(self) -> None:
        """End the server, the warm parent, launchers and scripts: each by its id, none by its name."""
        end([pid for pid in (self.server,) if pid])
        # The parent goes before the launchers, or it would start new ones for those that die.
        end([pid for pid in (self.parent,) if pid])
        launchers, scripts = self.launchers(), self.scripts()
        end(launchers, signal.SIGKILL)
        for pid in scripts:
            send(-pid, signal.SIGKILL)
        end(scripts, signal.SIGKILL)

    def left_over(self) -> list[int]:
        """Processes that carry this home in their environment or command line and are still there."""
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                words = Path("/proc", name, "cmdline").read_bytes() + b"\0" + Path("/proc", name, "environ").read_bytes()
            except OSError:
                continue
            if str(self.home).encode() in words and contract.start_time(int(name)):
                found.append(int(name))
        return found


def end(pids: list[int], how: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal and wait until they are gone; SIGKILL when they do not go."""
    started = {pid: contract.start_time(pid) for pid in pids}
    for pid in pids:
        send(pid, how)
    try:
        wait_until(lambda: not any(s and contract.is_alive(p, s) for p, s in started.items()), END_SECONDS)
    except TimeoutError:
        for pid in pids:
            send(pid, signal.SIGKILL)


def send(pid: int, how: signal.Signals) -> None:
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        pass


def wait_until(condition: Callable[[], object], seconds: float = 60.0, what: str = "it") -> None:
    """Wait for a condition, never for a while."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not come about in {seconds:.0f} s")
        time.sleep(0.01)
