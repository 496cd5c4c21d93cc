"""Solves conda packages, as a process of its own: python conda_solve.py RATTLER_FOLDER, the task as a line on stdin.

Prints one line of JSON: {"lock": …} or {"error": …, "kind": …}. It ends when its stdin does: nobody waits any more.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any


async def solve(task: dict[str, Any]) -> str:
    import rattler

    sources = [rattler.Channel(c) for c in task["channels"]]
    virtual = [_virtual(rattler, name, version) for name, version in task["virtual"]]
    records = await asyncio.wait_for(
        rattler.solve(
            sources,
            [rattler.MatchSpec(s) for s in task["specs"]],
            platforms=[task["platform"], "noarch"],
            virtual_packages=virtual,
            timeout=timedelta(seconds=task["seconds"]),
        ),
        task["seconds"],
    )
    where = rattler.LockPlatform(task["platform"])
    lock = rattler.LockFile([where])
    lock.set_channels("default", [rattler.LockChannel(c.base_url) for c in sources])
    for record in sorted(records, key=lambda r: str(r.name.normalized)):
        lock.add_conda_package("default", where, record)
    with tempfile.TemporaryDirectory(prefix="shunter-solve-") as folder:
        path = Path(folder, "conda.lock")
        lock.to_path(path)
        return path.read_text("utf-8")


def _virtual(rattler: Any, name: str, version: str) -> Any:
    build = getattr(rattler, "BuildString", str)("0")  # older releases take a text
    return rattler.GenericVirtualPackage(rattler.PackageName(name), rattler.Version(version), build)


def _end_when_nobody_waits() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_when_nobody_waits, daemon=True).start()
    try:
        answer = {"lock": asyncio.run(solve(task))}
    except BaseException as error:  # a panic of the library is no Exception
        answer = {"error": str(error), "kind": type(error).__name__}
    print(json.dumps(answer), flush=True)
    # The library's threads outlive its work: while Python takes itself down they touch it, and the process may die of it.
    os._exit(0)
