"""Runs first in the script's own interpreter: output is flushed a few times a second, so a log is live without being slow.

`python -u` would do it too, but makes a chatty script several times slower. Standard library only; any Python 3.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _start():
    # type: () -> None
    import _thread
    import atexit
    import os
    import time

    lock = _thread.allocate_lock()

    def flush():
        # type: () -> None
        pause = 0.01
        while True:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.2)
            with lock:
                try:
                    sys.stdout.flush()
                except Exception:  # a stream that the script closed or replaced is not ours to judge
                    pass

    def stop():
        # type: () -> None
        # Held for ever from here on: a thread that is frozen inside a flush would end the interpreter fatally.
        lock.acquire()

    before = sys.excepthook

    def excepthook(kind, error, trace):
        # type: (Any, Any, Any) -> None
        try:
            sys.stdout.flush()  # else the traceback stands before the lines that led to it
        except Exception:
            pass
        before(kind, error, trace)

    sys.excepthook = excepthook
    atexit.register(stop)
    # A fork copies the lock in whatever state it is; the child has no flusher, and must not wait for it at its exit.
    os.register_at_fork(after_in_child=lambda: atexit.unregister(stop))
    _thread.start_new_thread(flush, ())


def _chain():
    # type: () -> None
    """Hand over to the sitecustomize that would have been found without ours. No imports: importlib costs 7 ms."""
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    rest = [p for p in sys.path if os.path.abspath(p or ".") != here]
    for finder in sys.meta_path:
        if getattr(finder, "__name__", "") == "PathFinder":
            spec = finder.find_spec("sitecustomize", rest)
            if spec is not None and spec.loader is not None:
                module = type(sys)("sitecustomize")
                module.__spec__ = spec
                module.__file__ = spec.origin
                spec.loader.exec_module(module)
            return


if sys.stdout is not None and not sys.flags.interactive:
    _start()
_chain()
