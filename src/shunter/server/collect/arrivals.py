"""Whole files as they come home: kept aside until all of one version is there, then put in place at once."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shunter.errors import UsageError
from shunter.model.run import parse_launch_id
from shunter.server.storage.files import RunFiles, append, check_path, full_disk

_CHILD = re.compile(r"\.children/([0-9a-f]{32})/(.+)", re.DOTALL)


class Arrivals:
    """`family` tells which child runs a run's script made: files uploaded for them go to theirs."""

    def __init__(self, files: RunFiles, family: Callable[[str], frozenset[str]] = lambda run_id: frozenset()) -> None:
        self.files = files
        self.family = family

    def put(self, launch_id: str, header: dict[str, Any], data: bytes) -> int:
        """Add a piece of a file and return how much is held: one more than its size when it is whole and in place.

        Repeats are trimmed, a gap is not filled. `last` in the header puts it in place; `drop` begins again.
        """
        path, total, mtime_ns = str(header["file"]), int(header["total"]), int(header["mtime_ns"])
        target = self.target(launch_id, path)
        if _is_version(target, total, mtime_ns):
            return total + 1
        aside = self._aside(launch_id, f"{path}\0{total}\0{mtime_ns}")
        try:
            aside.parent.mkdir(parents=True, exist_ok=True)
            if header.get("drop"):
                aside.unlink(missing_ok=True)
                return 0
            held = append(aside, int(header["offset"]), data)
            if held > total:
                aside.unlink()
                raise UsageError(f"{path}: more bytes came than the {total} it has.")
            if held == total and header.get("last"):
                target.parent.mkdir(parents=True, exist_ok=True)
                os.utime(aside, ns=(mtime_ns, mtime_ns))
                os.replace(aside, target)
                return total + 1
            return held
        except OSError as error:
            raise full_disk(error) from error

    def target(self, launch_id: str, path: str) -> Path:
        """Where a file belongs: below its run, or below a child run that the script uploaded it for."""
        run_id, _, _ = parse_launch_id(launch_id)
        found = _CHILD.fullmatch(path)
        if found is None:
            return self.files.stream_path(launch_id, "files/" + path)
        child, inner = found.groups()
        if child not in self.family(run_id):
            raise UsageError(f"Run {child[:8]} is not a child of {run_id[:8]}.")
        return self.files.of(child) / "files" / check_path(inner)

    def forget(self, launch_id: str) -> None:
        """All of a launch is here: what is still aside are versions that were never finished."""
        run_id, _, _ = parse_launch_id(launch_id)
        folder = self.files.of(run_id) / "incoming"
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return
        for name in names:
            if name.startswith(launch_id + "."):
                (folder / name).unlink(missing_ok=True)

    def _aside(self, launch_id: str, version: str) -> Path:
        run_id, _, _ = parse_launch_id(launch_id)
        name = hashlib.sha256(version.encode("utf-8", "surrogateescape")).hexdigest()
        return self.files.of(run_id) / "incoming" / f"{launch_id}.{name}"


def _is_version(target: Path, total: int, mtime_ns: int) -> bool:
    try:
        stat = target.lstat()
    except OSError:
        return False
    return stat.st_size == total and stat.st_mtime_ns == mtime_ns
