"""What a run says and makes comes home: real server, real launcher, real scripts."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import shunter
from shunter.errors import InputChanged, NotFound
from shunter.node import contract
from shunter.testing.house import House, send, wait_until

pytestmark = pytest.mark.usefixtures("module_home")


@pytest.fixture
def ws() -> shunter.Workspace:
    return shunter.Workspace.from_config()


@pytest.fixture
def house() -> House:
    return House(Path(os.environ["SHUNTER_HOME"]))


def write(folder: Path, code: str) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "train.py").write_text(
        "from shunter.run import Run\nimport os, sys, time, json\nrun = Run.get_context()\n" + code
    )
    return folder


def test_everything_a_script_says_comes_home_also_when_it_ends_at_once(ws: shunter.Workspace, tmp_path: Path) -> None:
    code = (
        "for i in range(1000): run.log('same', 0.5)\n"
        "run.log('nan', float('nan')); run.log_row('r', x=1); run.log_row('r', x=2)\n"
        "run.tag('k', 'v'); run.add_properties({'p': 1})\n"
        "open('model.bin', 'wb').write(b'weights'); run.upload_file('models/model.bin', 'model.bin')\n"
        "child = run.child_run('fold'); child.log('acc', 0.75)\n"
        "child.upload_file('a.bin', 'model.bin'); child.complete()\n"
        "left = run.child_run()\n"
        "os._exit(0)\n"
    )
    run = ws.submit("train.py", source_directory=write(tmp_path, code), tags={"old": "1"}).wait()
    assert run.status == "Completed"
    found = run.metrics()
    assert found["same"] == [0.5] * 1000
    assert found["nan"] != found["nan"]
    assert found["r"] == {"x": [1, 2]}
    run.refresh()
    assert run.tags == {"old": "1", "k": "v"}
    assert run.data["properties"]["p"] == "1"
    assert [f["path"] for f in run.files()] == ["models/model.bin"]
    by_name = {child.name: child for child in run.children()}
    assert by_name["fold"].metrics() == {"acc": 0.75}
    assert [f["path"] for f in by_name["fold"].files()] == ["a.bin"]
    assert {child.status for child in run.children()} == {"Completed"}
    assert run.metrics(recursive=True)[by_name["fold"].id] == {"acc": 0.75}
    (series,) = run.series("same", points=50)
    assert series.count == 1000
    assert len(series.values) <= 50


def test_a_script_reads_back_what_it_said(ws: shunter.Workspace, tmp_path: Path) -> None:
    code = (
        "for i in range(3): run.log('x', i)\n"
        "run.upload_file('kept.txt', __file__)\n"
        "print(json.dumps([run.get_metrics(), run.get_metrics('y'), run.get_file_names()]))\n"
    )
    run = ws.submit("train.py", source_directory=write(tmp_path, code)).wait()
    assert json.loads(run.logs()) == [{"x": [0, 1, 2]}, {}, ["kept.txt"]]


def test_ranks_log_at_once(ws: shunter.Workspace, tmp_path: Path) -> None:
    code = (
        "if len(sys.argv) == 1:\n"
        "    import subprocess\n"
        "    several = [subprocess.Popen([sys.executable, __file__, str(r)]) for r in range(4)]\n"
        "    sys.exit(max(p.wait() for p in several))\n"
        "for i in range(500): run.log('rank' + sys.argv[1], i, step=i); run.log('all', 1.0)\n"
    )
    run = ws.submit("train.py", source_directory=write(tmp_path, code)).wait()
    assert run.status == "Completed", run.logs()
    found = run.metrics()
    assert all(found[f"rank{r}"] == list(range(500)) for r in range(4))
    assert len(found["all"]) == 2000


def test_a_run_that_says_it_failed_has_failed(ws: shunter.Workspace, tmp_path: Path) -> None:
    run = ws.submit("train.py", source_directory=write(tmp_path, "run.fail('no convergence', 'E7')\n")).wait()
    assert run.status == "Failed"
    assert run.error is not None
    assert "no convergence" in run.error["message"]


def test_nothing_is_lost_when_the_server_is_killed_while_logging(
    ws: shunter.Workspace, house: House, tmp_path: Path
) -> None:
    code = "for i in range(3000):\n    run.log('x', i, step=i)\n"
    code += "    if i % 300 == 0: print(i, flush=True); time.sleep(0.15)\n"
    run = ws.submit("train.py", source_directory=write(tmp_path, code))
    wait_until(lambda: "300" in run.logs(), 60)
    for _ in range(3):
        house.kill_server()
        ws = shunter.Workspace.from_config()
        time.sleep(0.2)
    run = ws.run(run.id).wait()
    assert run.status == "Completed"
    assert run.metrics()["x"] == list(range(3000))


CHECKPOINTS = (
    "folder = os.environ['SHUNTER_CHECKPOINT_DIR']\n"
    "path = os.path.join(folder, 'state.json')\n"
    "print('found', open(path).read() if os.path.exists(path) else 'nothing', flush=True)\n"
    "if os.environ['SHUNTER_ATTEMPT'] == '1' and len(sys.argv) == 1:\n"
    "    open(path + '.new', 'w').write(json.dumps({'epoch': 7})); os.rename(path + '.new', path)\n"
    "    print('written', flush=True); time.sleep(60)\n"
)


def test_a_checkpoint_outlives_the_attempt(ws: shunter.Workspace, house: House, tmp_path: Path) -> None:
    run = ws.submit("train.py", source_directory=write(tmp_path, CHECKPOINTS), max_attempts=2)
    wait_until(run.checkpoints, 60)
    parent = house.parent
    assert parent is not None
    (pid,) = house.scripts()
    launchers = house.launchers()
    os.kill(parent, 9)  # or it would adopt the attempt and see its end
    for one in [*launchers, pid]:
        os.kill(one, 9)
    run.wait(timeout_seconds=120)
    assert run.status == "Completed"
    assert run.logs(attempt=2).strip() == 'found {"epoch": 7}'


def test_a_rerun_goes_on_from_a_checkpoint(ws: shunter.Workspace, tmp_path: Path) -> None:
    code = "open(os.environ['SHUNTER_CHECKPOINT_DIR'] + '/a.txt', 'a').write('x')\n"
    code += "print(open(os.environ['SHUNTER_CHECKPOINT_DIR'] + '/a.txt').read())\n"
    first = ws.submit("train.py", source_directory=write(tmp_path, code)).wait()
    assert first.logs().split()[-1] == "x"
    again = first.rerun(from_checkpoint=True).wait()
    assert again.logs().split()[-1] == "xx"
    assert first.rerun().wait().logs().split()[-1] == "x"


def test_a_damaged_checkpoint_is_passed_over_and_that_is_said(
    ws: shunter.Workspace, house: House, tmp_path: Path
) -> None:
    code = (
        "folder = os.environ['SHUNTER_CHECKPOINT_DIR']\n"
        "if os.path.exists(folder + '/a.bin'): print(open(folder + '/a.bin').read()); sys.exit()\n"
        "open(folder + '/a.bin', 'w').write('first')\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.05)\n"
        "open(folder + '/a.bin', 'w').write('second')\n"
    )
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), arguments=[tmp_path / "go on"])
    wait_until(run.checkpoints, 60)
    (tmp_path / "go on").touch()
    run.wait()
    newest, _ = run.checkpoints()
    stored = house.home / "runs" / run.id[:2] / run.id / "checkpoints" / newest["files"][0]["sha256"]
    stored.write_text("sec0nd")
    again = run.rerun(from_checkpoint=True).wait()
    assert again.logs().strip() == "first"
    assert any("is damaged" in e["reason"] for e in again.events() if e["kind"] == "checkpoint_broken")


def test_a_checkpoint_that_was_half_written_when_the_script_was_killed_does_not_count(
    ws: shunter.Workspace, tmp_path: Path
) -> None:
    code = (
        "folder = os.environ['SHUNTER_CHECKPOINT_DIR']\n"
        "if os.path.exists(folder + '/s.json'): print(open(folder + '/s.json').read(), os.listdir(folder)); sys.exit()\n"
        "open(folder + '/s.json', 'w').write('{\"epoch\": 7}')\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
        "open(folder + '/s.json', 'w').write('{\"epoch\":')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), arguments=[tmp_path / "go on"])
    wait_until(run.checkpoints, 60)
    (tmp_path / "go on").touch()
    assert run.wait().status == "Failed"
    assert any("s.json is not whole" in e["reason"] for e in run.events() if e["kind"] == "checkpoint_broken")
    assert run.rerun(from_checkpoint=True).wait().logs().strip() == "{\"epoch\": 7} ['s.json']"


def test_a_launcher_that_took_over_knows_which_checkpoint_was_home_before_the_half_written_one(
    ws: shunter.Workspace, house: House, tmp_path: Path
) -> None:
    code = (
        "path = os.environ['SHUNTER_CHECKPOINT_DIR'] + '/state.bin'\n"
        "if os.path.exists(path): print(open(path).read()); sys.exit()\n"
        "open(path, 'w').write('epoch seven')\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
        "open(path, 'w').write('epoch eig')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), arguments=[tmp_path / "go on"])
    wait_until(run.checkpoints, 60)

    def launcher() -> tuple[int, int] | None:
        claim = contract.Claim.read(str(house.home / "node" / contract.LAUNCHES / f"{run.id}.1.0"))
        return claim.launcher if claim else None

    first = launcher()
    assert first
    send(first[0], signal.SIGKILL)
    wait_until(lambda: launcher() != first, 60, "another launcher")
    (tmp_path / "go on").touch()
    assert run.wait().status == "Failed"
    assert any("was being written" in e["reason"] for e in run.events() if e["kind"] == "checkpoint_broken")
    assert run.rerun(from_checkpoint=True).wait().logs().strip() == "epoch seven"


def test_a_secret_is_given_and_never_shown(ws: shunter.Workspace, house: House, tmp_path: Path) -> None:
    value = "hunter2-is-no-password"
    ws.secrets.set("api-key", value)
    ws.secrets.set("other", "something else")
    code = (
        "s = os.environ['KEY']\n"
        "assert s == run.get_secret('api-key')\n"
        "sys.stdout.write('half ' + s[:9]); sys.stdout.flush(); time.sleep(0.6); print(s[9:])\n"
        "run.log('said', s); run.tag('t', s); open('logs/a.log', 'w').write(s)\n"
        "try: run.get_secret('other')\n"
        "except Exception as e: print(e)\n"
        "open('outputs/o.txt', 'w').write('o')\n"
        "print('died of ' + s); sys.stdout.write(s[:3]); sys.stdout.flush(); sys.exit(4)\n"  # ends like a secret begins
    )
    run = ws.submit("train.py", source_directory=write(tmp_path, code), secrets=["KEY=api-key"])
    wait_until(house.scripts, 60)
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert value not in listed
    run.wait()
    assert "half " + "*" * len(value) in run.logs()
    assert "was not given" in run.logs()
    assert run.error is not None
    assert run.error["message"].endswith(value[:3])
    assert "died of ***" in run.logs()
    everywhere = subprocess.run(
        ["grep", "-rl", value, str(house.home)], capture_output=True, text=True, check=False
    ).stdout
    assert [line for line in everywhere.splitlines() if "/launches/" not in line and "/blobs/" not in line] == []
    assert [s["name"] for s in ws.secrets.list()] == ["api-key", "other"]
    ws.secrets.delete("other")
    with pytest.raises(NotFound, match="other"):
        ws.submit("train.py", source_directory=tmp_path, secrets=["other"])


SHOW_INPUTS = (
    "for name, path in sorted(run.input_datasets.items()):\n"
    "    files = sorted(os.path.relpath(os.path.join(h, n), path) for h, _, ns in os.walk(path) for n in ns)\n"
    "    found = len(files) if files else open(path).read().count(chr(10))\n"
    "    print(name, found, os.environ['SHUNTER_INPUT_' + name.upper()] == path)\n"
)


def test_inputs_are_brought_sampled_and_then_whole(ws: shunter.Workspace, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for kind in ("cat", "dog"):
        (data / kind).mkdir(parents=True)
        for i in range(20):
            (data / kind / f"{i}.txt").write_text(f"{kind} {i}")
    (tmp_path / "t.csv").write_text("h\n" + "1\n" * 400)
    given: dict[str, Any] = {"data": data, "table": tmp_path / "t.csv", "there": f"node:{data}"}
    run = ws.submit(
        "train.py", source_directory=write(tmp_path / "src", SHOW_INPUTS), inputs=given, sample="10%"
    ).wait()
    lines = run.logs().splitlines()
    assert lines[0] == "data 4 True"
    assert 20 < int(lines[1].split()[1]) < 70
    assert lines[2] == "there 4 True"
    whole = run.rerun(full=True).wait()
    assert whole.logs().splitlines() == ["data 40 True", "table 401 True", "there 40 True"]
    (data / "cat/0.txt").write_text("changed")
    with pytest.raises(InputChanged, match="data"):
        run.rerun(full=True)


def test_parquet_files_are_sampled_by_rows_and_folders_of_them_by_parts(ws: shunter.Workspace, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "parts").mkdir()
    for number in range(10):
        parquet.write_table(arrow.table({"i": range(300)}), tmp_path / f"parts/{number}.parquet")
    parquet.write_table(arrow.table({"i": range(3000)}), tmp_path / "one.parquet")
    code = "import pyarrow.parquet\nprint({n: pyarrow.parquet.read_table(p).num_rows for n, p in run.input_datasets.items()})\n"
    inputs = {"one": tmp_path / "one.parquet", "parts": tmp_path / "parts", "there": f"node:{tmp_path}/one.parquet"}
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), inputs=inputs, sample="20%").wait()
    assert run.status == "Completed", (run.error, run.logs())
    found = ast.literal_eval(run.logs())
    assert 500 < found["one"] == found["there"] < 700
    assert found["parts"] == 600
    assert ast.literal_eval(run.rerun(full=True).wait().logs()) == dict.fromkeys(inputs, 3000)


def test_an_input_on_the_node_that_changed_since_submit_is_refused(ws: shunter.Workspace, tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("before")
    first = ws.submit(
        "train.py", source_directory=write(tmp_path / "src", SHOW_INPUTS), inputs={"d": f"node:{tmp_path}/d.txt"}
    ).wait()
    assert first.status == "Completed"
    (tmp_path / "d.txt").write_text("after!")
    again = first.rerun().wait()
    assert again.status == "Failed"
    assert again.error is not None
    assert again.error["code"] == "input_changed"


def test_an_input_is_read_only_for_all_and_a_copy_is_ones_own(ws: shunter.Workspace, tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("data")
    code = "p = run.input_datasets['d']; print(oct(os.stat(p).st_mode & 0o222))\n"
    code += "q = run.input_datasets['e']; open(q, 'a').write('!'); print(open(q).read())\n"
    from shunter.sdk.inputs import Input

    given = {"d": tmp_path / "d.txt", "e": Input(str(tmp_path / "d.txt"), mode="copy")}
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), inputs=given).wait()
    assert run.logs().splitlines() == ["0o0", "data!"]


class Site:
    """A web server that serves one file and hears webhooks."""

    def __init__(self) -> None:
        self.content = b"a,b\n" + b"1,2\n" * 50
        self.tag = '"1"'
        self.heard: list[dict[str, Any]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self, head: bool = False) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(site.content)))
                self.send_header("ETag", site.tag)
                self.end_headers()
                if not head:
                    self.wfile.write(site.content)

            def do_HEAD(self) -> None:
                self.do_GET(head=True)

            def do_POST(self) -> None:
                site.heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(500 if len(site.heard) == 1 else 204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_a_url_that_changed_while_the_run_was_queued_is_refused(ws: shunter.Workspace, tmp_path: Path, site: Site) -> None:
    gate = tmp_path / "gate"
    hold = write(tmp_path / "hold", "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\n")
    slots = ws.compute.get("local").show()["capacity"]["slots"]
    before = [ws.submit("train.py", source_directory=hold, arguments=[gate]) for _ in range(slots)]
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", SHOW_INPUTS), inputs={"u": site.url + "/new.csv"})
    site.content, site.tag = site.content + b"3,4\n", '"2"'
    gate.touch()
    ws.wait([*before, run])
    assert run.data["status"] == "Failed"
    assert run.error is not None
    assert run.error["code"] == "input_changed"
    assert "ETag" in run.error["message"]


def test_a_url_is_brought_once_and_kept_as_it_was(ws: shunter.Workspace, tmp_path: Path, site: Site) -> None:
    run = ws.submit("train.py", source_directory=write(tmp_path, SHOW_INPUTS), inputs={"u": site.url + "/t.csv"}).wait()
    assert run.logs() == "u 51 True\n"
    site.content, site.tag = site.content + b"3,4\n", '"2"'
    assert run.rerun().wait().logs() == "u 51 True\n"  # this machine has it already, as it was
    later = ws.submit("train.py", source_directory=tmp_path, inputs={"u": site.url + "/u.csv"})
    later.wait()
    assert later.logs() == "u 52 True\n"


def test_a_webhook_is_told_again_until_it_answers(ws: shunter.Workspace, tmp_path: Path, site: Site) -> None:
    told = tmp_path / "told.json"
    run = ws.submit(
        "train.py", source_directory=write(tmp_path / "src", "run.log('acc', 0.5)\n"),
        notify=[site.url + "/hook", f"cat > {told}"],
    ).wait()  # fmt: skip
    wait_until(lambda: len(site.heard) == 2, 60)
    assert site.heard[1]["status"] == "Completed"
    assert site.heard[1]["metrics"] == {"acc": 0.5}
    wait_until(lambda: told.exists() and told.read_text().endswith("}"), 60)
    assert json.loads(told.read_text())["id"] == run.id


def test_runs_are_compared(ws: shunter.Workspace, tmp_path: Path) -> None:
    one = ws.submit(
        "train.py", source_directory=write(tmp_path, "run.log('acc', 0.5)\n"), arguments=["--lr", "0.1"]
    ).wait()
    two = ws.submit(
        "train.py", source_directory=write(tmp_path, "run.log('acc', 0.75)\n"), arguments=["--lr=0.2"]
    ).wait()
    found = ws.compare(one, two)
    assert found["sections"]["arguments"] == [{"name": "--lr", "values": ["0.1", "0.2"], "same": False}]
    assert found["sections"]["metrics"] == [{"name": "acc", "values": [0.5, 0.75], "same": False}]
    assert "-run.log('acc', 0.5)" in found["code"][0]["diff"]
    assert "+run.log('acc', 0.75)" in found["code"][0]["diff"]
    assert set(found["differs"]) >= {"code", "arguments", "metrics"}


def test_delete_means_delete_and_garbage_is_named_before_it_goes(
    ws: shunter.Workspace, house: House, tmp_path: Path
) -> None:
    code = "run.log('x', 1); open('outputs/m.bin', 'wb').write(b'm' * 1000)\n"
    code += "open(os.environ['SHUNTER_CHECKPOINT_DIR'] + '/c', 'w').write('c' * 500)\n"
    run = ws.submit("train.py", source_directory=write(tmp_path, code)).wait()
    would = ws.collect_garbage(grace_seconds=0)
    assert would["kinds"]["checkpoints"]["bytes"] >= 500
    assert run.checkpoints()
    assert ws.collect_garbage(dry_run=False)["kinds"]["checkpoints"]["count"] >= 1
    assert run.checkpoints() == []
    folder = house.home / "runs" / run.id[:2] / run.id
    assert folder.is_dir()
    run.delete()
    assert not folder.exists()
    with pytest.raises(NotFound):
        run.metrics()
    would = ws.collect_garbage(grace_seconds=-1)
    assert would["kinds"]["snapshots"]["count"] >= 1
    ws.collect_garbage(dry_run=False, grace_seconds=-1)
    assert "snapshots" not in ws.collect_garbage(grace_seconds=-1)["kinds"]


def test_outputs_so_far_are_brought_home_on_request(ws: shunter.Workspace, tmp_path: Path) -> None:
    code = "open('outputs/a.bin', 'wb').write(bytes(3_000_000)); print('written', flush=True)\n"
    code += "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\nopen('outputs/a.bin', 'wb').write(b'b' * 3_000_000)\n"
    run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), arguments=[tmp_path / "go on"])
    wait_until(lambda: "written" in run.logs(), 60)
    assert [(f["path"], f["bytes"]) for f in run.files(refresh=True)] == [("outputs/a.bin", 3_000_000)]
    (tmp_path / "go on").touch()
    run.wait().download(tmp_path / "got")
    assert (tmp_path / "got/outputs/a.bin").read_bytes() == b"b" * 3_000_000


@pytest.mark.skipif(os.getuid() != 0, reason="a small disk can be mounted by root only")
def test_points_logged_while_the_disk_is_full_come_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(small)], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    code = (
        "for i in range(500): run.log('x', i)\n"
        "time.sleep(0.5)\n"
        "file = open(sys.argv[1], 'wb', buffering=0)\n"
        "try:\n"
        "    while True: file.write(bytes(65536))\n"
        "except OSError: pass\n"
        "for i in range(500, 1500): run.log('x', i)\n"
        "time.sleep(0.5)\n"
        "os.ftruncate(file.fileno(), 0)\n"
        "for i in range(1500, 2000): run.log('x', i)\n"
    )
    (small / "home").mkdir(mode=0o700)
    monkeypatch.setenv("SHUNTER_HOME", str(small / "home"))
    try:
        ws = shunter.Workspace.from_config()
        run = ws.submit("train.py", source_directory=write(tmp_path / "src", code), arguments=[small / "filler"])
        run.wait(timeout_seconds=120)
        assert run.status == "Completed", run.logs()
        assert run.metrics()["x"] == list(range(2000))
    finally:
        House(small / "home").end_all()
        subprocess.run(["umount", "--lazy", str(small)], check=True)
