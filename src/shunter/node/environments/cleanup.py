"""What a node's environments take, and freeing those that nobody uses: python cleanup.py OLDER_THAN_SECONDS [--free].

Run as a script by `shunter env gc`, on any kind of target: it stands alone, and finds the node's root by itself.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

#: A folder without a finished environment is left alone for so long: somebody may be building it.
UNFINISHED_SECONDS = 86400.0


def survey(root):
    # type: (str) -> List[Dict[str, Any]]
    """The finished environments and unfinished folders of a node: size, last use, whether a live run needs them."""
    cache = os.path.join(root, "environments")
    needed = _needed(root)
    try:
        names = sorted(os.listdir(cache))
    except OSError:
        return []
    found = []
    known = set()
    for name in names:
        if not name.endswith(".json") or len(name) != 37:
            continue
        entry = _read(os.path.join(cache, name)) or {}
        key = name[:-5]
        folder = str(entry.get("folder") or "")
        known.add(os.path.basename(folder))
        used_at = _time(os.path.join(cache, key + ".lock")) or float(entry.get("made_at") or 0)
        in_use = bool({key, str(entry.get("lock_id"))} & needed) or _locked(os.path.join(cache, key + ".lock"))
        found.append({"key": key, "folder": folder, "python": entry.get("python", ""), "used_at": used_at,
                      "bytes": _size(folder), "in_use": in_use, "finished": True})  # fmt: skip
    for name in names:
        folder = os.path.join(cache, name)
        key, _, rest = name.partition(".")
        if len(key) == 32 and len(rest) == 8 and name not in known and os.path.isdir(folder):
            young = time.time() - _time(folder) < UNFINISHED_SECONDS
            in_use = young or _locked(os.path.join(cache, key + ".lock"))
            found.append({"key": key, "folder": folder, "python": "", "used_at": _time(folder),
                          "bytes": _size(folder), "in_use": in_use, "finished": False})  # fmt: skip
    return found


def free(root, older_than_seconds, really):
    # type: (str, float, bool) -> Dict[str, Any]
    """Free what was not used for so long, and never what a live run uses. `really` False: only say what would go."""
    now = time.time()
    entries = survey(root)
    going = [e for e in entries if not e["in_use"] and now - e["used_at"] >= older_than_seconds]
    gone = [e for e in going if not really or _remove(root, e)]
    return {"environments": entries, "freed": [e["key"] for e in gone], "freed_bytes": sum(e["bytes"] for e in gone),
            "really": really}  # fmt: skip


def _remove(root, entry):
    # type: (str, Dict[str, Any]) -> bool
    import fcntl

    base = os.path.join(root, "environments", entry["key"])
    lock = os.open(base + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False  # a run took it just now
        if {entry["key"]} & _needed(root):
            return False
        if entry["finished"]:
            os.unlink(base + ".json")  # first: from here on nobody finds it
        shutil.rmtree(entry["folder"], ignore_errors=True)
        for name in (base + ".log", entry["folder"] + ".builder"):
            if os.path.exists(name):
                os.unlink(name)
    finally:
        os.close(lock)
    return True


def _needed(root):
    # type: (str) -> set[str]
    """Locks that unfinished launches name: their launcher may just be coming up, or have died and be adopted."""
    found = set()  # type: set[str]
    base = os.path.join(root, "launches")
    try:
        names = os.listdir(base)
    except OSError:
        return found
    for name in names:
        if not os.path.exists(os.path.join(base, name, "done")):
            job = _read(os.path.join(base, name, "job.json")) or {}
            lock = (job.get("environment") or {}).get("lock_id")
            if lock:
                found.add(str(lock))
    return found


def _locked(path):
    # type: (str) -> bool
    import fcntl

    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _size(folder):
    # type: (str) -> int
    """Bytes that would be free without it: files that only this environment has, and its links."""
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            try:
                stat = os.lstat(os.path.join(here, name))
            except OSError:
                continue
            total += stat.st_blocks * 512 if stat.st_nlink == 1 else 0
    return total


def _time(path):
    # type: (str) -> float
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _read(path):
    # type: (str) -> Optional[Dict[str, Any]]
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())  # type: ignore[no-any-return]
    except (OSError, ValueError):
        return None


def main(arguments):
    # type: (List[str]) -> int
    root = os.path.dirname(os.path.dirname(os.environ["SHUNTER_SPOOL"]))
    answer = free(root, float(arguments[0]), "--free" in arguments)
    with open(os.path.join("outputs", "environments.json"), "w") as file:
        json.dump(answer, file)
    print("%d environments, %d to free" % (len(answer["environments"]), len(answer["freed"])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
