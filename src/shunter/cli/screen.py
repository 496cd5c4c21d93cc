"""What commands print: one JSON value when asked, else words and tables that fit the terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TextIO

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_STATUS_COLORS = {
    "Completed": "green",
    "Failed": "red",
    "Canceled": "yellow",
    "Running": "cyan",
    "NotResponding": "red",
}
_GAP = 2
_json = False


class Column(NamedTuple):
    """A column of a table. Where there is not enough room, those with the highest `rank` go first; `least` is how
    narrow a column may become before one is dropped (0: it is never cut). What does not fit is cut, or wrapped."""

    title: str
    rank: int = 0
    least: int = 0
    right: bool = False
    wrap: bool = False


def use_json(wanted: bool) -> bool:
    """Remember whether this command prints JSON, so that its errors do too."""
    global _json
    _json = wanted
    return wanted


def json_asked() -> bool:
    return _json


def print_json(value: Any) -> None:
    indent = 2 if sys.stdout.isatty() else None
    print(json.dumps(value, indent=indent, ensure_ascii=False))


def is_terminal(file: TextIO | None = None) -> bool:
    return (file or sys.stdout).isatty()


def is_interactive() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def paint(text: str, color: str, file: TextIO | None = None) -> str:
    """Colored for a terminal, plain for everything else and for NO_COLOR."""
    if not is_terminal(file) or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\033[{_CODES[color]}m{text}\033[0m"


def status_text(status: str) -> str:
    color = _STATUS_COLORS.get(status)
    return paint(status, color) if color else status


def clean(text: Any) -> str:
    """Text from outside as one harmless line: control characters, which could move the cursor, are shown as escapes.

    >>> clean("a\\nb\\x1b[2J")
    'a\\\\nb\\\\x1b[2J'
    """
    words = str(text)
    return words if words.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in words)


def clean_lines(text: str) -> str:
    return "\n".join(clean(line) for line in text.split("\n"))


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Any]], empty: str = "Nothing here yet.") -> None:
    """Rows under their titles: cut to the width of a terminal, whole where the output goes elsewhere."""
    if not rows:
        print(empty)
        return
    from rich.cells import cell_len

    cells = [["" if value is None else clean(value) for value in row] for row in rows]
    width = terminal_width() if is_terminal() else None
    wanted = [max(cell_len(c.title), *(cell_len(row[i]) for row in cells)) for i, c in enumerate(columns)]
    kept = fit(columns, wanted, width)
    titles = [c.title.upper() for c in columns]
    for row in [titles, *cells]:
        lines = {index: _lines(row[index], size, columns[index].wrap) for index, size in kept}
        for number in range(max(map(len, lines.values()))):
            parts = []
            for index, size in kept:
                text = lines[index][number] if number < len(lines[index]) else ""
                blank = " " * max(size - cell_len(text), 0)
                padded = blank + text if columns[index].right else text + blank
                parts.append(_decorate(padded, text, columns[index].title))
            line = (" " * _GAP).join(parts).rstrip()
            print(paint(line, "bold") if row is titles else line)


def fit(columns: Sequence[Column], wanted: Sequence[int], width: int | None) -> list[tuple[int, int]]:
    """Which columns are shown, and how wide: (index, size).

    >>> fit([Column("id"), Column("name", 1, 4), Column("when", 2)], [8, 20, 10], 80)
    [(0, 8), (1, 20), (2, 10)]
    >>> fit([Column("id"), Column("name", 1, 4), Column("when", 2)], [8, 20, 10], 30)
    [(0, 8), (1, 8), (2, 10)]
    >>> fit([Column("id"), Column("name", 1, 4), Column("when", 2)], [8, 20, 10], 20)
    [(0, 8), (1, 10)]
    """
    shown = list(range(len(columns)))
    if width is None:
        return [(i, wanted[i]) for i in shown]
    least = [min(c.least or wanted[i], wanted[i]) for i, c in enumerate(columns)]
    while len(shown) > 1 and sum(least[i] for i in shown) + _GAP * (len(shown) - 1) > width:
        shown.remove(max(shown, key=lambda i: (columns[i].rank, i)))
    sizes = {i: wanted[i] for i in shown}
    over = sum(sizes.values()) + _GAP * (len(shown) - 1) - width
    while over > 0:
        # The widest gives first; nobody goes below what it may.
        able = [i for i in shown if sizes[i] > least[i]]
        if not able:
            break
        sizes[max(able, key=lambda i: sizes[i])] -= 1
        over -= 1
    return [(i, sizes[i]) for i in shown]


def print_facts(facts: Mapping[str, Any]) -> None:
    """Names and values, one to a line; long values are wrapped under themselves. Empty ones are left out."""
    import textwrap

    shown = {name: value for name, value in facts.items() if value not in (None, "", [], {})}
    indent = max(map(len, shown), default=0) + _GAP
    width = terminal_width() if is_terminal() else None
    for name, value in shown.items():
        lines = [clean(line) for line in str(value).split("\n")]
        if width is not None and width - indent > 10:
            wrapped = [textwrap.wrap(line, width - indent, break_on_hyphens=False) for line in lines]
            lines = [part for parts in wrapped for part in parts or [""]]
        if name == "Status":
            lines[0] = lines[0].replace(lines[0].split(" ")[0], status_text(lines[0].split(" ")[0]), 1)
        label = paint(name, "bold") + " " * (indent - len(name))
        print(label + ("\n" + " " * indent).join(lines))


def print_list(title: str, items: Sequence[str]) -> None:
    """A title and its points, wrapped to the terminal."""
    import textwrap

    if not items:
        return
    print(paint(title, "bold"))
    width = terminal_width() if is_terminal() else 10_000
    for item in items:
        print(
            textwrap.fill(clean(item), width, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False)
        )


def terminal_width() -> int:
    import shutil

    return max(shutil.get_terminal_size().columns, 20)


def _lines(text: str, size: int, wrap: bool) -> list[str]:
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= size:
        return [text]
    if not wrap:
        return [set_cell_size(text, size - 1) + "…"]
    import textwrap

    return textwrap.wrap(text, size, break_on_hyphens=False)


def _decorate(padded: str, text: str, title: str) -> str:
    if title == "status" and text in _STATUS_COLORS:
        return padded.replace(text, status_text(text), 1)
    return padded


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape", "backslashreplace").decode("ascii")
