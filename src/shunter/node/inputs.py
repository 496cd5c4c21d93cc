"""Data for the script, brought to the node before it starts: once for each machine, by content, never half.

ROOT/inputs/KEY/        the files, read-only; KEY names the content
ROOT/inputs/KEY.whole   written when all of them are there
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time

from shunter.node import sampling
from shunter.node.home import Home, Refused
from shunter.node.provide import NotProvided
from shunter.node.spool import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    Patience = Callable[[int], float]
    Canceled = Callable[[], bool]

PIECE_BYTES = 8 << 20
URL_SECONDS = 60.0


def bring(folder, job, patience, canceled):
    # type: (str, Dict[str, Any], Patience, Canceled) -> Dict[str, str]
    """Bring all inputs of the job and return the variables that tell the script where they are."""
    found = {}  # type: Dict[str, str]
    for given in job["inputs"]:
        name = str(given["name"])
        say(folder, "input", name=name, reason="Bringing the input %s." % name)
        try:
            path = _bring_one(folder, job, given, patience, canceled)
        except OSError as error:
            full = error.errno in (28, 122)
            raise NotProvided(
                "node_disk_full" if full else "input_failed",
                "The input %s could not be brought to the node: %s" % (name, error),
                "Free some space there, then `shunter run rerun`." if full else "",
            ) from error
        if canceled():
            return {}
        found[name] = path
    variables = {"SHUNTER_INPUT_" + name.upper(): path for name, path in found.items()}
    variables["SHUNTER_INPUTS"] = json.dumps(found)
    return variables


def _bring_one(folder, job, given, patience, canceled):
    # type: (str, Dict[str, Any], Dict[str, Any], Patience, Canceled) -> str
    if given["kind"] == "node":
        path = _on_node(given)
    else:
        path = _cached(folder, job, given, patience, canceled)
        if given.get("single"):
            path = os.path.join(path, given["single"])
    sample = given.get("sample") if given["kind"] != "snapshot" else None  # a snapshot was sampled before it was sent
    private = os.path.join(folder, "inputs", str(given["name"]))
    if sample:
        interpreters = [str(job["interpreter"])] if job.get("interpreter") else []
        return _sampled(path, private, float(sample), str(given["name"]), [*interpreters, sys.executable])
    if given.get("mode") == "copy":
        return _copied(path, private)
    return path


def _on_node(given):
    # type: (Dict[str, Any]) -> str
    path = str(given["path"])
    if not os.path.exists(path):
        raise NotProvided("input_missing", "The input %s is not on this node: there is no %s." % (given["name"], path),
                          "Is it mounted there? Or send it: --input %s=PATH." % given["name"])  # fmt: skip
    if given.get("fingerprint") and fingerprint(path) != given["fingerprint"]:
        raise _changed(given, path)
    return path


def _changed(given, what):
    # type: (Dict[str, Any], str) -> NotProvided
    message = "The input %s has changed since the run was submitted (%s)." % (given["name"], what)
    return NotProvided("input_changed", message, "Submit again to take it as it is now.")


def fingerprint(path):
    # type: (str) -> str
    """What tells one state of a file or folder from another without reading it: sizes and times of all files."""
    import hashlib

    found = hashlib.sha256()
    if os.path.isdir(path):
        for here, folders, names in os.walk(path):
            folders.sort()
            for name in sorted(names):
                full = os.path.join(here, name)
                stat = os.lstat(full)
                line = "%s\0%d\0%d\n" % (os.path.relpath(full, path), stat.st_size, stat.st_mtime_ns)
                found.update(line.encode("utf-8", "surrogateescape"))
    else:
        stat = os.stat(path)
        found.update(("%d\0%d" % (stat.st_size, stat.st_mtime_ns)).encode())
    return found.hexdigest()


def _cached(folder, job, given, patience, canceled):
    # type: (str, Dict[str, Any], Dict[str, Any], Patience, Canceled) -> str
    """The machine's own copy, made by the first who needs it; the others wait for it."""
    import fcntl

    base = os.path.join(os.path.dirname(os.path.dirname(folder)), "inputs")
    os.makedirs(base, exist_ok=True)
    target = os.path.join(base, str(given["key"]))
    whole = target + ".whole"
    with open(target + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(whole):
            os.utime(whole)
            return target
        _writable(target)
        if given["kind"] == "url" and str(given["url"]).startswith(("http://", "https://")):
            _download(given, target, patience, canceled)
        else:
            _fetch(job, given, target, patience, canceled)
        if not canceled():
            _read_only(target)
            with open(whole, "w"):
                pass
    return target


def _fetch(job, given, target, patience, canceled):
    # type: (Dict[str, Any], Dict[str, Any], str, Patience, Canceled) -> None
    """From the server: a list of files, then all their bytes in a row, in pieces; goes on where a cut left it."""
    home = Home(job["id"], job["home"])
    where = "/input/" + str(given["name"])
    try:
        listing = json.loads(_get(home, where, given, patience, canceled) or b"[]")
        begin = 0
        for path, size, mode in listing:
            if path.startswith("/") or ".." in path.split("/"):
                raise NotProvided("input_failed", "The input %s has the path %r." % (given["name"], path))
            full = os.path.join(target, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            done = os.path.getsize(full) if os.path.exists(full) else 0
            if done > size:
                os.unlink(full)
                done = 0
            with open(full, "ab") as file:
                while done < size and not canceled():
                    ask = "%s/data?offset=%d&size=%d" % (where, begin + done, min(PIECE_BYTES, size - done))
                    data = _get(home, ask, given, patience, canceled)
                    if not data and not canceled():
                        raise NotProvided("input_failed", "The input %s is cut off at %s." % (given["name"], path))
                    file.write(data)
                    done += len(data)
            os.chmod(full, mode)
            begin += size
        if given["kind"] == "url":
            # Read in many pieces: it must be the same at the end as it was at the beginning.
            _get(home, where + "?again=true", given, patience, canceled)
    finally:
        home.close()


def _get(home, suffix, given, patience, canceled):
    # type: (Home, str, Dict[str, Any], Patience, Canceled) -> bytes
    tries = 0
    while not canceled():
        try:
            return home.request("GET", suffix)
        except Refused as error:
            if error.status < 500:
                said = json.loads(error.body or b"{}").get("error", {})
                code = "input_changed" if said.get("code") == "input_changed" else "input_failed"
                raise NotProvided(code, str(said.get("message") or error), str(said.get("hint") or "")) from error
        except OSError:
            pass
        tries += 1
        time.sleep(patience(tries))
    return b""


def _download(given, target, patience, canceled):
    # type: (Dict[str, Any], str, Patience, Canceled) -> None
    """By http(s), straight from its source; what is there is not fetched again."""
    import urllib.error
    import urllib.request

    os.makedirs(target, exist_ok=True)
    full = os.path.join(target, str(given["single"]))
    tries = 0
    while not canceled():
        done = os.path.getsize(full) if os.path.exists(full) else 0
        request = urllib.request.Request(given["url"], headers={"User-Agent": "shunter"})
        if done:
            request.add_header("Range", "bytes=%d-" % done)
        try:
            with urllib.request.urlopen(request, timeout=URL_SECONDS) as answer:
                seen = {k: answer.headers.get(k) for k in ("ETag", "Last-Modified")}
                for key, before in (given.get("seen") or {}).items():
                    if key in seen and before and seen[key] and seen[key] != before:
                        raise _changed(given, "its %s was %s, and is %s" % (key, before, seen[key]))
                total = answer.headers.get("Content-Length")
                if answer.status != 206:
                    done = 0
                expected = None if total is None else int(total) + done
                if expected is not None and given.get("bytes") not in (None, expected):
                    raise _changed(given, "it had %s bytes, and has %d" % (given["bytes"], expected))
                with open(full, "ab" if answer.status == 206 else "wb") as file:
                    shutil.copyfileobj(answer, file, 1 << 20)
            if expected is None or os.path.getsize(full) == expected:
                return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and done and done == given.get("bytes"):
                return
            if error.code < 500 and error.code != 416:
                raise NotProvided(
                    "input_missing", "The input %s: %s answered %d." % (given["name"], given["url"], error.code)
                ) from error
            if error.code == 416:
                os.unlink(full)
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            if tries > 8:
                raise NotProvided("input_failed", "The input %s: %s cannot be reached from the node: %s"
                                  % (given["name"], given["url"], error)) from error  # fmt: skip
        tries += 1
        time.sleep(patience(tries))


def _sampled(path, private, percent, name, interpreters):
    # type: (str, str, float, str, List[str]) -> str
    try:
        if os.path.isdir(path):
            paths = []  # type: List[str]
            for here, _, names in os.walk(path):
                paths += [os.path.relpath(os.path.join(here, n), path) for n in names]
            for inner in sampling.sample_files(paths, percent):
                full = os.path.join(private, inner)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                shutil.copyfile(os.path.join(path, inner), full)
            return private
        os.makedirs(private, exist_ok=True)
        target = os.path.join(private, os.path.basename(path))
        if path.lower().endswith(".parquet"):
            sampling.sample_parquet_apart(interpreters, path, target, percent)
        else:
            sampling.sample_table(path, target, percent)
        return target
    except sampling.CannotSample as error:
        raise NotProvided("input_not_sampled", "The input %s: %s" % (name, error), "Leave --sample out.") from error


def _copied(path, private):
    # type: (str, str) -> str
    if os.path.isdir(path):
        shutil.copytree(path, private)
        _writable(private)
        return private
    os.makedirs(private, exist_ok=True)
    target = os.path.join(private, os.path.basename(path))
    shutil.copyfile(path, target)
    return target


def _read_only(top):
    # type: (str) -> None
    for here, _, names in os.walk(top, topdown=False):
        for name in names:
            full = os.path.join(here, name)
            os.chmod(full, os.stat(full).st_mode & 0o555)
        os.chmod(here, 0o555)


def _writable(top):
    # type: (str) -> None
    for here, _, names in os.walk(top):
        os.chmod(here, 0o755)
        for name in names:
            full = os.path.join(here, name)
            if not os.path.islink(full):
                os.chmod(full, os.stat(full).st_mode | 0o600)
