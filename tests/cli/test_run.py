"""`shunter run`: every command, for people and as JSON."""

from __future__ import annotations

import os
import pty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Shunter, start

SCRIPT = """
import os, sys
print("said", sys.argv[1:])
os.makedirs("outputs/deep", exist_ok=True)
open("outputs/model.bin", "wb").write(bytes(range(256)))
open("outputs/deep/note.txt", "w").write("note")
"""


@pytest.fixture(scope="module")
def done(module_home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run that is over, with files."""
    import shunter

    folder = tmp_path_factory.mktemp("source")
    (folder / "train.py").write_text(SCRIPT)
    ws = shunter.Workspace.from_config()
    run = ws.submit(
        "train.py", source_directory=folder, arguments=["a b"], name="the done one", experiment="ex 1"
    ).wait()
    data: dict[str, Any] = run.data
    return data


@pytest.fixture
def sleeper(shunter: Shunter, source: Callable[..., Path]) -> Iterator[str]:
    """The id of a run that runs until it is canceled."""
    folder = source("import time; print('up', flush=True); time.sleep(100)", folder="sleeper")
    run = shunter("submit", "--detach", "--json", "--source", folder, "train.py").json["id"]
    yield run
    shunter("run", "cancel", run)
    shunter("run", "wait", run)


def test_list_shows_the_newest_runs(shunter: Shunter, done: dict[str, Any]) -> None:
    assert done["id"][:8] in shunter("run", "list").out
    found = shunter("run", "list", "--experiment", "ex 1", "--json").json
    assert [run["id"] for run in found] == [done["id"]]
    assert shunter("run", "list", "--experiment", "none such").out == "No runs. `shunter submit SCRIPT` starts one.\n"
    assert shunter("run", "list", "--status", "Sleeping").status == 2


@pytest.mark.parametrize("length", [6, 12, 32])
def test_a_run_is_found_by_the_beginning_of_its_id(shunter: Shunter, done: dict[str, Any], length: int) -> None:
    assert shunter("run", "show", done["id"][:length], "--json").json["id"] == done["id"]


def test_a_run_is_found_by_its_name_and_a_missing_one_is_told(shunter: Shunter, done: dict[str, Any]) -> None:
    assert shunter("run", "show", "the done one", "--json").json["id"] == done["id"]
    said = shunter("run", "show", "no such run")
    assert said.status == 2
    assert "no such run" in said.err
    assert "shunter run list" in said.err


def test_show_tells_command_usage_and_files(shunter: Shunter, done: dict[str, Any]) -> None:
    said = shunter("run", "show", done["id"])
    for words in ("train.py 'a b'", "Completed", "cores on average", "outputs/model.bin", done["snapshot_id"]):
        assert words in said.out


def test_logs_are_the_bytes_that_the_script_wrote(shunter: Shunter, done: dict[str, Any]) -> None:
    assert shunter("run", "logs", done["id"]).out == "said ['a b']\n"
    assert shunter("run", "logs", done["id"], "--json").json["log"] == "said ['a b']\n"
    followed = shunter("run", "logs", done["id"], "--follow", "--json")
    assert followed.err == "said ['a b']\n"
    assert followed.json["status"] == "Completed"


def test_wait_answers_for_several_runs(shunter: Shunter, done: dict[str, Any], source: Callable[..., Path]) -> None:
    bad = shunter("submit", "--detach", "--json", "--source", source("raise SystemExit(1)"), "train.py").json["id"]
    said = shunter("run", "wait", done["id"], bad, "--json")
    assert said.status == 1
    assert [run["status"] for run in said.json] == ["Completed", "Failed"]
    assert shunter("run", "wait", done["id"]).status == 0


def test_wait_gives_up_after_its_time(shunter: Shunter, sleeper: str) -> None:
    said = shunter("run", "wait", sleeper, "--timeout", "0.2s")
    assert said.status == 2
    assert sleeper[:8] in said.err


def test_cancel_may_be_repeated_and_leaves_what_is_over(shunter: Shunter, sleeper: str, done: dict[str, Any]) -> None:
    assert shunter("run", "cancel", sleeper).status == 0
    assert shunter("run", "cancel", sleeper, "--json").json["id"] == sleeper
    assert shunter("run", "wait", sleeper).status == 3
    assert shunter("run", "cancel", done["id"], "--json").json["status"] == "Completed"


def test_why_and_events_tell_the_reasons(shunter: Shunter, done: dict[str, Any]) -> None:
    assert "The script completed." in shunter("run", "why", done["id"]).out
    assert shunter("run", "why", done["id"], "--json").json["reasons"]
    states = [event["status"] for event in shunter("run", "events", done["id"], "--json").json]
    assert states[0] == "Queued"
    assert states[-1] == "Completed"
    assert "Submitted." in shunter("run", "events", done["id"]).out


def test_files_are_listed_and_downloaded(shunter: Shunter, done: dict[str, Any], tmp_path: Path) -> None:
    assert {f["path"] for f in shunter("run", "files", done["id"], "--json").json} == {
        "outputs/model.bin",
        "outputs/deep/note.txt",
    }
    assert "256 bytes" in shunter("run", "files", done["id"]).out
    said = shunter("run", "download", done["id"], "--output", tmp_path / "all")
    assert said.out == f"2 files in {tmp_path / 'all'}.\n"
    assert (tmp_path / "all" / "outputs" / "model.bin").read_bytes() == bytes(range(256))
    shunter("run", "download", done["id"], "outputs/deep", "-o", tmp_path / "some", "--json")
    assert [p.name for p in (tmp_path / "some").rglob("*") if p.is_file()] == ["note.txt"]
    assert shunter("run", "download", done["id"], "nope", "-o", tmp_path).status == 2


def test_rerun_starts_the_same_again(shunter: Shunter, done: dict[str, Any]) -> None:
    said = shunter("run", "rerun", done["id"], "--json")
    assert said.status == 0
    again = said.json
    assert again["id"] != done["id"]
    assert (again["snapshot_id"], again["arguments"]) == (done["snapshot_id"], ["a b"])
    assert said.err == "said ['a b']\n"


def test_tags_are_set_and_removed(shunter: Shunter, done: dict[str, Any]) -> None:
    assert shunter("run", "tag", done["id"], "stage=final", "n=1", "--json").json["tags"] == {
        "stage": "final",
        "n": "1",
    }
    assert shunter("run", "tag", done["id"], "--remove", "n").out == "stage=final\n"
    assert [r["id"] for r in shunter("run", "list", "--tag", "stage=final", "--json").json] == [done["id"]]


def test_a_run_without_children_says_so(shunter: Shunter, done: dict[str, Any]) -> None:
    assert shunter("run", "children", done["id"]).out == "It has no children.\n"
    assert shunter("run", "children", done["id"], "--json").json == []


def test_delete_refuses_a_run_that_is_not_over_and_deletes_one_that_is(
    shunter: Shunter, sleeper: str, source: Callable[..., Path]
) -> None:
    said = shunter("run", "delete", sleeper)
    assert said.status == 2
    assert "cancel" in said.err
    gone = shunter("submit", "--json", "--source", source(), "train.py").json["id"]
    assert shunter("run", "delete", gone, "--json").json == {"deleted": [gone]}
    assert shunter("run", "show", gone).status == 2


@pytest.mark.parametrize(
    ("answer", "status", "state"), [(b"c\n", 3, "Canceled"), (b"l\n", 130, "Running"), (b"\n", 130, "Running")]
)
def test_ctrl_c_on_a_terminal_asks(shunter: Shunter, sleeper: str, answer: bytes, status: int, state: str) -> None:
    screen, process = on_terminal("run", "rerun", sleeper)
    shown = screen.until("up")
    os.write(screen.fd, b"\x03")
    screen.until("[l] ")
    os.write(screen.fd, answer)
    screen.until_closed()
    assert process.wait(30) == status
    again = next(
        word for word in shown.replace(",", "").split() if len(word) == 8 and set(word) <= set("0123456789abcdef")
    )
    assert shunter("run", "show", again, "--json").json["status"] == state
    shunter("run", "cancel", again)
    shunter("run", "wait", again)


@pytest.mark.parametrize("columns", [120, 80, 50, 30])
def test_tables_fit_the_terminal(shunter: Shunter, done: dict[str, Any], columns: int) -> None:
    for words in (
        ["run", "list"],
        ["run", "show", done["id"]],
        ["run", "events", done["id"]],
        ["run", "files", done["id"]],
    ):
        screen, process = on_terminal(*words, columns=columns)
        shown = screen.until_closed()
        assert process.wait(30) == 0
        lines = [_without_colors(line) for line in shown.splitlines()]
        assert lines
        assert max(map(len, lines)) <= columns, words


class Screen:
    """The other end of a pseudo-terminal."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.shown = ""

    def until(self, words: str) -> str:
        while words not in self.shown:
            self.shown += self._read() or pytest.fail(f"{words!r} was not shown, but: {self.shown}")
        return self.shown

    def until_closed(self) -> str:
        while text := self._read():
            self.shown += text
        os.close(self.fd)
        return self.shown

    def _read(self) -> str:
        try:
            return os.read(self.fd, 65536).decode("utf-8", "replace")
        except OSError:
            return ""


def on_terminal(*words: str, columns: int = 80) -> tuple[Screen, Any]:
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    env = {"TERM": "xterm", "COLUMNS": str(columns)}
    process = start(*words, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=take_terminal, env=env)
    os.close(theirs)
    return Screen(ours), process


def _without_colors(line: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", line)
