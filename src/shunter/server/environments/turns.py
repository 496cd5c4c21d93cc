"""One at a time for each key: twenty runs that need the same lock solve it once."""

from __future__ import annotations

import threading


class _Turns:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_key: dict[str, tuple[threading.Lock, int]] = {}


_turns = _Turns()


class one_at_a_time:
    """Whoever enters with the same key waits for those before."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __enter__(self) -> None:
        with _turns.lock:
            mine, waiting = _turns.by_key.get(self.key, (threading.Lock(), 0))
            _turns.by_key[self.key] = (mine, waiting + 1)
        mine.acquire()

    def __exit__(self, *_: object) -> None:
        with _turns.lock:
            mine, waiting = _turns.by_key[self.key]
            if waiting == 1:
                del _turns.by_key[self.key]
            else:
                _turns.by_key[self.key] = (mine, waiting - 1)
        mine.release()
