"""A node for tests of environments: a folder, wheels that the test makes itself, and uv."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shunter.node import environments
from shunter.node.environments import Prepared
from shunter.server.environments.pypi import find_uv
from shunter.testing.packages import make_wheel

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
#: Runs `prepare` in a process of its own, as a launcher would: prints what came of it.
ALONE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from shunter.node import environments
spec, folder, root, job = json.loads(sys.argv[2])
try:
    found = environments.prepare(spec, folder, root, lambda what: print("say " + what, flush=True), lambda: False, job)
    print("prepared " + json.dumps(found.facts), flush=True)
except environments.Unavailable as error:
    print("unavailable " + json.dumps(error.words()), flush=True)
"""


def run_python(interpreter: str, code: str) -> str:
    return subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


class Node:
    """A node's root and one launch on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.wheels = root / "wheels"
        self.wheels.mkdir(parents=True)
        self.said: list[str] = []
        self.canceled: Callable[[], bool] = lambda: False
        self.tools = {"uv": find_uv()}

    @property
    def cache(self) -> Path:
        return self.root / "environments"

    def launch(self, name: str = "one") -> Path:
        folder = self.root / "launches" / name
        (folder / "work").mkdir(parents=True, exist_ok=True)
        return folder

    def spec(self, *wheels: Path, **changes: Any) -> dict[str, Any]:
        """A lock of these wheels, as the server would send it."""
        lines = []
        for wheel in wheels:
            name, version = wheel.name.split("-")[:2]
            lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
        lock = {"python": PYTHON, "pip": "".join(lines), "conda": ""}
        return {
            "kind": "built",
            "lock_id": hashlib.sha256(json.dumps(lock).encode()).hexdigest()[:32],
            "lock": lock,
            "options": ["--no-index", "--find-links", str(self.wheels)],
            **changes,
        }

    def wheel(self, name: str, version: str = "1.0", **rest: Any) -> Path:
        return make_wheel(self.wheels, name, version, **rest)

    def job(self) -> dict[str, Any]:
        return {"id": "a" * 32 + ".1.0", "tools": self.tools}

    def prepare(self, spec: dict[str, Any], launch: str = "one") -> Prepared:
        folder = self.launch(launch)
        return environments.prepare(spec, str(folder), str(self.root), self.said.append, self.canceled, self.job())

    def alone(
        self, spec: dict[str, Any], launch: str, *, before: str = "", around: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        source = str(Path(environments.__file__).parents[3])
        folder = str(self.launch(launch))
        arguments = json.dumps([spec, folder, str(self.root), self.job()])
        return subprocess.Popen(
            [*around, sys.executable, "-c", before + ALONE, source, arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ),
        )  # fmt: skip

    def log(self, launch: str = "one") -> str:
        return (self.launch(launch) / "log").read_text()

    def folders(self) -> list[str]:
        """The environments that lie on the disk, finished or not."""
        return [
            p.name for p in self.cache.iterdir() if p.is_dir() and p.name.partition(".")[0].isalnum() and "." in p.name
        ]
