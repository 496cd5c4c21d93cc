"""Submit a script, watch it, get everything it made: real server, real launcher, this very interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import shunter
from shunter.errors import AuthError, ConfigError, NotFound, RunFailed, ServerUnreachable
from shunter.home import HomeFolder
from shunter.sdk.client import Client
from shunter.sdk.connect import connect, status, stop
from shunter.testing.house import House, wait_until

pytestmark = pytest.mark.usefixtures("module_home")


@pytest.fixture
def ws() -> shunter.Workspace:
    return shunter.Workspace.from_config()


def write(folder: Path, code: str, name: str = "train.py") -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text(code)
    return folder


def test_a_script_runs_with_its_arguments_and_its_files_come_home(ws: shunter.Workspace, tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib\n"
        "print(sys.argv[1:], os.path.basename(os.getcwd()))\n"
        "pathlib.Path('outputs/deep').mkdir()\n"
        "pathlib.Path('outputs/deep/model.bin').write_bytes(bytes(range(256)))\n"
        "pathlib.Path('logs/extra.txt').write_text('more')\n"
        "print(os.environ['SHUNTER_RUN_ID'], file=sys.stderr)\n"
    )
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), arguments=["a b", "--x=ü", 3])
    run.wait()
    assert run.status == "Completed"
    assert run.exit_code == 0
    log = run.logs()
    assert "['a b', '--x=ü', '3'] work" in log
    assert run.id in log
    assert [f["path"] for f in run.files()] == ["logs/extra.txt", "outputs/deep/model.bin"]
    run.download(tmp_path / "got")
    assert (tmp_path / "got/outputs/deep/model.bin").read_bytes() == bytes(range(256))
    assert [e["status"] for e in run.events() if e["kind"] == "state"][0:2] == ["Queued", "Starting"]
    assert run.data["usage"]["working_set_bytes_peak"] > 1 << 20


def test_what_runs_is_what_was_there_at_submit(ws: shunter.Workspace, tmp_path: Path) -> None:
    folder = write(tmp_path / "src", "import time\ntime.sleep(0.3)\nimport helper\nprint(helper.WORD)\n")
    write(folder, "WORD = 'frozen'\n", "helper.py")
    run = ws.submit("train.py", source_directory=folder)
    write(folder, "WORD = 'edited'\n", "helper.py")
    assert run.wait().logs() == "frozen\n"
    again = run.rerun().wait()
    assert again.logs() == "frozen\n"
    assert again.data["properties"]["rerun_of"] == run.id


def test_the_log_is_live_and_needs_no_newline(ws: shunter.Workspace, tmp_path: Path) -> None:
    code = (
        "import sys, time, os\nsys.stdout.write('50 %')\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\nprint(' done')\n"
    )
    gate = tmp_path / "gate"
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), arguments=[gate])
    seen = b""
    for chunk in run.follow():
        seen += chunk
        if seen == b"50 %":
            assert run.status == "Running"
            gate.touch()
    assert seen == b"50 % done\n"


def test_who_follows_a_silent_run_is_told_once(ws: shunter.Workspace, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\nprint('on')\ntime.sleep(2)\n"
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), arguments=[gate])
    told: list[str] = []

    def on_silence() -> None:
        told.append(run.why()["status"])
        gate.touch()

    assert b"".join(run.follow(on_silence=on_silence)) == b"on\n"
    assert len(told) == 1


def test_no_answer_is_left_to_be_closed_at_its_end(ws: shunter.Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C that comes while the interpreter closes a forgotten stream is dropped without a word."""
    answers: list[Any] = []
    send = Client._send

    def kept(*words: Any) -> Any:
        answers.append(send(*words))
        return answers[-1]

    monkeypatch.setattr(Client, "_send", kept)
    ws.client.get("/api/v1/server")
    assert list(ws.client.stream("/api/v1/server"))
    assert [answer.closed for answer in answers] == [True, True]


def test_any_bytes_come_home_as_they_are(ws: shunter.Workspace, tmp_path: Path) -> None:
    code = "import os\nos.write(1, bytes(range(256)) * 5000)\nos.write(2, b'\\xff\\xfe')\n"
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code)).wait()
    assert b"".join(run.follow()) == bytes(range(256)) * 5000 + b"\xff\xfe"


