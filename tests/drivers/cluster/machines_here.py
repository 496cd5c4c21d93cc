"""Machines for a cluster: those of the SSH tests, which see each other and the interpreter of the tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "ssh"))

from machines import Machine, is_possible

__all__ = ["Machine", "is_possible", "two_machines"]


def two_machines(folder: Path) -> list[Machine]:
    """Two machines that reach each other through this one."""
    made: list[Machine] = []
    try:
        for number in range(2):
            made.append(Machine(folder / f"machine{number}", setup=_show_interpreter(folder / f"shown{number}")))
            made[-1].up()
        made[0].route_to(made[1])
    except BaseException:
        for machine in made:
            machine.down()
        raise
    return made


def _show_interpreter(folder: Path) -> str:
    """Commands that let every user of a machine start the interpreter of the tests, which may lie in a closed folder.

    And memory of its own that processes share, and a name server that says no at once: there is none to be waited for.
    """
    folder.mkdir()
    (folder.parent / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    names = f"mount --bind {folder.parent / 'resolv.conf'} /etc/resolv.conf && mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
    base = Path(sys.base_prefix)
    closed = next((p for p in reversed(base.parents) if not p.stat().st_mode & 0o001), None)
    if closed is None:
        return names
    inside = folder / base.relative_to(closed)
    shown = f"mkdir -p {inside} && chmod 755 {folder} && mount --bind {base} {inside} && mount --rbind {folder} {closed}"
    return f"{names} && {shown}"
