"""Calls that need an answer: asked of the launcher on this node, which asks the server. Opened on first use."""

from __future__ import annotations

import json
import os
import socket
import time

from ._errors import RunUnreachable, RunUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

PATIENCE_SECONDS = 5.0


def ask(name, body=None, timeout_seconds=60.0):
    # type: (str, Optional[Dict[str, Any]], float) -> Any
    """The answer to `POST /shunter/NAME`. Raises RunUsageError when refused, RunUnreachable when nobody answers."""
    address = os.environ.get("SHUNTER_RELAY", "")
    if not address:
        raise RunUnreachable("%s: this run has no way to ask the server." % name)
    data = json.dumps(dict(body or {}, timeout_seconds=timeout_seconds)).encode()
    head = (
        "POST /shunter/%s HTTP/1.0\r\nHost: relay\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
        "Content-Length: %d\r\n\r\n" % (name, os.environ.get("SHUNTER_RUN_TOKEN", ""), len(data))
    )
    try:
        with _patient(address, timeout_seconds + 5.0) as connection:
            connection.sendall(head.encode() + data)
            parts = []
            while True:
                part = connection.recv(1 << 16)
                if not part:
                    break
                parts.append(part)
    except OSError as error:
        raise RunUnreachable("%s: the launcher does not answer (%s)." % (name, error)) from error
    top, _, rest = b"".join(parts).partition(b"\r\n\r\n")
    words = top.split(None, 2)
    if len(words) < 2:
        raise RunUnreachable("%s: the launcher gave no answer." % name)
    status = int(words[1])
    found = json.loads(rest.decode("utf-8")) if rest else {}
    if status == 200:
        return found
    said = found.get("message") or found.get("error", {}).get("message") or "refused (%d)" % status
    if status in (502, 503, 504):
        raise RunUnreachable("%s: %s" % (name, said))
    raise RunUsageError("%s: %s" % (name, said))


def _patient(address, timeout):
    # type: (str, float) -> socket.socket
    """The launcher may not listen yet, or be another one in a moment."""
    until = time.monotonic() + min(timeout, PATIENCE_SECONDS)
    while True:
        try:
            return _connect(address, timeout)
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() >= until:
                raise
            time.sleep(0.02)


def _connect(address, timeout):
    # type: (str, float) -> socket.socket
    if address.startswith("unix:"):
        folder, name = os.path.split(address[5:])
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        # A socket's path has at most 107 bytes; through the folder's descriptor any path will do.
        fd = os.open(folder, os.O_RDONLY)
        try:
            connection.connect("/proc/self/fd/%d/%s" % (fd, name) if os.path.isdir("/proc/self/fd") else address[5:])
        except OSError:
            connection.close()
            raise
        finally:
            os.close(fd)
        return connection
    host, _, port = address.partition("://")[2].rstrip("/").rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=timeout)
