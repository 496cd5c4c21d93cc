"""The walk over a source folder: which paths go into the snapshot, which are left out and by which rule."""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass, field

from shunter.errors import SnapshotError
from shunter.model.snapshot import link_problem, path_problem
from shunter.sdk.snapshots.ignore import (
    ENVIRONMENT_MARKS,
    NEVER_SENT,
    NEVER_SENT_IN_ROOT,
    IgnoreFile,
    lines_of,
)

NAMED_IGNORED = 1000  # so many left-out paths are remembered by name; all are counted


@dataclass
class Ignored:
    """What was left out. A folder counts once, for nobody looked into it; its path ends with a slash."""

    count: int = 0
    paths: list[tuple[str, str]] = field(default_factory=list)  # (path, rule), at most NAMED_IGNORED
    by_rule: Counter[str] = field(default_factory=Counter)

    def add(self, path: str, rule: str) -> None:
        self.count += 1
        self.by_rule[rule] += 1
        if len(self.paths) < NAMED_IGNORED:
            self.paths.append((path, rule))


@dataclass
class Walked:
    """What a walk found, in the order of the file system."""

    files: list[tuple[str, os.stat_result]] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    ignored: Ignored = field(default_factory=Ignored)
    problems: list[tuple[str, str]] = field(default_factory=list)  # (path, why it is refused)


def walk(root: str) -> Walked:
    """All that belongs into a snapshot of `root`, with stats taken now. Nothing is raised for single paths: what
    cannot be frozen is in `problems`."""
    found = Walked()
    rules = _rules_of(root)
    in_gitignore_mode = rules is None
    levels: _Levels = () if rules is None else ((rules, 0, ".amlignore"),)
    stack: list[tuple[str, str, _Levels]] = [("", root, levels)]
    while stack:
        prefix, folder, levels = stack.pop()
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError as error:
            found.problems.append((prefix or folder, f"cannot be read: {error.strerror}"))
            continue
        names = {entry.name for entry in entries}
        if prefix and not ENVIRONMENT_MARKS.isdisjoint(names):
            found.ignored.add(prefix, f"environment ({min(ENVIRONMENT_MARKS & names)} in it)")
            continue
        if in_gitignore_mode and ".gitignore" in names:
            levels = _with_gitignore(levels, folder, prefix)
        _walk_folder(found, entries, prefix, levels, stack)
    return found


_Levels = tuple[tuple[IgnoreFile, int, str], ...]  # innermost first: rules, length of their folder's prefix, their file


def _walk_folder(
    found: Walked,
    entries: list[os.DirEntry[str]],
    prefix: str,
    levels: _Levels,
    stack: list[tuple[str, str, _Levels]],
) -> None:
    files = found.files
    for entry in entries:
        name = entry.name
        path = prefix + name
        if name in NEVER_SENT or (not prefix and name in NEVER_SENT_IN_ROOT):
            is_folder = entry.is_dir(follow_symlinks=False)
            found.ignored.add(path + "/" * is_folder, f"{name} (never sent)")
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        if levels and (rule := _ignored_by(levels, name, path, is_folder)):
            found.ignored.add(path + "/" * is_folder, rule)
            continue
        if (not name.isascii() or "\\" in name or len(path) > 200) and (why := path_problem(path)):
            found.problems.append((path, why))
        elif is_folder:
            stack.append((path + "/", entry.path, levels))
        elif entry.is_file(follow_symlinks=False):
            try:
                files.append((path, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                continue  # gone since the folder was listed, as editors' swap files go
        elif entry.is_symlink():
            _keep_link(found, entry, path)
        else:
            found.problems.append((path, f"is {_special(entry)}, which cannot be sent"))


def _ignored_by(levels: _Levels, name: str, path: str, is_folder: bool) -> str | None:
    for rules, start, source in levels:
        rule = rules.verdict(name, path[start:], is_folder=is_folder)
        if rule is not None:
            return None if rule.negated else f"{rule.text} ({source})"
    return None


def check_links(found: Walked) -> None:
    """Note the links that would leave the tree."""
    for path, target in found.links.items():
        if why := link_problem(path, target, found.links):
            found.problems.append((path, why))


def _keep_link(found: Walked, entry: os.DirEntry[str], path: str) -> None:
    try:
        target = os.readlink(entry.path)
    except OSError as error:
        found.problems.append((path, f"is a link that cannot be read: {error.strerror}"))
        return
    if os.path.isabs(target):
        target = _relative(entry.path, path, target)
    if os.sep != "/":
        target = target.replace(os.sep, "/")
    try:
        target.encode()
    except UnicodeEncodeError:
        found.problems.append((path, "is a link to a path that is not valid UTF-8"))
        return
    found.links[path] = target


def _relative(full: str, path: str, target: str) -> str:
    """An absolute target inside the folder as a relative one: on the node it must not lead back to the folder here."""
    root = full[: -len(path) - 1]
    for base in (root, os.path.realpath(root)):
        if target == base or target.startswith(base.rstrip(os.sep) + os.sep):
            inside = os.path.relpath(target, base)
            return os.path.relpath(inside, os.path.dirname(path) or ".")
    return target


def _special(entry: os.DirEntry[str]) -> str:
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except OSError:
        return "a special file"
    kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _rules_of(root: str) -> IgnoreFile | None:
    """The rules of `.amlignore`; None when there is none and the `.gitignore` files count."""
    try:
        with open(os.path.join(root, ".amlignore"), "rb") as file:
            return IgnoreFile(lines_of(file.read()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(".amlignore", error) from error


def _with_gitignore(levels: _Levels, folder: str, prefix: str) -> _Levels:
    try:
        with open(os.path.join(folder, ".gitignore"), "rb") as file:
            rules = IgnoreFile(lines_of(file.read()))
    except OSError as error:
        raise _unreadable(f"{prefix}.gitignore", error) from error
    return ((rules, len(prefix), f"{prefix}.gitignore"), *levels)


def _unreadable(file: str, error: OSError) -> SnapshotError:
    return SnapshotError(
        f"{file} cannot be read: {error.strerror}", hint="It says what to leave out: make it readable."
    )
