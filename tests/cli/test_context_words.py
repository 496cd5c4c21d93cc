"""What runs say, make and are given, on the command line: metrics, comparisons, inputs, secrets, checkpoints, garbage."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from shunter.testing.house import wait_until

from .conftest import Shunter, finish, start

Source = Callable[..., Path]

LOGS = """
import sys
from shunter.run import Run
run = Run.get_context()
for i in range(30):
    run.log("loss", 1 / (i + 1))
run.log("acc", float(sys.argv[1]))
run.log("bad", float("nan"))
run.log_row("r", x=1, y=2)
"""


@pytest.fixture
def pair(shunter: Shunter, source: Source) -> list[str]:
    """Two runs that differ."""
    first = shunter("submit", "--json", "--source", source(LOGS), "train.py", "0.5").json["id"]
    second = shunter("submit", "--json", "--source", source(LOGS + "# more\n"), "train.py", "0.75").json["id"]
    return [first, second]


def test_metrics_are_shown_drawn_written_as_a_picture_and_compared(
    shunter: Shunter, pair: list[str], tmp_path: Path
) -> None:
    one, two = pair
    shown = shunter("run", "metrics", one).out
    assert all(word in shown for word in ("loss", "30 values", "acc", "0.5", "nan", "2 columns"))
    assert len(shown.splitlines()) > 12, "a curve is drawn"
    assert "loss" not in shunter("run", "metrics", one, "acc").out
    assert shunter("run", "metrics", one, "acc", "bad", "--json").json["metrics"] == {"acc": 0.5, "bad": "nan"}
    pytest.importorskip("matplotlib", reason="pictures need it")
    assert shunter("run", "metrics", one, "loss", "--png", tmp_path / "loss.png").status == 0
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    said = shunter("run", "compare", one, two).out
    assert all(word in said for word in ("Arguments", "0.75", "Metrics", "acc", "Time", "Code: 1 file", "+# more"))
    assert set(shunter("run", "compare", one, two, "--json").json["differs"]) >= {"code", "arguments", "metrics"}
    assert "ran the same" in shunter("run", "compare", one, one).out


def test_a_secret_is_set_from_standard_input_listed_by_name_given_and_deleted(shunter: Shunter, source: Source) -> None:
    with start("secret", "set", "HF_TOKEN", stdin=subprocess.PIPE) as process:
        out, err = process.communicate("very-hidden-words\n", timeout=60)
    assert process.returncode == 0, err
    assert "HF_TOKEN is set" in out
    listed = shunter("secret", "list")
    assert "HF_TOKEN" in listed.out
    assert "very-hidden" not in listed.out + shunter("secret", "list", "--json").out
    folder = source("import os\nprint('it is', os.environ['HF_TOKEN'], len(os.environ['OTHER']))\n")
    said = shunter("submit", "--source", folder, "--secret", "HF_TOKEN", "--secret", "OTHER=HF_TOKEN", "train.py")
    assert said.status == 0, said.err
    assert f"it is {'*' * 17} 17" in said.out
    assert shunter("secret", "delete", "HF_TOKEN", "--yes").status == 0
    refused = shunter("submit", "--source", folder, "--secret", "HF_TOKEN", "train.py")
    assert refused.status == 2
    assert "HF_TOKEN" in refused.err


def test_a_submission_is_tried_on_a_part_and_then_promoted(shunter: Shunter, source: Source, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("h\n" + "1\n" * 400)
    (tmp_path / "data").mkdir()
    for i in range(20):
        (tmp_path / f"data/{i}").write_text("x")
    code = "import os\nprint(len(open(os.environ['SHUNTER_INPUT_TABLE']).readlines()), end=' ')\n"
    folder = source(code + "print(len(os.listdir(os.environ['SHUNTER_INPUT_DATA'])))\n")
    words = ["--input", f"table={tmp_path}/t.csv", "--input", f"data={tmp_path}/data,copy", "--sample", "10%"]
    run = shunter("submit", "--json", "--source", folder, *words, "train.py").json["id"]
    rows, files = map(int, shunter("run", "logs", run).out.split())
    assert 20 < rows < 70
    assert files == 2
    again = shunter("run", "rerun", run, "--full", "--json").json["id"]
    assert shunter("run", "wait", again, run).status == 0
    assert shunter("run", "logs", again).out == "401 20\n"


def test_a_rerun_goes_on_from_a_checkpoint_and_gc_names_what_it_frees(
    shunter: Shunter, source: Source, tmp_path: Path
) -> None:
    folder = source(
        "import os\np = os.environ['SHUNTER_CHECKPOINT_DIR'] + '/a.txt'\nopen(p, 'a').write('x')\nprint(open(p).read())\n"
    )
    told = tmp_path / "told"
    words = ["--keep-checkpoints", "2", "--notify", f"cat > {told}"]
    run = shunter("submit", "--json", "--source", folder, *words, "train.py").json["id"]
    again = shunter("run", "rerun", run, "--from-checkpoint", "--json").json["id"]
    shunter("run", "wait", again)
    assert shunter("run", "logs", again).out == "xx\n"
    would = shunter("gc", "--dry-run", "--json").json
    assert would["kinds"]["checkpoints"]["count"] >= 2
    assert "checkpoints" in shunter("gc", "--dry-run").out
    assert "Freed" in shunter("gc", "--yes").out
    assert "checkpoints" not in shunter("gc", "--dry-run", "--json").json["kinds"]
    wait_until(lambda: told.exists() and told.read_text().endswith("}"), 60, "the word")
    assert json.loads(told.read_text())["status"] == "Completed"


def test_what_is_not_right_is_refused_in_words(shunter: Shunter, source: Source) -> None:
    folder = source()
    for words, expected in (
        (["--input", "data=/nowhere/at/all"], "/nowhere/at/all"),
        (["--sample", "0%", "--input", f"d={folder}"], "sample"),
        (["--secret", "never-set"], "never-set"),
    ):
        said = shunter("submit", "--source", folder, *words, "train.py")
        assert said.status == 2
        assert expected in said.err
    assert finish(start("secret", "set", "EMPTY")).status == 2
