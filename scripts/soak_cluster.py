"""Kill -9 parts of a cluster at seeded moments while runs are queued, placed and running; then look for lies.

    .venv/bin/python scripts/soak_cluster.py [--seeds 10] [--first 0] [--runs 8] [--kills 4] [--parts node,head]

After each seed: every run completed, none ran twice at once or again after a success, no node and no process is left.
What it printed is kept in docs/cluster-soak.md.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--parts", default="node,head,server,autoscaler,keeper")
    options = parser.parse_args()
    bad, all_kills, begun = 0, Counter[str](), time.monotonic()
    for seed in range(options.first, options.first + options.seeds):
        with tempfile.TemporaryDirectory(prefix="shunter-soak-") as folder:
            found, kills = one(seed, Path(folder), options)
        bad += bool(found)
        all_kills.update(kills)
        print(f"seed {seed}: {'; '.join(found) or 'well'} (killed {', '.join(kills)})", flush=True)
    shown = ", ".join(f"{count} × {what}" for what, count in sorted(all_kills.items()))
    print(f"{options.seeds} seeds, {bad} bad; {shown}; {time.monotonic() - begun:.0f} s")
    return 1 if bad else 0


def one(seed: int, folder: Path, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    home = folder / "home"
    os.environ["SHUNTER_HOME"] = str(home)
    home.mkdir()
    from shunter.sdk.workspace import Workspace
    from shunter.testing.cluster_faults import Storm
    from shunter.testing.clusters import end_clusters
    from shunter.testing.house import House, wait_until

    try:
        ws = Workspace.from_config()
        ws.compute.create("cpu", kind="cluster", vm_size="Standard_A1_v2", max_nodes=2, idle_seconds_before_scaledown=4)
        storm, dice = Storm(ws, home, folder, "cpu", seed), random.Random(seed)
        storm.submit(options.runs, longest_seconds=6)
        wait_until(storm.ledger.exists, 300, "the first run")
        for _ in range(options.kills):
            time.sleep(dice.uniform(0.2, 4))
            storm.kill(dice.choice(options.parts.split(",")))
        found = storm.lies(400)
        house = storm.house
        try:
            wait_until(lambda: not house.nodes() and house.head is None and house.keeper is None, 120, "zero")
        except TimeoutError as error:
            found.append(str(error))
        return found, storm.killed
    finally:
        end_clusters(home)
        House(home).end_all()


if __name__ == "__main__":
    sys.exit(main())
