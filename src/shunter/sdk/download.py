"""One file of a run onto this disk: in pieces, resumed where a cut left it, whole or not there."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path

from shunter.errors import ServerError, ServerUnreachable
from shunter.sdk.client import Client

TRIES = 5


def fetch(client: Client, url: str, target: Path, size: int, version: str, told: Callable[[int], None]) -> Path:
    """Write the file at `url` to `target`. What was fetched of the same `version` before is not fetched again."""
    target.parent.mkdir(parents=True, exist_ok=True)
    mark = zlib.crc32(f"{size} {version}".encode())
    partial = target.with_name(f"{target.name}.{mark:08x}.part")
    tries = 0
    while True:
        done = partial.stat().st_size if partial.exists() else 0
        told(done)
        if done >= size and (size or partial.exists()):
            break
        try:
            with partial.open("ab") as file:
                for piece in client.stream(url, {"offset": done} if done else None):
                    file.write(piece)
                    done += len(piece)
                    told(done)
            if done < size:
                raise ServerUnreachable(f"{target.name} was cut off at {done} of {size} bytes.")
        except (ServerUnreachable, OSError) as error:
            tries += 1
            if tries >= TRIES or (isinstance(error, OSError) and error.errno is not None and error.errno in (28, 122)):
                raise
            time.sleep(0.2 * tries)
    if partial.stat().st_size != size:
        partial.unlink()
        raise ServerError(f"{target.name} has changed while it was downloaded.", hint="Download it again.")
    partial.replace(target)
    return target
