"""The other nouns, and what all commands have in common."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from shunter.cli import NOUNS, build

from .conftest import SOURCE, Shunter, finish, start


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


#: A shell is a terminal from end to end: there is no value to print.
WITHOUT_JSON = {("run", "shell")}


def test_every_command_takes_json_and_explains_itself() -> None:
    found = dict(leaves(typer.main.get_command(build(list(NOUNS)))))
    assert {("submit",), ("run", "list"), ("compute", "attach"), ("server", "status")} <= set(found)
    for path, command in found.items():
        options = {name for param in command.params for name in param.opts}
        assert "--json" in options or path in WITHOUT_JSON, path
        assert command.help, path


def test_the_nouns_promised_are_there() -> None:
    found = {path for path, _ in leaves(typer.main.get_command(build(list(NOUNS))))}
    runs = "list show logs wait cancel why events files download rerun delete children tag"
    computes = "create attach list show probe update detach delete kinds"
    wanted = {("run", verb) for verb in runs.split()} | {("compute", verb) for verb in computes.split()}
    wanted |= {("experiment", "list"), ("experiment", "show"), ("snapshot", "preview"), ("snapshot", "restore")}
    assert wanted <= found


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["submit", "-h"], ["server", "--help"], ["--version"]]
)
def test_help_goes_to_stdout_with_status_0(shunter: Shunter, words: list[str]) -> None:
    said = shunter(*words)
    assert (said.status, said.err) == (0, "")
    assert said.out


def test_an_unknown_command_names_the_nearest(shunter: Shunter) -> None:
    said = shunter("rnu")
    assert said.status == 2
    assert "run" in said.err


def test_an_unexpected_error_is_told_without_a_traceback_unless_debugging(
    shunter: Shunter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("shunter.cli.finding.workspace", broken)
    monkeypatch.setattr("shunter.cli.run.workspace", broken)
    said = shunter("run", "list")
    assert said.status == 2
    assert "boom" in said.err
    assert "Traceback" not in said.err
    monkeypatch.setenv("SHUNTER_DEBUG", "1")
    with pytest.raises(RuntimeError, match="boom"):
        shunter("run", "list")


def test_a_reader_that_goes_away_is_no_error(shunter: Shunter, source: Callable[..., Path]) -> None:
    run = shunter("submit", "--json", "--source", source("print('x' * 100 + '\\n' * 5000)"), "train.py").json["id"]
    env = os.environ | {"PYTHONPATH": str(SOURCE)}
    line = f'"{sys.executable}" -m shunter.cli run logs {run} | head -n 1'
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, env=env, check=False
    )
    assert done.stderr == ""
    assert done.stdout.startswith("xxx")


def test_completion_offers_runs_and_targets(shunter: Shunter, source: Callable[..., Path]) -> None:
    run = shunter("submit", "--json", "--source", source(), "train.py").json["id"]
    env = {"_SHUNTER_COMPLETE": "complete_bash", "COMP_WORDS": f"shunter run show {run[:3]}", "COMP_CWORD": "3"}
    env |= {"_TYPER_COMPLETE_TESTING": "1"}
    code = "import sys; from shunter.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(SOURCE)} | env,
    )  # fmt: skip
    assert run[:8] in done.stdout


def test_a_target_is_created_probed_changed_used_and_detached(shunter: Shunter, source: Callable[..., Path]) -> None:
    said = shunter("compute", "attach", "box", "--kind", "local", "--slots", "1", "--json")
    assert said.json["config"]["slots"] == 1
    assert "box" in shunter("compute", "list").out
    assert "1 run at once" in shunter("compute", "show", "box").out
    assert shunter("compute", "probe", "box", "--json").json["facts"]["cpus"] >= 1
    assert shunter("compute", "update", "box", "--slots=3", "--json").json["config"]["slots"] == 3
    assert shunter("submit", "--target", "box", "--source", source(), "train.py").status == 0
    assert shunter("compute", "detach", "box").status == 0
    assert shunter("compute", "show", "box").status == 2


def test_options_of_a_kind_are_checked(shunter: Shunter) -> None:
    said = shunter("compute", "create", "box", "--kind", "local", "--slotz", "1")
    assert said.status == 2
    assert "--slots" in said.err
    said = shunter("compute", "create", "box", "--kind", "locale")
    assert "Did you mean 'local'?" in said.err
    said = shunter("compute", "create", "box", "--kind", "local", "--slots", "many")
    assert said.status == 2
    assert "--slots" in shunter("compute", "kinds", "local").out
    assert "local" in {kind["kind"] for kind in shunter("compute", "kinds", "--json").json}


def test_experiments_are_listed_and_shown(shunter: Shunter, source: Callable[..., Path]) -> None:
    shunter("submit", "--source", source(), "--experiment", "first try", "train.py")
    assert "first try" in shunter("experiment", "list").out
    assert {e["name"] for e in shunter("experiment", "list", "--json").json} >= {"first try"}
    assert shunter("experiment", "show", "first try", "--json").json["statuses"] == {"Completed": 1}
    assert "1 Completed" in shunter("experiment", "show", "first try").out
    assert shunter("experiment", "show", "none").status == 2


def test_a_preview_shows_what_would_travel_and_sends_nothing(shunter: Shunter, source: Callable[..., Path]) -> None:
    folder = source()
    (folder / ".gitignore").write_text("data/\n")
    (folder / "data").mkdir()
    (folder / "data" / "x").write_text("x")
    found = shunter("snapshot", "preview", folder, "--json").json
    assert [p["path"] for p in found["paths"]] == [".gitignore", "train.py"]
    assert found["ignored"]["paths"] == [{"path": "data/", "rule": found["ignored"]["paths"][0]["rule"]}]
    said = shunter("snapshot", "preview", folder)
    assert "train.py" in said.out
    assert "data/" in said.out


def test_a_snapshot_is_restored_by_its_id_or_by_a_run(
    shunter: Shunter, source: Callable[..., Path], tmp_path: Path
) -> None:
    folder = source("print('original')\n")
    (folder / "deep").mkdir()
    (folder / "deep" / "same.py").write_text("print('original')\n")
    (folder / "empty").write_text("")
    (folder / "tool.sh").write_text("#!/bin/sh\n")
    (folder / "tool.sh").chmod(0o755)
    (folder / "link").symlink_to("deep/same.py")
    run = shunter("submit", "--json", "--source", folder, "train.py").json
    (folder / "train.py").write_text("print('edited later')\n")
    for number, what in enumerate((run["id"][:8], run["snapshot_id"])):
        back = tmp_path / f"back{number}"
        assert shunter("snapshot", "restore", what, back).status == 0
        assert (back / "train.py").read_text() == "print('original')\n"
        assert (back / "link").readlink() == Path("deep/same.py")
        assert (back / "link").read_text() == "print('original')\n"
        assert (back / "empty").read_bytes() == b""
        assert os.access(back / "tool.sh", os.X_OK)
        assert not os.access(back / "train.py", os.X_OK)
    said = shunter("snapshot", "restore", run["id"], folder)
    assert said.status == 2
    assert "not empty" in said.err
    assert shunter("snapshot", "restore", "0" * 64, tmp_path / "none").status == 2
    assert not (tmp_path / "none").exists()


def test_the_server_is_started_shown_and_stopped(home: Path) -> None:
    assert finish(start("server", "status")).status == 1
    started = finish(start("server", "start", "--json"))
    assert set(started.json) >= {"url", "pid", "version", "database"}
    assert finish(start("server", "status", "--json")).json["pid"] == started.json["pid"]
    stopped = finish(start("server", "stop"))
    assert (stopped.status, stopped.out, stopped.err) == (0, "The server has stopped.\n", "")
    again = finish(start("server", "stop", "--json"))
    assert (again.status, again.json["stopped"]) == (0, False)


def test_the_server_serves_in_the_foreground_until_told(home: Path) -> None:
    process = start("server", "--port", "0")
    assert process.stderr is not None
    assert "serves" in process.stderr.readline()
    assert finish(start("server", "status", "--json")).json["pid"] == process.pid
    process.terminate()
    assert finish(process).status in (0, -15)
