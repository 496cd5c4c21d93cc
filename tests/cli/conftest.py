"""Commands, called as a person would: in this process where that is enough, in one of their own where it matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON value that it has to be."""
        return json.loads(self.out)


Shunter = Callable[..., Said]


@pytest.fixture
def shunter(module_home: Path, capfd: pytest.CaptureFixture[str]) -> Shunter:
    """Call a command in this process, against the server that the module's tests share."""
    from shunter.cli import main

    def call(*words: object) -> Said:
        capfd.readouterr()
        status = main([str(word) for word in words])
        sys.stdout.flush()
        out, err = capfd.readouterr()
        return Said(status, out, err)

    return call


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Path]:
    """A source folder with a script."""

    def make(text: str = "print('hello')\n", name: str = "train.py", folder: str = "source") -> Path:
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        (path / name).write_text(text)
        return path

    return make


def start(*words: object, **options: Any) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    env = os.environ | {"PYTHONPATH": str(SOURCE)} | options.pop("env", {})
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([sys.executable, "-m", "shunter.cli", *map(str, words)], text=True, env=env, **options)


def finish(process: subprocess.Popen[str]) -> Said:
    out, err = process.communicate(timeout=60)
    return Said(process.returncode, out, err)
