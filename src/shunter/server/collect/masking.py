"""Keeps secrets out of what comes home: every occurrence becomes stars of the same length, so offsets stay true.

A secret may be cut by the border between two reports. What could be the beginning of one is therefore not taken in yet:
the node is told that we hold less, and sends it again with what follows. At the end nothing follows, and it is judged
as it is.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: Shorter values are everywhere by chance; masking them would eat the log without hiding anything.
SHORTEST = 4
_BLOCK = 4 << 20


class Masker:
    """Hides these values. Lines of a value of several lines are hidden one by one, too.

    >>> Masker(["hunter22"]).take(b"the password is hunter22, and hun")
    b'the password is ********, and '
    """

    def __init__(self, values: Iterable[str]) -> None:
        forms: set[bytes] = set()
        for value in values:
            for part in {value, *value.splitlines()}:
                for text in (part.strip(), json.dumps(part.strip())[1:-1]):
                    raw = text.encode("utf-8", "surrogateescape")
                    if len(raw) >= SHORTEST:
                        forms.add(raw)
        self.forms = sorted(forms, key=len, reverse=True)
        self.longest = len(self.forms[0]) if self.forms else 0
        self._pattern = re.compile(b"|".join(re.escape(form) for form in self.forms)) if forms else None

    def hide(self, data: bytes) -> bytes:
        """All whole occurrences as stars."""
        if self._pattern is None:
            return data
        return self._pattern.sub(lambda found: b"*" * len(found[0]), data)

    def take(self, data: bytes, last: bool = False) -> bytes:
        """What may be kept of the next bytes of a stream: without secrets, and without what may become one.

        With `last`, nothing more will come: a half-said secret is hidden as far as it was said.
        """
        data = self.hide(data)
        open_bytes = self._open(data)
        if not open_bytes:
            return data
        said = data[: len(data) - open_bytes]
        if not last:
            return said
        return said + (b"*" * open_bytes if open_bytes >= SHORTEST else data[len(said) :])

    def words(self, value: Any) -> Any:
        """A JSON value with the secrets in its texts hidden."""
        if isinstance(value, str):
            return self.hide(value.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
        if isinstance(value, dict):
            return {k: self.words(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.words(v) for v in value]
        return value

    def hide_in_file(self, path: Path) -> None:
        """Hide them in a file that came home in one piece. Its time of change stays."""
        if self._pattern is None:
            return
        with path.open("r+b") as file:
            times = os.fstat(file.fileno())
            at = 0
            while True:
                file.seek(at)
                data = file.read(_BLOCK + self.longest)
                if not data:
                    break
                hidden = self.hide(data)
                if hidden != data:
                    file.seek(at)
                    file.write(hidden)
                at += _BLOCK
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def _open(self, data: bytes) -> int:
        """How many bytes at the end could be the beginning of a secret."""
        most = 0
        for form in self.forms:
            for size in range(min(len(form) - 1, len(data)), most, -1):
                if data.endswith(form[:size]):
                    most = size
                    break
        return most
