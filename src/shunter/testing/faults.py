"""Batches of real runs with real kills at seeded moments, and the check that nothing was lost, repeated or made up.

A few seeds run in the suite, all of them in `scripts/soak`. Each script writes into a ledger outside its run folder when it
starts and when it ends, so what really happened is known apart from what the server says.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shunter.errors import ShunterError
from shunter.node import contract
from shunter.node.silence import STOPPED, state_of
from shunter.sdk.connect import connect
from shunter.sdk.run import Run
from shunter.sdk.workspace import Workspace
from shunter.testing.house import House, end, send, wait_until

#: Three epochs in its first attempt, which then waits for its end; the next goes on after the checkpoint.
CHECKPOINTED = """
import os, time
path = os.path.join(os.environ["SHUNTER_CHECKPOINT_DIR"], "state")
epoch = int(open(path).read()) if os.path.exists(path) else 0
print("from", epoch, flush=True)
while epoch < 6:
    epoch += 1
    if epoch == 3:
        with open(path + ".new", "w") as file:
            file.write(str(epoch))
        os.rename(path + ".new", path)
    while epoch == 3 and os.environ["SHUNTER_ATTEMPT"] == "1":
        time.sleep(0.1)
print("done", epoch)
"""
SCRIPT = """
import os, sys, time
ledger, seconds, code = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
def note(word):
    fd = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, (word + " " + os.environ["SHUNTER_LAUNCH_ID"] + " " + repr(time.time()) + "\\n").encode())
    os.close(fd)
note("start")
for n in range(5):
    print("line", n, flush=True)
    time.sleep(seconds / 5)
