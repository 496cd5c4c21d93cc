"""Built environments: once per lock, shared, never half; what goes wrong is said."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shunter.node.environments import Canceled, Unavailable, built, turns
from shunter.testing.environments import Node, run_python
from shunter.testing.packages import Index, make_broken_sdist


@pytest.fixture(autouse=True)
def _let_go() -> None:
    """A launcher holds its environments until it ends; a test lets go of them."""
    while turns.held:
        os.close(turns.held.pop())
    built.used.clear()


def test_a_lock_is_built_and_its_packages_are_there(node: Node) -> None:
    prepared = node.prepare(node.spec(node.wheel("alpha", "1.2")))

    assert run_python(prepared.argv_prefix[0], "import alpha; print(alpha.__version__)") == "1.2"
    assert prepared.facts["built_now"]
    assert prepared.facts["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")
    assert prepared.env["VIRTUAL_ENV"] == str(Path(prepared.argv_prefix[0]).parent.parent)
    assert "+ alpha==1.2" in node.log()
    assert node.said[0] == "building the environment"


def test_a_warm_hit_says_nothing_and_does_not_read_the_environment(node: Node) -> None:
    spec = node.spec(node.wheel("alpha"))
    folder = os.path.dirname(os.path.dirname(node.prepare(spec).argv_prefix[0]))
    node.said.clear()
    before = node.log()
    opened: list[str] = []
    watching = True

    def on_event(event: str, args: tuple[object, ...]) -> None:
        if watching and event in ("open", "os.listdir", "os.scandir"):
            opened.append(str(args[0]))

    sys.addaudithook(on_event)

    prepared = node.prepare(spec)
    watching = False

    assert not prepared.facts["built_now"]
    assert not node.said
    assert node.log() == before
    assert not [path for path in opened if path.startswith(folder)]


def test_twenty_runs_at_once_build_once(node: Node) -> None:
    spec = node.spec(node.wheel("alpha"))

    runs = [node.alone(spec, f"run{n}") for n in range(20)]
    said = [run.communicate(timeout=120)[0] for run in runs]

    facts = [json.loads(s.split("prepared ", 1)[1]) for s in said]
    assert sum(f["built_now"] for f in facts) == 1
    assert len({f["interpreter"] for f in facts}) == 1
    assert len(node.folders()) == 1


def test_those_who_wait_see_the_builders_log(node: Node) -> None:
    with Index(node.wheels) as index:
        spec = node.spec(node.wheel("alpha"), options=["--default-index", index.url])
        index.mood = "hang"
        first = node.alone(spec, "first")
        _until(lambda: bool(index.calls))
        second = node.alone(spec, "second")
        _until((node.launch("second") / "log").exists)
        index.mood = ""
        outputs = [p.communicate(timeout=60)[0] for p in (first, second)]
    assert '"built_now": true' in outputs[0]
    assert "say waiting for another run that builds the environment" in outputs[1]
    assert "another run here builds this environment" in node.log("second")
    assert "+ alpha==1.0" in node.log("second")


def test_a_killed_build_leaves_nothing_that_is_used_and_the_next_one_builds(node: Node) -> None:
    with Index(node.wheels) as index:
        spec = node.spec(node.wheel("alpha"), options=["--default-index", index.url])
        index.mood = "hang"
        killed = node.alone(spec, "killed")
        _until(lambda: bool(index.calls))
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert len(node.folders()) == 1
        assert built.look(str(node.cache / spec["lock_id"])) is None
        index.mood = ""
        prepared = node.prepare(spec)
    assert run_python(prepared.argv_prefix[0], "import alpha; print(alpha.__version__)") == "1.0"
    assert len(node.folders()) == 1
    assert _processes_in(node.cache) == []


def test_a_canceled_build_ends_the_installer_and_leaves_nothing(node: Node) -> None:
    with Index(node.wheels) as index:
        spec = node.spec(node.wheel("alpha"), options=["--default-index", index.url])
        index.mood = "hang"
        node.canceled = lambda: bool(index.calls)
        with pytest.raises(Canceled):
            node.prepare(spec)
    assert node.folders() == []
    assert _processes_in(node.cache) == []


@pytest.mark.parametrize("damage", ["package", "interpreter", "memory", "folder", "file that a power cut left empty"])
def test_a_damaged_environment_is_found_and_built_again(node: Node, damage: str) -> None:
    spec = node.spec(node.wheel("alpha"))
    first = Path(node.prepare(spec).argv_prefix[0])
    while turns.held:
        os.close(turns.held.pop())
    folder = first.parent.parent
    if damage == "package":
        shutil.rmtree(next(folder.glob("lib/*/site-packages/alpha")))
    elif damage == "interpreter":
        first.unlink()
    elif damage == "memory":
        (node.cache / (spec["lock_id"] + ".json")).write_bytes(b'{"interp')
    elif damage.startswith("file"):
        memory = node.cache / (spec["lock_id"] + ".json")
        memory.write_text(json.dumps({**json.loads(memory.read_text()), "boot": "the one before"}))
        next(folder.glob("lib/*/site-packages/alpha/__init__.py")).write_bytes(b"")
    else:
        shutil.rmtree(folder)

    again = node.prepare(spec)

    assert again.facts["built_now"]
    assert run_python(again.argv_prefix[0], "import alpha; print(alpha.__version__)") == "1.0"
    assert len(node.folders()) == 1


def test_after_a_script_failed_a_file_that_was_cut_short_is_found_and_the_next_run_builds_again(node: Node) -> None:
    spec = node.spec(node.wheel("alpha"))
    first = Path(node.prepare(spec).argv_prefix[0])
    assert built.after_failure() == {}
    assert not node.prepare(spec).facts["built_now"], "a script that failed by itself costs nobody an environment"
    next(first.parent.parent.glob("lib/*/site-packages/alpha/__init__.py")).write_bytes(b"")
    found = built.after_failure()
    assert (found["code"], found["bad"]) == ("environment_damaged", "alpha")
    while turns.held:
        os.close(turns.held.pop())
    again = node.prepare(spec)
    assert again.facts["built_now"]
    assert run_python(again.argv_prefix[0], "import alpha; print(alpha.__version__)") == "1.0"


def test_on_request_every_file_is_read_and_one_with_other_content_is_fetched_again(node: Node) -> None:
    spec = node.spec(node.wheel("alpha"))
    first = Path(node.prepare(spec).argv_prefix[0])
    assert not node.prepare({**spec, "verify": True}).facts["built_now"]
    assert "the environment is as it was installed" in node.log()
    # In place: the installer's cache shares the file, and has the damage too.
    with next(first.parent.parent.glob("lib/*/site-packages/alpha/__init__.py")).open("r+b") as file:
        file.write(b"#")
    assert not node.prepare(spec).facts["built_now"]
    while turns.held:
        os.close(turns.held.pop())
    again = node.prepare({**spec, "verify": True})
    assert again.facts["built_now"]
    assert "damaged, and built again: alpha" in node.log()
    assert run_python(again.argv_prefix[0], "import alpha; print(alpha.__version__)") == "1.0"


@pytest.mark.parametrize("mood", ["hang", "500"])
def test_an_index_that_hangs_or_fails_is_said_in_time(node: Node, mood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "1")
    with Index(node.wheels) as index:
        index.mood = mood
        options = ["--default-index", index.url]
        spec = node.spec(node.wheel("alpha"), options=options, http_timeout_seconds=1)
        began = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            node.prepare(spec)
        assert time.monotonic() - began < 100
        index.mood = ""
    assert caught.value.code == "package_index_unreachable"
    assert "127.0.0.1" in caught.value.message
    assert node.folders() == []


def test_an_index_that_fails_once_is_asked_again(node: Node) -> None:
    with Index(node.wheels) as index:
        spec = node.spec(node.wheel("alpha"), options=["--default-index", index.url])
        index.mood = "500"
        run = node.alone(spec, "patient")
        _until(lambda: bool(index.calls))
        index.mood = ""
        assert "prepared " in run.communicate(timeout=60)[0]


def test_a_build_that_takes_too_long_is_ended(node: Node) -> None:
    with Index(node.wheels) as index:
        index.mood = "hang"
        spec = node.spec(node.wheel("alpha"), options=["--default-index", index.url], timeout_seconds=1)
        with pytest.raises(Unavailable, match="longer than 1 s") as caught:
            node.prepare(spec)
    assert caught.value.code == "environment_timeout"
    assert _processes_in(node.cache) == []


def test_a_package_that_fails_while_installing_tells_its_own_reason(node: Node) -> None:
    make_broken_sdist(node.wheels, "broken")
    spec = node.spec()
    spec["lock"]["pip"] = "broken==1.0\n"
    spec["options"] = [*spec["options"], "--no-build-isolation"]
    with pytest.raises(Unavailable) as caught:
        node.prepare(spec)
    assert "broken" in caught.value.message
    assert "could not be installed" in caught.value.message
    assert node.folders() == []


#: Stands in for the library that installs conda packages, to die as it was once seen to.
DYING_RATTLER = """
import os, sys
class LockFile:
    from_path = default_environment = conda_repodata_records = lambda *_: LockFile()
    values = lambda _: [[1]]
