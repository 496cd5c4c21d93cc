"""How far the clock of a launch's machine is from ours, so that the times it tells are told in ours."""

from __future__ import annotations

import json

from shunter.model.clock import SLACK_SECONDS, settle
from shunter.node.contract import write_whole
from shunter.server.storage.files import RunFiles


class Clocks:
    """Kept beside the launch's streams, as these are read again later; nothing is kept of a clock that is right."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self._off: dict[str, float] = {}

    def heard(self, launch_id: str, off_seconds: float) -> float:
        """A report was sent when the clock there was so far ahead of ours when it came. Returns what we make of it."""
        before = self.of(launch_id) if launch_id in self._off or abs(off_seconds) >= SLACK_SECONDS else 0.0
        now = settle(before, off_seconds)
        if now != before:
            self._off[launch_id] = now
            path = self.files.stream_path(launch_id, "clock")
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(str(path), json.dumps({"off_seconds": round(now, 3)}).encode())
        return now

    def of(self, launch_id: str) -> float:
        """Seconds that the clock there is ahead of ours; 0 when it is right."""
        if launch_id not in self._off:
            try:
                found = json.loads(self.files.stream_path(launch_id, "clock").read_bytes())["off_seconds"]
            except (OSError, ValueError, KeyError):
                return 0.0
            self._off[launch_id] = float(found)
        return self._off[launch_id]

    def forget(self, launch_id: str) -> None:
        """It is over: what is kept on disk is enough."""
        self._off.pop(launch_id, None)


def usage_in_our_time(lines: bytes, off_seconds: float) -> bytes:
    """Samples of CPU and memory, one JSON object a line, in our time; a line that is not whole stays as it is."""
    if not off_seconds:
        return lines
    found = []
    for line in lines.split(b"\n"):
        try:
            sample = json.loads(line)
            found.append(json.dumps({**sample, "at": round(sample["at"] - off_seconds, 3)}).encode())
        except (ValueError, KeyError, TypeError):
            found.append(line)
    return b"\n".join(found)
