"""Kill -9 parts of a cluster at seeded moments while runs are queued, placed and running; then look for lies.

    .venv/bin/python scripts/soak_cluster.py [--seeds 10] [--first 0] [--runs 8] [--kills 4]

After each seed: every run completed, none ran twice at once or again after a success, no node and no process is left.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

SCRIPT = """
import os, sys, time
def note(what):
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    line = "%.3f %s %s %s %d" % (time.time(), what, os.environ["SHUNTER_RUN_ID"], os.environ["SHUNTER_ATTEMPT"], os.getpid())
    os.write(fd, (line + "\\n").encode())
note("on")
until = time.time() + float(sys.argv[2])
while time.time() < until:
    note("at")
    time.sleep(0.1)
note("off")
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--kills", type=int, default=4)
    options = parser.parse_args()
    bad = 0
    for seed in range(options.first, options.first + options.seeds):
        with tempfile.TemporaryDirectory(prefix="shunter-soak-") as folder:
            found, kills = one(seed, Path(folder), options)
        bad += bool(found)
        print(f"seed {seed}: {'; '.join(found) or 'well'} (killed {', '.join(kills)})", flush=True)
    print(f"{options.seeds} seeds, {bad} bad")
    return 1 if bad else 0


def one(seed: int, folder: Path, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    os.environ["SHUNTER_HOME"] = str(folder / "home")
    (folder / "home").mkdir()
    from shunter.testing.clusters import end_clusters
    from shunter.testing.house import House

    try:
        return trial(random.Random(seed), folder, options)
    finally:
        end_clusters(folder / "home")
        House(folder / "home").end_all()


def trial(dice: random.Random, folder: Path, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    from shunter.errors import ServerUnreachable
    from shunter.sdk.connect import connect
    from shunter.sdk.workspace import Workspace
    from shunter.testing.clusters import ClusterHouse
    from shunter.testing.house import House, wait_until

    source, ledger, home = folder / "src", folder / "ledger", folder / "home"
    source.mkdir()
    (source / "train.py").write_text(SCRIPT)
    ws = Workspace.from_config()
    ws.compute.create("cpu", kind="cluster", vm_size="Standard_A1_v2", max_nodes=2, idle_seconds_before_scaledown=4)
    runs = [
        ws.submit("train.py", source_directory=source, target="cpu", arguments=[ledger, dice.uniform(0.2, 6)], max_attempts=9)
        for _ in range(options.runs)
    ]
    wait_until(ledger.exists, 300, "the first run")
    [house] = ClusterHouse.all(home)
    kills = []
    for _ in range(options.kills):
        time.sleep(dice.uniform(0.2, 4))
        what = dice.choice(["node", "head", "keeper", "server", "autoscaler"])
        kills.append(what)
        chosen: dict[str, list[int | None]] = {
            "node": [next(iter(house.nodes().values()), None)], "head": [house.head], "keeper": [house.keeper],
            "server": [House(home).server], "autoscaler": [*house.autoscaler()],
        }  # fmt: skip
        for pid in filter(None, chosen[what]):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    found = []
    for run in runs:
        until = time.monotonic() + 400
        while True:
            try:
                run.workspace.client = connect()
                run.wait(timeout_seconds=until - time.monotonic())
                break
            except ServerUnreachable:
                time.sleep(0.5)
            except TimeoutError:
                break
        if run.data["status"] != "Completed":
            found.append(f"{run.id[:8]} is {run.data['status']}: {run.data['reason']}")
    found += overlaps(ledger)
    try:
        wait_until(lambda: not house.nodes() and house.head is None and house.keeper is None, 120, "zero")
    except TimeoutError as error:
        found.append(str(error))
    return found, kills


def overlaps(ledger: Path) -> list[str]:
    """Attempts of one run that were seen at the same time, or after a success."""
    spans: dict[str, dict[str, tuple[float, float, bool]]] = {}
    for line in ledger.read_text().splitlines():
        at, what, run, attempt, _ = line.split()
        first, _, done = spans.setdefault(run, {}).get(attempt, (float(at), 0.0, False))
        spans[run][attempt] = (first, float(at), done or what == "off")
    found = []
    for run, attempts in spans.items():
        ordered = sorted(attempts.values())
        if any(earlier[1] > later[0] or earlier[2] for earlier, later in itertools.pairwise(ordered)):
            found.append(f"{run[:8]} ran twice: {attempts}")
        if sum(done for _, _, done in ordered) != 1:
            found.append(f"{run[:8]} succeeded {sum(done for _, _, done in ordered)} times")
    return found


if __name__ == "__main__":
    sys.exit(main())
