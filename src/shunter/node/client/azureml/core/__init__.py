"""`from azureml.core import Run`, as scripts of the first SDK spell it."""

from azureml.core.run import Run, get_run  # type: ignore[import-not-found,unused-ignore]

#: The release of the first SDK whose names these are.
VERSION = "1.61.0+shunter"

__all__ = ["VERSION", "Run", "get_run"]


def __getattr__(name):  # type: ignore[no-untyped-def]
    if name.startswith("__"):
        raise AttributeError(name)
    # Said as an ImportError: that is what a script expects of a name that is not there, and catches.
    raise ImportError("azureml.core." + name + " is not there inside a run: a script has Run, the rest is for who submits it.")
