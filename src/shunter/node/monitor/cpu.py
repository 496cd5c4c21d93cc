"""CPU time and working set of the run's own processes, read from /proc."""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """Follows a script and all that it starts. `sample` appends a line to the stream `usage`; `summary` tells the whole."""

    def __init__(self, pid, stream):
        # type: (int, str) -> None
        self.pid = pid
        self.stream = stream
        self.began = time.monotonic()
        self.samples = 0
        self.peak_bytes = 0
        self.peak_cores = 0.0
        self._byte_seconds = 0.0
        self._last = (self.began, 0.0, 0)
        self._cpu = {}  # type: Dict[int, float]

    def sample(self) -> None:
        now = time.monotonic()
        pids = descendants(self.pid)
        working_set, shared = 0, 0
        for pid in pids:
            seen = _read(pid)
            if seen is None:
                continue
            cpu_seconds, private, common = seen
            # A child that was waited for is counted in its parent's figures: never let the sum fall.
            self._cpu[pid] = max(self._cpu.get(pid, 0.0), cpu_seconds)
            working_set += private
            shared = max(shared, common)
        working_set += shared
        cpu = sum(self._cpu.values())
        before, cpu_before, bytes_before = self._last
        passed = now - before
        if passed > 0.05:
            self.peak_cores = max(self.peak_cores, (cpu - cpu_before) / passed)
        self._byte_seconds += passed * (bytes_before + working_set) / 2
        self._last = (now, cpu, working_set)
        self.peak_bytes = max(self.peak_bytes, working_set)
        self.samples += 1
        line = {"at": round(time.time(), 3), "cpu_seconds": round(cpu, 3), "working_set_bytes": working_set}
        line["processes"] = len(pids)
        try:
            with open(self.stream, "a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError:
            pass  # a full disk costs samples, not the run

    def summary(self, rusage=None):
        # type: (Any) -> Dict[str, Any]
        """Mean and peak over the whole life. The kernel's own account of the ended script corrects what samples missed."""
        passed = max(time.monotonic() - self.began, 1e-6)
        cpu = self._last[1]
        peak = self.peak_bytes
        if rusage is not None:
            cpu = max(cpu, rusage.ru_utime + rusage.ru_stime)
            peak = max(peak, rusage.ru_maxrss * 1024)
        seen = self._last[0] - self.began
        mean = self._byte_seconds / seen if seen > 0 and self.samples > 1 else peak
        return {
            "wall_seconds": round(passed, 3),
            "cpu_seconds": round(cpu, 3),
            "cpu_cores_mean": round(cpu / passed, 3),
            "cpu_cores_peak": round(max(self.peak_cores, cpu / passed if self.samples < 3 else 0.0), 3),
            "working_set_bytes_mean": int(mean),
            "working_set_bytes_peak": int(peak),
            "samples": self.samples,
        }


def descendants(pid):
    # type: (int) -> List[int]
    """The process and everything below it that is still there."""
    found = []
    todo = [pid]
    while todo:
        here = todo.pop()
        found.append(here)
        try:
            tasks = os.listdir("/proc/" + str(here) + "/task")
        except OSError:
            continue
        for task in tasks:
            try:
                fd = os.open("/proc/" + str(here) + "/task/" + task + "/children", os.O_RDONLY)
            except OSError:
                continue
            try:
                todo += [int(word) for word in os.read(fd, 65536).split()]
            except OSError:
                pass
            finally:
                os.close(fd)
    return found


def _read(pid):
    # type: (int) -> Any
    try:
        with open("/proc/" + str(pid) + "/stat", "rb") as file:
            stat = file.read()
        with open("/proc/" + str(pid) + "/statm", "rb") as file:
            statm = file.read().split()
    except OSError:
        return None
    fields = stat[stat.rfind(b")") + 2 :].split()
    cpu_seconds = sum(int(fields[k]) for k in (11, 12, 13, 14)) / _TICKS
    resident, shared = int(statm[1]) * _PAGE, int(statm[2]) * _PAGE
    return cpu_seconds, resident - shared, shared
