"""Curated environments: data in `catalogue/environments.json`, found by name and version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from shunter.model.environment import Environment


@dataclass(frozen=True, slots=True)
class Curated:
    """An environment that comes with Shunter, with what it is for."""

    environment: Environment
    framework: str
    variant: str


def curated() -> Mapping[str, Curated]:
    """By `name:version`; the newest of a name also by its name alone."""
    return _load()


def default_image() -> str:
    """The image of a container environment that names none."""
    return str(_data()["default_image"])


@cache
def _load() -> dict[str, Curated]:
    found: dict[str, Curated] = {}
    for entry in _data()["environments"]:
        parts = dict(entry)
        framework, variant = parts.pop("framework"), parts.pop("variant")
        one = Curated(Environment.from_wire(parts), framework, variant)
        found[f"{one.environment.name}:{one.environment.version}"] = one
        found[one.environment.name] = one
    return found


@cache
def _data() -> dict[str, Any]:
    from importlib import resources

    text = resources.files("shunter.catalogue").joinpath("environments.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
