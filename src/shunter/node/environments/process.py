"""Commands that prepare an environment: their output goes into a log as they run; cancel and time end them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time

from shunter.node.environments import Canceled, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Callable, Dict, List, Optional

TAIL_BYTES = 65536


class Done:
    def __init__(self, code, output):
        # type: (int, str) -> None
        self.code = code
        self.output = output


def run(argv, env, log, canceled, timeout_seconds, cwd=None, on_start=None):
    # type: (List[str], Dict[str, str], Optional[str], Callable[[], bool], float, Optional[str], Optional[Callable[[int], None]]) -> Done
    """Run `argv`, its output appended to the file `log`. Returns its exit code and what it said.

    Ends it, with all its children, when the run is cancelled (Canceled) or the time is over (Unavailable).
    """
    with open(log, "ab") if log else _nameless() as sink:
        start = os.fstat(sink.fileno()).st_size
        child = subprocess.Popen(
            argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
        if on_start is not None:
            on_start(child.pid)
        until = time.monotonic() + timeout_seconds
        over = _Over(child.pid)
        try:
            while child.poll() is None:
                if canceled():
                    raise Canceled
                if time.monotonic() >= until:
                    raise Unavailable(
                        "environment_timeout",
                        "%s took longer than %d s." % (os.path.basename(argv[0]), timeout_seconds),
                        "Is the package index or registry slow? `shunter run logs` shows how far it came.",
                    )
                over.wait(0.1)
        except BaseException:
            _end(child)
            raise
        finally:
            over.close()
        return Done(child.returncode, _read(log, sink, start))


class _Over:
    """Waits for the end of a child without asking again and again, where the kernel can tell."""

    def __init__(self, pid):
        # type: (int) -> None
        self.pause = 0.001
        try:
            self.fd = os.pidfd_open(pid)  # Python 3.9, Linux 5.3
        except (AttributeError, OSError):
            self.fd = -1

    def wait(self, seconds):
        # type: (float) -> None
        if self.fd >= 0:
            select.select([self.fd], [], [], seconds)
        else:
            time.sleep(self.pause)
            self.pause = min(self.pause * 1.3, 0.05)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def _nameless():
    # type: () -> IO[bytes]
    import tempfile

    return tempfile.TemporaryFile()


def _end(child):
    # type: (subprocess.Popen[bytes]) -> None
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except OSError:
            pass
        try:
            child.wait(3)
        except subprocess.TimeoutExpired:
            continue
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass


def _read(log, sink, start):
    # type: (Optional[str], object, int) -> str
    if log:
        with open(log, "rb") as file:
            file.seek(max(start, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    sink.seek(0)  # type: ignore[attr-defined]
    return sink.read().decode("utf-8", "replace")  # type: ignore[attr-defined,no-any-return]
