"""Which Python version an environment gets. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shunter.errors import EnvironmentInvalid

#: Minor versions that can be had from uv when a node has none that fits, the most usual first.
USUAL = ("3.12", "3.11", "3.13", "3.10", "3.9", "3.14", "3.8")


def choose_python(asked: str, preferred: Sequence[str] = ()) -> str:
    """The version to lock for: `asked` when it is one, else the first of `preferred` that fits, else a usual one.

    >>> choose_python("3.9"), choose_python("", ["3.11.4"]), choose_python(">=3.10,<3.12", ["3.8"])
    ('3.9', '3.11', '3.11')
    """
    asked = asked.strip()
    if re.fullmatch(r"\d+(\.\d+){0,2}", asked):
        return asked if asked != "3" else choose_python(">=3", preferred)
    candidates = [minor(p) for p in preferred if p] + list(USUAL)
    if not asked or asked == "*":
        return candidates[0]
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        wanted = SpecifierSet(asked.replace("|", ","))
    except InvalidSpecifier as error:
        raise EnvironmentInvalid(
            f"{asked!r} is not a Python version.", hint="Write 3.11, 3.11.4 or a range such as >=3.10,<3.13."
        ) from error
    exact = [p for p in preferred if p and wanted.contains(p)]
    fitting = [minor(p) for p in exact] + [c for c in candidates if _some_patch_fits(c, asked)]
    if not fitting:
        raise EnvironmentInvalid(
            f"No Python fits {asked!r}.", hint="To be had are " + ", ".join(sorted(USUAL, key=_key)) + "."
        )
    return fitting[0]


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _some_patch_fits(candidate: str, asked: str) -> bool:
    from packaging.specifiers import SpecifierSet

    wanted = SpecifierSet(asked)
    return any(wanted.contains(f"{candidate}.{patch}") for patch in (99, 12, 8, 4, 0))


def _key(version: str) -> list[int]:
    return [int(n) for n in version.split(".")]
