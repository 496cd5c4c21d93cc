"""Which paths make a snapshot large, and which ignore rule would leave them out. Pure functions of paths and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_DOMINANT = 0.8  # a folder whose one child holds so much of it is not the thing to name: the child is


class Sized(NamedTuple):
    """A file, or a folder (its path ends with a slash) with all that is in it."""

    path: str
    bytes: int
    files: int


class Suggestion(NamedTuple):
    """A line for the ignore file, and what it would leave out."""

    rule: str
    bytes: int
    files: int


def largest(files: Iterable[tuple[str, int]], count: int = 5) -> list[Sized]:
    """The largest paths, largest first, none inside another; a folder is named where it is large as a whole.

    >>> largest([("data/raw/a.bin", 900), ("data/raw/b.bin", 800), ("train.py", 3)], 2)
    [Sized(path='data/raw/', bytes=1700, files=2), Sized(path='train.py', bytes=3, files=1)]
    """
    totals: dict[str, list[int]] = {}
    children: dict[str, set[str]] = {}
    for path, size in files:
        node = path
        end = len(path)
        while True:
            total = totals.setdefault(node, [0, 0])
            total[0] += size
            total[1] += 1
            end = path.rfind("/", 0, end)
            parent = path[: end + 1] if end >= 0 else ""
            children.setdefault(parent, set()).add(node)
            if end < 0:
                break
            node = parent
    named = [_narrow(node, totals, children) for node in children.get("", ())]
    found = [Sized(node, *totals[node]) for node in named]
    return sorted(found, key=lambda item: (-item.bytes, item.path))[:count]


def suggest_rules(files: Iterable[tuple[str, int]], count: int = 5) -> list[Suggestion]:
    """Rules that would leave the largest paths out, the most effective first.

    >>> suggest_rules([("a.ckpt", 900), ("old/b.ckpt", 800), ("train.py", 3)], 1)
    [Suggestion(rule='*.ckpt', bytes=1700, files=2)]
    """
    known = list(files)
    total = sum(size for _, size in known)
    options = [Suggestion(_escape("/" + item.path), item.bytes, item.files) for item in largest(known, count)]
    endings: dict[str, list[int]] = {}
    for path, size in known:
        name = path[path.rfind("/") + 1 :]
        dot = name.rfind(".")
        if dot > 0 and name[dot:] not in _SOURCES:
            ending = endings.setdefault(name[dot:], [0, 0])
            ending[0] += size
            ending[1] += 1
    options += [Suggestion("*" + _escape(end), *sums) for end, sums in endings.items() if sums[1] > 1]
    worth = [option for option in options if option.bytes * 20 >= total and option.bytes]
    # Of two rules with the same effect the one that names a place is the safer one.
    return sorted(worth, key=lambda option: (-option.bytes, option.rule.startswith("*"), option.rule))[:count]


def in_words(size: int) -> str:
    """A number of bytes as people read it.

    >>> in_words(1_536), in_words(3_400_000_000)
    ('1.5 kB', '3.4 GB')
    """
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{size} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


_SOURCES = frozenset({".py", ".pyx", ".c", ".cc", ".cpp", ".h", ".sh", ".toml", ".yml", ".yaml", ".cfg", ".md", ".txt"})


def _narrow(node: str, totals: dict[str, list[int]], children: dict[str, set[str]]) -> str:
    while inside := children.get(node):
        top = max(inside, key=lambda child: (totals[child][0], child))
        if totals[top][0] < _DOMINANT * totals[node][0] or not totals[top][0]:
            return node
        node = top
    return node


def _escape(path: str) -> str:
    escaped = re.sub(r"([*?\[\\])", r"\\\1", path)
    return re.sub(r" $", r"\\ ", escaped)
