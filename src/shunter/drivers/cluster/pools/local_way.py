"""The way to a node on this machine: the local driver on that node's root, its runs under that node's limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shunter.drivers.base import Home
from shunter.drivers.cluster import limits
from shunter.drivers.local.driver import LocalDriver
from shunter.model.compute import Compute


class LocalNode(LocalDriver):
    def __init__(self, compute: Compute, home: Home, root: Path, groups: Sequence[str]) -> None:
        super().__init__(compute, home, root=root)
        self.groups = groups

    def _start_parent(self) -> None:
        """Before it has started anything: what it starts is where it is."""
        super()._start_parent()
        if self._parent is not None:
            limits.enter(self.groups, self._parent.pid)
