"""How fast is a cluster? Against the local target, a bare process, and bare Ray, in one run on one machine.

    .venv/bin/python scripts/bench_cluster.py [--runs 200] [--rounds 15] [--only warm,zero,many]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

TRIVIAL = "import time\nprint(time.time(), flush=True)\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="zero,warm,many")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        os.environ["SHUNTER_HOME"] = str(home)
        from shunter.testing.clusters import end_clusters
        from shunter.testing.house import House

        try:
            bench(home, Path(folder), options)
        finally:
            end_clusters(home)
            House(home).end_all()


def bench(home: Path, folder: Path, options: argparse.Namespace) -> None:
    from shunter.sdk.workspace import Workspace

    source = folder / "src"
    source.mkdir()
    (source / "train.py").write_text(TRIVIAL)
    ws = Workspace.from_config()
    ws.compute.create("cpu", kind="cluster", vm_size="Standard_A1_v2", max_nodes=2, idle_seconds_before_scaledown=600)
    ws.submit("train.py", source_directory=source).wait()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")

    def first_line(target: str, **more: Any) -> float:
        begun = time.time()
        run = ws.submit("train.py", source_directory=source, target=target, **more).wait(timeout_seconds=600)
        assert run.data["status"] == "Completed", run.data
        return float(run.logs().split()[0]) - begun

    if "zero" in options.only:
        bare = bare_ray(folder / "bare")
        ours = first_line("cpu")
        print(f"from zero to the first line: {ours:.1f} s; a bare Ray head and node: {bare:.1f} s; × {ours / bare:.2f}")
    first_line("cpu", node_count=2)
    if "warm" in options.only:
        bares, locals_, clusters = [], [], []
        for _ in range(options.rounds):
            begun = time.time()
            said = subprocess.run([sys.executable, "train.py"], cwd=source, capture_output=True, text=True, check=True).stdout
            bares.append(float(said) - begun)
            locals_.append(first_line("local"))
            clusters.append(first_line("cpu"))
        b, lo, c = (statistics.median(x) * 1000 for x in (bares, locals_, clusters))
        print(f"submit to first line, warm, ms: bare {b:.0f}, local {lo:.0f}, cluster {c:.0f}; cluster × {c / lo:.2f} of local")
    if "many" in options.only:
        rates = {}
        for target in ("local", "cpu"):
            begun = time.time()
            runs = [ws.submit("train.py", source_directory=source, target=target) for _ in range(options.runs)]
            for run in runs:
                assert run.wait(timeout_seconds=600).data["status"] == "Completed", run.data
            rates[target] = options.runs / (time.time() - begun)
        share = rates["cpu"] / rates["local"]
        print(f"{options.runs} runs, each second: local {rates['local']:.1f}, two nodes {rates['cpu']:.1f}; {share:.0%} of local")


def bare_ray(folder: Path) -> float:
    """A head, then a node, started by the same private means, without keeper and server, until both are there."""
    from shunter.drivers.cluster import ray_engine
    from shunter.drivers.cluster.folder import free_port
    from shunter.drivers.cluster.pools.local import session_members
    from shunter.testing.house import end

    temp = tempfile.mkdtemp(prefix="shr")
    (folder / "store").mkdir(parents=True)
    (folder / "token").write_text("0" * 64)
    place = ray_engine.Place(free_port(), "127.0.0.1", str(folder / "token"), temp, str(folder / "store"), free_port())
    fields = (place.port, place.address, place.token_file, place.temp_folder, place.storage_folder, place.metrics_port)
    shape = ray_engine.Shape("a", 1, 0, 1 << 30, 0, 0)
    (folder / "scale.json").write_text(json.dumps(ray_engine.autoscaler_config("bare", shape, 600, {"folder": ""})))
    common = f"import sys, time; sys.path.insert(0, {str(Path(__file__).parent.parent / 'src')!r})\n"
    common += f"from shunter.drivers.cluster.ray_engine import *\nplace = Place(*{fields!r})\n"
    head = common + f"h = HeadNode(place, {str(folder / 'scale.json')!r}); g = Groups(place); print('up', flush=True)\n"
    head += "while not g.nodes(): time.sleep(0.02)\nprint('joined', flush=True); time.sleep(600)\n"
    node = common + "n = WorkerNode(place, 'n', {'CPU': 1, 'memory': 1 << 30}, '127.0.0.1'); time.sleep(600)\n"
    begun = time.time()
    started = [subprocess.Popen([sys.executable, "-c", head], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                env=ray_engine.environment(place, "head", "head"), start_new_session=True)]  # fmt: skip
    try:
        assert started[0].stdout is not None
        assert started[0].stdout.readline() == b"up\n"
        started.append(subprocess.Popen([sys.executable, "-c", node], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=ray_engine.environment(place, "n", "a"), start_new_session=True))  # fmt: skip
        assert started[0].stdout.readline() == b"joined\n"
        return time.time() - begun
    finally:
        for process in started:
            end(session_members(process.pid), 9)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
