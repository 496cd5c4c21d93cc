"""What a node needs to build environments and does not have: uv, and rattler for conda packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from shunter.server.environments.pypi import find_uv


def tools(conda: bool = False) -> dict[str, str]:
    """Paths on this machine. On the local target they are used as they are; other drivers send them to their nodes."""
    found = {"uv": find_uv()}
    if conda:
        spec = importlib.util.find_spec("rattler")
        if spec is not None and spec.origin:
            found["rattler"] = str(Path(spec.origin).parent.parent)
    return found
