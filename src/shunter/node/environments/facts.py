"""The machine a run was on, as its record needs it: operating system, driver, hardware. Read once in a process."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_known = {}  # type: Dict[str, Any]


def host_facts():
    # type: () -> Dict[str, Any]
    if not _known:
        uname = os.uname()
        _known.update({
            "os": _os_name(),
            "kernel": uname.sysname + " " + uname.release,
            "machine": uname.machine,
            "libc": _libc(),
            "cpu": _first("/proc/cpuinfo", "model name"),
            "cpus": os.cpu_count() or 1,
            "memory_bytes": int((_first("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) * 1024,
            "driver": _line("/proc/driver/nvidia/version"),
            "gpus": _gpus(),
        })  # fmt: skip
    return _known


def _os_name() -> str:
    try:
        with open("/etc/os-release") as file:
            for line in file:
                if line.startswith("PRETTY_NAME="):
                    return line.partition("=")[2].strip().strip('"')
    except OSError:
        pass
    return " ".join(os.uname()[:3:2])


def _libc() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").replace(" ", "-")
    except (ValueError, OSError):
        return ""


def _gpus():
    # type: () -> List[str]
    base = "/proc/driver/nvidia/gpus"
    try:
        return [_first(os.path.join(base, name, "information"), "Model") for name in sorted(os.listdir(base))]
    except OSError:
        return []


def _first(path, key):
    # type: (str, str) -> str
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(key):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def _line(path):
    # type: (str) -> str
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""
