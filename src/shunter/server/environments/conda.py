"""Locks of conda packages: py-rattler solves from their channels, for the node's platform, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shunter.errors import EnvironmentInvalid, ExtraMissing
from shunter.server.environments.platforms import Platform

DEFAULT_CHANNELS = ("conda-forge",)
SOLVE_SECONDS = 600


def solve(specs: Sequence[str], channels: Sequence[str], platform: Platform) -> str:
    """A lock in rattler's own format: each package with its address and hashes."""
    found = importlib.util.find_spec("rattler")
    if found is None or not found.origin:
        raise ExtraMissing("Conda packages need py-rattler.", hint="pip install 'shunter[server]' brings it.")
    channels = list(channels) or list(DEFAULT_CHANNELS)
    own = [s.partition("::") for s in specs]
    task = {
        "specs": [_match_spec(name if sep else s) for s, (_, sep, name) in zip(specs, own, strict=True)],
        "channels": list(dict.fromkeys([*(c for c, sep, _ in own if sep), *channels])),
        "platform": platform.for_conda,
        "virtual": _virtual(platform),
        "seconds": SOLVE_SECONDS,
    }
    folder = str(Path(found.origin).parent.parent)
    answer = _ask(folder, task) or _ask(folder, task)  # a solver that died is asked once more
    if answer is None:
        raise EnvironmentInvalid(
            "The conda packages could not be solved: the solver died, twice.",
            hint="The server's log has its last words.",
        )
    if "lock" in answer:
        return str(answer["lock"])
    raise _our_error(str(answer["error"]), str(answer["kind"]), channels)


def _ask(rattler_folder: str, task: dict[str, Any]) -> dict[str, Any] | None:
    """The solver's answer; None when it died. Its stdin stays open meanwhile: with this process it ends, too."""
    command = [sys.executable, "-I", str(Path(__file__).with_name("conda_solve.py")), rattler_folder]
    # A session of its own: a Ctrl-C meant for the server is no answer of the solver.
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "bufsize": 0,
        "start_new_session": True,
    }
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        guard = threading.Timer(SOLVE_SECONDS + 30, process.kill)
        guard.start()
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            said = process.stdout.read()
        except BrokenPipeError:
            said = b""
        finally:
            guard.cancel()
            process.kill()
    try:
        answer: dict[str, Any] = json.loads(said.strip().rpartition(b"\n")[2])
    except ValueError:
        return None
    return answer


def packages_of(lock: str) -> dict[str, str]:
    """Name → version of the packages in a lock of ours."""
    found = {}
    for file in re.findall(r"(?m)^\s*-?\s*conda:\s*(\S+)\s*$", lock):
        stem = re.sub(r"\.(conda|tar\.bz2)$", "", file.rsplit("/", 1)[-1])
        name, version, _ = stem.rsplit("-", 2)
        found[name] = version
    return found


def _match_spec(spec: str) -> str:
    """`numpy=1.26` and `numpy>=1.2` in the form that the library reads: name, blank, version."""
    return re.sub(r"^([A-Za-z0-9._-]+?)\s*([=<>!~].*)$", r"\1 \2", spec.strip())


def _virtual(platform: Platform) -> list[tuple[str, str]]:
    """What the node has that conda packages may ask for."""
    if platform.system != "Linux":
        return [("__unix", "0")] if platform.system == "Darwin" else [("__win", "0")]
    glibc = re.search(r"2\.\d+", platform.libc)
    found = [
        ("__unix", "0"),
        ("__linux", "4.18"),
        ("__glibc", glibc.group(0) if glibc else "2.28"),
        ("__archspec", "1"),
    ]
    return [*found, ("__cuda", platform.cuda)] if platform.cuda else found


def _our_error(said: str, kind: str, channels: Sequence[str]) -> EnvironmentInvalid:
    text = " ".join(said.split()) or kind
    lowered = text.lower() + kind.lower()
    unsolvable = "cannot solve" in lowered or "solvererror" in lowered
    if not unsolvable and any(
        w in lowered
        for w in ("fetch", "gateway", "request", "connect", "dns", "timeout", "http", "not found", "no such file")
    ):
        return EnvironmentInvalid(
            f"The conda channel {', '.join(channels)} cannot be reached: {text[:400]}",
            hint="Say package_source: pypi (for the environment, its target or the workspace) to take the packages "
            "from PyPI instead, or name another channel.",
        )
    return EnvironmentInvalid(
        f"The conda packages cannot be had together: {text[:600]}",
        hint="Change the versions or the channels asked for.",
    )
