"""The bars of the first journey: launch, start, batch, log, snapshot. Each against a limit that is measured beside it."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
PYTHON = sys.executable
REPEATS = int(os.environ.get("SHUNTER_BENCH_REPEATS", "25"))


def median_ms(values: list[float]) -> float:
    return statistics.median(values) * 1000


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def row(what: str, ours: str, limit: str, ratio: float, bar: str) -> None:
    print(f"| {what} | {ours} | {limit} | {ratio:.2f} | {bar} |", flush=True)


def head(title: str) -> None:
    print(f"\n## {title}\n\n| what | ours | limit or peer | ratio | bar |\n|---|---|---|---|---|", flush=True)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        os.environ["SHUNTER_HOME"] = str(self.home)
        self.source = folder / "src"
        self.source.mkdir()
        (self.source / "train.py").write_text("import time\nprint(repr(time.time()), flush=True)\n")

    def launch(self) -> None:
        """Submit to first line, and to finished; SDK and CLI; interleaved with the bare command."""
        import shunter

        ws = shunter.Workspace.from_config()
        for _ in range(3):
            ws.submit("train.py", source_directory=self.source).wait()
        bare_first, bare_done, first, done, cli = [], [], [], [], []
        command = [PYTHON, "-m", "shunter.cli", "submit", "--source", str(self.source), "train.py"]
        for index in range(REPEATS):
            begin = time.time()
            out = subprocess.run([PYTHON, str(self.source / "train.py")], capture_output=True, check=True).stdout
            bare_done.append(time.time() - begin)
            bare_first.append(float(out) - begin)
            begin = time.time()
            run = ws.submit("train.py", source_directory=self.source)
            run.wait()
            done.append(time.time() - begin)
            first.append(float(run.logs()) - begin)
            if index % 3 == 0:
                cli.append(timed(lambda: subprocess.run(command, capture_output=True, check=True)))
        head("Submit to first line and to finished, warm server")
        for what, ours, limit, bar in (
            ("SDK, first line", first, bare_first, "≤ 2.5"),
            ("SDK, finished known to the caller", done, bare_done, "≤ 3"),
            ("CLI, a new process, finished", cli, bare_done, "≤ 20"),
        ):
            row(what, f"{median_ms(ours):.1f} ms", f"bare `python train.py` {median_ms(limit):.1f} ms",
                median_ms(ours) / median_ms(limit), bar)  # fmt: skip

    def start(self) -> None:
        """The embedded server from nothing to a first answer, against importing its libraries."""
        from shunter.home import HomeFolder
        from shunter.sdk.connect import start_embedded, stop

        imports = "import fastapi, uvicorn, sqlalchemy, uvloop, httptools, pydantic"
        ours, libraries = [], []
        for index in range(7):
            home = HomeFolder(self.folder / f"start{index}")
            os.environ["SHUNTER_HOME"] = str(home.path)
            libraries.append(timed(lambda: subprocess.run([PYTHON, "-c", imports], check=True)))
            ours.append(timed(lambda home=home: start_embedded(home)))  # type: ignore[misc]
            stop(home)
        os.environ["SHUNTER_HOME"] = str(self.home)
        head("Embedded server, from nothing to a first answer (new home each time)")
        row("start", f"{median_ms(ours):.0f} ms", f"`{imports[:24]}…` {median_ms(libraries):.0f} ms",
            median_ms(ours) / median_ms(libraries), "≤ 1.5")  # fmt: skip

    def batch(self, count: int = 500) -> None:
        """Trivial runs on all cores against xargs, which keeps no record of anything."""
        import shunter

        ws = shunter.Workspace.from_config()
        ws.submit("train.py", source_directory=self.source).wait()
        cores = len(os.sched_getaffinity(0))

        def xargs() -> None:
            subprocess.run(["xargs", f"-P{cores}", "-n1", PYTHON, str(self.source / "train.py")],
                           input="x\n" * count, text=True, stdout=subprocess.DEVNULL, check=True)  # fmt: skip

        def ours() -> None:
            runs = [ws.submit("train.py", source_directory=self.source) for _ in range(count)]
            assert {r.data["status"] for r in ws.wait(runs)} == {"Completed"}

        limits, mine = [], []
        for _ in range(2):
            limits.append(timed(xargs))
            mine.append(timed(ours))
        head(f"{count} trivial runs on {cores} cores, each with its own durable record, log and outcome")
        peer = f"`xargs -P{cores} python train.py` {min(limits):.2f} s"
        row("batch", f"{min(mine):.2f} s", peer, min(mine) / min(limits), "≤ 1.8")

    def log(self, megabytes: int = 200) -> None:
        """A script that writes as fast as it can, against redirecting it to a file. The script times itself."""
        import shunter

        line = "step 12345 loss 0.123456789 accuracy 0.987654321 and some more words to fill the line up\n"
        count = (megabytes << 20) // len(line)
        code = (
            "import sys, time\nbegin = time.perf_counter()\nline = " + repr(line) + "\n"
            f"for n in range({count}):\n    print(line, end='')\nsys.stdout.flush()\n"
            "open('outputs/seconds' if len(sys.argv) < 2 else sys.argv[1], 'w').write(repr(time.perf_counter() - begin))\n"
        )
        folder = self.folder / "loud"
        folder.mkdir()
        (folder / "train.py").write_text(code)
        ws = shunter.Workspace.from_config()
        ours, limit, whole = [], [], True
        memory = []
        for index in range(3):
            with (self.folder / "redirected").open("wb") as out:
                subprocess.run([PYTHON, str(folder / "train.py"), str(self.folder / "s")], stdout=out, check=True)
            limit.append(float((self.folder / "s").read_text()))
            run = ws.submit("train.py", source_directory=folder).wait()
            memory.append(self._server_memory())
            got = self.folder / f"got{index}"
            run.download(got)
            ours.append(float((got / "outputs/seconds").read_text()))
            size = 0
            for chunk in run.follow():
                whole = whole and chunk == (line.encode() * (len(chunk) // len(line) + 2))[size % len(line) :][: len(chunk)]
                size += len(chunk)
            whole = whole and size == count * len(line)
        head(f"A script that writes {megabytes} MB of log as fast as it can")
        peer = f"redirected to a file {min(limit):.2f} s"
        row("the script's own time", f"{min(ours):.2f} s", peer, min(ours) / min(limit), "≤ 1.15")
        print(f"\nThe log came home {'byte for byte' if whole else 'DAMAGED'}; the server held "
              f"{', '.join(f'{m:.0f}' for m in memory)} MB after each of the three.")  # fmt: skip

    def snapshot(self) -> None:
        subprocess.run([PYTHON, str(HERE / "bench_snapshot.py")], check=True)

    def close(self) -> None:
        from shunter.testing.house import House

        House(self.home).end_all()

    def _server_memory(self) -> float:
        from shunter.testing.house import House

        pid = House(self.home).server
        for text in Path(f"/proc/{pid}/status").read_text().splitlines():
            if text.startswith("VmRSS"):
                return int(text.split()[1]) / 1024
        return 0.0


def main() -> None:
    wanted = sys.argv[1:] or ["launch", "start", "batch", "log", "snapshot"]
    print("# What Shunter takes, beside peers and limits\n\n    scripts/bench | tee docs/bench.md\n")
    print(f"Made by `scripts/bench`: {len(os.sched_getaffinity(0))} cores, "
          f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f} at the start. "
          "Medians, interleaved with the limit: read the ratios.")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            for name in wanted:
                getattr(bench, name)()
        finally:
            bench.close()


if __name__ == "__main__":
    main()
