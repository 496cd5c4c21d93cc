"""One training script, any compute.

>>> import shunter
>>> ws = shunter.Workspace.from_config()                          # doctest: +SKIP
>>> run = ws.submit("train.py", target="local")                   # doctest: +SKIP
>>> run.wait(show_output=True)                                    # doctest: +SKIP
"""

# This file also travels to compute targets with `shunter/node`: it stays importable on Python 3.8 and imports nothing.

__version__ = "0.1.0"

_PUBLIC = {
    "Workspace": "shunter.sdk.workspace",
    "Experiment": "shunter.sdk.experiment",
    "Run": "shunter.sdk.run",
    "Compute": "shunter.sdk.compute",
    "ScriptRunConfig": "shunter.sdk.config",
    "RunConfiguration": "shunter.sdk.config",
    "Environment": "shunter.sdk.environment",
    "Container": "shunter.sdk.environment",
    "ShunterError": "shunter.errors",
    "RunFailed": "shunter.errors",
}

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604 - the keys are strings


def __getattr__(name):  # type: ignore[no-untyped-def]
    if name in _PUBLIC:
        import importlib

        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError("module 'shunter' has no attribute " + repr(name))


def __dir__():  # type: ignore[no-untyped-def]
    return sorted(__all__)
