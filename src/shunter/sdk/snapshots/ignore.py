"""What is left out of a snapshot: git's rules from `.amlignore` or `.gitignore`, and what nobody wants to send.

Written for speed, since every path of every submit passes here: literal names are looked up in a dict, `*.suffix` goes
to `str.endswith`, and only what is left becomes one regular expression per group of rules. (pathspec tries each rule
on each path, which costs several times the walk itself.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

#: Left out wherever they are: history, caches and environments that belong to this machine.
NEVER_SENT = frozenset(
    {
        ".git", ".hg", ".svn", ".venv", "__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache",
        ".ruff_cache", ".hypothesis", ".tox", ".nox", ".eggs", ".DS_Store",
    }
)  # fmt: skip
#: Left out in the root only: a run makes its own.
NEVER_SENT_IN_ROOT = frozenset({"outputs", "logs"})
#: A folder that holds one of these is an environment, whatever its name.
ENVIRONMENT_MARKS = frozenset({"pyvenv.cfg", "conda-meta"})


class Rule(NamedTuple):
    """One line of an ignore file."""

    text: str
    negated: bool
    folders_only: bool
    anchored: bool  # matches the path from the file's folder, not a name at any depth
    glob: str


class IgnoreFile:
    """The rules of one ignore file; paths are relative to its folder.

    >>> file = IgnoreFile(["*.ckpt", "!best.ckpt", "/data/"])
    >>> file.verdict("a.ckpt", "runs/a.ckpt", is_folder=False).text
    '*.ckpt'
    >>> file.verdict("best.ckpt", "best.ckpt", is_folder=False).negated
    True
    """

    def __init__(self, lines: Iterable[str]) -> None:
        rules = [rule for line in lines if (rule := parse_rule(line))]
        for_folders = [_Group(list(group)) for _, group in groupby(rules, lambda rule: rule.negated)]
        files = [rule for rule in rules if not rule.folders_only]
        for_files = [_Group(list(group)) for _, group in groupby(files, lambda rule: rule.negated)]
        # The last rule that matches decides, so the last group is asked first.
        self._groups = (for_files[::-1], for_folders[::-1])

    def verdict(self, name: str, path: str, *, is_folder: bool) -> Rule | None:
        """The rule that decides about this path (it may be a negated one: "keep it"), or None."""
        for group in self._groups[is_folder]:
            if rule := group.match(name, path):
                return rule
        return None


def parse_rule(line: str) -> Rule | None:
    """A line of an ignore file as git reads it; None for comments, blanks and what can never match."""
    text = line.rstrip("\r\n")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    glob = text
    negated = glob.startswith("!")
    glob = glob[negated:]
    folders_only = glob.endswith("/")
    glob = glob[: -1 if folders_only else None]
    anchored = "/" in glob
    glob = glob.removeprefix("/")
    return Rule(text, negated, folders_only, anchored, glob) if glob else None


class _Group:
    """Neighbouring rules of one sign: in any order, one match is enough."""

    def __init__(self, rules: list[Rule]) -> None:
        self._names: dict[str, Rule] = {}
        self._suffixes: dict[str, Rule] = {}
        names: list[tuple[Rule, str]] = []
        paths: list[tuple[Rule, str]] = []
        for rule in rules:
            if not rule.anchored and not _SPECIAL.search(rule.glob):
                self._names[rule.glob] = rule
            elif not rule.anchored and rule.glob[0] == "*" and not _SPECIAL.search(rule.glob[1:]):
                self._suffixes[rule.glob[1:]] = rule
            elif (pattern := translate(rule.glob)) is not None:
                (paths if rule.anchored else names).append((rule, pattern))
        self._endings = tuple(self._suffixes)
        self._name_rules, self._name_any = _compile(names)
        self._path_rules, self._path_any = _compile(paths)

    def match(self, name: str, path: str) -> Rule | None:
        if rule := self._names.get(name):
            return rule
        if self._endings and name.endswith(self._endings):
            return next(rule for suffix, rule in self._suffixes.items() if name.endswith(suffix))
        if self._name_any and self._name_any.fullmatch(name):
            return next(rule for rule, pattern in self._name_rules if pattern.fullmatch(name))
        if self._path_any and self._path_any.fullmatch(path):
            return next(rule for rule, pattern in self._path_rules if pattern.fullmatch(path))
        return None


def translate(glob: str) -> str | None:
    """Git's glob as a regular expression for the whole path; None when git would never match it."""
    out: list[str] = []
    at = 0
    while at < len(glob):
        letter = glob[at]
        if letter == "*":
            start = at
            while at < len(glob) and glob[at] == "*":
                at += 1
            # Two stars mean "any folders" only as a whole part of the path.
            if at - start < 2 or (start and glob[start - 1] != "/") or (at < len(glob) and glob[at] != "/"):
                out.append("[^/]*")
            elif at < len(glob):
                out.append("(?:.*/)?")
                at += 1
            else:
                out.append(".+")
        elif letter == "?":
            out.append("[^/]")
            at += 1
        elif letter == "[":
            found = _class(glob, at)
            if found is None:
                return None
            pattern, at = found
            out.append(pattern)
        elif letter == "\\":
            if at + 1 == len(glob):
                return None
            out.append(re.escape(glob[at + 1]))
            at += 2
        else:
            out.append(re.escape(letter))
            at += 1
    return "".join(out)


_SPECIAL = re.compile(r"[*?\[\\]")
_POSIX = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": r"\x21-\x7e", "lower": "a-z", "print": r"\x20-\x7e", "punct": r"!-/:-@\[-`{-~", "space": r"\s",
    "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip


def _class(glob: str, at: int) -> tuple[str, int] | None:
    """The class that opens at `at` as a regular expression, and where it ends."""
    at += 1
    negated = glob[at : at + 1] in ("!", "^")
    at += negated
    members: list[str] = []
    first = True
    while True:
        if at >= len(glob):
            return None
        letter = glob[at]
        if letter == "]" and not first:
            break
        first = False
        if glob.startswith("[:", at) and (end := glob.find(":]", at)) > 0:
            members.append(_POSIX.get(glob[at + 2 : end], ""))
            if not members[-1]:
                return None
            at = end + 2
            continue
        low, at = _member(glob, at)
        members.append(re.escape(low))
        if glob.startswith("-", at) and glob[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(glob, at + 1)
            if low <= high:  # git takes the first letter of a reversed range, and nothing else of it
                members.append(f"{re.escape(low)}-{re.escape(high)}")
    inside = "".join(members)
    return (f"(?!/)[^{inside}]" if negated else f"(?!/)[{inside}]"), at + 1


def _member(glob: str, at: int) -> tuple[str, int]:
    if glob[at] == "\\" and at + 1 < len(glob):
        return glob[at + 1], at + 2
    return glob[at], at + 1


def _compile(rules: list[tuple[Rule, str]]) -> tuple[list[tuple[Rule, re.Pattern[str]]], re.Pattern[str] | None]:
    each = [(rule, re.compile(pattern, re.DOTALL)) for rule, pattern in rules]
    together = "|".join(f"(?:{pattern})" for _, pattern in rules)
    return each, re.compile(together, re.DOTALL) if rules else None


def lines_of(data: bytes) -> Iterator[str]:
    """The lines of an ignore file, in the encoding in which `os.scandir` gives names."""
    return iter(data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n"))
