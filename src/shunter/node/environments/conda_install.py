"""Installs a conda lock, as a process of its own: python conda_install.py RATTLER_FOLDER TASK.json."""

from __future__ import annotations

import asyncio
import json
import os
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
    python = os.path.join(task["prefix"], "bin", "python")
    if not os.path.exists(python) and os.path.exists(python + "3"):
        os.symlink("python3", python)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    try:
        asyncio.run(main(sys.argv[2]))
    except Exception as error:
        print("error: " + str(error).strip(), file=sys.stderr)
        sys.exit(1)
