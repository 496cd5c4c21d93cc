"""Bad input gets a clear error at the earliest point, and nothing is half done."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest

import shunter
from shunter.errors import AuthError, Infeasible, NameInvalid, NotFound, ShunterError, SnapshotError, UsageError
from shunter.home import HomeFolder
from shunter.sdk.client import Client
from shunter.server.app import build, create_app

pytestmark = pytest.mark.usefixtures("module_home")


@pytest.fixture
def ws() -> shunter.Workspace:
    return shunter.Workspace.from_config()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('ran')\n")
    return tmp_path / "src"


def refused(ws: shunter.Workspace, **asked: Any) -> ShunterError:
    """Submit, expect a refusal with a sentence, and see that no run came of it."""
    before = {r.id for r in ws.runs(limit=1000)}
    with pytest.raises(ShunterError) as caught:
        ws.submit(asked.pop("script", "train.py"), **asked)
    assert caught.value.message
    assert {r.id for r in ws.runs(limit=1000)} == before
    return caught.value


def test_a_missing_script_is_named_with_the_nearest(ws: shunter.Workspace, folder: Path) -> None:
    error = refused(ws, script="trian.py", source_directory=folder)
    assert isinstance(error, NotFound)
    assert error.hint == "Did you mean 'train.py'?"


def test_an_empty_folder_is_refused(ws: shunter.Workspace, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises((SnapshotError, NotFound)):
        ws.submit("train.py", source_directory=tmp_path / "empty")


def test_an_unknown_target_is_named_with_the_nearest(ws: shunter.Workspace, folder: Path) -> None:
    error = refused(ws, source_directory=folder, target="locall")
    assert isinstance(error, NotFound)
    assert error.hint == "Did you mean 'local'?"


@pytest.mark.parametrize("script", ["../train.py", "/etc/passwd", "a/../../train.py"])
def test_a_script_outside_the_folder_is_refused(ws: shunter.Workspace, folder: Path, script: str) -> None:
    assert isinstance(refused(ws, script=script, source_directory=folder), UsageError)


def test_a_script_that_is_a_link_out_of_the_tree_is_refused_by_name(ws: shunter.Workspace, folder: Path) -> None:
    (folder / "evil.py").symlink_to("/etc/hostname")
    error = refused(ws, source_directory=folder)
    assert "evil.py" in str(error)


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\nb", " x", "x" * 300, "\ud800"])
def test_experiment_names_that_cannot_be_used(ws: shunter.Workspace, folder: Path, name: str) -> None:
    with pytest.raises((NameInvalid, UsageError)):
        shunter.Experiment(ws, name)


@pytest.mark.parametrize("name", ["my experiment", "it's \"quoted\"", "Übung 7 · 実験", "'; DROP TABLE runs; --", "a.b-c_d"])
def test_experiment_names_may_have_blanks_quotes_and_unicode(ws: shunter.Workspace, folder: Path, name: str) -> None:
    run = ws.submit("train.py", source_directory=folder, experiment=name).wait()
    assert run.experiment == name
    assert name in ws.experiments
    assert [r.id for r in ws.runs(experiment=name)] == [run.id]


@pytest.mark.parametrize("name", ["a b", "x/y", "../z", "", "ü", "9lives", "a" * 65])
def test_names_of_targets_that_cannot_be_used(ws: shunter.Workspace, name: str) -> None:
    with pytest.raises(NameInvalid):
        ws.compute.create(name, kind="local")


def test_an_argument_of_ten_megabytes_is_refused_with_a_way_out(ws: shunter.Workspace, folder: Path) -> None:
    error = refused(ws, source_directory=folder, arguments=["x" * 10_000_000])
    assert "file" in error.hint


def test_what_could_never_start_is_refused_with_the_nearest_that_would(ws: shunter.Workspace, folder: Path) -> None:
    error = refused(ws, source_directory=folder, node_count=3)
    assert isinstance(error, Infeasible)
    assert "--nodes 1" in error.hint
    assert isinstance(refused(ws, source_directory=folder, cpus=4096), Infeasible)


def test_an_unknown_option_is_named_with_the_nearest(ws: shunter.Workspace, folder: Path) -> None:
    error = refused(ws, source_directory=folder, nodecount=3)
    assert "node_count" in error.hint


def test_an_unknown_kind_or_option_of_a_target_is_named_with_the_nearest(ws: shunter.Workspace) -> None:
    with pytest.raises(NotFound, match="locl"):
        ws.compute.create("x", kind="locl")
    with pytest.raises(UsageError, match="slot") as caught:
        ws.compute.create("x", kind="local", slot=3)
    assert "slots" in caught.value.hint
    with pytest.raises(UsageError, match="slots"):
        ws.compute.create("x", kind="local", slots=0)
    assert [c.name for c in ws.compute.list()] == ["local"]


def test_a_snapshot_that_was_never_sent_is_refused(ws: shunter.Workspace) -> None:
    body = {"id": uuid.uuid4().hex, "experiment": "e", "snapshot_id": "0" * 64, "script": "train.py"}
    with pytest.raises(SnapshotError):
        ws.client.post(f"{ws.path}/runs", body)


@pytest.mark.parametrize(
    ("key", "value"),
    [("id", "zz"), ("snapshot_id", "../../etc"), ("script", "../x"), ("config", {"cpus": -1}), ("config", {"env": {"a=b": "c"}}),
     ("unknown", 1), ("arguments", "not a list"), ("config", {"node_count": "many"})],
)  # fmt: skip
def test_a_request_with_a_wrong_value_is_refused(ws: shunter.Workspace, folder: Path, key: str, value: object) -> None:
    good = ws.submit("train.py", source_directory=folder).wait()
    body = {"id": uuid.uuid4().hex, **{k: good.data[k] for k in ("experiment", "snapshot_id", "script")}, key: value}
    with pytest.raises(ShunterError) as caught:
        ws.client.post(f"{ws.path}/runs", body)
    assert caught.value.http_status < 500


def test_submitting_the_same_id_again_submits_once(ws: shunter.Workspace, folder: Path) -> None:
    run_id = uuid.uuid4().hex
    first = ws.submit("train.py", source_directory=folder, run_id=run_id).wait()
    again = ws.submit("train.py", source_directory=folder, run_id=run_id)
    assert again.id == first.id
    assert len([e for e in again.events() if e["status"] == "Queued"]) == 1


@pytest.mark.parametrize("path", ["../../secret", "outputs/../../../token", "/etc/passwd", "outputs/\0", ""])
def test_files_outside_the_runs_own_are_not_given(ws: shunter.Workspace, folder: Path, path: str) -> None:
    from shunter.sdk.client import part

    run = ws.submit("train.py", source_directory=folder).wait()
    try:
        answer = ws.client.raw("GET", f"{run.path}/files/{part(path)}")
    except ShunterError:
        return
    assert b"[" in answer.body[:1]  # the empty path is the list of files


def all_routes(tmp_path: Path) -> list[tuple[str, str]]:
    """Every route of the application, with made-up values in its path."""
    parts = build(HomeFolder(tmp_path / "other"), "http://127.0.0.1:1")
    parts.database.close()
    schema = create_app(parts).app.openapi()  # type: ignore[attr-defined]
    found = []
    for path, methods in schema["paths"].items():
        real = path.replace("{launch_id}", "a" * 32 + ".1.0").replace("{run_id}", "a" * 32)
        while "{" in real:
            start, end = real.index("{"), real.index("}")
            real = real[:start] + "x" + real[end + 1 :]
        found += [(method.upper(), real) for method in methods]
    # Served without the router, or passed on to MLflow as they are, and so not in our own description.
    return [*found, ("POST", "/api/v1/workspaces/x/runs"), ("GET", "/mlflow/"), ("POST", "/mlflow/api/2.0/mlflow/runs/search"),
            ("POST", f"/api/v1/node/{'a' * 32}.1.0/mlflow/api/2.0/mlflow/runs/get")]  # fmt: skip


def test_every_route_refuses_a_missing_a_wrong_and_another_runs_token(ws: shunter.Workspace, tmp_path: Path) -> None:
    routes = all_routes(tmp_path)
    assert len(routes) > 25
    from shunter.server.tokens import Tokens

    secret = (Path(os.environ["SHUNTER_HOME"]) / "secret").read_text()
    other_run = Tokens("x", secret).for_run("b" * 32)
    forged = "run." + "a" * 32 + "." + "0" * 64
    for token in ("", "wrong", other_run, forged):
        client = Client(ws.client.url, token)
        for method, path in routes:
            with pytest.raises(AuthError):
                client.raw(method, path)
    # The owner's own token does not report for a run, either.
    with pytest.raises(AuthError):
        ws.client.raw("POST", "/api/v1/node/" + "a" * 32 + ".1.0", b"")


def test_half_a_character_in_a_tag_becomes_a_question_mark(ws: shunter.Workspace, folder: Path) -> None:
    run = ws.submit("train.py", source_directory=folder).wait()
    run.tag("odd", "a\ud800b")
    assert run.refresh().data["tags"] == {"odd": "a?b"}


def test_a_report_that_makes_no_sense_is_refused(ws: shunter.Workspace, folder: Path) -> None:
    from shunter.node.home import encode
    from shunter.server.tokens import Tokens

    run = ws.submit("train.py", source_directory=folder).wait()
    secret = (Path(os.environ["SHUNTER_HOME"]) / "secret").read_text()
    client = Client(ws.client.url, Tokens("x", secret).for_run(run.id))
    for body in (b"rubbish", encode([({"stream": "../../x", "offset": 0, "size": 0}, b"")]),
                 encode([({"stream": "files/../../x", "offset": 0, "size": 1}, b"x")]), encode([({"nonsense": 1}, b"")]),
                 encode([({"move": "../../../token", "total": 1}, b"")])):  # fmt: skip
        with pytest.raises(ShunterError) as caught:
            client.raw("POST", f"/api/v1/node/{run.id}.1.0", body)
        assert caught.value.http_status < 500
    assert run.refresh().data["status"] == "Completed"
