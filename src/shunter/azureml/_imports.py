"""`import azureml…` resolves to ours in this process, and to what is installed everywhere else."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from shunter.errors import Conflict

NAME = "azureml"
OURS = "shunter.azureml"


def install() -> None:
    """Make `azureml` ours in this process. May be repeated; refused when another azureml has been imported before."""
    loaded = sys.modules.get(NAME)
    if loaded is not None and not _is_ours(loaded):
        raise Conflict(
            f"azureml from {_place(loaded)} has been imported already in this process.",
            hint="Call shunter.azureml.install() before the first `import azureml`.",
        )
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def uninstall() -> None:
    """`azureml` is again what is installed, for what is imported from now on."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    for name in [n for n in sys.modules if n == NAME or n.startswith(NAME + ".")]:
        if _is_ours(sys.modules[name]):
            del sys.modules[name]


def in_use() -> str:
    """Which azureml this process uses, in one sentence."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        there = installed_version()
        return "azureml is Shunter's in this process" + (f"; the installed azureml-core {there} is left alone." if there else ".")
    there = installed_version()
    return f"azureml is the installed azureml-core {there}." if there else "There is no azureml in this process."


def installed_version() -> str:
    """The version of the azureml-core that is installed beside us; empty when there is none."""
    try:
        return version("azureml-core")
    except PackageNotFoundError:
        return ""


class _Finder(MetaPathFinder):
    """Finds `azureml.x` as `shunter.azureml.x`: the same module under both names, so its classes are the same too."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != NAME and not fullname.startswith(NAME + "."):
            return None
        inner = OURS + fullname[len(NAME) :]
        try:
            found = importlib.util.find_spec(inner)
        except ModuleNotFoundError:
            found = None
        if found is None or inner.rpartition(".")[2].startswith("_"):
            raise ModuleNotFoundError(f"Shunter's azureml has no module {fullname!r}.\n{_hint(fullname)}", name=fullname)
        return ModuleSpec(fullname, _Loader(inner), origin=found.origin, is_package=found.submodule_search_locations is not None)


class _Loader(Loader):
    def __init__(self, inner: str) -> None:
        self.inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.inner)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The machinery has just set the spec of the alias; the module is the one that was loaded under its own name.
        module.__spec__ = self.spec


def _is_ours(module: ModuleType) -> bool:
    return (getattr(module, "__name__", "") or "").startswith(OURS)


def _place(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ["somewhere"])), "somewhere"))


def _hint(fullname: str) -> str:
    from shunter.azureml._places import MODULES

    inner = fullname[len(NAME) + 1 :]
    for name, use in MODULES.items():
        if inner == name or inner.startswith(name + "."):
            return use
    return "docs/from-azureml.md lists what is there."
