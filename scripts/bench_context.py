#!/usr/bin/env python3
"""How much the run context costs: logging in a tight loop, a million points home and back, a large output.

    python scripts/bench_context.py [--points N] [--output-gb G] [--mlflow-python PYTHON]

Prints a table of figures with what each is held against. Everything runs in a home of its own that is removed at the
end. `--mlflow-python` names an interpreter that has MLflow: its own server is then measured beside ours.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

LOGGING = """
import json, sys, time
from shunter.run import Run
run = Run.get_context()
count, names = int(sys.argv[1]), ["metric%d" % i for i in range(20)]
for i in range(1000): run.log("warm", 0.5)
begun = time.perf_counter()
for i in range(count): run.log("loop", i * 0.5)
seconds = time.perf_counter() - begun
print(json.dumps({"us_per_log": seconds / count * 1e6}))
points = int(sys.argv[2])
begun = time.perf_counter()
for i in range(points // 20):
    for name in names: run.log(name, i * 0.001, step=i)
print(json.dumps({"seconds_to_log": time.perf_counter() - begun}))
begun = time.perf_counter()
run.flush(600)
print(json.dumps({"seconds_to_flush": time.perf_counter() - begun}))
"""

OUTPUT = """
import os, sys
block, left = os.urandom(1 << 20), int(float(sys.argv[1]) * 1024)
with open("outputs/model.bin", "wb") as file:
    for _ in range(left): file.write(block)
    file.flush(); os.fsync(file.fileno())
"""

MLFLOW = """
import sys, time, mlflow
mlflow.set_tracking_uri(sys.argv[1])
with mlflow.start_run():
    for i in range(5): mlflow.log_metric("warm", i)
    begun, count = time.perf_counter(), int(sys.argv[2])
    for i in range(count): mlflow.log_metric("x", i * 0.5, step=i)
    print((time.perf_counter() - begun) / count * 1e6)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--output-gb", type=float, default=5.0)
    parser.add_argument("--mlflow-python", default=None)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shunter-bench-"))
    os.environ["SHUNTER_HOME"] = str(folder / "home")
    from shunter.testing.house import House

    try:
        (folder / "home").mkdir(mode=0o700)
        rows = measure_logging(folder, options.points)
        if options.output_gb > 0:
            rows += measure_output(folder, options.output_gb)
        if options.mlflow_python:
            rows += measure_mlflow(folder, os.path.abspath(options.mlflow_python), rows[0][1])
        print(f"{'what':44} {'measured':>14}  held against")
        for what, value, unit, against in rows:
            print(f"{what:44} {value:>11,.1f} {unit:2}  {against}")
    finally:
        House(folder / "home").end_all()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


Row = tuple[str, float, str, str]


def measure_logging(folder: Path, points: int) -> list[Row]:
    import shunter

    (folder / "src").mkdir()
    (folder / "src/log.py").write_text(LOGGING)
    ws = shunter.Workspace.from_config()
    run = ws.submit("log.py", source_directory=folder / "src", arguments=[100_000, points]).wait()
    said: dict[str, float] = {}
    for line in run.logs().splitlines():
        said |= json.loads(line)
    home_seconds = said["seconds_to_log"] + said["seconds_to_flush"]
    begun = time.perf_counter()
    series = [s for s in run.series(points=1000) if s.name.startswith("metric")]
    plot_seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    values = run.metrics()
    read_seconds = time.perf_counter() - begun
    whole = sum(len(values[s.name]) for s in series)
    assert whole == points // 20 * 20, f"{whole} of {points} points came home"
    assert all(values[f"metric{i}"] == [k * 0.001 for k in range(points // 20)] for i in range(20))
    return [
        ("run.log in a tight loop, inside a run", said["us_per_log"], "µs", "at most 20 µs a call"),
        (f"{points:,} points of 20 metrics home, a second", points / home_seconds, "", "at least 20,000"),
        ("all of them for a plot, thinned", plot_seconds, "s", "at most 3 s"),
        ("all of them as values", read_seconds, "s", ""),
    ]


def measure_output(folder: Path, gigabytes: float) -> list[Row]:
    import shunter

    (folder / "src/output.py").write_text(OUTPUT)
    ws = shunter.Workspace.from_config()
    run = ws.submit("output.py", source_directory=folder / "src", arguments=[gigabytes]).wait()
    assert run.status == "Completed", run.error
    moments = {e["status"]: e["at"] for e in run.events()}
    kept = [f for f in run.files() if f["path"] == "outputs/model.bin"]
    assert kept[0]["bytes"] == int(gigabytes * 1024) << 20
    stored = folder / "home/runs" / run.id[:2] / run.id / "files/outputs/model.bin"
    begun = time.perf_counter()
    shutil.copyfile(stored, folder / "copy.bin")
    with open(folder / "copy.bin", "rb") as file:
        os.fsync(file.fileno())
    copying = time.perf_counter() - begun
    (folder / "copy.bin").unlink()
    keeping = _seconds(moments["Completed"]) - _seconds(moments["Finalizing"])
    return [
        (f"{gigabytes:g} GB of output kept, after the script ended", keeping, "s", f"1.3 × copying it: {1.3 * copying:.1f} s"),
    ]


def measure_mlflow(folder: Path, python: str, ours: float) -> list[Row]:
    """MLflow's own server on SQLite, one worker, its own client: the same loop."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
         "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts")],
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True, cwd=folder,
    )  # fmt: skip
    try:
        until = time.monotonic() + 180
        while True:
            try:
                urllib.request.urlopen(url + "/health", timeout=2).read()
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)
        done = subprocess.run([python, "-c", MLFLOW, url, "200"], capture_output=True, text=True, check=True, cwd=folder)
        theirs = float(done.stdout.strip().splitlines()[-1] if "View" not in done.stdout else _number(done.stdout))
    finally:
        os.killpg(server.pid, 15)
        server.wait()
    return [
        ("mlflow.log_metric to MLflow's own server", theirs, "µs", ""),
        ("… how many run.log go into one of them", theirs / ours, "×", "at least 500 ×"),
    ]


def _number(text: str) -> float:
    for line in text.splitlines():
        try:
            return float(line)
        except ValueError:
            continue
    raise ValueError(text)


def _seconds(text: str) -> float:
    from shunter.cli.units import moment

    found = moment(text)
    assert found is not None
    return found


if __name__ == "__main__":
    sys.exit(main())
