"""Runs that a script makes: they live by its word, and end with it at the latest."""

from __future__ import annotations

from pathlib import Path

import pytest

from shunter.model.run import Event, Run, Status
from shunter.server.dispatch.moves import move
from shunter.server.services.children import ScriptSays
from shunter.server.storage.database import Database, sqlite_url
from shunter.server.storage.runs import SqlRuns

PARENT, CHILD, OTHER = "ab" * 16, "cd" * 16, "ef" * 16


@pytest.fixture
def runs(tmp_path: Path) -> SqlRuns:
    store = SqlRuns(Database.open(sqlite_url(tmp_path / "db")))
    for run_id in (PARENT, OTHER):
        run = Run(run_id, "default", "e", "", "local", Status.RUNNING, "s" * 64, "t.py", (), {}, 1.0, 1.0)
        store.add(run, Event(run_id, 1.0, "state", run.status, "", {}))
    return store


def says(runs: SqlRuns) -> ScriptSays:
    return ScriptSays(runs, lambda: 9.0)


def end(runs: SqlRuns, run_id: str, status: Status) -> Run:
    run = runs.get(run_id)
    moved, event = move(run, status, 5.0, "", ended_at=5.0)
    return runs.apply(moved, run, (), (event,))


def test_a_child_said_twice_is_one_and_takes_no_slot(runs: SqlRuns) -> None:
    for _ in range(2):
        says(runs).child(runs.get(PARENT), CHILD, {"parent": PARENT, "name": "fold", "tags": {"a": 1}}, 2.0)
    child = runs.get(CHILD)
    assert (child.status, child.slots, child.name, child.tags) == (Status.RUNNING, 0, "fold", {"a": "1"})
    assert len(runs.list("default", parent_id=PARENT)) == 1


def test_a_script_cannot_take_over_the_run_of_another(runs: SqlRuns) -> None:
    mine = says(runs)
    mine.child(runs.get(PARENT), OTHER, {"parent": PARENT}, 2.0)
    assert OTHER not in mine.family(runs.get(PARENT))
    assert runs.get(OTHER).parent_id is None
    mine.change(OTHER, "complete", {}, 3.0)
    assert runs.get(OTHER).status == Status.RUNNING


def test_a_child_ends_by_the_scripts_word_and_stays_so(runs: SqlRuns) -> None:
    mine = says(runs)
    mine.child(runs.get(PARENT), CHILD, {"parent": PARENT}, 2.0)
    mine.change(CHILD, "fail", {"code": "E1", "message": "diverged"}, 3.0)
    mine.change(CHILD, "complete", {}, 4.0)
    child = runs.get(CHILD)
    assert child.status == Status.FAILED
    assert child.error is not None
    assert child.error.message == "diverged"
    assert child.ended_at == 3.0


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELED])
def test_what_is_left_open_ends_as_its_parent_did(runs: SqlRuns, status: Status) -> None:
    mine = says(runs)
    mine.child(runs.get(PARENT), CHILD, {"parent": PARENT}, 2.0)
    mine.child(runs.get(PARENT), "12" * 16, {"parent": CHILD}, 2.0)
    mine.on_parent_over(end(runs, PARENT, status))
    assert runs.get(CHILD).status == status
    assert runs.get("12" * 16).status == status


def test_a_server_that_died_at_that_moment_is_made_up_for(runs: SqlRuns) -> None:
    says(runs).child(runs.get(PARENT), CHILD, {"parent": PARENT}, 2.0)
    end(runs, PARENT, Status.COMPLETED)
    says(runs).catch_up()
    assert runs.get(CHILD).status == Status.COMPLETED


def test_the_scripts_own_run_does_not_end_by_its_word(runs: SqlRuns) -> None:
    says(runs).change(PARENT, "complete", {}, 3.0)
    assert runs.get(PARENT).status == Status.RUNNING


def test_tags_are_merged_and_properties_are_written_once(runs: SqlRuns) -> None:
    mine = says(runs)
    for value in ("1", "2"):
        mine.change(PARENT, "tags", {"t": value}, 3.0)
        mine.change(PARENT, "properties", {"p": value}, 3.0)
    mine.change(PARENT, "untag", ["nothing"], 3.0)
    assert runs.get(PARENT).tags == {"t": "2"}
    assert runs.get(PARENT).properties == {"p": "1"}
