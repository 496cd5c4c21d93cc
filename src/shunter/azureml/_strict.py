"""Objects of which a misspelt attribute is refused, as the first SDK does, naming the nearest."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from shunter.errors import nearest


class Strict:
    """A dataclass that refuses attributes it does not have."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name not in _known(type(self)):
            raise AttributeError(f"{type(self)} has no attribute {name}. {nearest(name, _known(type(self)))}".rstrip())
        super().__setattr__(name, value)


def _known(cls: type[Any]) -> set[str]:
    settable = {n for c in cls.__mro__ for n, v in vars(c).items() if isinstance(v, property) and v.fset is not None}
    return {f.name for f in fields(cls)} | settable