open("outputs/result", "w").write(os.environ["SHUNTER_RUN_ID"])
print("last line")
sys.stdout.flush()
note("end")
sys.exit(code)
"""
WHOLE = "".join(f"line {n}\n" for n in range(5)) + "last line\n"


class PromiseBroken(AssertionError):
    """What the server says is not what happened."""


@dataclass
class Batch:
    """Runs of one seed, submitted while things are being killed."""

    house: House
    folder: Path
    seed: int
    target: str = "local"
    runs: list[Run] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "src").mkdir(exist_ok=True)
        (self.folder / "src" / "train.py").write_text(SCRIPT)
        self.ledger = self.folder / "ledger"
        self.workspace = Workspace("default", connect())

    def submit(self, count: int, longest_seconds: float = 0.6) -> None:
        """Submit, as a client does that is told to keep trying: the id is minted once, so trying again submits once."""
        for _ in range(count):
            code = self.random.choice([0, 0, 0, 3])
            run_id = f"{self.random.getrandbits(128):032x}"
            arguments = [self.ledger, self.random.uniform(0.0, longest_seconds), code]
            self.codes[run_id] = code
            run = self._keep_trying(lambda a=arguments, i=run_id: self.workspace.submit(
                "train.py", source_directory=self.folder / "src", arguments=a, experiment="batch", run_id=i,
                target=self.target))  # type: ignore[misc]  # fmt: skip
            self.runs.append(run)

    def have_a_script(self) -> None:
        """Return while a script runs. On a busy machine all may be over before we look: then there is another."""
        while True:
            wait_until(lambda: self.house.scripts() or self._is_over(), 60, "a running script")
            if self.house.scripts():
                return
            self.submit(1, longest_seconds=3.0)

    def _is_over(self) -> bool:
        return all(run.refresh().data["status"] in ("Completed", "Failed") for run in self.runs)

    def wait(self, seconds: float = 300.0) -> None:
        until = time.monotonic() + seconds
        for run in self.runs:
            run.workspace = self.workspace
            left = until - time.monotonic()
            if left <= 0:
                raise PromiseBroken(f"seed {self.seed}: {run.id} is still {run.data['status']}: {run.data['reason']}")
            try:
                run.wait(timeout_seconds=left)
            except TimeoutError as error:
                raise PromiseBroken(f"seed {self.seed}: {error} {run.refresh().data['reason']}") from error

    def check(self, lost: frozenset[str] = frozenset()) -> Counter[str]:
        """Every run ended with its true outcome, ran once, and its log is whole. `lost`: runs whose script was killed."""
        started: Counter[str] = Counter()
        ended: Counter[str] = Counter()
        # A script that is killed at once has written nothing.
        for line in self.ledger.read_text().splitlines() if self.ledger.exists() else ():
            word, launch, _ = line.split()
            (started if word == "start" else ended)[launch.split(".")[0]] += 1
        for run in self.runs:
            run.workspace = self.workspace
            run.refresh()
            words = f"seed {self.seed}: {run.id[:8]} {run.data['status']} ({run.data['reason']})"
            self._promise(started[run.id] <= 1, f"{words}: it was started {started[run.id]} times")
            if run.id in lost:
                self._promise(run.data["status"] == "Failed", f"{words}: it was killed")
                continue
            self._promise(ended[run.id] == 1, f"{words}: it ended {ended[run.id]} times")
            wanted = "Completed" if self.codes[run.id] == 0 else "Failed"
            self._promise(run.data["status"] == wanted, f"{words}: it ended with {self.codes[run.id]}")
            self._promise(run.exit_code == self.codes[run.id], f"{words}: exit code {run.exit_code}")
            self._promise(run.logs() == WHOLE, f"{words}: its log is not whole: {run.logs()!r}")
            self._promise([f["path"] for f in run.files()] == ["outputs/result"], f"{words}: files {run.files()}")
        return Counter(str(run.data["status"]) for run in self.runs)

    def _promise(self, kept: bool, words: str) -> None:
        if not kept:
            raise PromiseBroken(words)

    def _keep_trying(self, action: Callable[[], Run]) -> Run:
        until = time.monotonic() + 60
        while True:
            try:
                return action()
            except ShunterError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
                try:
                    self.workspace.client = connect()
                except ShunterError:
                    pass


def kill_the_server_again_and_again(house: House, batch: Batch, kills: int, count: int) -> int:
    """Submit `count` runs while the server is killed at `kills` random moments; someone always starts it again."""
    done = threading.Event()
    killed = 0

    def submit() -> None:
        try:
            batch.submit(count)
        finally:
            done.set()

    thread = threading.Thread(target=submit)
    thread.start()
    rounds = 0
    while killed < kills and rounds < kills * 20:
        rounds += 1
        time.sleep(batch.random.uniform(0.0, 0.5))
        if house.kill_server():
            killed += 1
        try:
            connect()
        except ShunterError:
            pass
        if done.is_set() and rounds >= kills and not house.scripts():
            break
    thread.join()
    batch.workspace.client = connect()
    return killed


def kill_some(house: House, batch: Batch, what: str) -> frozenset[str]:
    """Kill the warm parent, a launcher, a script, or all of them as a reboot would. Returns the runs that were killed."""
    while True:
        batch.have_a_script()
        time.sleep(batch.random.uniform(0.0, 0.2))
        if what == "all":
            lost = _kill_all(house)
            batch.workspace.client = connect()
        else:
            lost = _kill(house, what)
        if lost or what in ("parent", "launcher"):  # these take no run along
            return frozenset(lost)


def _kill(house: House, what: str) -> set[str]:
    lost = set()
    if what == "parent" and house.parent:
        send(house.parent, signal.SIGKILL)
    if what == "launcher":
        for pid in house.launchers():
            send(pid, signal.SIGKILL)
    if what == "script":
        for pid in house.scripts():
            run_id = _run_of(pid)
            if run_id and _is_caught(pid):
                send(pid, signal.SIGKILL)
                lost.add(run_id)
    return lost


def _kill_all(house: House) -> set[str]:
    """Everybody at once, the server too: all are stopped first, so that nobody starts, sees or tells anything in between."""
    stopped: set[int] = set()
    while fresh := set(house.left_over()) - stopped:
        stopped |= {pid for pid in fresh if _is_caught(pid)}
    lost = set()
    for folder in (house.home / "node" / contract.LAUNCHES).iterdir():
        claim = contract.Claim.read(str(folder))
        if claim is not None and claim.starting and not any((folder / word).exists() for word in ("outcome", "exit")):
            lost.add(folder.name.split(".")[0])
    end([*stopped], signal.SIGKILL)
    wait_until(lambda: house.server is None, what="the server's end")
    return lost


def _is_caught(pid: int) -> bool:
    """Stopped, so that it cannot end by itself before it is killed."""
    send(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == STOPPED or not contract.start_time(pid), 60, "its stop or its end")
    return bool(contract.start_time(pid))


def _run_of(pid: int) -> str | None:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((os.fsdecode(w[15:]) for w in words if w.startswith(b"SHUNTER_RUN_ID=")), None)
