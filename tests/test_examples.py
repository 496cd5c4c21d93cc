"""The examples run as their READMEs say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_every_example_has_a_readme_that_begins_with_something_to_run() -> None:
    folders = [script.parent for script in EXAMPLES.glob("*/train.py")]
    assert folders
    for folder in folders:
        lines = [line for line in (folder / "README.md").read_text().splitlines() if line]
        assert lines[1].startswith("    "), folder


def test_handwriting_learns_and_leaves_a_plot_and_a_model_that_reads(home: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    import shunter

    ws = shunter.Workspace.from_config()
    run = ws.submit("train.py", source_directory=EXAMPLES / "handwriting", arguments=["--epochs", "3"]).wait()
    assert run.data["status"] == "Completed", run.logs()
    assert "epoch   3/3" in run.logs()
    assert {file["path"] for file in run.files()} == {"outputs/model.joblib", "outputs/training.png"}
    assert len(run.metrics()["accuracy"]) == 3
    assert run.data["usage"]["working_set_bytes_peak"] > 30e6
    run.download(tmp_path)
    words = [sys.executable, str(EXAMPLES / "handwriting" / "read.py"), str(tmp_path / "outputs" / "model.joblib")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "they are 4, 0, 5, 3, 6" in done.stdout


def test_handwriting_runs_as_a_plain_script(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    script = EXAMPLES / "handwriting" / "train.py"
    words = [sys.executable, "-I", str(script), "--epochs", "1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "outputs" / "training.png").read_bytes().startswith(b"\x89PNG")
