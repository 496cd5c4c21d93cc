"""Inputs of runs: checked at submit, read for the nodes. Contents that were sent are snapshots; the rest are URLs."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shunter.errors import ConfigError, ExtraMissing, InputChanged, NameInvalid, NotFound, UsageError
from shunter.model.run import Run

if TYPE_CHECKING:
    from shunter.server.services.parts import Parts

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
#: Schemes that are read through fsspec, and the extra that brings each.
BY_FSSPEC = {"s3": "s3", "az": "azure", "abfs": "azure", "abfss": "azure", "gs": "gcs", "gcs": "gcs"}
MOST_BYTES = 32 << 20
LOOK_SECONDS = 30.0

Listing = list[tuple[str, int, int]]


def look_at_url(url: str) -> dict[str, Any]:
    """What a URL holds now, without reading it: its size and what tells a change."""
    scheme = urlsplit(url).scheme
    if scheme in ("http", "https"):
        return _look_by_http(url)
    system, path = _file_system(url)
    try:
        system.invalidate_cache()  # what it remembers may be what was there at submit
        about = system.info(path)
    except FileNotFoundError as error:
        raise NotFound(f"There is nothing at {url}.") from error
    except Exception as error:
        raise ConfigError(f"{url} cannot be looked at: {error}", hint="Has the server credentials for it?") from error
    if about.get("type") == "directory":
        files = sorted(system.find(path, detail=True).items())
        seen = {"files": len(files), "tag": _tag([(name, _version(info)) for name, info in files])}
        return {"bytes": sum(int(i.get("size") or 0) for _, i in files), "seen": seen, "single": None}
    return {
        "bytes": about.get("size"),
        "seen": {"tag": _tag([(path, _version(about))])},
        "single": path.rsplit("/", 1)[-1],
    }


def check_inputs(parts: Parts, config: Mapping[str, Any]) -> None:
    """Refuse a submission whose inputs make no sense, or whose contents were not sent."""
    asked = config.get("inputs") or []
    if not isinstance(asked, list) or not all(isinstance(one, dict) for one in asked):
        raise UsageError("`inputs` is a list of objects.")
    seen: set[str] = set()
    for one in asked:
        name = str(one.get("name"))
        if not NAME.fullmatch(name):
            raise NameInvalid(f"{name!r} cannot be the name of an input.", hint="Letters, digits and '_', at most 64.")
        if name.upper() in seen:
            raise UsageError(f"There are two inputs called {name!r}.")
        seen.add(name.upper())
        if one.get("kind") == "snapshot":
            parts.snapshots.require(str(one.get("snapshot_id")))
        elif one.get("kind") == "url":
            if urlsplit(str(one.get("url"))).scheme not in ("http", "https", *BY_FSSPEC):
                raise UsageError(f"The input {name}: {one.get('url')!r} is not a URL that can be read.")
        elif one.get("kind") != "node" or not str(one.get("path") or "").startswith("/"):
            raise UsageError(f"The input {name} has neither contents, nor a URL, nor an absolute path on the node.")
        if not re.fullmatch(r"[A-Za-z0-9_\-]{1,100}", str(one.get("key") or "node")):
            raise UsageError(f"The input {name} has a wrong key.")


def listing_of(parts: Parts, run: Run, name: str, again: bool = False) -> Listing:
    """The files of an input as (path, size, mode). `again`: look at a URL anew, whatever was seen a moment ago."""
    given = _given(run, name)
    if again:
        _looked.clear()
    if given["kind"] == "snapshot":
        return [(e.path, e.size, e.mode) for e in parts.snapshots.get(given["snapshot_id"]).entries if e.kind == "file"]
    return [(path, size, 0o644) for path, size, _ in _remote_files(given)]


def read_input(parts: Parts, run: Run, name: str, offset: int, size: int) -> bytes:
    """Bytes of an input's files, taken as one row of bytes in the order of the listing."""
    given = _given(run, name)
    size = max(0, min(size, MOST_BYTES))
    if given["kind"] != "snapshot":
        return _read_remote(given, offset, size)
    wanted = []
    begin = 0
    for entry in parts.snapshots.get(given["snapshot_id"]).entries:
        if entry.kind == "file":
            if entry.size and begin < offset + size and begin + entry.size > offset:
                wanted.append((entry, max(0, offset - begin), min(entry.size, offset + size - begin)))
            begin += entry.size
    places = parts.blobs.locate({entry.digest for entry, _, _ in wanted})
    found = []
    for entry, low, high in wanted:
        place = places.get(entry.digest)
        if place is None:
            raise NotFound(f"The contents of {entry.path} are not held any more.", hint="Submit again.")
        with place.path.open("rb") as file:
            file.seek(place.offset + low)
            found.append(file.read(high - low))
    return b"".join(found)


