"""Building an environment as a person sees it, and a target that writes its run configuration."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from shunter.cli.building import how_far
from shunter.testing.packages import Index, make_wheel

from .conftest import Shunter


@pytest.mark.parametrize(
    ("status", "reason", "steps"),
    [
        ("Queued", "", 0),
        ("Queued", "Solving its environment: which versions go together.", 1),
        ("Preparing", "Creating the environment (Python 3.11)", 2),
        ("Preparing", "installing 12 packages", 3),
        ("Running", "", 5),
        ("Completed", "", 6),
    ],
)
def test_the_bar_knows_how_far_a_build_has_come(status: str, reason: str, steps: int) -> None:
    assert how_far(status, reason) == steps


def test_a_build_on_a_terminal_shows_a_bar_and_what_the_installer_says(
    module_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    (tmp_path / "wheels").mkdir()
    make_wheel(tmp_path / "wheels", "alpha", "1.0")
    with Index(tmp_path / "wheels") as index:
        (tmp_path / "requirements.txt").write_text(f"--index-url {index.url}\nalpha\n")
        master, slave = pty.openpty()
        words = [sys.executable, "-m", "shunter.cli", "env", "build", str(tmp_path / "requirements.txt")]
        process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=os.environ | {"TERM": "xterm"})
        os.close(slave)
        shown = b""
        try:
            while data := os.read(master, 65536):
                shown += data
        except OSError:  # the other end is closed
            pass
        os.close(master)
        assert process.wait(30) == 0, shown.decode()
    text = shown.decode()
    assert "━" in text
    assert "+ alpha==1.0" in text
    assert "Completed" in text


def test_a_target_writes_its_run_configuration_when_it_is_attached(
    shunter: Shunter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('there')\n")
    said = shunter("compute", "attach", "other", "--kind", "local", "--write-run-config", "--json")
    assert said.json["run_config"] == ".azureml/other.runconfig"
    done = shunter("submit", "--run-config", ".azureml/other.runconfig", "train.py", "--json")
    assert done.json["target"] == "other"
    assert shunter("compute", "attach", "another", "--kind", "local").status == 0
    assert not (tmp_path / ".azureml" / "another.runconfig").exists()
