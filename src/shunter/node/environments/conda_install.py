"""Installs a conda lock, as a process of its own: python conda_install.py RATTLER_FOLDER TASK.json."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path


async def main(task_file):
    # type: (str) -> None
    from rattler import LockFile, install  # type: ignore[import-not-found,unused-ignore]

    with open(task_file) as file:
        task = json.load(file)
    handle, path = tempfile.mkstemp(suffix=".lock")
    try:
        with os.fdopen(handle, "w") as out:
            out.write(task["lock"])
        environment = LockFile.from_path(Path(path)).default_environment()
    finally:
        os.unlink(path)
    assert environment is not None
    found = list(environment.conda_repodata_records().values())
    records = found[0] if found else []
    print("installing %d conda packages" % len(records), flush=True)
    await install(records, target_prefix=task["prefix"], cache_dir=task["cache"], show_progress=False)
    folder = os.path.join(task["prefix"], "bin")
    names = sorted(n for n in os.listdir(folder) if re.match(r"python3(\.\d+)?$", n)) if os.path.isdir(folder) else []
    if names and not os.path.exists(os.path.join(folder, "python")):
        os.symlink(names[-1], os.path.join(folder, "python"))


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    code = 0
    try:
        asyncio.run(main(sys.argv[2]))
    except BaseException as error:  # a panic of the library is no Exception
        print("error: " + (str(error).strip() or type(error).__name__), file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # The library's threads outlive its work: while Python takes itself down they touch it, and the process dies of a
    # signal, about once in twenty times, with everything installed.
    os._exit(code)
