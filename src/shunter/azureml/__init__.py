"""The first SDK's names over ours: `import azureml` finds this after `install()`.

    python -m shunter.azureml script.py      for one script
    %load_ext shunter.azureml                in a notebook
    shunter.azureml.install()                in a program

Names, shapes and errors only; what they do is done by `shunter.sdk`. An installed `azureml-core` stays untouched on disk.
"""

from __future__ import annotations

from shunter.azureml._imports import in_use, install, uninstall

__all__ = ["in_use", "install", "load_ipython_extension", "uninstall", "unload_ipython_extension"]


def load_ipython_extension(ipython: object) -> None:
    """`%load_ext shunter.azureml`."""
    install()
    print(in_use())


def unload_ipython_extension(ipython: object) -> None:
    uninstall()
