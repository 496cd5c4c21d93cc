"""Is an installed package still what was installed? Told by its own RECORD: sizes, and the contents when asked."""

from __future__ import annotations

import csv
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Sequence


def damaged(packages, odd=(), read=False):
    # type: (Optional[str], Sequence[str], bool) -> List[str]
    """The installed packages of which a file is missing or has another size than they say. `odd` are passed over.

    `read`: also those of which a file has another content.
    """
    found = []
    for name in os.listdir(packages) if packages else ():
        package = name.split("-")[0]
        if name.endswith(".dist-info") and package not in odd and _is_damaged(str(packages), name, read):
            found.append(package)
    return sorted(found)


def _is_damaged(packages, name, read):
    # type: (str, str, bool) -> bool
    try:
        with open(os.path.join(packages, name, "RECORD")) as file:
            rows = [row for row in csv.reader(file) if len(row) == 3 and row[2].isdigit()]
    except FileNotFoundError:
        return False
    except (OSError, ValueError, csv.Error):
        return True
    # Commands are written anew for each environment.
    rows = [row for row in rows if not row[0].startswith("..")]
    if any(_size(os.path.join(packages, row[0])) != int(row[2]) for row in rows):
        return True
    return read and any(_hash(os.path.join(packages, row[0])) != row[1] for row in rows if row[1].startswith("sha256="))


def _hash(path):
    # type: (str) -> str
    """As a RECORD writes it."""
    import base64
    import hashlib  # here: a warm hit needs neither

    found = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(1 << 20), b""):
                found.update(piece)
    except OSError:
        return ""
    return "sha256=" + base64.urlsafe_b64encode(found.digest()).decode().rstrip("=")


def _size(path):
    # type: (str) -> int
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
