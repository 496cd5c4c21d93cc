"""The notebooks of `examples/notebooks`, run cell by cell as a person would, in a folder and a home of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shunter
from shunter.testing.clusters import end_clusters, own_processes
from shunter.testing.house import end

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
RUN = """
import sys, nbformat, nbclient
book = nbformat.read(sys.argv[1], 4)
try:
    nbclient.NotebookClient(book, timeout=200, resources={"metadata": {"path": sys.argv[2]}}).execute()
finally:
    nbformat.write(book, sys.argv[2] + "/done.ipynb")
"""


class Said(dict[str, str]):
    """What each cell said, by the beginning of its code."""

    def __missing__(self, start: str) -> str:
        return next(said for code, said in self.items() if code.startswith(start))


def executed(name: str, folder: Path, home: Path) -> Said:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("sklearn")
    source = str(Path(shunter.__file__).parents[1])
    own = {"IPYTHONDIR": str(folder / ".ipython"), "JUPYTER_RUNTIME_DIR": str(folder / ".runtime")}
    env = {**os.environ, "PYTHONPATH": source, **own}
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", RUN, str(NOTEBOOKS / f"{name}.ipynb"), str(folder)],
            env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        end_clusters(home)
        end(own_processes(home))
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads((folder / "done.ipynb").read_text())["cells"]
    return Said({_text(c["source"]): _said(c) for c in cells if c["cell_type"] == "code"})


def test_a_notebook_trains_here_and_finds_the_best_of_several(tmp_path: Path, home: Path) -> None:
    said = executed("train-on-local", tmp_path, home)
    assert said["%load_ext shunter.azureml"] == "azureml is Shunter's in this process.\n"
    assert "accuracy 0.9" in said["run.wait_for_completion"]
    assert "'outputs/model.joblib'" in said["run.get_file_names"]
    assert "<table>" in said["from azureml.widgets"]
    assert "RidgeClassifier" in said["import joblib"]
    assert "'accuracy': 0.9" in said["runs = []"]


def test_a_notebook_trains_on_a_cluster_and_registers_the_model(tmp_path: Path, home: Path) -> None:
    said = executed("train-on-cluster", tmp_path, home)
    assert "Minimum number of nodes requested have been provisioned" in said["from azureml.core.compute"]
    assert "'cpu-cluster'" in said["config = ScriptRunConfig"]
    assert said["model = run.register_model"].startswith("digits\t1\t")
    assert said["import joblib"].startswith("read: [0, 1, 2, 3, 4,")


@pytest.mark.parametrize("name", [p.stem for p in sorted(NOTEBOOKS.glob("*.ipynb"))])
def test_notebooks_are_kept_without_what_they_said(name: str) -> None:
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    assert not [c for c in cells if c.get("outputs") or c.get("execution_count")]


def _said(cell: dict[str, Any]) -> str:
    found = []
    for output in cell["outputs"]:
        found.append(_text(output.get("text", "")))
        data = output.get("data", {})
        found.append(_text(data.get("text/html") or data.get("text/plain") or ""))
    return "".join(found)


def _text(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)
