"""Locks of conda packages: py-rattler solves from their channels, for the node's platform."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from shunter.errors import EnvironmentInvalid, ExtraMissing
from shunter.server.environments.platforms import Platform

DEFAULT_CHANNELS = ("conda-forge",)
SOLVE_SECONDS = 600


def solve(specs: Sequence[str], channels: Sequence[str], platform: Platform, cache: Path | None = None) -> str:
    """A lock in rattler's own format: each package with its address and hashes."""
    try:
        import rattler
    except ImportError as error:
        raise ExtraMissing(
            "Conda packages need py-rattler.", hint="pip install 'shunter[server]' brings it."
        ) from error
    try:
        return asyncio.run(_solve(rattler, specs, list(channels) or list(DEFAULT_CHANNELS), platform))
    except (ExtraMissing, EnvironmentInvalid):
        raise
    except Exception as error:  # rattler has an exception class for each kind of trouble
        raise _our_error(error, channels or DEFAULT_CHANNELS) from error


async def _solve(rattler: Any, specs: Sequence[str], channels: list[str], platform: Platform) -> str:
    own = [s.partition("::") for s in specs]
    plain = [name if sep else s for s, (_, sep, name) in zip(specs, own, strict=True)]
    sources = [_channel(rattler, c) for c in dict.fromkeys([*(c for c, sep, _ in own if sep), *channels])]
    records = await asyncio.wait_for(
        rattler.solve(
            sources,
            [rattler.MatchSpec(_match_spec(s)) for s in plain],
            platforms=[platform.for_conda, "noarch"],
            virtual_packages=_virtual(rattler, platform),
            timeout=timedelta(seconds=SOLVE_SECONDS),
        ),
        SOLVE_SECONDS,
    )
    where = rattler.LockPlatform(platform.for_conda)
    lock = rattler.LockFile([where])
    lock.set_channels("default", [rattler.LockChannel(c.base_url) for c in sources])
    for record in sorted(records, key=lambda r: str(r.name.normalized)):
        lock.add_conda_package("default", where, record)
    with tempfile.TemporaryDirectory(prefix="shunter-solve-") as folder:
        path = Path(folder, "conda.lock")
        lock.to_path(path)
        return path.read_text("utf-8")


def packages_of(lock: str) -> dict[str, str]:
    """Name → version of the packages in a lock of ours."""
    found = {}
    for file in re.findall(r"(?m)^\s*-?\s*conda:\s*(\S+)\s*$", lock):
        stem = re.sub(r"\.(conda|tar\.bz2)$", "", file.rsplit("/", 1)[-1])
        name, version, _ = stem.rsplit("-", 2)
        found[name] = version
    return found


def _channel(rattler: Any, name: str) -> Any:
    return rattler.Channel(name)


def _match_spec(spec: str) -> str:
    """`numpy=1.26` and `numpy>=1.2` in the form that the library reads: name, blank, version."""
    return re.sub(r"^([A-Za-z0-9._-]+?)\s*([=<>!~].*)$", r"\1 \2", spec.strip())


def _virtual(rattler: Any, platform: Platform) -> list[Any]:
    """What the node has that conda packages may ask for."""

    def one(name: str, version: str) -> Any:
        build = getattr(rattler, "BuildString", str)("0")  # older releases take a text
        return rattler.GenericVirtualPackage(rattler.PackageName(name), rattler.Version(version), build)

    if platform.system != "Linux":
        return [one("__unix", "0")] if platform.system == "Darwin" else [one("__win", "0")]
    glibc = re.search(r"2\.\d+", platform.libc)
    found = [one("__unix", "0"), one("__linux", "4.18"), one("__glibc", glibc.group(0) if glibc else "2.28")]
    found.append(one("__archspec", "1"))
    if platform.cuda:
        found.append(one("__cuda", platform.cuda))
    return found


def _our_error(error: Exception, channels: Sequence[str]) -> EnvironmentInvalid:
    text = " ".join(str(error).split()) or type(error).__name__
    lowered = text.lower() + type(error).__name__.lower()
    unsolvable = "cannot solve" in lowered or "solvererror" in lowered
    if not unsolvable and any(
        w in lowered
        for w in ("fetch", "gateway", "request", "connect", "dns", "timeout", "http", "not found", "no such file")
    ):
        return EnvironmentInvalid(
            f"The conda channel {', '.join(channels)} cannot be reached: {text[:400]}",
            hint="Say package_source: pypi (for the environment, its target or the workspace) to take the packages "
            "from PyPI instead, or name another channel.",
        )
    return EnvironmentInvalid(
        f"The conda packages cannot be had together: {text[:600]}",
        hint="Change the versions or the channels asked for.",
    )