async def install(records, target_prefix, cache_dir, show_progress):
    with open(os.path.join(cache_dir + "-tries"), "a") as file:
        file.write("x")
    if os.path.getsize(cache_dir + "-tries") <= TIMES:
        os.kill(os.getpid(), 11)
    if TIMES == 0:
        raise Exception()
    os.makedirs(target_prefix + "/bin")
    os.symlink(sys.executable, target_prefix + "/bin/python")
"""


@pytest.mark.parametrize(("deaths", "said"), [(1, ""), (2, r"killed by signal 11"), (0, "Exception")])
def test_a_conda_installer_that_dies_is_started_once_more_and_always_leaves_a_reason(
    node: Node, tmp_path: Path, deaths: int, said: str
) -> None:
    (tmp_path / "rattler").mkdir()
    (tmp_path / "rattler/__init__.py").write_text(DYING_RATTLER.replace("TIMES", str(deaths)))
    spec = node.spec()
    spec["lock"]["conda"] = "version: 6"
    node.tools["rattler"] = str(tmp_path / "rattler")
    if not said:
        assert node.prepare(spec).facts["built_now"]
        assert "once more" in (node.launch() / "log").read_text()
        return
    with pytest.raises(Unavailable, match=said):
        node.prepare(spec)


def test_a_package_that_was_changed_since_it_was_locked_is_refused(node: Node) -> None:
    spec = node.spec(node.wheel("alpha"))
    node.wheel("alpha", files={"alpha/__init__.py": "evil = True\n"})
    with pytest.raises(Unavailable) as caught:
        node.prepare(spec)
    assert caught.value.code == "package_changed", node.log()


def test_a_python_that_cannot_be_had_lists_those_that_can(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    spec = node.spec()
    spec["lock"]["python"] = "3.99"
    with pytest.raises(Unavailable, match=r"Python 3.99 cannot be had on this node") as caught:
        node.prepare(spec)
    assert caught.value.code == "python_unavailable"
    assert f"{sys.version_info[0]}.{sys.version_info[1]}." in caught.value.hint


def test_an_environment_that_may_not_be_prepared_is_refused_until_it_is_there(node: Node) -> None:
    spec = node.spec(node.wheel("alpha"))
    with pytest.raises(Unavailable) as caught:
        node.prepare({**spec, "prepare": False})
    assert caught.value.code == "environment_not_prepared"
    node.prepare(spec)
    node.prepare({**spec, "prepare": False})


def test_two_environments_with_the_same_package_share_its_files(node: Node) -> None:
    alpha, beta = node.wheel("alpha"), node.wheel("beta")
    first = Path(node.prepare(node.spec(alpha)).argv_prefix[0]).parent.parent
    second = Path(node.prepare(node.spec(alpha, beta)).argv_prefix[0]).parent.parent
    files = [next(f.glob("lib/*/site-packages/alpha/__init__.py")).stat().st_ino for f in (first, second)]
    assert files[0] == files[1]


def test_two_nodes_without_working_locks_may_share_a_cache(node: Node) -> None:
    spec = node.spec(node.wheel("alpha"), cache=str(node.root / "shared"))
    before = "import fcntl\ndef refuse(*_): raise OSError(38, 'no locks here')\nfcntl.flock = refuse\n"
    runs = [node.alone(spec, f"node{n}", before=before) for n in range(4)]
    said = [run.communicate(timeout=60)[0] for run in runs]
    assert all("prepared " in s for s in said), said
    interpreter = json.loads((node.root / "shared" / (spec["lock_id"] + ".json")).read_text())["interpreter"]
    assert run_python(interpreter, "import alpha; print(alpha.__version__)") == "1.0"
    for s in said:
        mine = json.loads(s.split("prepared ", 1)[1])["interpreter"]
        assert run_python(mine, "import alpha; print(alpha.__version__)") == "1.0"


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk can only be made by root")
def test_a_full_disk_is_said_and_leaves_nothing_half(node: Node) -> None:
    big = node.wheel("alpha", files={"alpha/__init__.py": "", "alpha/data.bin": os.urandom(6 << 20).hex()})
    spec = node.spec(big, cache=str(node.root / "small"))
    (node.root / "small").mkdir()
    mount = f"mount -t tmpfs -o size=2m tmpfs {node.root / 'small'} && "
    listing = f"; ls -A {node.root / 'small'} | grep -v lock$ | grep -v log$ | grep -v uv-cache || echo nothing left"
    run = node.alone(spec, "full", around=("unshare", "-m", "sh", "-c", mount + '"$@"' + listing, "sh"))
    said = run.communicate(timeout=60)[0]
    assert '"code": "node_disk_full"' in said
    assert "nothing left" in said


def _until(condition: object, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


def _processes_in(folder: Path) -> list[str]:
    """Commands that still mention the folder."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if str(folder) in line]
