"""Environments from submit to record, with a real server, a real launcher and packages that the test makes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shunter.errors import EnvironmentInvalid, NotFound
from shunter.sdk.config import RunConfiguration
from shunter.sdk.environment import Environment
from shunter.sdk.inputs import Input
from shunter.sdk.run import Run
from shunter.sdk.workspace import Workspace
from shunter.testing.containers import IMAGE, podman
from shunter.testing.packages import Index, make_wheel

SHOW = "import sys, alpha\nprint('alpha', alpha.__version__, sys.executable)\n"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    (tmp_path / "wheels").mkdir()
    make_wheel(tmp_path / "wheels", "alpha", "1.0", ["beta"])
    make_wheel(tmp_path / "wheels", "beta", "1.0")
    with Index(tmp_path / "wheels") as found:
        yield found


@pytest.fixture
def engine() -> str:
    found = podman()
    if found is None:
        pytest.skip("podman is not set up: scripts/parts/podman does it")
    return found


@pytest.fixture
def ws(home: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("SHUNTER_CONTAINER_ENGINE", podman() or "podman")
    return Workspace.from_config()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "show.py").write_text(SHOW)
    return folder


def submit(ws: Workspace, project: Path, script: str = "show.py", **options: Any) -> Run:
    return ws.submit(script, source_directory=project, **options)


def log_of(run: Run) -> str:
    return run.logs()


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_a_list_of_packages_is_built_once_kept_with_the_run_and_built_identically_again(
    ws: Workspace, project: Path, index: Index
) -> None:
    asked = Environment(name="train", packages=["alpha"], index_url=index.url)
    first = submit(ws, project, environment=asked)
    first.wait()
    assert first.status == "Completed", first.data
    assert "alpha 1.0" in log_of(first)
    states = [e["status"] for e in first.events()]
    assert "Preparing" in states
    record = first.details()["properties"]["environment"]
    assert record["kind"] == "system"
    assert record["nodes"]["0"]["python"].startswith(record["python"])
    assert record["nodes"]["0"]["host"]["os"]
    assert ws.environments.locked(record["lock"])["packages"] == {"alpha": "1.0", "beta": "1.0"}

    make_wheel(index.folder, "alpha", "2.0")
    second = submit(ws, project, environment=asked)
    second.wait()
    assert "building" not in log_of(second)
    assert "Preparing" not in [e["status"] for e in second.events()]

    newer = ws.environments.lock(asked, again=True)
    assert newer["packages"]["alpha"] == "2.0"
    third = submit(ws, project, environment=asked)
    third.wait()
    assert "alpha 2.0" in log_of(third)
    again = first.rerun()
    again.wait()
    assert "alpha 1.0" in log_of(again)
    assert again.details()["properties"]["environment"]["lock"] == record["lock"]


def test_an_environment_that_cannot_be_solved_fails_the_run_with_the_solvers_reason(
    ws: Workspace, project: Path, index: Index
) -> None:
    run = submit(ws, project, environment=Environment(packages=["alpha==9"], index_url=index.url))
    run.wait()
    assert run.status == "Failed"
    assert run.data["error"]["code"] == "environment_invalid"
    assert "alpha==9" in run.data["error"]["message"]


def test_a_run_is_preparing_while_its_packages_are_installed_and_may_be_canceled_then(
    ws: Workspace, project: Path, index: Index
) -> None:
    asked = Environment(packages=["alpha"], index_url=index.url)
    ws.environments.lock(asked)
    index.calls.clear()
    index.mood = "hang"
    run = submit(ws, project, environment=asked)
    until(lambda: bool(index.calls) and run.refresh().status == "Preparing")
    assert "nstall" in run.data["reason"] or "environment" in run.data["reason"]
    run.cancel()
    run.wait()
    index.mood = ""
    assert run.status == "Canceled"
    again = submit(ws, project, environment=asked)
    again.wait()
    assert again.status == "Completed"


def test_a_run_that_fails_on_a_damaged_package_says_so_and_its_rerun_builds_again(
    ws: Workspace, project: Path, index: Index
) -> None:
    asked = Environment(packages=["alpha"], index_url=index.url)
    built = ws.environments.build(asked)
    built.wait()
    interpreter = built.details()["properties"]["environment"]["nodes"]["0"]["interpreter"]
    file = next(Path(interpreter).parent.parent.glob("lib/*/site-packages/alpha/__init__.py"))
    file.write_bytes(b"")
    failed = submit(ws, project, environment=asked)
    failed.wait()
    assert (failed.status, failed.data["error"]["code"]) == ("Failed", "environment_damaged")
    assert "damaged: alpha" in failed.data["error"]["message"]
    again = failed.rerun()
    again.wait()
    assert again.status == "Completed", again.data
    file = next(file.parents[4].parent.glob("*/lib/*/site-packages/alpha/__init__.py"))
    file.write_bytes(file.read_bytes().replace(b"1.0", b"6.6"))
    ws.environments.build(asked, verify=True).wait()
    proved = submit(ws, project, environment=asked)
    proved.wait()
    assert "alpha 1.0" in log_of(proved)


def test_a_killed_server_goes_on_with_a_run_whose_environment_it_was_solving(
    ws: Workspace, project: Path, index: Index, home: Path
) -> None:
    index.mood = "hang"
    run = submit(ws, project, environment=Environment(packages=["alpha"], index_url=index.url))
    until(lambda: bool(index.calls))
    os.kill(int((home / "server.lock").read_text()), signal.SIGKILL)
    index.mood = ""
    found = Workspace.from_config().run(run.id)
    found.wait()
    assert found.status == "Completed", found.data
    assert found.data["attempts"] == 1


def test_environments_are_registered_by_version_found_by_name_and_frozen_at_submit(
    ws: Workspace, project: Path, index: Index
) -> None:
    one = ws.environments.register(Environment(name="train", packages=["alpha"], index_url=index.url))
    same = ws.environments.register(Environment(name="train", packages=["alpha"], index_url=index.url))
    two = ws.environments.register(Environment(name="train", packages=["beta"], index_url=index.url))
    assert (one.version, same.version, two.version) == ("1", "1", "2")
    assert ws.environments.get("train").packages == ("beta",)
    assert [(d.what, d.before, d.after) for d in ws.environments.diff("train:1", "train")] == [
        ("packages", "alpha", ""), ("packages", "", "beta"),
    ]  # fmt: skip
    run = submit(ws, project, environment="train:1")
    assert run.data["config"]["environment"]["packages"] == ["alpha"]
    assert ws.environments.delete("train") == 2
    run.wait()
    assert run.status == "Completed"
    with pytest.raises(NotFound, match="scikit-learn"):
        submit(ws, project, environment="scikit-lern")


def test_a_conda_list_is_served_from_pypi_when_the_environment_the_target_or_the_workspace_says_so(
    ws: Workspace, index: Index
) -> None:
    make_wheel(index.folder, "numpy", "2.0.0")
    asked = Environment(conda_packages=["numpy"], channels=["file:///nowhere/at/all"], index_url=index.url)
    with pytest.raises(EnvironmentInvalid, match="/nowhere/at/all") as caught:
        ws.environments.lock(asked)
    assert "package_source: pypi" in caught.value.hint
    ws.compute.create("other", "local", tags={"package_source": "pypi"})
    found = [ws.environments.lock(asked.evolve(package_source="pypi")), ws.environments.lock(asked, "other")]
    ws.settings(package_source="pypi")
    found.append(ws.environments.lock(asked))
    for lock in found:
        assert (lock["source"], lock["packages"]) == ("pypi instead of conda", {"numpy": "2.0.0"})


def test_a_private_index_gets_its_password_from_a_secret_that_is_shown_nowhere(
    ws: Workspace, project: Path, index: Index, home: Path
) -> None:
    index.password = "tip-top-secret"
    ws.secrets.set("INDEX_PASSWORD", "tip-top-secret")
    url = index.url.replace("http://", "http://user:${INDEX_PASSWORD}@")
    run = submit(ws, project, environment=Environment(packages=["alpha"], index_url=url))
    run.wait()
    assert run.status == "Completed", run.data
    assert "tip-top-secret" not in json.dumps(run.details()) + log_of(run)
    kept = [p for p in home.rglob("*") if p.is_file() and b"tip-top-secret" in p.read_bytes()]
    assert [p for p in kept if "launches" not in p.parts] == []


def test_a_node_that_reaches_no_index_gets_its_wheels_from_the_server(
    ws: Workspace, project: Path, index: Index
) -> None:
    asked = Environment(packages=["alpha"], index_url=index.url, offline=True)
    ws.environments.lock(asked)
    index.calls.clear()
    run = submit(ws, project, environment=asked)
    run.wait()
    assert run.status == "Completed", run.data
    assert "alpha 1.0" in log_of(run)
    assert index.calls == []


def test_an_existing_interpreter_is_used_as_it_is_and_a_missing_one_is_said(ws: Workspace, project: Path) -> None:
    (project / "who.py").write_text("import sys\nprint(sys.executable)\n")
    run = submit(ws, project, "who.py", environment=Environment.existing(sys.executable))
    run.wait()
    assert log_of(run).strip() == sys.executable
    missing = submit(ws, project, "who.py", environment=Environment.existing("/no/such/python"))
    missing.wait()
    assert missing.data["error"]["code"] == "interpreter_missing"


def test_a_run_configuration_file_carries_the_environment(ws: Workspace, project: Path, index: Index) -> None:
    config = RunConfiguration(environment=Environment(packages=["alpha"], index_url=index.url))
    file = config.save(project, "local")
    out = subprocess.run(
        [sys.executable, "-m", "shunter.cli", "submit", "--source", str(project), "--run-config", str(file), "show.py"],
        capture_output=True, text=True, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert out.returncode == 0, out.stdout + out.stderr
    assert "alpha 1.0" in out.stdout


def test_built_environments_are_cleaned_up_unless_a_run_uses_them(ws: Workspace, project: Path, index: Index) -> None:
    asked = Environment(packages=["alpha"], index_url=index.url)
    built = ws.environments.build(asked)
    built.wait()
    assert built.status == "Completed"
    (project / "wait.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(300)\n")
    run = submit(ws, project, "wait.py", environment=asked)
    until(lambda: "up" in log_of(run))
    held = ws.environments.clean(really=True)
    assert held["freed"] == []
    assert [e["in_use"] for e in held["environments"]] == [True]
    run.cancel()
    run.wait()
    would = ws.environments.clean()
    assert (len(would["freed"]), would["really"]) == (1, False)
    assert len(ws.environments.clean(really=True)["freed"]) == 1
    assert ws.environments.clean()["environments"] == []


def test_a_script_runs_in_a_container_and_its_record_names_the_digest(
    ws: Workspace, project: Path, engine: str
) -> None:
    (project / "inside.py").write_text("import os\nopen('outputs/x', 'w').write('1')\nprint(os.environ['A'])\n")
    run = submit(ws, project, "inside.py", environment=Environment.from_image(IMAGE, env={"A": "b"}))
    run.wait()
    assert run.status == "Completed", run.data
    node = run.details()["properties"]["environment"]["nodes"]["0"]
    assert node["image_digest"].startswith("sha256:")
    shown = subprocess.run([sys.executable, "-m", "shunter.cli", "run", "show", run.id], capture_output=True, check=True)
    assert node["image_digest"] in shown.stdout.decode()
    assert [f["path"] for f in run.files()] == ["outputs/x"]
    again = run.rerun()
    again.wait()
    assert again.details()["properties"]["environment"]["nodes"]["0"]["image_digest"] == node["image_digest"]


def test_inputs_are_mounted_read_only_into_a_container(
    ws: Workspace, project: Path, engine: str, tmp_path: Path
) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "a.txt").write_text("in a folder")
    (tmp_path / "one.csv").write_text("x\n1\n")
    code = (
        "import os, shunter.run\nfound = shunter.run.Run.get_context().input_datasets\n"
        "print(open(found['folder'] + '/deep/a.txt').read(), open(found['file']).read().split(), os.listdir(found['there']))\n"
        "for path in (found['folder'] + '/new', found['file'], found['there'] + '/new'):\n"
        "    try: open(path, 'w')\n"
        "    except OSError as error: print(error.strerror)\n"
        "open(found['own'], 'a').write('mine')\nprint(open(found['own']).read().split())\n"
    )
    (project / "read.py").write_text(code)
    inputs = {
        "folder": tmp_path / "data", "file": tmp_path / "one.csv", "there": f"node:{tmp_path / 'data'}",
        "own": Input(str(tmp_path / "one.csv"), mode="copy"),
    }  # fmt: skip
    run = submit(ws, project, "read.py", environment=Environment.from_image(IMAGE), inputs=inputs)
    run.wait()
    assert run.status == "Completed", log_of(run)
    assert log_of(run).splitlines() == [
        "in a folder ['x', '1'] ['deep']", *["Read-only file system"] * 3, "['x', '1', 'mine']",
    ]  # fmt: skip


def test_a_container_whose_launcher_was_killed_is_adopted_and_cleaned_up(
    ws: Workspace, project: Path, engine: str, home: Path
) -> None:
    (project / "long.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(300)\n")
    run = submit(ws, project, "long.py", environment=Environment.from_image(IMAGE))
    until(lambda: "up" in log_of(run))
    claim = next((home / "node" / "launches").glob(run.id + ".*/claim")).read_text().split()
    os.kill(int(claim[1]), signal.SIGKILL)
    run.cancel()
    run.wait()
    assert run.status == "Canceled", run.data
    left = subprocess.run([engine, "ps", "-a", "--format", "{{.Names}}"], capture_output=True, text=True, check=True)
    assert run.id[:20] not in left.stdout


def test_a_target_writes_its_run_configuration_on_request(ws: Workspace, project: Path) -> None:
    file = ws.compute.get("local").write_run_config(project, environment=Environment(packages=["alpha"]), node_count=1)
    assert file == project / ".azureml" / "local.runconfig"
    config = RunConfiguration.load(project, "local")
    assert (config.target, config.environment) == ("local", Environment(packages=["alpha"]))