def test_a_failed_script_says_why(ws: shunter.Workspace, tmp_path: Path) -> None:
    code = "print('before')\nraise ValueError('no such column')\n"
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code)).wait()
    assert (run.status, run.exit_code) == ("Failed", 1)
    assert run.error is not None
    assert run.error["code"] == "script_failed"
    assert "ValueError: no such column" in run.error["message"]
    assert run.logs().startswith("before\nTraceback")
    with pytest.raises(RunFailed, match="no such column"):
        run.wait(raise_on_error=True)


def test_a_script_ended_by_a_signal_is_told_apart(ws: shunter.Workspace, tmp_path: Path) -> None:
    run = ws.submit("train.py", source_directory=write(tmp_path / "s", "import os\nos.kill(os.getpid(), 11)\n")).wait()
    assert run.error is not None
    assert run.error["code"] == "killed_by_signal"
    assert "SIGSEGV" in run.error["message"]


def test_cancel_ends_the_whole_group_and_leaves_nothing(ws: shunter.Workspace, tmp_path: Path, module_home: Path) -> None:
    code = (
        "import subprocess, sys, time, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "stubborn = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'\n"
        "a = subprocess.Popen([sys.executable, '-c', stubborn])\n"
        "b = subprocess.Popen([sys.executable, '-c', stubborn], start_new_session=True)\n"
        "print(a.pid, b.pid, flush=True)\ntime.sleep(600)\n"
    )
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), grace_seconds=0.2)
    wait_until(lambda: run.logs().count("\n") == 1, what="the first line")
    pids = [int(word) for word in run.logs().split()]
    assert run.cancel().data["status"] == "CancelRequested"
    run.cancel()
    assert run.wait().status == "Canceled"
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), what="the children's end")
    assert House(module_home).scripts() == []


def test_a_script_may_not_run_longer_than_it_was_given(ws: shunter.Workspace, tmp_path: Path) -> None:
    folder = write(tmp_path / "src", "import time\ntime.sleep(600)\n")
    run = ws.submit("train.py", source_directory=folder, max_run_duration_seconds=0.3, grace_seconds=0.2).wait()
    assert run.error is not None
    assert run.error["code"] == "max_duration"


def test_more_runs_than_cores_wait_and_why_says_behind_what(ws: shunter.Workspace, tmp_path: Path) -> None:
    slots = ws.compute.get("local").show()["capacity"]["slots"]
    gate = tmp_path / "gate"
    code = "import sys, time, os\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
    folder = write(tmp_path / "src", code)
    runs = [ws.submit("train.py", source_directory=folder, arguments=[gate]) for _ in range(slots + 2)]
    wait_until(lambda: [r.status for r in runs].count("Running") == slots, what="as many runs as slots")
    why = runs[-1].why()
    assert why["can_start"] is True
    assert "1 run waits before it" in why["reasons"][0]
    assert any(r.id[:8] in why["reasons"][1] for r in runs[:slots])
    gate.touch()
    assert {r.data["status"] for r in ws.wait(runs)} == {"Completed"}


def test_children_are_canceled_with_their_parent(ws: shunter.Workspace, tmp_path: Path) -> None:
    from shunter.sdk.submit import submit

    folder = write(tmp_path / "src", "import time\ntime.sleep(600)\n")
    parent = ws.submit("train.py", source_directory=folder, grace_seconds=0.2)
    child = submit(ws, "train.py", source_directory=folder, parent_id=parent.id, grace_seconds=0.2)
    assert [c.id for c in parent.children()] == [child.id]
    parent.cancel()
    assert {r.data["status"] for r in ws.wait([parent, child])} == {"Canceled"}


