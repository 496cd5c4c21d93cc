#!/usr/bin/env python3
"""Snapshots measured beside their limits and their peers, in one run, as ratios.

    PYTHONPATH=src python scripts/bench_snapshot.py [--files 10000] [--rounds 3] [--folder DIR] [--skip git,restic]

First time: freeze the folder, ask which blobs are missing, send the pack through a pipe to a second process that holds
the store, as HTTP on loopback does. The limit is one thread that hashes each file with BLAKE3 and writes it to a
content store. Unchanged: freeze again, beside a bare scandir walk with stat. The measured things take turns, so that a
noisy machine is noisy for all. Exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import IO

from blake3 import blake3

from shunter.sdk.snapshots import freeze
from shunter.server.storage.blobs import FileBlobs
from shunter.server.storage.blobs.index import SqlBlobIndex
from shunter.server.storage.database import Database, sqlite_url

FIRST_BAR = 1.5  # × the limit
UNCHANGED_BAR = 3.0  # × the bare walk
WALKS = 21
PEERS = {"borg": "apt install borgbackup", "restic": "apt install restic", "git": "apt install git"}


def main() -> int:
    options = _options()
    if options.serve:
        return serve(Path(options.serve), sys.stdin.buffer, sys.stdout.buffer)
    skipped = set(filter(None, options.skip.split(",")))
    missed: list[str] = []
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-snapshot-") as place:
        for kind, fill in {"noise": fill_with_noise, "sources": fill_with_sources}.items():
            bench = Bench(Path(place) / kind, skipped)
            fill(bench.tree, options.files)
            missed += bench.run(kind, options.rounds)
            shutil.rmtree(bench.place)
    print("\n" + ("All bars hold." if not missed else "Missed: " + "; ".join(missed)))
    return 1 if missed else 0


class Bench:
    """One tree and everything that is measured on it."""

    def __init__(self, place: Path, skipped: set[str]) -> None:
        self.place = place
        self.tree = place / "tree"
        self.tree.mkdir(parents=True)
        self.skipped = skipped

    def run(self, kind: str, rounds: int) -> list[str]:
        files = [file for file in self.tree.rglob("*") if file.is_file()]
        total = sum(len(file.read_bytes()) for file in files)  # this also warms the page cache
        print(f"\n## {kind}: {len(files):,} files, {total / 1e6:,.0f} MB\n")
        time.sleep(0.1)  # older than the stat cache's grain
        missed = self._first(rounds)
        missed += self._unchanged()
        self._changed()
        return [f"{kind}: {what}" for what in missed]

    def _first(self, rounds: int) -> list[str]:
        contestants: dict[str, Callable[[], float]] = {"limit": self.limit, "shunter": self.shunter, "tar": self.tar}
        for peer, how in PEERS.items():
            if peer in self.skipped:
                continue
            if shutil.which(peer) is None:
                print(f"{peer} is missing and not measured: {how}")
                continue
            contestants[peer] = getattr(self, peer)
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        cpu: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(rounds):
            for name, measure in contestants.items():
                before = cpu_seconds()
                seconds[name].append(self._quietly(measure))
                cpu[name].append(cpu_seconds() - before)
        middle = {name: median(found) for name, found in seconds.items()}
        print("| first time | median s | × limit | CPU s, with starting | each round |\n|---|---|---|---|---|")
        for name, found in seconds.items():
            each = ", ".join(f"{one:.2f}" for one in found)
            ratio = middle[name] / middle["limit"]
            print(f"| {name} | {middle[name]:.2f} | {ratio:.2f} | {median(cpu[name]):.1f} | {each} |", flush=True)
        missed = []
        if middle["shunter"] > FIRST_BAR * middle["limit"]:
            missed.append(f"first time {middle['shunter'] / middle['limit']:.2f} × the limit, bar {FIRST_BAR}")
        missed += [f"first time slower than {peer}" for peer in PEERS if middle["shunter"] > middle.get(peer, 1e9)]
        return missed

    def _quietly(self, measure: Callable[[], float]) -> float:
        os.sync()  # nobody pays for what the one before has left to write
        seconds = measure()
        for leftover in self.place.iterdir():
            if leftover != self.tree:
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        return seconds

    def limit(self) -> float:
        store = self.place / "store"
        started = time.perf_counter()
        for number in range(256):
            os.makedirs(f"{store}/{number:02x}")
        for path in bare_walk(str(self.tree)):
            with open(path, "rb") as file:
                data = file.read()
            digest = blake3(data).hexdigest()
            with open(f"{store}/{digest[:2]}/{digest}", "wb") as file:
                file.write(data)
        return time.perf_counter() - started

    def shunter(self) -> float:
        with Receiver(self.place / "server") as server:
            started = time.perf_counter()
            frozen = freeze(self.tree, cache_dir=self.place / "cache")
            missing = server.ask(list(frozen.manifest.blobs))
            server.send(frozen.pack(missing, compress=False))
            return time.perf_counter() - started

    def tar(self) -> float:
        return timed(["tar", "-cf", str(self.place / "all.tar"), "-C", str(self.tree), "."])

    def borg(self) -> float:
        env = {"BORG_BASE_DIR": str(self.place / "borg-home"), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}
        repository = str(self.place / "borg")
        timed(["borg", "init", "-e", "none", repository], env)
        return timed(["borg", "create", f"{repository}::one", str(self.tree)], env)

    def restic(self) -> float:
        env = {"RESTIC_PASSWORD": "bench", "RESTIC_REPOSITORY": str(self.place / "restic")}
        env["RESTIC_CACHE_DIR"] = str(self.place / "restic-cache")
        timed(["restic", "init", "-q"], env)
        return timed(["restic", "backup", "-q", str(self.tree)], env)

    def git(self) -> float:
        env = {"GIT_DIR": str(self.place / "git"), "GIT_WORK_TREE": str(self.tree), "GIT_CONFIG_GLOBAL": os.devnull}
        timed(["git", "init", "-q"], env)
        return timed(["git", "add", "-A", "."], env, cwd=self.tree)

    def _unchanged(self) -> list[str]:
        cache = self.place / "cache"
        freeze(self.tree, cache_dir=cache)
        ours: list[float] = []
        bare: list[float] = []
        for _ in range(WALKS):
            started = time.perf_counter()
            sum(1 for _ in bare_walk(str(self.tree)))
            between = time.perf_counter()
            _ = freeze(self.tree, cache_dir=cache).manifest.snapshot_id
            bare.append(between - started)
            ours.append(time.perf_counter() - between)
        ratio = median(ours) / median(bare)
        print(f"\nUnchanged: {median(ours) * 1e3:.0f} ms, bare walk {median(bare) * 1e3:.0f} ms: × {ratio:.2f}")
        return [f"unchanged {ratio:.2f} × the bare walk, bar {UNCHANGED_BAR}"] if ratio > UNCHANGED_BAR else []

    def _changed(self) -> None:
        cache = self.place / "cache"
        before = freeze(self.tree, cache_dir=cache)
        with Receiver(self.place / "server") as server:
            server.send(before.pack(server.ask(list(before.manifest.blobs)), compress=False))
        file = next(file for file in sorted(self.tree.rglob("*")) if file.is_file())
        file.write_bytes(b"# changed\n" + file.read_bytes())
        with Receiver(self.place / "server") as server:
            started = time.perf_counter()
            frozen = freeze(self.tree, cache_dir=cache)
            missing = server.ask(list(frozen.manifest.blobs))
            sent = server.send(frozen.pack(missing, compress=False))
            seconds = time.perf_counter() - started
        print(f"One changed file: {len(missing)} blob of {file.stat().st_size:,} bytes, {sent:,} sent, {seconds:.3f} s")
        if len(missing) != 1:
            raise SystemExit("one changed file must send one blob")


class Receiver:
    """The store in a process of its own, warm, at the other end of a pipe."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, __file__, "--serve", str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to: IO[bytes] = self._process.stdin
        self._from: IO[bytes] = self._process.stdout
        self._from.readline()

    def ask(self, digests: list[str]) -> list[str]:
        self._to.write(json.dumps(digests).encode() + b"\n")
        self._to.flush()
        return list(json.loads(self._from.readline()))

    def send(self, chunks: Iterator[bytes]) -> int:
        sent = 0
        for chunk in chunks:
            sent += len(chunk)
            self._to.write(chunk)
        self._to.close()
        self._from.readline()
        return sent

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self._from.close()
        self._process.wait()


