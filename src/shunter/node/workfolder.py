"""The script's folder: the snapshot written out, with outputs/ and logs/ beside it."""

from __future__ import annotations

import json
import os
import shutil

from shunter.node import contract

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Tuple

_SMALL = 1 << 16


def write_out(layout_file, folder):
    # type: (str, str) -> int
    """Write the snapshot into `folder` and return its size. The files are copies: nothing shares an inode with the store."""
    layout = json.loads(contract.read_bytes(layout_file))
    made = {""}
    packs = {}  # type: Dict[str, int]
    total = 0
    os.mkdir(folder)
    try:
        for path, kind, mode, source, offset, size in layout:
            parent = os.path.dirname(path)
            if parent not in made:
                os.makedirs(os.path.join(folder, parent), exist_ok=True)
                made.add(parent)
            target = os.path.join(folder, path)
            if kind == "link":
                os.symlink(source, target)
                continue
            pack = packs.get(source)
            if pack is None:
                pack = packs[source] = os.open(source, os.O_RDONLY)
            _copy(pack, offset, size, target, mode)
            total += size
    finally:
        for pack in packs.values():
            os.close(pack)
    for name in ("outputs", "logs"):
        try:
            os.mkdir(os.path.join(folder, name))
        except FileExistsError:
            pass
    return total


def _copy(pack, offset, size, target, mode):
    # type: (int, int, int, str, int) -> None
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        if size <= _SMALL:
            data = os.pread(pack, size, offset)
            if len(data) != size or os.write(out, data) != size:
                raise OSError("short copy of " + target)
            return
        while size:
            sent = os.sendfile(out, pack, offset, size)
            if not sent:
                raise OSError("short copy of " + target)
            offset += sent
            size -= sent
    finally:
        os.close(out)


def kept_files(folder, top):
    # type: (str, str) -> Iterator[Tuple[str, int, int]]
    """Regular files below `folder/top` as (path relative to folder, size, mtime in ns), links left out."""
    todo = [top]
    while todo:
        here = todo.pop()
        try:
            entries = sorted(os.scandir(os.path.join(folder, here)), key=lambda e: e.name)
        except OSError:
            continue
        for entry in entries:
            path = here + "/" + entry.name
            try:
                if entry.is_symlink():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    todo.append(path)
                elif entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    yield path, stat.st_size, stat.st_mtime_ns
            except OSError:
                continue


def remove(folder):
    # type: (str) -> None
    shutil.rmtree(folder, ignore_errors=True)
