#!/usr/bin/env python3
"""Environments measured beside what they stand on: uv itself, a bare Python start, `podman run`. Prints ratios.

    PYTHONPATH=src python scripts/bench_environments.py [--rounds 6] [--package scikit-learn]

The measured things take turns, so that a noisy machine is noisy for all. Exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from shunter.model.environment import Environment
from shunter.node import environments
from shunter.server.environments.platforms import of_this_machine
from shunter.server.environments.pypi import find_uv
from shunter.server.environments.resolve import Settings, job_environment, lock_for
from shunter.testing.containers import IMAGE, podman

COLD_BAR = 1.05  # × uv venv + uv pip install
WARM_BAR = 1.0  # bare Python starts
CONTAINER_BAR = 1.10  # × podman run


def main() -> int:
    options = _options()
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-environments-") as place:
        bench = Bench(Path(place), options.package)
        print(f"# Environments ({options.package}, interleaved, medians of {options.rounds} and more)\n")
        print("    scripts/bench environments | tee docs/bench-environments.md\n")
        print("| | time | beside | × | bar |\n|---|---|---|---|---|")
        for name, cached in (("cold build, empty package cache", False), ("build, packages cached", True)):
            ours, theirs = bench.builds(options.rounds, cached)
            _line(name, ours, theirs, COLD_BAR, missed)
        hit, start = bench.warm_hit(options.rounds * 4)
        _line("warm hit, beside a bare `python -c pass`", hit, start, WARM_BAR, missed)
        engine = podman()
        if engine is not None:
            ours, theirs = bench.container(engine, options.rounds * 2)
            _line("container, beside `podman run` itself", ours, theirs, CONTAINER_BAR, missed)
        alone, both = bench.shared()
        print(f"\nTwo environments with the same packages: {alone >> 20} MiB for one, {both >> 20} MiB for both.")
    for words in missed:
        print(f"missed: {words}")
    return 1 if missed else 0


class Bench:
    def __init__(self, place: Path, package: str) -> None:
        self.place = place
        self.wheels = place / "wheels"
        self.python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "-d", str(self.wheels), package], check=True)
        environment = Environment(packages=[package], python=self.python, find_links=[str(self.wheels)], offline=True)
        self.lock = lock_for(environment, of_this_machine(), Settings(), None)
        self.spec = job_environment(environment, self.lock, Settings())
        self.count = 0

    def builds(self, rounds: int, cached: bool) -> tuple[float, float]:
        """Seconds for our build and for the same two uv commands, each with a cache of its own."""
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(rounds):
            self.count += 1
            here = self.place / f"build{self.count}"
            caches = {name: self.place / f"cache-{name}" if cached else here / f"cache-{name}" for name in ("a", "b")}
            if cached and not caches["a"].exists():
                self._ours(here / "warm-up", caches["a"])
                self._theirs(here / "warm-up-too", caches["b"])
            turns = ["ours", "theirs"] if self.count % 2 else ["theirs", "ours"]
            for name in turns:
                os.sync()  # what the one before wrote must not weigh on this one
                if name == "ours":
                    ours.append(self._ours(here / "ours", caches["a"]))
                else:
                    theirs.append(self._theirs(here / "theirs", caches["b"]))
            shutil.rmtree(here)
        return median(ours), median(theirs)

    def warm_hit(self, rounds: int) -> tuple[float, float]:
        """Seconds that a launcher spends on an environment that is there, beside a bare start. In fresh processes."""
        root = self.place / "warm"
        os.environ["UV_CACHE_DIR"] = str(self.place / "cache-a")
        self._prepare(root)
        source = str(Path(environments.__file__).parents[3])
        code = (
            "import sys, json, time, os\nsys.path.insert(0, sys.argv[1])\nfrom shunter.node import launcher\n"
            "spec, folder, root, job = json.loads(sys.stdin.read())\nbegan = time.perf_counter()\n"
            "from shunter.node import environments\n"
            "environments.prepare(spec, folder, root, print, bool, job)\n"
            "from shunter.node.environments.facts import host_facts\nhost_facts()\n"
            "print(time.perf_counter() - began)"
        )
        import json

        given = json.dumps([self.spec, str(root / "launches/x"), str(root), {"id": "x", "tools": {}}])
        hits, starts = [], []
        for _ in range(rounds):
            done = subprocess.run(
                [sys.executable, "-c", code, source], input=given, capture_output=True, text=True, check=True
            )
            hits.append(float(done.stdout))
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            starts.append(time.perf_counter() - began)
        return median(hits), median(starts)

    def container(self, engine: str, rounds: int) -> tuple[float, float]:
        """Seconds for a script in a container, prepared and started our way, beside a plain `podman run`."""
        root = self.place / "box"
        spec = {"kind": "container", "engine": engine, "container": {"image": IMAGE}}
        folder = root / "launches" / "x"
        (folder / "work").mkdir(parents=True)
        (folder / "work" / "s.py").write_text("pass\n")
        job = {"id": "b" * 32 + ".1.0", "tools": {}}
        bare = [engine, "run", "--rm", "--init", "--network", "host", "--volume", f"{folder}:{folder}",
                "--workdir", str(folder / "work"), IMAGE, "python3", "s.py"]  # fmt: skip

        def ours() -> None:
            prepared = environments.prepare(spec, str(folder), str(root), str.strip, bool, job)  # type: ignore[arg-type]
            assert prepared.wrap is not None
            argv, env = prepared.wrap.command([*prepared.argv_prefix, "s.py"], prepared.env)
            subprocess.run(argv, env=env, check=True)
            prepared.wrap.ended(0)

        ours()
        times: dict[str, list[float]] = {"ours": [], "bare": []}
        for number in range(rounds):
            for name in ("ours", "bare") if number % 2 else ("bare", "ours"):
                began = time.perf_counter()
                ours() if name == "ours" else subprocess.run(bare, check=True)
                times[name].append(time.perf_counter() - began)
        return median(times["ours"]), median(times["bare"])

    def shared(self) -> tuple[int, int]:
        """Bytes on disk of one environment, and of two with different locks and the same packages."""
        root = self.place / "shared"
        os.environ["UV_CACHE_DIR"] = str(root / "cache")
        self._prepare(root)
        alone = _disk(root / "environments")
        self.spec = {**self.spec, "lock_id": "f" * 32}
        self._prepare(root)
        return alone, _disk(root / "environments")

    def _ours(self, root: Path, cache: Path) -> float:
        os.environ["UV_CACHE_DIR"] = str(cache)
        began = time.perf_counter()
        self._prepare(root)
        return time.perf_counter() - began

    def _theirs(self, root: Path, cache: Path) -> float:
        env = dict(os.environ, UV_CACHE_DIR=str(cache))
        root.mkdir(parents=True)
        (root / "lock.txt").write_text(self.lock.pip)
        uv = find_uv()
        began = time.perf_counter()
        subprocess.run(
            [uv, "venv", "-q", "--no-project", "--python", self.python, str(root / "env")], env=env, check=True
        )
        subprocess.run(
            [uv, "pip", "install", "-q", "--no-deps", "--python", str(root / "env" / "bin" / "python"), "-r",
             str(root / "lock.txt"), *self.lock.options], env=env, check=True,
        )  # fmt: skip
        return time.perf_counter() - began

    def _prepare(self, root: Path) -> Any:
        folder = root / "launches" / "x"
        folder.mkdir(parents=True, exist_ok=True)
        said: list[str] = []
        job = {"id": "x", "tools": {"uv": find_uv()}}
        return environments.prepare(self.spec, str(folder), str(root), said.append, lambda: False, job)


def _line(name: str, ours: float, theirs: float, bar: float, missed: list[str]) -> None:
    ratio = ours / theirs
    print(f"| {name} | {_ms(ours)} | {_ms(theirs)} | {ratio:.2f} | {bar:.2f} |", flush=True)
    if ratio > bar:
        missed.append(f"{name}: {ratio:.2f} × against {bar:.2f}")


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _disk(folder: Path) -> int:
    seen: dict[int, int] = {}
    for here, _, names in os.walk(folder):
        for name in names:
            stat = os.lstat(os.path.join(here, name))
            seen[stat.st_ino] = stat.st_blocks * 512
    return sum(seen.values())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6, help="even, so that each goes first as often")
    parser.add_argument("--package", default="scikit-learn")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
