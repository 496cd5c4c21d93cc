"""Sockets in the file system, wherever a home lies."""

from __future__ import annotations

import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


def connect(path, timeout=None):
    # type: (str, Optional[float]) -> socket.socket
    """Through the folder's descriptor, as the path of a socket is limited and a home may be deep."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        connection.connect("/proc/self/fd/%d/%s" % (fd, os.path.basename(path)))
    except OSError:
        connection.close()
        raise
    finally:
        os.close(fd)
    return connection
