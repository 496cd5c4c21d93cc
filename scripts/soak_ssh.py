"""All seeds of the faults on SSH machines: python scripts/soak_ssh.py [--story S] [--first N] [--seeds N] [--write FILE]

The link is cut at 50 seeded moments while 20 runs come and go; the server is killed while runs are on machines; a machine
loses its power again and again. After each seed: no run lost, none run twice, logs whole, states true. Needs root and
what scripts/parts/ssh installs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "drivers" / "ssh")]

from faults import batch_on, cut_while_runs_come_and_go, kill_the_server_while_runs_are_there  # noqa: E402
from machines import Machine  # noqa: E402

from shunter.sdk.workspace import Workspace  # noqa: E402
from shunter.testing.house import House, wait_until  # noqa: E402

GATED = "import os, sys, time\nprint('on', flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\nprint('done')\n"


def cables(folder: Path, house: House, machine: Machine, seed: int) -> str:
    batch = batch_on(house, folder / "batch", seed, "vm")
    cuts = cut_while_runs_come_and_go(machine, batch, cuts=50, count=20, longest_seconds=8.0)
    batch.wait(600)
    return f"{cuts} cuts, {dict(batch.check())}"


def servers(folder: Path, house: House, machine: Machine, seed: int) -> str:
    batch = batch_on(house, folder / "batch", seed, "vm")
    killed = kill_the_server_while_runs_are_there(house, batch, kills=20, count=20)
    batch.wait(600)
    return f"{killed} kills, {dict(batch.check())}"


def power(folder: Path, house: House, machine: Machine, seed: int) -> str:
    """Runs that never end by themselves lose their machine; each is told as lost, or tried again and then completes."""
    ws = Workspace.from_config()
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text(GATED)
    lost = again = 0
    for n in range(3):
        gate = folder / f"gate{n}"
        runs = [
            ws.submit("train.py", source_directory=folder / "src", arguments=[gate], target="vm", max_attempts=a)
            for a in (1, 2)
        ]
        wait_until(lambda runs=runs: all("on" in r.logs() for r in runs), 60, "both running")  # type: ignore[misc]
        machine.reboot()
        assert runs[0].wait(timeout_seconds=120).status == "Failed", runs[0].data
        assert "restarted" in str(runs[0].error), runs[0].data
        gate.touch()
        assert runs[1].wait(timeout_seconds=120).status == "Completed", runs[1].data
        lost, again = lost + 1, again + 1
    return f"3 power cuts, {lost} told as lost, {again} tried again and completed"


STORIES: dict[str, Callable[[Path, House, Machine, int], str]] = {"cables": cables, "servers": servers, "power": power}


def tell(story: str, seed: int) -> str:
    folder = Path(tempfile.mkdtemp(prefix="shunter-soak-", dir="/tmp"))
    folder.chmod(0o777)
    (folder / "home").mkdir(mode=0o700)
    os.environ["SHUNTER_HOME"] = str(folder / "home")
    machine = Machine(folder / "machine")
    try:
        machine.up()
        ways = "never" if seed % 2 else "auto"
        Workspace.from_config().compute.create("vm", "ssh", slots=4, **machine.options(forwarding=ways))
        return f"{STORIES[story](folder, House(folder / 'home'), machine, seed)} ({'no forwarding' if seed % 2 else 'tunnel'})"
    finally:
        House(folder / "home").end_all()
        machine.down()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--story", choices=sorted(STORIES), action="append")
    parser.add_argument("--lines", type=Path, help="what other runs of this printed; ours is added to it")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    lines, bad = [], 0
    for story in options.story or list(STORIES):
        for seed in range(options.first, options.first + options.seeds):
            began = time.monotonic()
            try:
                words = tell(story, seed)
            except Exception as error:
                bad += 1
                words = f"BROKEN: {type(error).__name__}: {error}"
            lines.append(f"- {story}, seed {seed}: {words}, {time.monotonic() - began:.0f} s")
            print(lines[-1], flush=True)
    if options.lines:
        with options.lines.open("a") as file:
            file.writelines(line + "\n" for line in lines)
        known = {line.partition(":")[0]: line for line in options.lines.read_text().splitlines()}
        lines = sorted(known.values(), key=_place)
        bad = sum("BROKEN" in line for line in lines)
    if options.write:
        head = "# SSH machines: what they survived\n\n    scripts/soak_ssh.py --write docs/ssh-soak.md\n\n"
        head += f"`scripts/soak_ssh.py`, {time.strftime('%Y-%m-%d')}: {bad} broken promises.\n\n"
        options.write.write_text(head + "\n".join(lines) + "\n")
    return 1 if bad else 0


def _place(line: str) -> tuple[int, int]:
    """Where a line stands: by story, then by seed."""
    story, seed = line.removeprefix("- ").partition(":")[0].split(", seed ")
    return list(STORIES).index(story), int(seed)


if __name__ == "__main__":
    sys.exit(main())
