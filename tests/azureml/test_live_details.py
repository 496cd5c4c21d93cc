"""`RunDetails` in a notebook: it changes while the run goes on, without anybody asking."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import shunter
from shunter.testing.house import House

TRAIN = """
import os, sys, time
from azureml.core import Run
run = Run.get_context()
print("first line", flush=True)
run.log("loss", 0.5)
while not os.path.exists(sys.argv[1]): time.sleep(0.02)
run.log("loss", 0.25)
print("<b>last</b> line")
"""
CELLS = [
    "%load_ext shunter.azureml\nfrom azureml.core import Experiment, ScriptRunConfig, Workspace\n"
    "from azureml.core.runconfig import RunConfiguration\nfrom azureml.widgets import RunDetails\n"
    "here = RunConfiguration()\nhere.environment.python.user_managed_dependencies = True\n"
    "config = ScriptRunConfig('.', 'train.py', ['GATE'], run_config=here)\n"
    "run = Experiment(Workspace.from_config(), 'live').submit(config)",
    "details = RunDetails(run)\ndetails.show()",
    "import time\nuntil = time.monotonic() + 60\n"
    "while 'loss' not in details.get_widget_data()['run_metrics'] and time.monotonic() < until: time.sleep(0.1)\n"
    "time.sleep(4)\nopen('GATE', 'w').close()\nrun.wait_for_completion()['status']",
    "details._over.wait(60)",
]
#: Runs the cells and keeps every state in which the widget was displayed.
RUN = """
import json, sys, nbclient, nbformat
class Client(nbclient.NotebookClient):
    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] in ("display_data", "update_display_data"):
            shown.append((msg["content"]["transient"].get("display_id"), msg["content"]["data"]["text/html"]))
        return super().process_message(msg, cell, cell_index)
shown = []
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in json.loads(sys.argv[1])])
Client(book, timeout=100, resources={"metadata": {"path": sys.argv[2]}}).execute()
print(json.dumps(shown))
"""


def test_a_widget_follows_its_run_to_the_end(tmp_path: Path, home: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text(TRAIN)
    cells = json.dumps([cell.replace("GATE", str(tmp_path / "gate")) for cell in CELLS])
    own = {"IPYTHONDIR": str(tmp_path / ".ipython"), "JUPYTER_RUNTIME_DIR": str(tmp_path / ".runtime")}
    env = {**os.environ, "PYTHONPATH": str(Path(shunter.__file__).parents[1]), **own}
    words = [sys.executable, "-W", "ignore", "-c", RUN, cells, str(tmp_path / "source")]
    try:
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=200)
    finally:
        House(home).end_all()
    assert done.returncode == 0, done.stderr[-3000:]
    shown = json.loads(done.stdout.splitlines()[-1])
    assert len({display_id for display_id, _ in shown}) == 1
    pages = [page for _, page in shown]
    running = [page for page in pages if "<td>Running</td>" in page]
    assert any("first line" in page and "<td>0.5</td>" in page for page in running), running
    assert "<td>Completed</td>" in pages[-1]
    assert "0.25 (2 values)" in pages[-1]
    assert "&lt;b&gt;last&lt;/b&gt; line" in pages[-1]
