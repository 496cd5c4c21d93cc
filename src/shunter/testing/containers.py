"""The container engine that `scripts/parts/podman` sets up for tests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

#: A small image with Python and nothing else, made by the same script.
IMAGE = "localhost/shunter-test:python"


def podman() -> str | None:
    """The command that was set up, None when it was not."""
    parts = Path(os.environ.get("SHUNTER_TEST_PARTS") or "/var/tmp/shunter-test-parts")
    command = parts / "podman" / "podman"
    return str(command) if command.exists() and shutil.which("podman") else None
