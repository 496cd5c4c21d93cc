"""Interpreters and folders of Python on this node, found without starting any of them."""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def at_hand(version):
    # type: (str) -> str
    """An interpreter of that version which the search of others may miss: our own, or one of pyenv's; empty if none."""
    if not re.match(r"\d+(\.\d+)+$", version):
        return ""
    if (".".join(map(str, sys.version_info[:3])) + ".").startswith(version + "."):
        return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    root = os.path.join(os.environ.get("PYENV_ROOT") or os.path.join(os.path.expanduser("~"), ".pyenv"), "versions")
    try:
        names = [n for n in os.listdir(root) if (n + ".").startswith(version + ".")]
    except OSError:
        return ""
    paths = [os.path.join(root, name, "bin", "python") for name in sorted(names, key=as_numbers, reverse=True)]
    return next((path for path in paths if os.access(path, os.X_OK)), "")


def uv_cache(cache):
    # type: (str) -> str
    """uv's own cache when environments can share its files (the same disk), else one beside them."""
    usual = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "uv")
    place = usual
    while not os.path.isdir(place) and len(place) > 1:
        place = os.path.dirname(place)
    try:
        if os.stat(place).st_dev == os.stat(cache).st_dev and os.access(place, os.W_OK):
            return usual
    except OSError:
        pass
    return os.path.join(cache, "uv-cache")


def site_packages(folder):
    # type: (str) -> str
    lib = os.path.join(folder, "lib")
    try:
        for name in sorted(os.listdir(lib), reverse=True):
            path = os.path.join(lib, name, "site-packages")
            if name.startswith("python") and not os.path.islink(os.path.join(lib, name)) and os.path.isdir(path):
                return path
    except OSError:
        pass
    return ""


def version_of(folder):
    # type: (str) -> str
    """The interpreter's version without starting it."""
    try:
        with open(os.path.join(folder, "pyvenv.cfg")) as file:
            for line in file:
                if line.startswith("version_info"):
                    return line.partition("=")[2].strip()
    except OSError:
        pass
    try:
        for name in os.listdir(os.path.join(folder, "conda-meta")):
            match = re.match(r"python-(\d[\d.]*)-", name)
            if match:
                return match.group(1)
    except OSError:
        pass
    return ""


def as_numbers(version):
    # type: (str) -> List[int]
    return [int(n) for n in re.findall(r"\d+", version)[:3]]
