"""What this machine is and has, for the server that wants to know."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

_GPU_QUERY = "index,name,memory.total,memory.used,utilization.gpu"


def facts(root):
    # type: (str) -> Dict[str, Any]
    system = os.uname()
    return {
        "hostname": socket.gethostname(),
        "system": system.sysname + " " + system.release,
        "machine": system.machine,
        "libc": libc(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "disk_free_bytes": shutil.disk_usage(root).free,
        "python": sys.version.split()[0],
        "interpreter": sys.executable,
        "gpus": gpus(),
        "engines": engines(),
        "load": list(os.getloadavg()),
        "user": user_name(),
        "root": root,
        "time": time.time(),
        "ends_with_session": ends_with_session(),
    }


def load(root):
    # type: (str) -> Dict[str, Any]
    """How busy it is now: little of it, quickly."""
    return {
        "load": list(os.getloadavg()),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_free_bytes": memory_free_bytes(),
        "disk_free_bytes": shutil.disk_usage(root).free,
        "gpus": gpus(),
    }


def memory_free_bytes():
    # type: () -> int
    """What programs could still take, caches included."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return 0


def gpus():
    # type: () -> List[Dict[str, Any]]
    """NVIDIA's cards as their own tool lists them; none where it is missing or fails."""
    if not shutil.which("nvidia-smi"):
        return []
    try:
        out = subprocess.run(
            ["nvidia-smi", "--query-gpu=" + _GPU_QUERY, "--format=csv,noheader,nounits"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=20, check=False,
        ).stdout.decode("utf-8", "replace")  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    for line in out.splitlines():
        words = [w.strip() for w in line.split(",")]
        if len(words) == 5 and words[0].isdigit():
            found.append({
                "index": int(words[0]), "name": words[1], "memory_bytes": _number(words[2]) << 20,
                "memory_used_bytes": _number(words[3]) << 20, "utilisation": _number(words[4]),
            })  # fmt: skip
    return found


def engines():
    # type: () -> List[str]
    """Container engines that this user can find."""
    return [name for name in ("docker", "podman") if shutil.which(name)]


def libc():
    # type: () -> str
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def user_name():
    # type: () -> str
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return str(os.getuid())


def ends_with_session():
    # type: () -> bool
    """Whether this system kills what a user leaves behind at logout, and the user is not exempt."""
    try:
        with open("/etc/systemd/logind.conf") as file:
            lines = [line.strip().lower() for line in file]
    except OSError:
        return False
    if not any(line in ("killuserprocesses=yes", "killuserprocesses=true", "killuserprocesses=1") for line in lines):
        return False
    return not os.path.exists("/var/lib/systemd/linger/" + user_name())


def _number(text):
    # type: (str) -> int
    try:
        return int(float(text))
    except ValueError:
        return 0
