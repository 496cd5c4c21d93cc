"""The `shunter` that a script finds inside a run: `shunter.run`, and all else from an installed package, if any.

This tree lies first on the script's path, so it must not hide an installed `shunter`: that one's code is run in this
module's place, and its folders are searched after ours.
"""

import os
import sys


def _installed():  # type: ignore[no-untyped-def]
    """Where `shunter` would have been found without this tree; None when it is not installed."""
    from importlib.machinery import PathFinder

    tree = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    rest = [p for p in sys.path if os.path.abspath(p or ".") != tree]
    spec = PathFinder.find_spec("shunter", rest)
    if spec is not None and spec.loader is not None:
        return spec
    for finder in sys.meta_path:  # editable installs bring a finder of their own
        if finder is PathFinder or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec("shunter", None, None)
        if spec is not None and spec.loader is not None and spec.submodule_search_locations:
            return spec
    return None


if __name__ == "shunter":  # the same files are also `shunter.node.client.shunter` of the installed package
    _spec = _installed()  # type: ignore[no-untyped-call]
    if _spec is not None:
        __path__ += [p for p in (_spec.submodule_search_locations or ()) if p not in __path__]
        __file__ = _spec.origin or __file__
        exec(_spec.loader.get_code("shunter"), globals())
