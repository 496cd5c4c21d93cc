"""The user's script as a process: started in a session of its own, watched, ended, and its end put into words."""

from __future__ import annotations

import errno
import os
import signal
import time

from shunter.node.monitor.cpu import descendants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

_SIGNALS_TO_RESET = {signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1}


def start(argv, env, folder, log):
    # type: (List[str], Dict[str, str], str, str) -> int
    """Start `argv` in `folder`, standard output and error appended to the file `log`. Returns the process id."""
    here = os.open(".", os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.chdir(folder)
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out, 1),
                (os.POSIX_SPAWN_DUP2, out, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=_SIGNALS_TO_RESET,
        )
    finally:
        os.fchdir(here)
        os.close(here)
        os.close(out)


def end(pids, signum):
    # type: (List[int], int) -> None
    """Send a signal to the groups and to each process: some may have left their parent's group."""
    for pid in pids:
        for send in (os.killpg, os.kill):
            try:
                send(pid, signum)
            except OSError:
                pass


def sweep(keep_away, seconds=5.0):
    # type: (int, float) -> None
    """Kill what is left of the run below us (we are its reaper), the group of `keep_away` first; bounded."""
    try:
        os.killpg(keep_away, signal.SIGKILL)
    except OSError:
        pass
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        left = descendants(os.getpid())[1:]
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.005)


def could_not_start(error, argv, folder):
    # type: (OSError, List[str], str) -> Dict[str, Any]
    """Why a script was never started, in words."""
    if error.errno == errno.ENOENT:
        return {
            "code": "interpreter_missing",
            "message": argv[0] + " is not there, so the script could not be started.",
            "hint": "Name an interpreter that exists on this target, or let Shunter build the environment.",
        }
    if error.errno == errno.E2BIG:
        return {"code": "arguments_too_long", "message": "The arguments are longer than this machine allows.",
                "hint": "Pass long values in a file."}  # fmt: skip
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(folder)
    return {"code": "start_failed", "message": "The script could not be started: " + str(error), "hint": ""}


def disk_full(folder):
    # type: (str) -> Dict[str, Any]
    return {
        "code": "node_disk_full",
        "message": "The disk of the node is full (" + folder + ").",
        "hint": "Free some space there, then `shunter run rerun`.",
    }


def is_full(folder):
    # type: (str) -> bool
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize < 65536


def describe_end(status, asked, oom_before, log, facts):
    # type: (int, Optional[str], Optional[int], str, Dict[str, Any]) -> Dict[str, Any]
    """The outcome's words from the wait status. `asked`: why we sent a signal ourselves, None when we did not."""
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0 and asked != "max_duration":
        return {"kind": "completed", "exit_code": 0, "signal": None, "code": "", "message": "", "hint": ""}
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        exit_code = 128 + number
        found = {"kind": "failed", "exit_code": exit_code, "signal": number}
    else:
        number = None
        exit_code = os.WEXITSTATUS(status)
        found = {"kind": "failed", "exit_code": exit_code, "signal": None}
    if asked == "cancel":
        return dict(found, kind="canceled", code="", message="Canceled.", hint="")
    if asked == "max_duration":
        return dict(
            found,
            code="max_duration",
            message="It ran longer than the " + str(facts.get("max_duration_seconds")) + " s it was given, and was stopped.",
            hint="Submit it again with a larger --max-duration.",
        )
    if asked == "node":
        words = "Its node left the cluster, and the script was ended with it."
        return dict(found, kind="lost", code="node_lost", hint="", message=words)
    if asked == "lease":
        return dict(
            found, kind="lost", code="lease_lost", hint="",
            message="The node could not reach the server for longer than its lease, and stopped the script.",
        )  # fmt: skip
    if number is not None:
        name = signal.Signals(number).name
        if number == signal.SIGKILL and oom_before is not None and (oom_kills() or 0) > oom_before:
            return dict(
                found,
                code="out_of_memory",
                message="The kernel killed the script because memory ran out (working set up to "
                + str(facts.get("peak_mib", "?")) + " MiB).",
                hint="Take a target with more memory, or less data at a time.",
            )  # fmt: skip
        return dict(
            found, code="killed_by_signal", message="The script was ended by signal " + str(number) + " (" + name + ").",
            hint=_SIGNAL_HINTS.get(number, ""),
        )  # fmt: skip
    last = last_line(log)
    return dict(
        found,
        code="out_of_memory" if last.startswith("MemoryError") else "script_failed",
        message="The script ended with exit code " + str(exit_code) + (": " + last if last else "."),
        hint="`shunter run logs` shows all it said.",
    )


_SIGNAL_HINTS = {
    int(signal.SIGSEGV): "A crash in native code: faulthandler (`python -X faulthandler`) shows where.",
    int(signal.SIGKILL): "Somebody or something killed it from outside; Shunter did not.",
    int(signal.SIGTERM): "Somebody or something ended it from outside; Shunter did not.",
}


def oom_kills_before():
    # type: () -> Optional[int]
    """As `oom_kills`, at most a second old: a launcher that starts many short scripts asks once for all of them."""
    global _oom_seen
    now = time.monotonic()
    if now - _oom_seen[0] > 1.0:
        _oom_seen = now, oom_kills()
    return _oom_seen[1]


_oom_seen = (-10.0, None)  # type: Tuple[float, Optional[int]]


def oom_kills():
    # type: () -> Optional[int]
    """How often this kernel killed for want of memory; None where it does not tell."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return None


def last_line(log):
    # type: (str) -> str
    """The last line the script said, for the sentence that tells why it failed."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    for line in reversed(lines):
        if line.strip():
            return line.strip()[:300]
    return ""
