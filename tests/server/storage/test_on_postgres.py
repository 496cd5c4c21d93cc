"""The same promises on PostgreSQL: a private cluster, started for these tests on a socket of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shunter.errors import NotFound
from shunter.model.run import Event, Run, Status
from shunter.server.collect.metrics import MetricIngest
from shunter.server.services.children import ScriptSays
from shunter.server.services.metrics import read_metrics
from shunter.server.storage.checkpoints import Checkpoints, Version
from shunter.server.storage.database import Database
from shunter.server.storage.files import RunFiles
from shunter.server.storage.metrics import Metrics
from shunter.server.storage.notices import Notices
from shunter.server.storage.runs import SqlRuns
from shunter.server.storage.secrets import Secrets

RUN = "ab" * 16
INITDB = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))

pytestmark = pytest.mark.skipif(not INITDB, reason="scripts/parts/postgres has not been run")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    pytest.importorskip("psycopg")
    folder = Path(tempfile.mkdtemp(prefix="shunter-pg-"))
    bin_folder = INITDB[-1].parent
    user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    before = ["runuser", "-u", user, "--"] if os.getuid() == 0 else []
    if before:
        shutil.chown(folder, user)
    data = folder / "data"
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"

    def run(*words: str) -> None:
        subprocess.run([*before, *words], check=True, capture_output=True, cwd="/")

    run(str(bin_folder / "initdb"), "-D", str(data), "-A", "trust", "-U", "shunter", "--no-sync")
    run(str(bin_folder / "pg_ctl"), "-D", str(data), "-w", "-o", options, "-l", str(folder / "log"), "start")
    try:
        yield f"postgresql+psycopg://shunter@/postgres?host={folder}"
    finally:
        run(str(bin_folder / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def database(url: str) -> Iterator[Database]:
    found = Database.open(url)
    yield found
    found.close()


def test_metrics_are_taken_in_and_read_back(database: Database, tmp_path: Path) -> None:
    runs = SqlRuns(database)
    run = Run(RUN, "default", "e", "n", "local", Status.RUNNING, "s" * 64, "t.py", (), {}, 1.0, 1.0)
    run = runs.add(run, Event(RUN, 1.0, "state", run.status, "", {}))
    store = Metrics(database, RunFiles(tmp_path))
    says = ScriptSays(runs, lambda: 2.0)
    ingest = MetricIngest(store, says)
    child = "cd" * 16
    (tmp_path / "stream").write_text(
        "".join(f'{{"n":"x","v":{i},"t":1.5}}\n' for i in range(1000))
        + '{"n":"y","v":NaN,"t":1}\n{"n":"y","v":Infinity,"t":1}\n{"n":"a\\u0000\\ud800","v":"text","t":1}\n'
        + f'{{"k":"child","v":{{"parent":"{RUN}","tags":{{"a":"b"}}}},"r":"{child}","t":3}}\n'
        + f'{{"n":"z","v":1,"t":1,"r":"{child}"}}\n{{"k":"complete","v":{{}},"r":"{child}","t":4}}\n'
        + '{"k":"tags","v":{"k":"v"},"t":1}\n'
    )
    ingest(run, RUN + ".1.0", tmp_path / "stream")
    ingest(run, RUN + ".1.0", tmp_path / "stream")
    found = read_metrics(store, RUN)
    assert found["x"] == list(range(1000))
    assert str(found["y"]) == "[nan, inf]"
    assert found["a�?"] == "text"
    assert read_metrics(store, child) == {"z": 1}
    assert runs.get(child).status == Status.COMPLETED
    assert runs.get(RUN).tags == {"k": "v"}
    assert store.latest([RUN])[RUN]["x"] == 999
    store.delete(RUN)
    assert read_metrics(store, RUN) == {}


def test_secrets_are_sealed(database: Database, tmp_path: Path) -> None:
    store = Secrets(database, tmp_path)
    assert store.set("default", "k", "hunter22", 1.0)
    assert not store.set("default", "k", "hunter23", 2.0)
    assert store.get("default", "k") == "hunter23"
    assert (tmp_path / "secrets.key").stat().st_mode & 0o077 == 0
    store.delete("default", "k")
    with pytest.raises(NotFound):
        store.get("default", "k")


def test_checkpoints_and_notices_are_kept(database: Database, tmp_path: Path) -> None:
    checkpoints = Checkpoints(database, RunFiles(tmp_path))
    for _ in range(4):
        checkpoints.commit(Version(RUN, 0, "last.pt", 0, 1, 1.0, 0, ()))
    assert [v.version for v in checkpoints.list(RUN)] == [4, 3]
    notices: Any = Notices(database)
    notices.expect(RUN, ["http://example.invalid"])
    notices.expect(RUN, ["http://example.invalid"])
    assert len(notices.of(RUN)) == 1
    assert isinstance(notices.due(), list)
    assert SimpleNamespace(n=notices.of(RUN)[0]).n.state == "waiting"
