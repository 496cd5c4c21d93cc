"""Data for a script: a file or folder here, a URL, or a path that is on the node already.

ws.submit("train.py", inputs={"images": "data/images", "labels": Input("labels.csv", mode="copy")}, sample="5%")
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shunter.errors import ConfigError, ExtraMissing, InputChanged, NotFound, SnapshotChanged, UsageError, nearest
from shunter.home import HomeFolder
from shunter.model.snapshot import Manifest
from shunter.node import sampling
from shunter.node.inputs import fingerprint

if TYPE_CHECKING:
    from shunter.sdk.run import Run
    from shunter.sdk.workspace import Workspace

Progress = Callable[[str, int, int], None]
_URL = re.compile(r"(https?|s3|az|abfss?|gs|gcs)://", re.IGNORECASE)
_ON_NODE = "node:"
MODES = ("mount", "copy")


@dataclass(frozen=True, slots=True)
class Input:
    """Where an input comes from. `mount`: the machine's own read-only copy; `copy`: one for this run alone.

    `source` is a path here, a URL, or `node:/path` for what is on the node already. `sample` is a percentage.
    """

    source: str
    mode: str = "mount"
    sample: float | None = None


def parse_inputs(texts: Sequence[str]) -> dict[str, Input]:
    """`NAME=PATH`, `NAME=URL`, `NAME=node:/path`, each with `,copy` behind it for a private copy.

    >>> parse_inputs(["data=./data,copy"])
    {'data': Input(source='./data', mode='copy', sample=None)}
    """
    found: dict[str, Input] = {}
    for text in texts:
        name, equals, source = text.partition("=")
        if not equals or not name or not source:
            raise UsageError(
                f"--input {text!r} cannot be read.", hint="As in --input data=./folder, or --input data=URL."
            )
        mode = "mount"
        for known in MODES:
            if source.endswith("," + known):
                source, mode = source[: -len(known) - 1], known
        found[name] = Input(source, mode)
    return found


def parse_percent(text: str | float | None) -> float | None:
    """`5%`, `5` and 5.0 are five per cent.

    >>> parse_percent("2.5%")
    2.5
    """
    if text is None:
        return None
    try:
        found = float(str(text).rstrip("% "))
    except ValueError as error:
        raise UsageError(f"{text!r} is not a percentage.", hint="As in --sample 5%.") from error
    if not 0 < found <= 100:
        raise UsageError(f"A sample of {found:g} % makes no sense.", hint="It is more than 0 and at most 100.")
    return None if found == 100 else found


def prepare(
    workspace: Workspace, inputs: Mapping[str, Any], sample: str | float | None = None, target: str = "local",
    progress: Progress | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """What a submission says about its inputs. Contents that the server does not hold are sent on the way."""
    percent = parse_percent(sample)
    found = []
    for name, value in inputs.items():
        given = value if isinstance(value, Input) else Input(os.fspath(value))
        if given.mode not in MODES:
            raise UsageError(f"The input {name}: {given.mode!r} is not a mode.", hint=nearest(given.mode, MODES))
        share = parse_percent(given.sample) or percent
        wire: dict[str, Any] = {"name": name, "mode": given.mode, "source": given.source, "sample": share}
        if _URL.match(given.source):
            wire |= _url(workspace, given.source)
        elif given.source.startswith(_ON_NODE):
            wire |= _on_node(given.source[len(_ON_NODE) :], workspace, target)
        else:
            wire |= _contents(workspace, name, given.source, share, progress)
        found.append(wire)
    return found


def promote(run: Run, progress: Progress | None = None) -> list[dict[str, Any]]:
    """The inputs of a run that was tried on a sample, whole. Refused when they are not what they were then."""
    found = []
    for given in run.data["config"].get("inputs") or []:
        if not given.get("sample"):
            found.append(given)
            continue
        whole = {**given, "sample": None}
        if given["kind"] == "snapshot":
            source = Path(given["source"])
            if not source.exists():
                raise NotFound(f"The input {given['name']} is not at {source} any more.",
                               hint="`--full` sends the whole input from where the sample was taken.")  # fmt: skip
            if fingerprint(str(source)) != given["fingerprint"]:
                raise InputChanged(f"The input {given['name']} ({source}) has changed since the sample was taken.",
                                   hint="Submit anew to take it as it is now.")  # fmt: skip
            whole |= _contents(run.workspace, given["name"], str(source), None, progress)
        found.append(whole)
    return found


def _url(workspace: Workspace, url: str) -> dict[str, Any]:
    seen = workspace.client.post("/api/v1/inputs/look", {"url": url})
    key = hashlib.sha256(f"{url}\0{seen['bytes']}\0{sorted(seen['seen'].items())}".encode()).hexdigest()[:40]
    return {"kind": "url", "url": url, "key": "url-" + key, **seen}


def _on_node(path: str, workspace: Workspace, target: str) -> dict[str, Any]:
    wire: dict[str, Any] = {"kind": "node", "path": path}
    if not path.startswith("/"):
        raise UsageError(f"node:{path} is not an absolute path.", hint="As in --input data=node:/mnt/data.")
    if target == "local" and workspace.client.is_loopback:
        if not os.path.exists(path):
            raise NotFound(f"There is no {path} on this machine.")
        wire["fingerprint"] = fingerprint(path)
    return wire


def _contents(
    workspace: Workspace, name: str, source: str, percent: float | None, progress: Progress | None
) -> dict[str, Any]:
    from shunter.sdk.submit import send

    path = Path(source).expanduser().absolute()
    if not path.exists():
        raise NotFound(f"The input {name}: there is no {source} here.", hint="For a path on the node: node:/path.")
    before = fingerprint(str(path))
    folder: Path | None = None
    try:
        single = None
        if path.is_file():
            single = path.name
            root = path.parent
            if percent is not None:
                folder = root = Path(tempfile.mkdtemp(dir=_cache()))
                _sample_file(path, root / path.name, percent)
            frozen = freeze_paths(root, [single], progress)
        else:
            paths = files_below(path)
            if percent is not None:
                paths = sampling.sample_files(paths, percent)
            frozen = freeze_paths(path, paths, progress)
        send(workspace, cast("Any", frozen), progress)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    if fingerprint(str(path)) != before:
        raise InputChanged(
            f"The input {name} ({source}) changed while it was read.", hint="Submit again when it stands still."
        )
    digest = frozen.manifest.snapshot_id
    return {
        "kind": "snapshot", "snapshot_id": digest, "key": "data-" + digest[:40], "single": single,
        "fingerprint": before, "bytes": frozen.manifest.total_bytes, "source": str(path),
    }  # fmt: skip


def files_below(folder: Path) -> list[str]:
    """Every regular file below a folder of data, by its path: nothing is left out, links to files are followed."""
    found = []
    for here, folders, names in os.walk(folder):
        folders.sort()
        found += [os.path.relpath(os.path.join(here, n), folder).replace(os.sep, "/") for n in sorted(names)
                  if os.path.isfile(os.path.join(here, n))]  # fmt: skip
    if not found:
        raise UsageError(f"{folder} has no files.")
    return found


@dataclass(frozen=True, slots=True)
class FrozenData:
    """Files of data by their contents, ready to be sent."""

    root: str
    manifest: Manifest

    def pack(self, digests: Iterable[str], *, compress: bool = True) -> Iterator[bytes]:
        """A pack of these contents, read now; a file that is no longer what was hashed ends it with SnapshotChanged."""
        from shunter.packs import Blob, write_pack

        paths = {entry.digest: entry.path for entry in self.manifest.entries}
        blobs = [Blob(digest, self.manifest.blobs[digest]) for digest in dict.fromkeys(digests)]
        return write_pack(blobs, lambda blob: self._verified(paths[blob.digest], blob.digest), compress=compress)

    def _verified(self, path: str, digest: str) -> Iterator[bytes]:
        from blake3 import blake3

        found, held = blake3(), b""
        with open(os.path.join(self.root, path), "rb") as file:
            while piece := file.read(1 << 20):
                found.update(piece)
                if held:
                    yield held
                held = piece
        if found.hexdigest() != digest:
            raise SnapshotChanged(f"{path} changed while it was sent.", hint="Submit again when it stands still.")
        if held:
            yield held


def freeze_paths(root: Path, paths: Sequence[str], progress: Progress | None = None) -> FrozenData:
    """These files below `root` by their contents. The stat cache makes an unchanged input nearly free."""
    from shunter.sdk.snapshots.cache import StatCache
    from shunter.sdk.snapshots.hashing import hash_files

    started = time.time_ns()
    real = os.path.realpath(root)
    cache = StatCache.of(real + "/.shunter-input", HomeFolder.find().cache)
    known, unknown = cache.split([(path, os.stat(os.path.join(real, path))) for path in paths])
    total, done = sum(seen.st_size for _, seen in unknown), 0

    def told(_: int, size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress("Reading", done, total)

    if unknown:
        # Links to files are followed: a folder of data is often made of them.
        behind = {path: os.path.relpath(os.path.realpath(f"{real}/{path}"), real) for path, _ in unknown}
        hashed = hash_files(real, list({behind[path]: (behind[path], seen) for path, seen in unknown}.values()), told)
        problems = [f"{item.path} {item.problem}" for item in hashed if item.problem]
        if problems:
            raise SnapshotChanged("These files of the input cannot be read: " + "; ".join(problems[:5]))
        by_path = {item.path: item for item in hashed if item.digest}
        known += [(p, by_path[b].stat, by_path[b].digest) for p, b in behind.items() if b in by_path]
        cache.save(known, hashed_from_ns=started)
    files = [(path, seen.st_mode & 0o100 != 0, seen.st_size, digest) for path, seen, digest in known]
    return FrozenData(real, Manifest.of_walk(files, {}))


def _sample_file(source: Path, target: Path, percent: float) -> None:
    try:
        if source.suffix.lower() == ".parquet":
            sampling.sample_parquet(str(source), str(target), percent)
        else:
            sampling.sample_table(str(source), str(target), percent)
    except ImportError as error:
        raise ExtraMissing(
            "Sampling a parquet file needs the package pyarrow.", hint="pip install 'shunter[parquet]' brings it."
        ) from error
    except sampling.CannotSample as error:
        raise UsageError(str(error), hint="Leave --sample out, or give the data as a folder of files.") from error


def _cache() -> Path:
    found = HomeFolder.find().cache
    try:
        found.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{found} cannot be made: {error}") from error
    return found
