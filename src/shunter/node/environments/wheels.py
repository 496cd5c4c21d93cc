"""Wheels that the server hands on to a node without a package index of its own."""

from __future__ import annotations

import hashlib
import os

from shunter.node.environments import Unavailable
from shunter.node.home import Home, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    from shunter.node.environments import Job

PIECE_BYTES = 4 << 20


def get_wheels(work):
    # type: (Job) -> str
    """A folder with all wheels of the lock: links to those that are here, the others fetched from the server."""
    home = Home(work.whole["id"], work.whole["home"])
    folder = os.path.join(work.folder, "wheels")
    os.makedirs(folder, exist_ok=True)
    wheels = work.spec["wheels"]
    try:
        for number, wheel in enumerate(wheels, 1):
            work.check()
            path = os.path.join(work.cache, "wheels", wheel["sha256"], os.path.basename(wheel["file"]))
            if not os.path.exists(path):
                work.say("fetching wheels from the server, %d of %d" % (number, len(wheels)))
                _fetch(work, home, wheel, path)
            target = os.path.join(folder, os.path.basename(path))
            if not os.path.lexists(target):
                os.symlink(path, target)
    finally:
        home.close()
    return folder


def _fetch(work, home, wheel, path):
    # type: (Job, Home, Dict[str, Any], str) -> None
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = "%s.%d" % (path, os.getpid())
    seen, offset = hashlib.sha256(), 0
    try:
        with open(temporary, "wb") as out:
            while offset < wheel["size"]:
                work.check()
                suffix = "/wheel/%s?offset=%d&size=%d" % (wheel["sha256"], offset, PIECE_BYTES)
                try:
                    piece = home.request("GET", suffix)
                except Refused as error:
                    words = "The server does not hand out " + wheel["file"] + ": " + str(error) + "."
                    raise Unavailable("wheel_missing", words) from error
                if not piece:
                    raise Unavailable("wheel_missing", wheel["file"] + " ends too early on the server.")
                seen.update(piece)
                out.write(piece)
                offset += len(piece)
        if seen.hexdigest() != wheel["sha256"]:
            raise Unavailable("package_changed", wheel["file"] + " arrived damaged.", "`shunter run rerun` tries again.")
        os.rename(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
