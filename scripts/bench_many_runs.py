"""Listing, searching and comparing among few and many runs: what is not shown must not be paid for.

    .venv/bin/python scripts/bench_many_runs.py [--few 1000] [--many 10000] [--rounds 15]

Half of the runs are in one experiment, the rest in small ones of sixty; each has three metrics and two tags. The medians of all
rounds, in milliseconds, through a real server and the unchanged MLflow client.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path

from shunter.model.run import Event, Run, Status
from shunter.server.storage.database import Database, sqlite_url
from shunter.server.storage.files import RunFiles
from shunter.server.storage.metrics import NUMBER, Batch, Metrics
from shunter.server.storage.runs import SqlRuns


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    few, many = (measure(count, options.rounds) for count in (options.few, options.many))
    print(f"{'ms':44} {options.few:>9,} runs {options.many:>9,} runs")
    for what in few:
        print(f"{what:44} {few[what]:14.1f} {many[what]:14.1f}   {many[what] / few[what]:4.1f} x")


def measure(count: int, rounds: int) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="bench-runs-"))
    os.environ["SHUNTER_HOME"] = str(folder)
    from shunter.testing.house import House

    try:
        return measure_in(folder, count, rounds)
    finally:
        House(folder).end_all()
        shutil.rmtree(folder, ignore_errors=True)


def measure_in(folder: Path, count: int, rounds: int) -> dict[str, float]:
    import mlflow

    import shunter

    shunter.Workspace.from_config().client.post("/api/v1/server/stop")
    wait_for_end(folder)
    ids = fill(folder, count)
    ws = shunter.Workspace.from_config()
    client = mlflow.MlflowClient(ws.mlflow_tracking_uri)
    began = time.perf_counter()
    big = client.get_experiment_by_name("big")
    first = (time.perf_counter() - began) * 1000
    assert len(client.search_runs([big.experiment_id], max_results=50)) == 50
    small = client.get_experiment_by_name("small 7").experiment_id
    two = [ids[3], ids[-3]]
    calls: dict[str, Callable[[], object]] = {
        "list, newest 50": lambda: ws.runs(limit=50),
        "list, newest 50 of a small experiment": lambda: ws.runs(experiment="small 7", limit=50),
        "list by tag, newest 50": lambda: ws.runs(tags={"seed": "3"}, limit=50),
        "list failed, newest 50": lambda: ws.runs(status="Failed", limit=50),
        "find by name": lambda: ws.run("run 77"),
        "compare two": lambda: ws.compare(*two),
        "experiments": lambda: ws.experiments,
        "mlflow: get_run": lambda: client.get_run(ids[5]),
        "mlflow: search newest 50 of a small one": lambda: client.search_runs([small], max_results=50),
        "mlflow: search newest 50 of the big one": lambda: client.search_runs([big.experiment_id], max_results=50),
        "mlflow: after a run changed": lambda: (ws.run(ids[9]).tag("t", time.time()), client.get_run(ids[9])),
    }
    found = {what: median(call, rounds) for what, call in calls.items()}
    return found | {"mlflow: started, all runs brought, once": first}


def fill(folder: Path, count: int) -> list[str]:
    database = Database.open(sqlite_url(folder / "shunter.db"))
    runs, metrics = SqlRuns(database), Metrics(database, RunFiles(folder / "runs"))
    ids = []
    for number in range(count):
        at = time.time() - 10 * (count - number)
        experiment = "big" if number % 2 else f"small {number // 2 % (count // 120)}"  # sixty in each, however many there are
        run = Run(
            id=uuid.uuid4().hex, workspace="default", experiment=experiment, name=f"run {number}", target="local",
            status=Status.FAILED if number % 10 == 0 else Status.COMPLETED, snapshot_id="0" * 64, script="train.py",
            arguments=("--seed", str(number)), config={}, submitted_at=at, since=at, started_at=at, ended_at=at + 5,
            tags={"seed": str(number % (count // 60)), "kind": "bench"},
        )  # fmt: skip
        runs.add(run, Event(run.id, at, "state", run.status, "", {}))
        batches = [Batch(run.id, name, NUMBER, [0, at, 1.0, 1, at, 0.5 + number]) for name in ("loss", "accuracy", "time")]
        metrics.add(batches, run.id + ".1.0", "metrics", 1)
        ids.append(run.id)
    database.close()
    return ids


def wait_for_end(folder: Path) -> None:
    until = time.monotonic() + 20
    while (folder / "endpoint").exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.5)


def median(call: Callable[[], object], rounds: int) -> float:
    call()
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


if __name__ == "__main__":
    main()
