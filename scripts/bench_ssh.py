"""How an SSH machine compares with this one: python scripts/bench_ssh.py [first-line|rate|snapshot|output|watch …] [--write FILE]

Needs root and what scripts/parts/ssh installs: machines are namespaces with an sshd of their own. Everything is measured
in one go on one machine, and shown as ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "drivers" / "ssh")]

from machines import Machine  # noqa: E402

from shunter.drivers.base import Launch  # noqa: E402
from shunter.drivers.ssh.cargo import Cargo  # noqa: E402
from shunter.drivers.ssh.config import SshConfig  # noqa: E402
from shunter.drivers.ssh.link import Link  # noqa: E402
from shunter.sdk.run import Run  # noqa: E402
from shunter.sdk.workspace import Workspace  # noqa: E402
from shunter.testing.house import House, wait_until  # noqa: E402

FIRST = "import time; print(time.time(), flush=True)\n"
lines: list[str] = []


def say(text: str) -> None:
    lines.append(text)
    print(text, flush=True)


@contextmanager
def house() -> Iterator[tuple[Workspace, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="shunter-bench-"))
    (folder / "home").mkdir(mode=0o700)
    os.environ["SHUNTER_HOME"] = str(folder / "home")
    try:
        yield Workspace.from_config(), folder
    finally:
        House(folder / "home").end_all()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def machine(folder: Path, **options: Any) -> Iterator[Machine]:
    made = Machine(folder, **options)
    try:
        yield made.up()
    finally:
        made.down()


def source(folder: Path, code: str = FIRST) -> Path:
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "train.py").write_text(code)
    return folder / "src"


def first_line(ws: Workspace, src: Path, target: str) -> float:
    """Seconds from the call of submit to the script's first line."""
    began = time.time()
    run = ws.submit("train.py", source_directory=src, target=target).wait(timeout_seconds=60)
    return float(run.logs()) - began


def bench_first_line() -> None:
    with house() as (ws, folder), machine(folder / "m") as vm:
        src = source(folder)
        ws.compute.create("near", "ssh", **vm.options())
        with delayed(vm.address, 0.05) as port:
            known = folder / "m" / "known_hosts_far"
            known.write_text(
                f"[127.0.0.1]:{port} " + " ".join((vm.folder / "hostkey.pub").read_text().split()[:2]) + "\n"
            )
            far = vm.options(address="127.0.0.1", port=port, known_hosts_file=str(known), folder="/home/vm/far")
            ws.compute.create("far", "ssh", **far)
            found: dict[str, list[float]] = {"local": [], "near": [], "far": []}
            for n in range(22):
                for target, times in found.items():
                    taken = first_line(ws, src, target)
                    if n >= 2:
                        times.append(taken)
    local, near, far_ = (statistics.median(found[t]) for t in ("local", "near", "far"))
    say(f"local {local * 1e3:.0f} ms, SSH {near * 1e3:.0f} ms: {near / local:.2f} × (at most 2)")
    trips = (far_ - near) / 0.1
    say(f"SSH with a round trip of 100 ms {far_ * 1e3:.0f} ms: {trips:.1f} round trips more than without; half a trip "
        "is the least there can be (at most 2.5)")  # fmt: skip


def bench_rate(count: int = 200) -> None:
    with house() as (ws, folder), machine(folder / "m") as vm:
        src = source(folder)
        ws.compute.create("vm", "ssh", slots=2, **vm.options())
        ws.compute.create("vm-session", "ssh", slots=2, **vm.options(forwarding="never"))
        ws.compute.get("local").update(slots=2)
        rates: dict[str, float] = {}
        for target in ("local", "vm", "vm-session", "local", "vm", "vm-session"):
            ws.submit("train.py", source_directory=src, target=target).wait()
            began = time.monotonic()
            runs = [ws.submit("train.py", source_directory=src, target=target) for _ in range(count)]
            ws.wait(runs)
            assert {r.data["status"] for r in runs} == {"Completed"}
            rates[target] = max(rates.get(target, 0.0), count / (time.monotonic() - began))
    for target in ("vm", "vm-session"):
        words = "tunnel" if target == "vm" else "no forwarding"
        share = rates[target] / rates["local"]
        say(f"local {rates['local']:.1f} runs/s, SSH ({words}) {rates[target]:.1f}: {share:.0%} (at least 70 %)")


