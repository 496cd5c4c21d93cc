"""Amounts as people write and read them: sizes, durations, moments, pairs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from shunter.errors import UsageError

_SIZES = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4,
          "ki": 1024, "mi": 1024**2, "gi": 1024**3, "ti": 1024**4}  # fmt: skip
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_bytes(text: str | None) -> int | None:
    """
    >>> parse_bytes("4GB"), parse_bytes("512Mi"), parse_bytes("1.5g"), parse_bytes("1000")
    (4000000000, 536870912, 1500000000, 1000)
    """
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if not found or found[2] not in _SIZES:
        raise UsageError(f"{text!r} is not an amount of memory.", hint="Write it like 512MB, 4GB or 16GiB.")
    return int(float(found[1]) * _SIZES[found[2]])


def parse_seconds(text: str | None) -> float | None:
    """
    >>> parse_seconds("90"), parse_seconds("15min"), parse_seconds("1h30m"), parse_seconds("2d")
    (90.0, 900.0, 5400.0, 172800.0)
    """
    if text is None:
        return None
    words = re.fullmatch(r"\s*(?:\d+(?:\.\d+)?\s*(?:min|[smhd])?\s*)+", text.lower())
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(min|[smhd]|)", text.lower()) if words else []
    if not parts or (len(parts) > 1 and not all(unit for _, unit in parts)):
        raise UsageError(f"{text!r} is not a duration.", hint="Write it like 90s, 15min, 2h or 1h30m.")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def parse_pairs(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """
    >>> parse_pairs(["lr=0.1", "note=a=b"], "--tag")
    {'lr': '0.1', 'note': 'a=b'}
    """
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {text!r} is not of the form NAME=VALUE.")
        found[name] = value
    return found


def duration(seconds: float | None) -> str:
    """
    >>> duration(0.34), duration(75), duration(7500), duration(200000)
    ('0.3 s', '1 min 15 s', '2 h 5 min', '2 d 7 h')
    """
    if seconds is None:
        return ""
    seconds = max(seconds, 0.0)
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    whole = round(seconds)
    for big, unit, small, lesser in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= big:
            rest = whole % big // small
            return f"{whole // big} {unit}" + (f" {rest} {lesser}" if rest else "")
    return f"{whole} s"


def moment(text: str | None) -> float | None:
    """An ISO time of the wire as seconds since 1970."""
    if not text:
        return None
    from datetime import datetime

    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def between(start: str | None, end: str | None) -> float | None:
    begun, ended = moment(start), moment(end)
    return None if begun is None or ended is None else ended - begun


def ago(text: str | None, now: float | None = None) -> str:
    """
    >>> ago("1970-01-01T00:00:00.000Z", now=7500), ago("1970-01-01T00:00:00.000Z", now=60)
    ('2 h ago', '1 min ago')
    """
    at = moment(text)
    if at is None:
        return ""
    gone = (time.time() if now is None else now) - at
    if gone < 1:
        return "now"
    return (f"{gone:.0f} s" if gone < 59.5 else " ".join(duration(gone).split(" ")[:2])) + " ago"


def local_time(text: str | None) -> str:
    at = moment(text)
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def count(number: int, noun: str) -> str:
    """
    >>> count(1, "file"), count(1200, "file")
    ('1 file', '1200 files')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
