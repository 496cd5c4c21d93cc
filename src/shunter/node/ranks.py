"""Several processes of one run on one node: each with its own file under logs/, all of them together in the log.

Started by the launcher in the script's place, so that what ends the script ends all of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from shunter.node import silence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

GRACE_SECONDS = 5.0
PAUSE_SECONDS = 0.05
#: What a run that hangs ends with, as `timeout` does.
SILENT = 124


class Rank:
    """One process and what it has said so far. It writes straight into its file: nothing breaks when we are slow."""

    def __init__(self, number, argv, env, work, also=()):
        # type: (int, List[str], Dict[str, str], str, List[str] | tuple[str, ...]) -> None
        self.number = number
        self.path = os.path.join(work, "logs", "rank_%d.txt" % number)
        self.also = list(also)
        self.offset = 0
        self.rest = b""
        self.last = b""
        self.spoke = time.monotonic()
        self._written = 0.0
        with open(self.path, "ab") as out:
            self.process = subprocess.Popen(
                argv, env=dict(env), cwd=work, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - there is one thread
            )  # fmt: skip

    def repeat(self, final=False):
        # type: (bool) -> None
        """Pass on whole lines, marked with the rank they come from; the last one also without its end."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read(1 << 20)
        self.offset += len(data)
        written = silence.newest(self.also)
        if data or written > self._written:
            self.spoke = time.monotonic()
            self._written = written
        pieces = (self.rest + data).split(b"\n")
        self.rest = pieces.pop()
        if final and self.rest:
            pieces.append(self.rest)
            self.rest = b""
        mark = b"[rank %d] " % self.number
        for line in pieces:
            self.last = line if line.strip() else self.last
            write(mark + line + b"\n")

    def report(self):
        # type: () -> Dict[str, Any]
        """For whoever watches over all ranks."""
        state = silence.ENDED if self.process.returncode is not None else silence.state_of(self.process.pid)
        silent = time.monotonic() - self.spoke
        return {"rank": self.number, "silent": silent, "state": state, "last": self.last.decode("utf-8", "replace")[:200]}

    def how_it_ended(self):
        # type: () -> bytes
        code = self.process.returncode
        how = "ended with exit code %d" % code if code > 0 else "was ended by signal %d" % -code
        return ("Rank %d %s: " % (self.number, how)).encode() + self.last + b"\n"


class Watch:
    """Over the silence of ranks, when the run says how long it may last; else it does nothing."""

    def __init__(self, spec, listens, here=0):
        # type: (Optional[Dict[str, Any]], bool, int) -> None
        self.teller = silence.Teller(spec) if spec and not listens else None
        self.hearing = silence.Hearing(spec, here) if spec and listens else None

    def look(self, ranks, now=False):
        # type: (List[Rank], bool) -> str
        """Who is to blame for the silence, in words; only the first node knows."""
        if self.teller is not None:
            self.teller.tell([rank.report() for rank in ranks], now)
        if self.hearing is None:
            return ""
        self.hearing.put([rank.report() for rank in ranks])
        return self.hearing.verdict()


def main(spec_file):
    # type: (str) -> int
    with open(spec_file) as file:
        spec = json.load(file)  # type: Dict[str, Any]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # the ranks get it too; we stay to tell what they say
    os.makedirs(os.path.join(spec["work"], "logs"), exist_ok=True)
    also = spec.get("also") or ()
    ranks = [Rank(r["rank"], spec["argv"], dict(os.environ, **r["env"]), spec["work"], also) for r in spec["ranks"]]
    watch = Watch(spec.get("silence"), spec.get("node") == 0, len(ranks))
    bad, why = None, ""  # type: Optional[Rank], str
    kill_at = 0.0
    while True:
        alive = [r for r in ranks if r.process.poll() is None]
        for rank in ranks:
            rank.repeat()
        if bad is None and not why:
            bad = next((r for r in ranks if r.process.returncode not in (None, 0)), None)
            why = watch.look(ranks) if bad is None else ""
            if bad is not None or why:
                kill_at = time.monotonic() + GRACE_SECONDS
                for rank in alive:
                    rank.process.terminate()
        if not alive:
            break
        if kill_at and time.monotonic() > kill_at:
            for rank in alive:
                rank.process.kill()
        time.sleep(PAUSE_SECONDS)
    for rank in ranks:
        rank.repeat(final=True)
    # Last, so that it is what the run failed with.
    if why:
        write(why.encode() + b"\n")
        return SILENT
    watch.look(ranks, now=True)
    if bad is None:
        return 0
    write(bad.how_it_ended())
    code = bad.process.returncode
    return code if code > 0 else 128 - code


def write(data):
    # type: (bytes) -> None
    while data:
        data = data[os.write(1, data) :]


def die_with_parent() -> None:
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    except (OSError, ImportError, AttributeError):
        pass
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
