"""What a node on this machine may use at most, enforced by the kernel where this machine lets us: cgroups, new and old."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PERIOD_MICROSECONDS = 100_000


@dataclass(frozen=True, slots=True)
class Mount:
    """A hierarchy of control groups, and where in it this process is. `controller` is empty for the new, single one."""

    controller: str
    at: Path
    own: str

    @property
    def here(self) -> Path:
        return self.at / self.own.lstrip("/")


def make(name: str, cpus: float, memory_bytes: int, mounts: Sequence[Mount] | None = None) -> list[str]:
    """Groups with these limits, to which processes may be moved. Raises OSError when this machine does not allow it."""
    found = find_mounts() if mounts is None else mounts
    quota = int(cpus * PERIOD_MICROSECONDS)
    one = next((m for m in found if not m.controller), None)
    place = _delegated(one) if one is not None else None
    if place is not None:
        return [_group(place / name, {"memory.max": memory_bytes, "cpu.max": f"{quota} {PERIOD_MICROSECONDS}"})]
    made: list[str] = []
    settings: dict[str, dict[str, object]]
    settings = {"cpu": {"cpu.cfs_quota_us": quota}, "memory": {"memory.limit_in_bytes": memory_bytes}}
    try:
        for mount in found:
            # The old hierarchies know no delegation: a group that we were put into belongs to whoever put us there.
            if mount.controller in settings and mount.own == "/":
                made.append(_group(mount.here / name, settings.pop(mount.controller)))
    except OSError:
        remove(made)
        raise
    if settings:
        remove(made)
        raise PermissionError(f"no control group for {' and '.join(settings)} is open to this user")
    return made


def enter(groups: Iterable[str], pid: int) -> None:
    """Put a process, with all that it starts from now on, under these limits."""
    for group in groups:
        try:
            (Path(group) / "cgroup.procs").write_text(str(pid))
        except OSError:
            continue  # the group went with its node


def remove(groups: Iterable[str]) -> None:
    """Take groups away. Those that still hold a process stay; may be repeated."""
    for group in groups:
        try:
            os.rmdir(group)
        except OSError:
            pass


def problem() -> str:
    """Why limits cannot be had here; empty when they can."""
    try:
        remove(make(f"shunter-try-{os.getpid()}", 1, 1 << 30))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def find_mounts(mounts: str | None = None, own: str | None = None) -> list[Mount]:
    """The hierarchies that are mounted here. The arguments are for tests: contents of /proc/mounts and /proc/self/cgroup."""
    try:
        mounts = Path("/proc/mounts").read_text() if mounts is None else mounts
        own = Path("/proc/self/cgroup").read_text() if own is None else own
    except OSError:
        return []
    places = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        places.update(dict.fromkeys(controllers.split(","), path))
    found = []
    for line in mounts.splitlines():
        _, at, kind, options, *_ = line.split()
        if kind == "cgroup2" and "" in places:
            found.append(Mount("", Path(at), places[""]))
        elif kind == "cgroup":
            named = [c for c in ("cpu", "memory") if c in options.split(",") and c in places]
            found += [Mount(c, Path(at), places[c]) for c in named]
    return found


def _delegated(mount: Mount) -> Path | None:
    """The nearest group above us below which this user may make others with both controllers."""
    here = mount.here
    for place in [here, *here.parents]:
        if mount.at not in [place, *place.parents]:
            return None
        try:
            given = (place / "cgroup.subtree_control").read_text().split()
        except OSError:
            continue
        if {"cpu", "memory"} <= set(given) and os.access(place / "cgroup.procs", os.W_OK) and os.access(place, os.W_OK):
            return place
    return None


def _group(path: Path, settings: dict[str, object]) -> str:
    path.mkdir(exist_ok=True)
    try:
        for name, value in settings.items():
            (path / name).write_text(str(value))
    except OSError:
        remove([str(path)])
        raise
    return str(path)
