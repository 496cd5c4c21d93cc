"""Which packages a folder's scripts import, at the versions of whoever submits: the environment of last resort."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

#: Installed in every run by us, or no package at all.
OURS = frozenset({"shunter", "azureml", "__main__", "__future__"})
_SKIPPED = frozenset({"outputs", "logs", "__pycache__", "node_modules", "site-packages", "tests"})
LARGEST_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Imported:
    """What was found: requirements at installed versions, and imports that no installed package brings."""

    packages: tuple[str, ...]
    unknown: tuple[str, ...]


def imported(folder: Path, files: Iterable[str] | None = None) -> Imported:
    """The packages that the Python files of `folder` (or just `files` in it) import."""
    paths = [folder / f for f in files if f.endswith(".py")] if files is not None else list(_python_files(folder))
    local = {p.stem for p in paths} | {part for p in paths for part in p.relative_to(folder).parts[:-1]}
    names: set[str] = set()
    for path in paths:
        names |= set(_imports(path))
    names -= local | OURS | set(sys.stdlib_module_names)
    return _at_versions(names)


def _at_versions(names: set[str]) -> Imported:
    if not names:
        return Imported((), ())  # reading what every installed package brings takes half a second
    brought_by = metadata.packages_distributions()
    found: dict[str, str] = {}
    unknown: list[str] = []
    for name in sorted(names):
        distributions = sorted(set(brought_by.get(name, [])))
        if not distributions:
            unknown.append(name)
            continue
        # A namespace package (google) is brought by many: take all, each is installed here.
        for one in distributions[:8]:
            found[one] = f"{one}=={metadata.version(one).partition('+')[0]}"
    return Imported(tuple(sorted(found.values(), key=str.lower)), tuple(unknown))


def _python_files(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = [
            f for f in sorted(folders)
            if not f.startswith(".") and f not in _SKIPPED and not os.path.exists(os.path.join(here, f, "pyvenv.cfg"))
        ]  # fmt: skip
        for name in sorted(names):
            if name.endswith(".py"):
                yield Path(here, name)


def _imports(path: Path) -> Iterator[str]:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield one.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]
