"""User-managed: an interpreter that is there. Nothing is installed."""

from __future__ import annotations

import json
import os
import shutil

from shunter.node.contract import write_whole
from shunter.node.environments import Prepared, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from shunter.node.environments import Job

_ASK = "import sys, json; print(json.dumps([sys.executable, sys.version.split()[0], sys.prefix]))"


def prepare_existing(work):
    # type: (Job) -> Prepared
    wanted = work.spec.get("interpreter") or "python"
    env = work.spec.get("env") or {}
    found = find(wanted, env.get("PATH") or os.environ.get("PATH"))
    if found is None:
        raise Unavailable(
            "interpreter_missing",
            wanted + " is not there, so the script could not be started.",
            "Name an interpreter that exists on this target, or let Shunter build the environment.",
        )
    facts = ask(found, work.cache)
    return Prepared([facts["executable"]], dict(activation(facts["executable"]), **env), {
        "kind": "existing", "interpreter": facts["executable"], "python": facts["version"],
    })  # fmt: skip


def find(wanted, path):
    # type: (str, Optional[str]) -> Optional[str]
    """The interpreter as an absolute path: a path as it is, a name looked up; a folder means the bin/python in it."""
    wanted = os.path.expanduser(wanted)
    if os.path.isdir(wanted):
        wanted = os.path.join(wanted, "bin", "python")
    if os.sep in wanted:
        return wanted if os.access(wanted, os.X_OK) else None
    names = [wanted] + ([wanted + "3"] if wanted == "python" else [])
    for name in names:
        found = shutil.which(name, path=path)
        if found:
            return found
    return None


def ask(interpreter, cache):
    # type: (str, str) -> Dict[str, Any]
    """Version and true path of an interpreter. Asked once, then remembered until the file changes."""
    stat = os.stat(interpreter)
    key = "%s %d %d %d" % (interpreter, stat.st_ino, stat.st_mtime_ns, stat.st_size)
    memory = os.path.join(cache, "interpreters.json")
    try:
        with open(memory, "rb") as file:
            known = json.loads(file.read())
    except (OSError, ValueError):
        known = {}
    if key in known:
        return known[key]  # type: ignore[no-any-return]
    import subprocess

    try:
        command = [interpreter, "-I", "-c", _ASK]
        out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        executable, version, prefix = json.loads(out.stdout.decode().strip().split("\n")[-1])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Unavailable(
            "interpreter_broken", interpreter + " is not a Python interpreter: " + str(error),
            "Name the interpreter itself, for example /usr/bin/python3.",
        ) from None  # fmt: skip
    # A shim (pyenv) finds the interpreter anew at each start, which takes longer than the start itself.
    facts = {"executable": executable if _is_script(interpreter) else interpreter, "version": version, "prefix": prefix}
    known[key] = facts
    try:
        os.makedirs(cache, exist_ok=True)
        write_whole(memory, json.dumps(known).encode())
    except OSError:
        pass
    return facts


def activation(interpreter):
    # type: (str) -> Dict[str, str]
    """What activating the interpreter's environment would set, for the programs that come with it."""
    folder = os.path.dirname(interpreter)
    prefix = os.path.dirname(folder)
    env = {}
    if os.path.exists(os.path.join(prefix, "pyvenv.cfg")):
        env["VIRTUAL_ENV"] = prefix
    elif os.path.isdir(os.path.join(prefix, "conda-meta")):
        env["CONDA_PREFIX"] = prefix
    else:
        return env
    env["PATH"] = folder + os.pathsep + os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return env


def _is_script(path):
    # type: (str) -> bool
    with open(path, "rb") as file:
        return file.read(2) == b"#!"
