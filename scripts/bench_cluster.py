"""How fast is a cluster? Against the local target, a bare process, bare Ray and Ray's own jobs, in one run on one machine.

    .venv/bin/python scripts/bench_cluster.py [--runs 500] [--rounds 15] [--only zero,warm,many,idle,decide,jobs]

Prints tables; what it printed is kept in docs/cluster-bench.md.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

TRIVIAL = "import time\nprint(time.time(), flush=True)\n"
HEAD = "| what | ours | limit or peer | ratio | bar |\n|---|---|---|---|---|"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--zero-rounds", type=int, default=5)
    parser.add_argument("--only", default="zero,warm,many,idle,decide")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, Python {sys.version.split()[0]}\n\n{HEAD}", flush=True)
    with tempfile.TemporaryDirectory(prefix="shunter-bench-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        os.environ["SHUNTER_HOME"] = str(home)
        from shunter.testing.clusters import end_clusters
        from shunter.testing.house import House

        try:
            Bench(Path(folder), options).run()
        finally:
            end_clusters(home)
            House(home).end_all()


class Bench:
    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        from shunter.sdk.workspace import Workspace

        self.folder = folder
        self.options = options
        self.source = folder / "src"
        self.source.mkdir()
        (self.source / "train.py").write_text(TRIVIAL)
        self.ws = Workspace.from_config()
        self.ws.submit("train.py", source_directory=self.source).wait()

    def run(self) -> None:
        asked = self.options.only.split(",")
        for name in ("zero", "warm", "many", "idle", "decide", "jobs"):
            if name in asked:
                getattr(self, name)()

    # What is measured.

    def zero(self) -> None:
        """From nothing to the first line, beside a head and a node that are started by hand one after the other."""
        ours, bare = [], []
        for number in range(self.options.zero_rounds):
            bare.append(bare_ray(self.folder / f"bare{number}"))
            self.cluster(f"zero{number}")
            ours.append(self.first_line(f"zero{number}"))
            self.ws.compute.get(f"zero{number}").delete()
        print(row("from zero to the first line", ours, "a bare Ray head and node", bare, "s", "≤ 1.2"), flush=True)

    def warm(self) -> None:
        self.cluster("cpu")
        self.first_line("cpu", node_count=2)
        bares, locals_, clusters = [], [], []
        for _ in range(self.options.rounds):
            bares.append(self.bare())
            locals_.append(self.first_line("local"))
            clusters.append(self.first_line("cpu"))
        print(row("warm node, submit to first line", clusters, "the local target", locals_, "ms", "≤ 3"), flush=True)
        print(row("the same", clusters, "bare `python train.py`", bares, "ms", ""), flush=True)

    def many(self) -> None:
        self.cluster("cpu")
        self.first_line("cpu", node_count=2)
        rates: dict[str, float] = {}
        for target in ("local", "cpu"):
            begun = time.time()
            runs = [self.ws.submit("train.py", source_directory=self.source, target=target) for _ in range(self.options.runs)]
            for run in runs:
                assert run.wait(timeout_seconds=600).data["status"] == "Completed", run.data
            rates[target] = self.options.runs / (time.time() - begun)
        share = rates["cpu"] / rates["local"]
        print(f"| {self.options.runs} trivial runs on two warm nodes | {rates['cpu']:.1f} /s | the local target "
              f"{rates['local']:.1f} /s | {share:.2f} | ≥ 0.6 |", flush=True)  # fmt: skip

    def idle(self) -> None:
        """From the last run's end until its node is gone."""
        from shunter.drivers.cluster.folder import ClusterFolder
        from shunter.testing.clusters import ClusterHouse

        took = []
        for seconds in (10, 20):
            self.cluster(f"idle{seconds}", idle_seconds_before_scaledown=seconds)
            self.first_line(f"idle{seconds}")
            begun = time.time()
            house = ClusterHouse(ClusterFolder(self.folder / "home" / "clusters" / f"default.idle{seconds}"))
            wait_for(lambda house=house: not house.nodes(), 120)
            took.append((seconds, time.time() - begun))
            self.ws.compute.get(f"idle{seconds}").delete()
        for seconds, passed in took:
            print(f"| idle until its node is gone | {passed:.1f} s | the time that was set {seconds} s | "
                  f"{passed / seconds:.2f} | ≤ 1.5 |", flush=True)  # fmt: skip

    def decide(self) -> None:
        """A round of the real dispatcher on the real database, a thousand simulated nodes."""
        from shunter.testing.crowd import measure

        found = {}
        for queued in (2_000, 20_000):
            (self.folder / str(queued)).mkdir()
            found[queued] = measure(self.folder / str(queued), queued)
        short, long = found[2_000], found[20_000]
        print(f"| a round with 1,000 nodes, 20,000 queued | {long.milliseconds:.1f} ms | with 2,000 queued "
              f"{short.milliseconds:.1f} ms | {long.milliseconds / short.milliseconds:.2f} | the same |")  # fmt: skip
        print(f"| memory grown over 300 starts of it | {long.grown_bytes / 2**20:.1f} MiB | with 2,000 queued "
              f"{short.grown_bytes / 2**20:.1f} MiB | | flat |", flush=True)  # fmt: skip

    def jobs(self) -> None:
        """Ray's own way to submit. Needs `ray[default]`, which clusters do without: give its interpreter in RAY_JOBS_PYTHON."""
        python = os.environ.get("RAY_JOBS_PYTHON", sys.executable)
        took = [float(x) for x in ray_jobs(python, self.folder, self.source, 5)]
        bares = [self.bare() for _ in range(5)]
        print(row("Ray's own `submit_job`, warm", took, "bare `python train.py`", bares, "ms", ""), flush=True)

    # By which means.

    def cluster(self, name: str, **options: Any) -> None:
        if name not in {c.name for c in self.ws.compute.list()}:
            given = {"vm_size": "Standard_A1_v2", "max_nodes": 2, "idle_seconds_before_scaledown": 600, **options}
            self.ws.compute.create(name, kind="cluster", **given)

    def first_line(self, target: str, **more: Any) -> float:
        begun = time.time()
        run = self.ws.submit("train.py", source_directory=self.source, target=target, **more).wait(timeout_seconds=600)
        assert run.data["status"] == "Completed", run.data
        return float(run.logs().split()[0]) - begun

    def bare(self) -> float:
        begun = time.time()
        said = subprocess.run([sys.executable, "train.py"], cwd=self.source, capture_output=True, text=True, check=True).stdout
        return float(said) - begun