def test_two_clients_at_once_start_one_server(home: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(connect().url)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    info = status(HomeFolder(home))
    assert info is not None
    assert {"url", "pid", "version", "database"} <= set(info)
    assert (home / "token").stat().st_mode & 0o777 == 0o600


def test_a_killed_server_does_not_block_the_next_start(house: House) -> None:
    first = connect()
    assert house.kill_server()
    second = connect()
    assert second.get("/api/v1/server")["pid"] == house.server
    assert second.url == first.url  # the same port again: launchers find it at once


def test_an_embedded_server_ends_when_it_is_idle(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_IDLE_SECONDS", "0.4")
    connect().close()
    wait_until(lambda: house.server is None, what="the end of the idle server")
    assert not (house.home / "endpoint.json").exists()


def test_stop_ends_the_server_and_runs_go_on(house: House, tmp_path: Path) -> None:
    ws = shunter.Workspace.from_config()
    gate = tmp_path / "gate"
    code = "import sys, time, os\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\nprint('went on')\n"
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), arguments=[gate])
    wait_until(house.scripts, what="the script's start")
    assert stop(HomeFolder(house.home))
    assert house.server is None
    gate.touch()
    run.workspace.client = connect()
    assert run.wait().status == "Completed"
    assert run.logs() == "went on\n"


def test_a_missing_interpreter_is_said(ws: shunter.Workspace, tmp_path: Path) -> None:
    folder = write(tmp_path / "src", "print(1)\n")
    run = ws.submit("train.py", source_directory=folder)
    run.wait()
    body = {**{k: run.data[k] for k in ("experiment", "target", "snapshot_id", "script")}, "id": os.urandom(16).hex(),
            "config": {"interpreter": "/nowhere/python"}}  # fmt: skip
    broken = shunter.Run(ws, ws.client.post(f"{ws.path}/runs", body)).wait()
    assert broken.error is not None
    assert broken.error["code"] == "interpreter_missing"


def test_a_run_can_be_found_by_the_beginning_of_its_id_its_alias_or_its_name(ws: shunter.Workspace, tmp_path: Path) -> None:
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", "print(1)\n"), name="a fine name").wait()
    for text in (run.id, run.id[:10], run.data["alias"], "a fine name"):
        assert ws.run(text).id == run.id
    with pytest.raises(NotFound):
        ws.run("ffffffffffffffff")


def test_delete_means_delete(ws: shunter.Workspace, tmp_path: Path, module_home: Path) -> None:
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", "open('outputs/x','w').write('x')\n")).wait()
    assert run.files()
    run.delete()
    with pytest.raises(NotFound):
        run.refresh()
    assert not list((module_home / "runs").glob(f"*/{run.id}"))


def test_outputs_so_far_can_be_asked_for_while_it_runs(ws: shunter.Workspace, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = (
        "import sys, time, os\nopen('outputs/part.txt','w').write('half')\nprint('go', flush=True)\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
    )
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), arguments=[gate])
    wait_until(lambda: "go" in run.logs())
    assert [f["path"] for f in run.files(refresh=True)] == ["outputs/part.txt"]
    gate.touch()
    run.wait()


def test_the_sampler_sees_what_children_use(ws: shunter.Workspace, tmp_path: Path) -> None:
    child = "import time; x = bytearray(150 << 20)\nwhile time.process_time() < 1.6: pass"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])\n"
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code)).wait()
    usage = run.data["usage"]
    assert usage["working_set_bytes_peak"] > 150 << 20
    assert usage["cpu_seconds"] > 1.0
    assert len(run.usage()) >= 2


def test_nothing_is_left_when_all_is_over(house: House, tmp_path: Path) -> None:
    ws = shunter.Workspace.from_config()
    ws.submit("train.py", source_directory=write(tmp_path / "src", "print(1)\n")).wait()
    house.end_all()
    wait_until(lambda: house.left_over() == [], 60, "the end of every process")




def test_another_server_is_named_by_its_address_and_token(module_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = connect()
    monkeypatch.setenv("SHUNTER_URL", own.url)
    with pytest.raises(ConfigError, match="SHUNTER_TOKEN"):
        connect()
    monkeypatch.setenv("SHUNTER_TOKEN", "wrong")
    with pytest.raises(AuthError):
        shunter.Workspace.from_config()
    monkeypatch.setenv("SHUNTER_TOKEN", (module_home / "token").read_text())
    assert shunter.Workspace.from_config().name == "default"
    monkeypatch.setenv("SHUNTER_URL", "http://127.0.0.1:9")
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:9"):
        shunter.Workspace.from_config()


def test_the_client_brings_no_library_of_the_server() -> None:
    code = (
        "import sys, shunter; shunter.Workspace, shunter.Run\n"
        "print([m for m in ('fastapi', 'sqlalchemy', 'pydantic') if m in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(shunter.__file__).parent.parent)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert found.stdout.strip() == "[]"
