"""MLflow where the server uses PostgreSQL: in a schema of its own, beside ours."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import shunter
from shunter.testing.house import House, wait_until
from shunter.testing.mlflow import SCRIPT, check, said_by

pytest.importorskip("mlflow")
INITDB = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
pytestmark = pytest.mark.skipif(not INITDB, reason="scripts/parts/postgres has not been run")


@pytest.fixture
def url() -> Iterator[str]:
    """A cluster of our own on a socket of its own."""
    pytest.importorskip("psycopg")
    folder = Path(tempfile.mkdtemp(prefix="shunter-pg-"))
    user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    before = ["runuser", "-u", user, "--"] if os.getuid() == 0 else []
    if before:
        shutil.chown(folder, user)

    def run(program: str, *words: str) -> None:
        command = [*before, str(INITDB[-1].with_name(program)), "-D", str(folder / "data"), *words]
        subprocess.run(command, check=True, capture_output=True, cwd="/")

    run("initdb", "-A", "trust", "-U", "shunter", "--no-sync")
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    run("pg_ctl", "-w", "-o", options, "-l", str(folder / "log"), "start")
    try:
        yield f"postgresql+psycopg://shunter:se%25cret@/postgres?host={folder}"
    finally:
        run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_a_schema_of_its_own_and_all_works(
    home: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    import psycopg

    words = [sys.executable, "-m", "shunter.server.main", "--database", url]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        wait_until(lambda: is_up(home), 60, (tmp_path / "server.log").read_text())
        ws = shunter.Workspace.from_config()
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / "train.py").write_text(SCRIPT)
        run = ws.submit("train.py", source_directory=tmp_path / "code").wait(timeout_seconds=120)
        check(run, said_by(run))
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "")
        client = mlflow.MlflowClient(ws.mlflow_tracking_uri)
        run.tag("strange", "Käse\0")
        seen = client.get_run(run.id)
        assert (seen.info.status, seen.data.metrics["loss"], seen.data.params) == ("FINISHED", 1.0, {"lr": "0.1"})
        assert len(client.get_metric_history(run.id, "m")) == 1000
        assert run.register_model("notes", "notes/a.txt").version == 1
        (inner,) = run.children()
        inner.delete()
        with pytest.raises(mlflow.exceptions.MlflowException, match="not found"):
            client.get_run(inner.id)
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            asked = "SELECT table_schema FROM information_schema.tables WHERE table_name = 'runs' ORDER BY 1"
            assert [row[0] for row in connection.execute(asked)] == ["mlflow", "public"]
        assert not (home / "mlflow" / "mlflow.db").exists()
        for pid in House(home).left_over():
            assert b"se%25cret" not in Path(f"/proc/{pid}/cmdline").read_bytes() or pid == server.pid
    finally:
        server.terminate()
        server.wait(30)
        House(home).end_all()


def is_up(home: Path) -> bool:
    from shunter.errors import ShunterError

    if not any(home.glob("endpoint*")):
        return False
    try:
        return bool(shunter.Workspace.list())
    except ShunterError:
        return False
