"""What an installer said, turned into one sentence: its own reason, first line first."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple

_NOISE = re.compile(
    r"^(Using |Creating |Resolved |Prepared |Download|Building |Built |Installed |Activate |warning:|Updat)"
)
_DISK = ("No space left on device", "Disk quota exceeded", "os error 28", "os error 122")
_NETWORK = (
    "error sending request", "Connection refused", "dns error", "timed out", "operation timed out", "Failed to fetch",
    "Request failed after", "500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable",
    "connection closed", "Could not connect",
)  # fmt: skip


def reason(output):
    # type: (str) -> str
    """The reason in an installer's output without its drawing: joined into one line, at most 600 characters."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in output.splitlines()]
    start = next((i for i, line in enumerate(lines) if re.match(r"\s*(×|error:|Error:|ERROR:|error )", line)), None)
    if start is None:
        kept = [line for line in lines if line.strip() and not _NOISE.match(line.strip())][-3:]
    else:
        kept = lines[start:]
    text = " ".join(_bare(line) for line in kept if _bare(line))
    text = re.sub(r"^(error|Error|ERROR):\s*", "", text)
    return re.sub(r"\s+", " ", text)[:600].strip()


def category(output):
    # type: (str) -> Tuple[str, str]
    """The code of a failed install and what to do next."""
    if any(mark in output for mark in _DISK):
        return "node_disk_full", "Free some space there, then `shunter run rerun`."
    if "No solution found" in output or "not found in the package registry" in output:
        return "environment_unsolvable", "Change the versions asked for; `shunter env lock` tries without a run."
    if any(mark in output for mark in _NETWORK):
        return (
            "package_index_unreachable",
            "Try again later, or name another package index with index_url.",
        )
    if "hash mismatch" in output.lower():
        return "package_changed", "A package is not the one that was locked. Lock again if you trust the change."
    return "environment_failed", "`shunter run logs` shows all the installer said."


def _bare(line):
    # type: (str) -> str
    return re.sub(r"^[\s×│╰├─▶└>|`-]+(cause: )?", "", line).strip()
