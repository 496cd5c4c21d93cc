"""An owner-set price gives each run a cost, wherever one looks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import shunter


def cli(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "shunter.cli", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_price_per_hour_gives_runs_a_cost(home: Path, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("import time; time.sleep(0.3)\n")
    ws = shunter.Workspace.from_config()
    free = ws.submit("train.py", source_directory=tmp_path / "src").wait(timeout_seconds=120)
    cli("compute", "update", "local", "--price-per-hour", "3600")
    paid = ws.submit("train.py", source_directory=tmp_path / "src").wait(timeout_seconds=120)
    assert free.cost is None
    assert paid.cost is not None
    assert 0.3 <= paid.cost < 20
    cli("compute", "update", "local", "--price-per-hour", "1")
    assert paid.refresh().cost == json.loads(cli("run", "show", paid.id, "--json"))["cost"] == paid.details()["cost"]
    assert f" {paid.cost:.4g} (3600 an hour)" in cli("run", "show", paid.id)
    assert {r["id"]: r["cost"] for r in json.loads(cli("run", "list", "--json"))} == {free.id: None, paid.id: paid.cost}
    compared = ws.compare(free.id, paid.id)
    assert compared["sections"]["cost"] == [{"name": "cost", "values": [None, paid.cost], "same": False}]