def serve(folder: Path, asked: IO[bytes], answers: IO[bytes]) -> int:
    """The other end: answer which blobs are missing, then take in a pack."""

    def say(line: object) -> None:
        answers.write(json.dumps(line).encode() + b"\n")
        answers.flush()

    folder.mkdir(parents=True, exist_ok=True)
    store = FileBlobs(folder / "blobs", SqlBlobIndex(Database.open(sqlite_url(folder / "server.db"))))
    say("ready")
    say(store.missing(json.loads(asked.readline())))
    say(store.receive(iter(lambda: asked.read1(1 << 18), b"")))  # type: ignore[attr-defined]
    return 0


def bare_walk(root: str) -> Iterator[str]:
    """scandir and stat of everything, and nothing else."""
    folders = [root]
    while folders:
        with os.scandir(folders.pop()) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    entry.stat(follow_symlinks=False)
                    yield entry.path


def cpu_seconds() -> float:
    """CPU time of this process and all that it has waited for."""
    times = os.times()
    return sum(times[:4])


def timed(command: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> float:
    started = time.perf_counter()
    subprocess.run(command, env={**os.environ, **(env or {})}, cwd=cwd, check=True, capture_output=True)
    return time.perf_counter() - started


def fill_with_noise(tree: Path, files: int) -> None:
    """Files of 100 KiB that nothing can compress."""
    for number in range(files):
        write(tree / f"d{number // 100:03}" / f"f{number % 100:02}.bin", os.urandom(100 * 1024))


def fill_with_sources(tree: Path, files: int) -> None:
    """What a project holds: many small texts, some data, a few large files."""
    random.seed(1)
    words = [
        "import",
        "def",
        "return",
        "self",
        "model",
        "batch",
        "loss",
        "for",
        "in",
        "range",
        "=",
        "+",
        "(",
        "):\n    ",
    ]
    text = " ".join(random.choices(words, k=200_000)).encode()
    for number in range(files):
        folder = tree / f"package_{number // 200}" / f"module_{number // 20 % 10}"
        size = 2_000_000 if number % 500 == 0 else int(random.lognormvariate(8.5, 1.2))
        start = random.randrange(len(text) // 2)
        data = os.urandom(size) if number % 7 == 0 else (text[start:] * (1 + size // (len(text) // 2)))[:size]
        write(folder / f"file_{number}{'.npy' if number % 7 == 0 else '.py'}", f"# {number}\n".encode() + data)


def write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where to work; needs about five times the tree")
    parser.add_argument("--skip", default="", help="peers to leave out, with commas")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
