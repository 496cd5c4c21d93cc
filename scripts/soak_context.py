#!/usr/bin/env python3
"""Kills the server and launchers at random moments while runs log, upload and checkpoint; everything must come home.

    python scripts/soak_context.py [--seeds N] [--first SEED]

Each seed is one run: three processes log, files are uploaded, children are made, a checkpoint is rewritten, and between
two and five kills fall on it. Then every point, file, child and checkpoint is looked for. Prints one line a seed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

POINTS = 4000
SCRIPT = """
import json, os, subprocess, sys, time
from shunter.run import Run
run = Run.get_context()
rank = int(sys.argv[1]) if len(sys.argv) > 1 else 0
others = [subprocess.Popen([sys.executable, __file__, str(r)]) for r in (1, 2)] if len(sys.argv) == 1 else []
for i in range(POINTS):
    run.log("rank%d" % rank, i, step=i)
    run.log("all", 1.0)
    if i % 400 == 0:
        time.sleep(0.3)
        if rank == 0:
            with open("part.bin", "wb") as file:
                file.write(bytes([i // 400]) * 300000)
            run.upload_file("parts/%d.bin" % (i // 400), "part.bin")
            child = run.child_run("child%d" % (i // 400))
            child.log("i", i)
            child.complete()
            path = os.path.join(os.environ["SHUNTER_CHECKPOINT_DIR"], "state.json")
            with open(path + ".tmp", "w") as file:
                json.dump({"i": i}, file)
            os.rename(path + ".tmp", path)
sys.exit(max([p.wait() for p in others] or [0]))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shunter-soak-"))
    home = folder / "home"
    home.mkdir(mode=0o700)
    os.environ["SHUNTER_HOME"] = str(home)
    (folder / "src").mkdir()
    (folder / "src/train.py").write_text(SCRIPT.replace("POINTS", str(POINTS)))
    from shunter.testing.house import House

    house = House(home)
    bad = 0
    try:
        for seed in range(options.first, options.first + options.seeds):
            begun = time.monotonic()
            problems, kills = one(house, folder / "src", seed)
            bad += bool(problems)
            took = f"({time.monotonic() - begun:.0f} s)"
            print(f"seed {seed}: {', '.join(kills)}: {'; '.join(problems) or 'whole'} {took}", flush=True)
    finally:
        house.end_all()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{options.seeds - bad} of {options.seeds} whole")
    return 1 if bad else 0


def one(house: object, source: Path, seed: int) -> tuple[list[str], list[str]]:
    import shunter
    from shunter.testing.house import House, wait_until

    assert isinstance(house, House)
    chance = random.Random(seed)
    ws = shunter.Workspace.from_config()
    run_id = ws.submit("train.py", source_directory=source).id
    wait_until(house.scripts, 30)
    kills = []
    for _ in range(chance.randint(2, 5)):
        time.sleep(chance.uniform(0.0, 1.2))
        if chance.random() < 0.6:
            house.kill_server()
            kills.append("server")
            time.sleep(chance.uniform(0.0, 0.5))
            shunter.Workspace.from_config()
        else:
            for pid in house.launchers():
                os.kill(pid, signal.SIGKILL)
            kills.append("launcher")
    ws = shunter.Workspace.from_config()
    run = ws.run(run_id).wait(timeout_seconds=120)
    return look(run), kills


def look(run: object) -> list[str]:
    from shunter.sdk.run import Run

    assert isinstance(run, Run)
    problems = []
    if run.status != "Completed":
        problems.append(f"{run.status}: {run.error}")
    found = run.metrics()
    for rank in range(3):
        if found.get(f"rank{rank}") != list(range(POINTS)):
            problems.append(f"rank {rank} has {len(found.get(f'rank{rank}', []))} of {POINTS} points")
    if len(found.get("all", [])) != 3 * POINTS:
        problems.append(f"all has {len(found.get('all', []))} points")
    files = {f["path"]: f["bytes"] for f in run.files()}
    if files != {f"parts/{i}.bin": 300000 for i in range(POINTS // 400)}:
        problems.append(f"files {files}")
    children = {c.name: (c.data["status"], c.metrics()) for c in run.children()}
    if children != {f"child{i}": ("Completed", {"i": i * 400}) for i in range(POINTS // 400)}:
        problems.append(f"children {children}")
    kept = [(c["name"], c["files"][0]["bytes"]) for c in run.checkpoints()]
    if not kept or kept[0][1] != len('{"i": 3600}'):
        problems.append(f"checkpoints {kept}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