def _given(run: Run, name: str) -> dict[str, Any]:
    for given in run.config.get("inputs") or ():
        if given["name"] == name:
            return dict(given)
    raise NotFound(f"Run {run.id[:8]} has no input {name!r}.")


def _remote_files(given: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    """The files at a URL as (path, size, full path); refused when they are not what they were at submit."""
    url = str(given["url"])
    key = (url, str(given.get("seen")))
    known = _looked.get(key)
    if known is not None and time.monotonic() - known[0] < LOOK_SECONDS:
        return known[1]
    now = look_at_url(url)
    if given.get("seen") and now["seen"] != given["seen"]:
        raise InputChanged(f"The input {given['name']} has changed since the run was submitted ({url}).",
                           hint="Submit again to take it as it is now.")  # fmt: skip
    system, path = _file_system(url)
    if now["single"]:
        files = [(str(now["single"]), int(now["bytes"] or 0), path)]
    else:
        found = sorted(system.find(path, detail=True).items())
        files = [(full[len(path.rstrip("/")) + 1 :], int(info.get("size") or 0), full) for full, info in found]
    _looked.clear()
    _looked[key] = (time.monotonic(), files)
    return files


#: The files of the URL that is being read: it is read in many pieces, and looked at again after a while.
_looked: dict[tuple[str, str], tuple[float, list[tuple[str, int, str]]]] = {}


def _read_remote(given: Mapping[str, Any], offset: int, size: int) -> bytes:
    system, _ = _file_system(str(given["url"]))
    begin = 0
    for _, length, full in _remote_files(given):
        if begin + length > offset:
            return bytes(system.cat_file(full, start=offset - begin, end=min(length, offset - begin + size)))
        begin += length
    return b""


def _file_system(url: str) -> tuple[Any, str]:
    scheme = urlsplit(url).scheme
    if scheme not in BY_FSSPEC:
        raise UsageError(
            f"{url!r} is not a URL that can be read.", hint="http, https, " + ", ".join(sorted(BY_FSSPEC)) + "."
        )
    try:
        import fsspec  # type: ignore[import-untyped,import-not-found,unused-ignore]

        found: tuple[Any, str] = fsspec.core.url_to_fs(url)
        return found
    except ImportError as error:
        raise ExtraMissing(
            f"{scheme}:// needs a package that the server does not have ({error.name or error}).",
            hint=f"pip install 'shunter[{BY_FSSPEC[scheme]}]' there brings it.",
        ) from error


def _look_by_http(url: str) -> dict[str, Any]:
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": "shunter"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            seen = {k: answer.headers[k] for k in ("ETag", "Last-Modified") if answer.headers[k]}
            size = answer.headers["Content-Length"]
    except urllib.error.HTTPError as error:
        with error:
            raise NotFound(f"{url} answered {error.code}.") from error
    except OSError as error:
        raise ConfigError(f"{url} cannot be reached from the server: {error}") from error
    name = re.sub(r"[^A-Za-z0-9._\-]", "_", urlsplit(url).path.rsplit("/", 1)[-1]) or "data"
    return {"bytes": int(size) if size else None, "seen": seen, "single": name}


def _version(info: Mapping[str, Any]) -> str:
    for key in ("ETag", "etag", "md5Hash", "content_md5", "LastModified", "last_modified", "mtime", "updated"):
        if info.get(key):
            return f"{info.get('size')} {info[key]}"
    return str(info.get("size"))


def _tag(files: list[tuple[str, str]]) -> str:
    import hashlib

    return hashlib.sha256("\n".join(f"{name} {version}" for name, version in files).encode()).hexdigest()
