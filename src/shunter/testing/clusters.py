"""The processes of the clusters in a home, to be killed one by one, and all of them ended."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from shunter.drivers.cluster.folder import ClusterFolder, is_process
from shunter.drivers.cluster.pools.local import session_members
from shunter.node import contract
from shunter.testing.house import end, send


@dataclass(frozen=True)
class ClusterHouse:
    """One cluster's processes, each known by its record."""

    folder: ClusterFolder

    @classmethod
    def all(cls, home: Path) -> list[ClusterHouse]:
        return [cls(ClusterFolder(path)) for path in sorted((home / "clusters").glob("*")) if path.is_dir()]

    @property
    def keeper(self) -> int | None:
        return self._pid(contract.read_json(str(self.folder.path / "keeper.json")))

    @property
    def head(self) -> int | None:
        return self._pid(contract.read_json(str(self.folder.path / "head.json")))

    def nodes(self) -> dict[str, int]:
        return {name: int(r["pid"]) for name, r in self.folder.all_nodes().items() if is_process(r)}

    def busy_nodes(self) -> list[int]:
        """Those on which a script runs at this moment."""
        return [pid for name, pid in self.nodes().items() if _scripts(self._claims(name))]

    def autoscaler(self) -> list[int]:
        return self.part(self.head, "monitor.py") if self.head else []

    def part(self, session: int, name: str) -> list[int]:
        """Processes of a head's or a node's session whose command line has `name` in it: raylet, gcs_server, monitor.py."""
        found = []
        for pid in session_members(session):
            try:
                if name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
            except OSError:
                continue
        return found

    def claims(self) -> list[contract.Claim]:
        return self._claims("*")

    def _claims(self, node: str) -> list[contract.Claim]:
        found = [contract.Claim.read(str(f)) for f in self.folder.nodes.glob(f"{node}/{contract.LAUNCHES}/*")]
        return [c for c in found if c is not None]

    def scripts(self) -> list[int]:
        return _scripts(self.claims())

    def end_all(self) -> None:
        """Keeper first, or it would bring the others back."""
        sessions = [pid for pid in (self.head, *self.nodes().values()) if pid]
        end([pid for pid in (self.keeper,) if pid], signal.SIGKILL)
        for session in sessions:
            end(session_members(session), signal.SIGKILL)
        for lock in self.folder.nodes.glob("*/parent.lock"):
            try:
                pid, started = (int(word) for word in lock.read_text().split())
            except (OSError, ValueError):
                continue  # one that has just begun: it finds its folder gone
            if contract.is_alive(pid, started):
                end([pid])
        end([c.launcher[0] for c in self.claims() if c.launcher and c.launcher_alive()], signal.SIGKILL)
        for pid in self.scripts():
            send(-pid, signal.SIGKILL)
        self.folder.forget_ray()

    @staticmethod
    def _pid(record: dict[str, int] | None) -> int | None:
        return int(record["pid"]) if record and is_process(record) else None


def _scripts(claims: list[contract.Claim]) -> list[int]:
    return [c.script[0] for c in claims if c.script and c.script_alive()]


def end_clusters(home: Path) -> None:
    for house in ClusterHouse.all(home):
        house.end_all()


def own_processes(home: Path, word: str = "") -> list[int]:
    """Processes whose command line names this home, and has `word` in it."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes()
                if str(home).encode() in line and word.encode() in line and contract.start_time(int(name)):
                    found.append(int(name))
            except OSError:
                continue
    return found