def row(what: str, ours: list[float], peer: str, theirs: list[float], unit: str, bar: str) -> str:
    scale = 1000 if unit == "ms" else 1
    a, b = statistics.median(ours), statistics.median(theirs)
    spread = f" ({min(ours) * scale:.3g}–{max(ours) * scale:.3g})"
    other = f" ({min(theirs) * scale:.3g}–{max(theirs) * scale:.3g})"
    return f"| {what} | {a * scale:.3g} {unit}{spread} | {peer} {b * scale:.3g} {unit}{other} | {a / b:.2f} | {bar} |"


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


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
    common += "import contextlib, shunter.drivers.cluster.ray_engine as e\ne._without_agents = contextlib.nullcontext\n"
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


def ray_jobs(python: str, folder: Path, source: Path, count: int) -> list[str]:
    """Submit to first line by Ray's own jobs on a cluster of one node that was just used: its times, one for each."""
    from shunter.drivers.cluster.folder import free_port
    from shunter.drivers.cluster.pools.local import session_members
    from shunter.testing.house import end

    port, web, temp = free_port(), free_port(), tempfile.mkdtemp(prefix="shj")
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | {"RAY_USAGE_STATS_ENABLED": "0"}
    ray = str(Path(python).parent / "ray")
    start = [ray, "start", "--head", "--block", f"--port={port}", f"--dashboard-port={web}", "--num-cpus=1", f"--temp-dir={temp}"]
    with (folder / "jobs.log").open("wb") as log:
        head = subprocess.Popen([*start, "--include-dashboard=true"], env=env, stdout=log, stderr=log, start_new_session=True)
    code = f"""
import sys, time
from ray.job_submission import JobSubmissionClient
for _ in range(300):
    try:
        client = JobSubmissionClient("http://127.0.0.1:{web}")
        break
    except Exception:
        time.sleep(0.2)
def one():
    begun = time.time()
    job = client.submit_job(entrypoint={f"{python} {source}/train.py"!r})
    while str(client.get_job_status(job)) not in ("SUCCEEDED", "FAILED"):
        time.sleep(0.02)
    return float(client.get_job_logs(job).split()[-1]) - begun
one()
print(*[one() for _ in range({count})])
"""
    try:
        return subprocess.run([python, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.split()
    finally:
        end(session_members(head.pid), 9)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
