"""A little room kept on the node's disk, so that outcomes can be written when a script has filled it."""

from __future__ import annotations

import os

BYTES = 1 << 16


def keep(root):
    # type: (str) -> None
    """Keep it, unless it is kept already."""
    path = os.path.join(root, "reserve")
    if not os.path.exists(path):
        with open(path, "wb") as file:  # on a disk that is full already this much is kept, and the launch fails
            file.write(bytes(BYTES))


def give(root):
    # type: (str) -> bool
    """Give up what `keep` kept. False when there is nothing."""
    try:
        os.unlink(os.path.join(root, "reserve"))
    except OSError:
        return False
    return True