def bench_snapshot(size: int = 1 << 30, files: int = 100) -> None:
    with tempfile.TemporaryDirectory(prefix="shunter-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        data = folder / "data"
        data.mkdir()
        block = os.urandom(size // files)
        for n in range(files):
            (data / f"f{n}").write_bytes(n.to_bytes(4, "big") + block[4:])
        with machine(folder / "m") as vm:
            sent, copied = [], []
            for n in range(3):
                copied.append(_scp(vm, data, n))
                seconds, again = asyncio.run(_send(vm, data, size // files, n))
                sent.append(seconds)
        say(f"sent in {min(sent):.1f} s, scp {min(copied):.1f} s: {min(sent) / min(copied):.2f} × (at most 1.3)")
        say(f"sent again, unchanged: {again / 1000:.1f} kB")


def _scp(vm: Machine, data: Path, n: int) -> float:
    began = time.monotonic()
    subprocess.run(
        [
            "scp",
            "-q",
            "-r",
            "-i",
            vm.key,
            "-o",
            f"UserKnownHostsFile={vm.known_hosts()}",
            data,
            f"vm@{vm.address}:copy{n}",
        ],
        check=True,
    )
    taken = time.monotonic() - began
    shutil.rmtree(vm.home / f"copy{n}")
    return taken


async def _send(vm: Machine, data: Path, size: int, n: int) -> tuple[float, int]:
    options = {k: v for k, v in vm.options().items() if k != "private_key_file"}
    config = SshConfig(**options, private_key=vm.key.read_text())
    link = Link(config, "vm", f"~/node{n}", "http://127.0.0.1:9")
    session = await link.session()
    files = sorted(data.iterdir())
    layout = [(f.name, "file", 0o644, str(f), 0, size) for f in files]
    order = Launch("x", "", {}, "snapshot", layout, [f.name.ljust(64, "0") for f in files])
    began = time.monotonic()
    await Cargo().bring(session, order, [])
    taken = time.monotonic() - began
    before = session.sent_bytes
    await Cargo().bring(session, order, [])  # a server that remembers nothing
    again = session.sent_bytes - before
    await link.close()
    shutil.rmtree(vm.home / f"node{n}")
    return taken, again


def bench_watch(count: int = 200, machines: int = 3) -> None:
    with house() as (ws, folder):
        made = [Machine(folder / f"m{n}").up() for n in range(machines)]
        try:
            options = [one.options() for one in made]
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda n: ws.compute.create(f"vm{n}", "ssh", **options[n % machines]), range(count)))
            wait_until(
                lambda: all((c.data.get("status") or {"reachable": True})["reachable"] for c in ws.compute.list()),
                120,
                "all up",
            )
            server = House(folder / "home").server
            before, began = _cpu(server), time.monotonic()
            time.sleep(30)
            share = (_cpu(server) - before) / (time.monotonic() - began)
            say(f"server: {share:.1%} of a core, {_rss(server) >> 20} MB")
            made[0].power_off()
            began = time.monotonic()
            mine = {f"vm{n}" for n in range(0, count, machines)}
            wait_until(
                lambda: not any(c.data["status"]["reachable"] for c in ws.compute.list() if c.name in mine),
                60,
                "the loss",
            )
            off = time.monotonic() - began
            made[1].cut()
            began = time.monotonic()
            theirs = {f"vm{n}" for n in range(1, count, machines)}
            wait_until(
                lambda: not any(c.data["status"]["reachable"] for c in ws.compute.list() if c.name in theirs),
                60,
                "the cut",
            )
            cut = time.monotonic() - began
            say(f"a machine switched off is known after {off:.1f} s, a cut link after {cut:.1f} s (at most 15)")
        finally:
            for one in made:
                one.down()


OUTPUT = """
import os, sys
block = os.urandom(1 << 20)
with open("outputs/model.bin", "wb") as file:
    for n in range(int(sys.argv[1]) >> 20):
        file.write(n.to_bytes(8, "big") + block[8:])
    os.fsync(file.fileno())
print("written", flush=True)
"""


def bench_output(size: int = 3 << 30) -> None:
    """From the moment it is written until the run is over, against scp of the same file; and who held how much of it."""
    with house() as (ws, folder), machine(folder / "m") as vm:
        src = source(folder, OUTPUT)
        for name, forwarding in (("tunnel", "auto"), ("no forwarding", "never")):
            target = name.split()[0]
            ws.compute.create(target, "ssh", **vm.options(forwarding=forwarding))
            run = ws.submit("train.py", source_directory=src, arguments=[size], target=target)
            wait_until(lambda r=run: "written" in r.logs(), 300, "the file")
            began = time.monotonic()
            peaks = _peaks_until_over(run, [House(folder / "home").server, *vm.processes("shunter")])
            taken = time.monotonic() - began
            [file] = run.files()
            assert file["bytes"] == size
            copied = _scp_home(vm, folder / "home" / "runs" / run.id[:2] / run.id / "files" / "outputs" / "model.bin")
            say(f"{name}: {taken:.1f} s, scp {copied:.1f} s: {taken / copied:.2f} ×; "
                f"the server's memory is at most {peaks[0] >> 20} MB, on the machine {max(peaks[1:]) >> 20} MB")  # fmt: skip
            run.delete()
            ws.compute.get(target).detach()


def _peaks_until_over(run: Run, pids: list[int | None]) -> list[int]:
    """The most memory that each of these processes held; those that are forked from them meanwhile count as they do."""
    found = dict.fromkeys(pids, 0)
    while not run.refresh().is_over:
        for pid in pids:
            try:
                words = Path(f"/proc/{pid}/status").read_text().split()
                found[pid] = max(found[pid], int(words[words.index("VmHWM:") + 1]) << 10)
            except (OSError, ValueError):
                continue
        time.sleep(0.2)
    return list(found.values())


def _scp_home(vm: Machine, file: Path) -> float:
    """The same file once more, from the machine."""
    there, here = vm.home / "model.bin", file.with_name("copy")
    shutil.copyfile(file, there)
    os.sync()
    began = time.monotonic()
    known = f"UserKnownHostsFile={vm.known_hosts()}"
    subprocess.run(["scp", "-q", "-i", vm.key, "-o", known, f"vm@{vm.address}:model.bin", here], check=True)
    taken = time.monotonic() - began
    there.unlink()
    here.unlink()
    return taken


def _cpu(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def delayed(address: str, seconds: float) -> Iterator[int]:
    """A port that leads to `address`:22 with a delay on every byte, each way."""
    started = threading.Event()
    found: list[int] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def write() -> None:
            while True:
                at, data = await queue.get()
                await asyncio.sleep(max(0.0, at - loop.time()))
                if not data:
                    writer.close()
                    return
                writer.write(data)

        task = asyncio.ensure_future(write())
        try:
            while data := await reader.read(1 << 16):
                queue.put_nowait((loop.time() + seconds, data))
        except OSError:
            pass
        queue.put_nowait((loop.time() + seconds, b""))
        await task

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(address, 22)
        await asyncio.wait([loop.create_task(pipe(reader, there_writer)), loop.create_task(pipe(there_reader, writer))])

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        found.append(server.sockets[0].getsockname()[1])
        started.set()
        await stop.wait()

    loop.set_exception_handler(lambda *_: None)  # what is cut off at the end
    thread = threading.Thread(target=loop.run_until_complete, args=(main(),), daemon=True)
    thread.start()
    started.wait()
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


BENCHES: dict[str, Callable[[], None]] = {
    "first-line": bench_first_line, "rate": bench_rate, "snapshot": bench_snapshot, "output": bench_output,
    "watch": bench_watch,
}  # fmt: skip


TITLES = {
    "first-line": "Submit to the script's first line, warm target",
    "rate": "200 trivial runs",
    "snapshot": "A snapshot of 1 GiB in 100 files",
    "output": "An output of 3 GiB comes home",
    "watch": "200 connections to 3 sshd, nothing running",
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("bench", nargs="*", help=", ".join(BENCHES) + "; all when none is named")
    parser.add_argument("--lines", type=Path, help="what other runs of this printed; ours is added to it")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    for name in options.bench or BENCHES:
        say(f"## {TITLES[name]}")
        BENCHES[name]()
    if options.lines:
        with options.lines.open("a") as file:
            file.writelines(line + "\n" for line in lines)
        lines[:] = _latest(options.lines.read_text().splitlines())
    target = options.write
    if target is not None:
        head = "# SSH machines, measured\n\n    scripts/bench_ssh.py --write docs/ssh-bench.md\n\n"
        head += f"On {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}.\n\n"
        target.write_text(
            head + "\n".join(f"\n{line}\n" if line.startswith("##") else f"- {line}" for line in lines) + "\n"
        )
    return 0


def _latest(kept: list[str]) -> list[str]:
    """The last time that each bench was run, in their order."""
    found: dict[str, list[str]] = {title: [] for title in TITLES.values()}
    for line in kept:
        if line.startswith("## "):
            now = found[line.removeprefix("## ")] = [line]
        else:
            now.append(line)
    return [line for part in found.values() for line in part]


if __name__ == "__main__":
    sys.exit(main())
