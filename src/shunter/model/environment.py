"""An environment: what a script needs. System-managed, user-managed, or a container image around either.

A frozen value. Two environments with the same content have the same `content_id`, whatever they are called.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Self

from shunter.errors import EnvironmentInvalid, nearest

#: Shared memory of a container when nobody says otherwise: what the first SDK gives.
SHM_BYTES = 2 << 30
SOURCES = ("", "conda", "pypi")
AZUREML = ("ours", "real")


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the node that the container sees too."""

    source: str
    target: str
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> Mount:
        """From `SOURCE:TARGET[:ro]`, as the engines write it."""
        source, _, rest = text.partition(":")
        target, _, mode = rest.partition(":")
        if not source.startswith("/") or not target.startswith("/") or mode not in ("", "ro", "rw"):
            raise EnvironmentInvalid(
                f"{text!r} is not a mount.", hint="Write SOURCE:TARGET or SOURCE:TARGET:ro, both absolute paths."
            )
        return cls(source, target, mode == "ro")


@dataclass(frozen=True, slots=True)
class Container:
    """The image around an environment: one by name, or one built from the text of a Dockerfile.

    `context` "snapshot" lets the Dockerfile copy files of the submitted folder. `interpreter` is the one inside the
    image that runs the script; empty: it is looked for. `password` never stands here: log in on the node.
    """

    image: str = ""
    dockerfile: str = ""
    context: str = ""
    interpreter: str = ""
    shm_bytes: int = SHM_BYTES
    mounts: tuple[Mount, ...] = ()
    arguments: tuple[str, ...] = ()
    network: str = "host"
    pull: str = "missing"

    def __post_init__(self) -> None:
        if self.image and self.dockerfile:
            raise EnvironmentInvalid("An environment has an image or a Dockerfile, not both.")
        if self.context not in ("", "snapshot"):
            raise EnvironmentInvalid(
                f"The build context {self.context!r} is not known.", hint="It is '' or 'snapshot'."
            )
        if self.pull not in ("missing", "always", "never"):
            raise EnvironmentInvalid(f"pull={self.pull!r} is not known.", hint="It is missing, always or never.")


