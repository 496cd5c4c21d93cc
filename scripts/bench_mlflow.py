"""The unchanged mlflow client through our relay against MLflow's own server beside it: calls and points a second.

    .venv/bin/python scripts/bench_mlflow.py [--calls 300] [--batches 20] [--rounds 3]

Both are measured in turns by the same kind of process, on the same machine; read the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

LOGGING = """
import json, sys, time
import mlflow
from mlflow.entities import Metric
calls, batches, rounds = map(int, sys.argv[1:4])
client = mlflow.MlflowClient()
found = {"calls": [], "points": []}
with mlflow.start_run() as run:
    mlflow.log_metric("warm", 1.0)
    for turn in range(rounds):
        began = time.perf_counter()
        for i in range(calls):
            mlflow.log_metric("loss", i, step=i)
        found["calls"].append(calls / (time.perf_counter() - began))
        many = [[Metric("m%d" % (i % 20), float(i), 1700000000000 + b, turn * 10**6 + b * 1000 + i) for i in range(1000)]
                for b in range(batches)]
        began = time.perf_counter()
        for batch in many:
            client.log_batch(run.info.run_id, metrics=batch)
        found["points"].append(1000 * batches / (time.perf_counter() - began))
print("FOUND " + json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    arguments = [str(options.calls), str(options.batches), str(options.rounds)]
    folder = Path(tempfile.mkdtemp(prefix="bench-mlflow-"))
    os.environ["SHUNTER_HOME"] = str(folder / "home")
    try:
        (folder / "script").mkdir()
        (folder / "script" / "train.py").write_text(LOGGING)
        ours = through_shunter(folder, arguments)
        theirs = through_mlflow(folder, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for what, unit in (("calls", "log_metric calls/s"), ("points", "points/s in batches of 1,000")):
        one, other = statistics.median(ours[what]), statistics.median(theirs[what])
        print(f"{unit:32} ours {one:10,.0f}   mlflow server {other:10,.0f}   {one / other:5.1f} x")


def through_shunter(folder: Path, arguments: list[str]) -> dict[str, list[float]]:
    import shunter
    from shunter.testing.house import House

    try:
        ws = shunter.Workspace.from_config()
        run = ws.submit("train.py", source_directory=folder / "script", arguments=arguments).wait(raise_on_error=True)
        found = read(run.logs())
        logged = len(run.metrics("loss")["loss"])
        assert logged == int(arguments[0]) * int(arguments[2]), f"{logged} points came home"
        return found
    finally:
        House(folder / "home").end_all()


def through_mlflow(folder: Path, arguments: list[str]) -> dict[str, list[float]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}"}
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{folder}/theirs.db", "--artifacts-destination", str(folder / "theirs")]
    server = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(1200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        script = [sys.executable, str(folder / "script" / "train.py"), *arguments]
        return read(subprocess.run(script, env=env, capture_output=True, check=True).stdout.decode())
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def read(text: str) -> dict[str, list[float]]:
    line = next(line for line in text.splitlines() if line.startswith("FOUND "))
    found: dict[str, list[float]] = json.loads(line[6:])
    return found


if __name__ == "__main__":
    main()
