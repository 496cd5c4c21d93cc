"""The unchanged mlflow client through our relay against MLflow's own server beside it: calls and points a second.

    .venv/bin/python scripts/bench_mlflow.py [--calls 150] [--batches 15] [--rounds 5]

One process logs to both in turns, so that both meet the same machine; the medians of all rounds are compared. A third
one, which answers at once and keeps nothing, shows what the client itself takes: nobody can be quicker.
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
import json, os, sys, time
import mlflow
from mlflow.entities import Metric
theirs, nothing, calls, batches, rounds = *sys.argv[1:3], *map(int, sys.argv[3:6])
found = {"calls": {}, "points": {}}
sides = {"ours": (mlflow.MlflowClient(), os.environ["MLFLOW_RUN_ID"])}
client = mlflow.MlflowClient(theirs)
sides["mlflow server"] = (client, client.create_run("0").info.run_id)
sides["nothing"] = (mlflow.MlflowClient(nothing), "0" * 32)
for turn in range(-1, rounds):
    for side, (client, run) in sides.items():
        began = time.perf_counter()
        for i in range(calls if turn >= 0 else 5):
            client.log_metric(run, "loss", i, step=i)
        took = time.perf_counter() - began
        many = [[Metric("m%d" % (i % 20), float(i), 1700000000000 + b, turn * 10**6 + b * 1000 + i) for i in range(1000)]
                for b in range(batches if turn >= 0 else 1)]
        began = time.perf_counter()
        for batch in many:
            client.log_batch(run, metrics=batch)
        if turn >= 0:
            found["calls"].setdefault(side, []).append(calls / took)
            found["points"].setdefault(side, []).append(1000 * batches / (time.perf_counter() - began))
print("FOUND " + json.dumps(found))
"""

#: Answers every call with an empty object.
NOTHING = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, data = listener.accept()[0], b""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        more = connection.recv(1 << 20)
        if not more:
            break
        data += more
        top, end, body = data.partition(b"\\r\\n\\r\\n")
        if end and len(body) >= int(top.lower().partition(b"content-length:")[2].split(b"\\r\\n")[0]):
            connection.sendall(b"HTTP/1.1 200 -\\r\\nContent-Type: application/json\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
            data = b""
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=150)
    parser.add_argument("--batches", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-mlflow-"))
    os.environ["SHUNTER_HOME"] = str(folder / "home")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # whoever is told to stop leaves nothing running
    server, url = start_theirs(folder)
    answerer = subprocess.Popen([sys.executable, "-c", NOTHING], stdout=subprocess.PIPE)
    try:
        assert answerer.stdout is not None
        nothing = f"http://127.0.0.1:{int(answerer.stdout.readline())}"
        (folder / "script").mkdir()
        (folder / "script" / "train.py").write_text(LOGGING)
        found = log_to_both(folder, [url, nothing], options)
    finally:
        answerer.kill()
        answerer.wait()
        end(server)
        shutil.rmtree(folder, ignore_errors=True)
    for what, unit in (("calls", "log_metric calls/s"), ("points", "points/s in batches of 1,000")):
        one, other, most = (statistics.median(found[what][side]) for side in ("ours", "mlflow server", "nothing"))
        print(f"{unit:28} ours {one:8,.0f}   mlflow server {other:8,.0f}   {one / other:5.1f} x   most possible {most:8,.0f}")


def log_to_both(folder: Path, others: list[str], options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    import shunter
    from shunter.testing.house import House

    try:
        ws = shunter.Workspace.from_config()
        arguments = [*others, str(options.calls), str(options.batches), str(options.rounds)]
        run = ws.submit("train.py", source_directory=folder / "script", arguments=arguments).wait(raise_on_error=True)
        logged = len(run.metrics("loss")["loss"])
        assert logged == options.calls * options.rounds + 5, f"{logged} points came home"
        return read(run.logs())
    finally:
        House(folder / "home").end_all()


def start_theirs(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """MLflow's own server in its lightest usual form: one worker, no jobs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{folder}/theirs.db", "--artifacts-destination", str(folder / "theirs")]
    server = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    for _ in range(1200):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
            return server, f"http://127.0.0.1:{port}"
        except OSError:
            time.sleep(0.1)
    end(server)
    raise SystemExit("MLflow's server did not start")


def end(server: subprocess.Popen[bytes]) -> None:
    os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def read(text: str) -> dict[str, dict[str, list[float]]]:
    line = next(line for line in text.splitlines() if line.startswith("FOUND "))
    found: dict[str, dict[str, list[float]]] = json.loads(line[6:])
    return found


if __name__ == "__main__":
    main()