@dataclass(frozen=True, slots=True)
class Environment:
    """What a script needs, by name and version.

    - `packages`: PyPI requirements, taken literally. `conda_packages` with `channels`: conda's.
    - `python`: a version such as "3.11" or ">=3.10"; empty: that of whoever submits.
    - `interpreter` with `user_managed`: one that is there; nothing is installed.
    - `package_source` "pypi": serve conda packages that PyPI knows from there; the lock says what was done.
    - `index_url`, `extra_index_urls`, `find_links`, `offline`: where packages come from. `${NAME}` in an address stands
      for a secret that the server keeps.
    - `files`: a `pyproject.toml` with its `uv.lock`, taken as the lock they are.
    - `azureml`: requirements named `azureml-*` are satisfied by ours, or ("real") left alone.
    """

    name: str = ""
    version: str = ""
    python: str = ""
    packages: Sequence[str] = ()
    constraints: Sequence[str] = ()
    conda_packages: Sequence[str] = ()
    channels: Sequence[str] = ()
    package_source: str = ""
    user_managed: bool = False
    interpreter: str = ""
    container: Container | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    index_url: str = ""
    extra_index_urls: Sequence[str] = ()
    find_links: Sequence[str] = ()
    offline: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    azureml: str = "ours"
    prepare: bool = True
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("packages", "constraints", "conda_packages", "channels", "extra_index_urls", "find_links"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(one, str) for one in value):
                raise EnvironmentInvalid(f"{name} of {self.label} is a list of texts, not {value!r}.")
            object.__setattr__(self, name, tuple(value))
        if self.package_source not in SOURCES:
            raise EnvironmentInvalid(
                f"package_source={self.package_source!r} of {self.label} is not known.", hint="It is 'conda' or 'pypi'."
            )
        if self.azureml not in AZUREML:
            raise EnvironmentInvalid(
                f"azureml={self.azureml!r} of {self.label} is not known.", hint="It is 'ours' or 'real'."
            )
        if self.user_managed and (self.packages or self.conda_packages or self.files):
            raise EnvironmentInvalid(
                f"{self.label} is user-managed and lists packages: nobody would install them.",
                hint="Leave out the packages, or user_managed.",
            )
        if self.interpreter and not self.user_managed:
            object.__setattr__(self, "user_managed", True)
            self.__post_init__()

    @property
    def label(self) -> str:
        """How it is named in messages."""
        if not self.name:
            return "The environment"
        return f"Environment {self.name}" + (f":{self.version}" if self.version else "")

    @property
    def kind(self) -> str:
        """system, user, image (the image untouched) or container (packages inside the image)."""
        if self.container is None:
            return "user" if self.user_managed else "system"
        return "container" if self.needs_lock else "image"

    @property
    def needs_lock(self) -> bool:
        """Whether anything has to be installed."""
        if self.user_managed:
            return False
        if self.container is not None:
            return bool(self.packages or self.conda_packages or self.files)
        return True

    @property
    def content_id(self) -> str:
        """The same for the same content, whatever its name, version, description and tags."""
        wire = {k: v for k, v in self.to_wire().items() if k not in ("name", "version", "description", "tags")}
        return digest(wire)

    def evolve(self, **changes: Any) -> Self:
        return replace(self, **changes)

    def to_wire(self) -> dict[str, Any]:
        """A JSON object with what differs from the defaults."""
        return _to_wire(self)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Self:
        values = _checked(cls, data)
        container = values.get("container")
        if container is not None:
            inner = _checked(Container, container)
            inner["mounts"] = tuple(
                Mount.parse(m) if isinstance(m, str) else Mount(**_checked(Mount, m)) for m in inner.get("mounts", ())
            )
            inner["arguments"] = tuple(inner.get("arguments", ()))
            values["container"] = Container(**inner)
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which two environments or locks differ."""

    what: str
    before: str
    after: str


def diff(before: Environment, after: Environment) -> list[Difference]:
    """What differs, one line each; lists by member."""
    found: list[Difference] = []
    old, new = before.to_wire(), after.to_wire()
    for name in sorted((old.keys() | new.keys()) - {"name", "version", "description", "tags"}):
        left, right = old.get(name), new.get(name)
        if left == right:
            continue
        if isinstance(left, list) or isinstance(right, list):
            lost = [x for x in left or [] if x not in (right or [])]
            came = [x for x in right or [] if x not in (left or [])]
            found += [Difference(name, str(x), "") for x in lost] + [Difference(name, "", str(x)) for x in came]
        elif isinstance(left, dict) or isinstance(right, dict):
            keys = sorted((left or {}).keys() | (right or {}).keys())
            found += [
                Difference(f"{name}.{k}", _show((left or {}).get(k)), _show((right or {}).get(k)))
                for k in keys
                if (left or {}).get(k) != (right or {}).get(k)
            ]
        else:
            found.append(Difference(name, _show(left), _show(right)))
    return found


def digest(value: Any) -> str:
    """32 hexadecimal digits that stand for a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _show(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _to_wire(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in fields(value):
        here = getattr(value, one.name)
        default = (
            one.default
            if one.default is not MISSING
            else one.default_factory()
            if one.default_factory is not MISSING
            else None
        )
        if here == default:
            continue
        if isinstance(here, tuple):
            here = [_to_wire(x) if isinstance(x, Mount) else x for x in here]
        elif isinstance(here, Container):
            here = _to_wire(here)
        elif isinstance(here, Mapping):
            here = dict(here)
        found[one.name] = here
    return found


def _checked(cls: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    known = {f.name: f for f in fields(cls)}
    for key, value in data.items():
        if key not in known:
            raise EnvironmentInvalid(f"An environment has no {key!r}.", hint=nearest(key, known))
        default = known[key].default
        wanted = type(default) if default is not MISSING and default is not None else None
        if wanted is tuple:
            wanted = (list, tuple)  # type: ignore[assignment]
        if wanted is not None and not isinstance(value, wanted):
            raise EnvironmentInvalid(f"{key!r} of an environment cannot be {value!r}.")
    return dict(data)
