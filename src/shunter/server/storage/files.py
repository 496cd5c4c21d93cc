"""What runs leave behind: streams and files, in one folder for each run.

    runs/ab/RUN/1.0/log         streams of attempt 1, node 0
    runs/ab/RUN/files/outputs/  files by their path, as the script wrote them
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from shunter.errors import NotFound, StorageFull, UsageError
from shunter.model.run import parse_launch_id


class RunFiles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, run_id: str) -> Path:
        return self.folder / run_id[:2] / run_id

    def stream_path(self, launch_id: str, stream: str) -> Path:
        """Where a stream of a launch lies. Files of the first node keep their path; those of others stand beside them."""
        run_id, attempt, node = parse_launch_id(launch_id)
        if stream.startswith("files/"):
            path = check_path(stream[6:])
            return self.of(run_id) / "files" / (path if node == 0 else f"nodes/{node}/{path}")
        if not stream.isidentifier():
            raise UsageError(f"{stream!r} is not the name of a stream.")
        return self.of(run_id) / f"{attempt}.{node}" / stream

    def append(self, launch_id: str, stream: str, offset: int, data: bytes) -> int:
        """Add what is not held yet and return how much is held. Repeats are trimmed; a gap is not filled."""
        path = self.stream_path(launch_id, stream)
        try:
            try:
                return append(path, offset, data)
            except FileNotFoundError:
                make_folder(path.parent)
                return append(path, offset, data)
        except OSError as error:
            raise full_disk(error) from error

    def cut(self, launch_id: str, stream: str, size: int) -> None:
        """A file that is shorter on the node than what we hold of it was written anew: begin again."""
        path = self.stream_path(launch_id, stream)
        if path.exists() and path.stat().st_size > size:
            os.truncate(path, 0)

    def take(self, source: Path, target: Path, path: str) -> None:
        """Move a file of a node that shares our disk to `target`. Doing it again is fine."""
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                return
            os.rename(source, target)
        except FileNotFoundError:
            if not target.exists():
                raise NotFound(f"{path} is not on the node any more.") from None
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise full_disk(error) from error
            shutil.copyfile(source, target, follow_symlinks=False)

    def list(self, run_id: str) -> Iterator[tuple[str, int, float]]:
        """(path, size, time of change) of all files of a run, sorted by path."""
        base = self.of(run_id) / "files"
        for folder, folders, names in os.walk(base):
            folders.sort()
            for name in sorted(names):
                full = os.path.join(folder, name)
                stat = os.lstat(full)
                yield os.path.relpath(full, base), stat.st_size, stat.st_mtime

    def file(self, run_id: str, path: str) -> Path:
        found = self.of(run_id) / "files" / check_path(path)
        if not found.is_file() or found.is_symlink():
            raise NotFound(f"Run {run_id[:8]} has no file {path!r}.", hint="`shunter run files` lists them.")
        return found

    def log_path(self, run_id: str, attempt: int, node: int = 0) -> Path:
        return self.of(run_id) / f"{max(attempt, 1)}.{node}" / "log"

    def size(self, run_id: str) -> int:
        return sum(os.lstat(os.path.join(f, n)).st_size for f, _, names in os.walk(self.of(run_id)) for n in names)

    def delete(self, run_id: str) -> None:
        shutil.rmtree(self.of(run_id), ignore_errors=True)


def append(path: Path, offset: int, data: bytes) -> int:
    """Add to a file what it does not hold yet; a gap is not filled. Returns its size."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        # What we fetch ourselves and what a launcher that was only slow still sends may be the same bytes at the same time.
        fcntl.flock(fd, fcntl.LOCK_EX)
        held = os.fstat(fd).st_size
        if offset > held:
            return held
        fresh = memoryview(data)[held - offset :]
        while fresh:
            written = os.write(fd, fresh)
            held += written
            fresh = fresh[written:]
        return held
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """As `makedirs`, for a folder whose grandparent is there as a rule: it asks less of the disk."""
    for missing in (folder.parent, folder):
        try:
            os.mkdir(missing)
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            return


def check_path(path: str) -> str:
    """A relative path that stays where it belongs."""
    parts = path.split("/")
    long = any(len(p.encode("utf-8", "surrogatepass")) > 255 for p in parts)
    if long or "\0" in path or "\\" in path or any(p in ("", ".", "..") for p in parts):
        raise UsageError(f"{path!r} cannot be the path of a file.", hint="It must be relative, without '..'.")
    return path


def full_disk(error: OSError) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Free some space on it; nodes keep what they have and send it then."
        return StorageFull("The server's disk is full.", hint=hint)
    return error
