"""`shunter submit`: the log, the outcome, and what is refused."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Shunter, finish, start

Source = Callable[..., Path]

RUN_FIELDS = (
    "id name experiment status target node_count snapshot_id arguments exit_code submitted_at started_at ended_at "
    "attempts reason error tags parent_id"
)


def test_submit_streams_the_log_and_answers_with_the_outcome(shunter: Shunter, source: Source) -> None:
    said = shunter("submit", "--source", source("print('one'); print('two')"), "train.py")
    assert said.status == 0
    assert "one\ntwo\n" in said.out
    assert "Completed" in said.out
    assert said.err == ""


def test_a_failed_script_makes_a_failed_command(shunter: Shunter, source: Source) -> None:
    said = shunter("submit", "--source", source("import sys; print('so far'); sys.exit(7)"), "train.py")
    assert said.status == 1
    assert "so far" in said.out
    assert "7" in said.out.splitlines()[-2] + said.out.splitlines()[-3]


def test_with_json_stdout_is_one_value_and_the_log_goes_to_stderr(shunter: Shunter, source: Source) -> None:
    said = shunter(
        "submit", "--json", "--source", source("print('the log')"), "--name", "my run", "--tag", "a=b=c", "train.py"
    )
    assert said.status == 0
    run = said.json
    assert set(run) >= set(RUN_FIELDS.split())
    assert (run["status"], run["exit_code"], run["name"], run["tags"]) == ("Completed", 0, "my run", {"a": "b=c"})
    assert said.err == "the log\n"


def test_with_json_a_failed_run_carries_its_error(shunter: Shunter, source: Source) -> None:
    said = shunter("submit", "--json", "--source", source("raise SystemExit(3)"), "train.py")
    assert said.status == 1
    assert set(said.json["error"]) == {"code", "message", "hint"}
    assert said.json["exit_code"] == 3


def test_arguments_reach_the_script_untouched(shunter: Shunter, source: Source) -> None:
    words = ["--lr", "0.1", "a b", "", "*", "--json", "--target=x", "--", "-x", "ünï", "--help"]
    folder = source("import json, sys; print(json.dumps(sys.argv[1:]))")
    said = shunter("submit", "--source", folder, "train.py", *words)
    assert json.loads(said.out.splitlines()[2]) == words


def test_options_may_follow_the_script(shunter: Shunter, source: Source) -> None:
    folder = source("import sys; print(sys.argv[1:])")
    said = shunter(
        "submit", "train.py", "--source", folder, "--json", "--experiment", "with blanks", "--lr", "1", "--json"
    )
    assert said.json["arguments"] == ["--lr", "1", "--json"]
    assert said.json["experiment"] == "with blanks"


def test_detach_does_not_wait(shunter: Shunter, source: Source) -> None:
    said = shunter("submit", "--detach", "--json", "--source", source("import time; time.sleep(60)"), "train.py")
    assert said.status == 0
    run = said.json
    assert run["status"] == "Queued"
    assert shunter("run", "cancel", run["id"]).status == 0
    assert shunter("run", "wait", run["id"]).status == 3


def test_environment_variables_and_memory_reach_the_run(shunter: Shunter, source: Source) -> None:
    folder = source("import os; print(os.environ['COLOR'], os.environ['SHUNTER_RUN_ID'])")
    said = shunter("submit", "--source", folder, "--env", "COLOR=dark blue", "--memory", "1GB", "--json", "train.py")
    assert said.err == f"dark blue {said.json['id']}\n"
    assert said.json["config"]["memory_bytes"] == 1_000_000_000


def test_a_run_configuration_is_taken_and_options_win_over_it(shunter: Shunter, source: Source, tmp_path: Path) -> None:
    import shunter as package

    config = package.RunConfiguration(arguments=["from", "file"], environment_variables={"A": "1"}, node_count=1)
    file = config.save(tmp_path, "mine")
    folder = source("import os, sys; print(os.environ['A'], sys.argv[1:])")
    said = shunter("submit", "--source", folder, "--run-config", file, "--env", "A=2", "train.py")
    assert "2 ['from', 'file']" in said.out


def test_what_is_left_out_is_counted_and_named(shunter: Shunter, source: Source) -> None:
    folder = source()
    (folder / ".amlignore").write_text("*.ckpt\ndata/\n")
    (folder / "old.ckpt").write_text("x")
    (folder / "data").mkdir()
    (folder / "data" / "big").write_text("x")
    said = shunter("submit", "--source", folder, "train.py")
    assert "2 paths left out" in said.out
    assert "old.ckpt" in said.out
    assert "data/" in said.out


def test_a_large_folder_is_refused_naming_paths_and_rules_where_nobody_can_be_asked(
    shunter: Shunter, source: Source
) -> None:
    folder = source()
    (folder / "weights.bin").write_bytes(b"x" * 3000)
    words = ["submit", "--source", folder, "--snapshot-limit", "2kB"]
    said = shunter(*words, "train.py")
    assert said.status == 2
    assert "weights.bin" in said.err
    assert "/weights.bin" in said.err
    assert "--yes" in said.err
    assert shunter(*words, "--yes", "train.py").status == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nope.py"], "Did you mean 'train.py'?"),
        (["--target", "lokal", "train.py"], "Did you mean 'local'?"),
        (["--nodes", "two", "train.py"], "--nodes"),
        (["--memory", "lots", "train.py"], "4GB"),
        (["--max-duration", "soon", "train.py"], "15min"),
        (["--env", "NOVALUE", "train.py"], "NAME=VALUE"),
        (["--targt", "x", "train.py"], "--target"),
        (["--environment", "none.yml", "train.py"], "none.yml"),
        (["../train.py"], "--source"),
        ([], "SCRIPT"),
        (["--nodes", "3", "train.py"], "never start"),
        (["--experiment", "a/b", "train.py"], "a/b"),
    ],
)
def test_wrong_use_is_refused_in_words(shunter: Shunter, source: Source, words: list[str], expected: str) -> None:
    said = shunter("submit", "--source", source(), *words)
    assert said.status == 2
    assert expected in said.err
    assert "Traceback" not in said.err
    in_json = shunter("submit", "--source", source(), "--json", *words)
    assert in_json.status == 2
    assert expected in in_json.json["error"]["message"] + in_json.json["error"]["hint"]


def test_an_empty_folder_is_refused(shunter: Shunter, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = shunter("submit", "--source", tmp_path / "empty", "train.py")
    assert said.status == 2
    assert said.err.startswith("Error: ")


def test_an_interrupted_watch_leaves_the_run_going_where_nobody_can_be_asked(shunter: Shunter, source: Source) -> None:
    folder = source("import time; print('started', flush=True); time.sleep(60)")
    process = start("submit", "--source", folder, "--name", "goes on", "train.py")
    assert process.stdout is not None
    shown = ""
    while "started" not in shown:
        shown = process.stdout.readline() or pytest.fail("the command ended before its run said anything")
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert said.status == 130
    assert "shunter run logs -f" in said.out
    assert said.err == ""
    assert shunter("run", "show", "goes on", "--json").json["status"] == "Running"
    shunter("run", "cancel", "goes on")
    assert shunter("run", "wait", "goes on").status == 3


def test_a_submit_imports_neither_typer_nor_rich_nor_pydantic(shunter: Shunter, source: Source) -> None:
    """They would take longer to import than all that a submit does."""
    assert shunter("server", "start").status == 0
    code = (
        "import sys; from shunter.cli import main; status = main(sys.argv[1:])\n"
        "bad = {'typer', 'click', 'rich', 'pydantic', 'yaml', 'fastapi', 'sqlalchemy'} & set(sys.modules)\n"
        "sys.exit(status or (f'imported: {bad}' if bad else 0))"
    )
    import os
    import subprocess

    from .conftest import SOURCE

    words = [sys.executable, "-c", code, "submit", "--source", str(source()), "train.py"]
    done = subprocess.run(
        words, text=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(SOURCE)}, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
