"""Artifacts of MLflow's clients, kept where our files are: those of a run are that run's files, and no others.

    runs/ab/RUN/files/…                          a run's files: what it uploaded, its outputs, its artifacts
    mlflow/artifacts/EXPERIMENT/models/ID/…      logged models
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from shunter.errors import NotFound, UsageError
from shunter.server.storage.files import check_path, full_disk

_RUN = re.compile(r"runs/([0-9a-f]{2})/(\1[0-9a-f]{30})/files(?:/(.*))?", re.DOTALL)
_OTHER = re.compile(r"mlflow/artifacts(?:/(.*))?", re.DOTALL)
_MODEL = re.compile(r"mlflow/artifacts/(\d+)/models/(m-[0-9a-f]+)(?:/.*)?", re.DOTALL)


class Artifacts:
    def __init__(self, home: Path) -> None:
        self.home = home

    def place(self, path: str) -> Path:
        """Where an artifact lies. Anything but the places above is refused, also by a link that leads out of them."""
        path = path.strip("/")
        if _RUN.fullmatch(path) is None and _OTHER.fullmatch(path) is None:
            raise NotFound(f"There are no artifacts at {path!r}.")
        place = self.home / check_path(path)
        top = (self.home / ("runs" if path.startswith("runs/") else "mlflow/artifacts")).resolve()
        if not place.resolve().is_relative_to(top):
            raise NotFound(f"There are no artifacts at {path!r}.")
        return place

    def list(self, path: str) -> dict[str, Any]:
        """What lies in a folder, as MLflow's client expects it; nothing for one that is not there."""
        place = self.place(path)
        found = []
        if place.is_dir():
            for entry in sorted(os.scandir(place), key=lambda e: e.name):
                if entry.is_dir(follow_symlinks=False):
                    found.append({"path": entry.name, "is_dir": True})
                elif entry.is_file(follow_symlinks=False):
                    found.append({"path": entry.name, "is_dir": False, "file_size": entry.stat().st_size})
        return {"files": found}

    def file(self, path: str) -> Path:
        place = self.place(path)
        if not place.is_file() or place.is_symlink():
            raise NotFound(f"There is no artifact {path!r}.")
        return place

    async def put(self, path: str, pieces: AsyncIterator[bytes]) -> None:
        """Keep a file, all of it or nothing."""
        place = self.place(path)
        aside = self.home / "mlflow" / "incoming" / uuid.uuid4().hex
        try:
            aside.parent.mkdir(parents=True, exist_ok=True)
            with aside.open("wb") as file:
                async for piece in pieces:
                    file.write(piece)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(aside, place)
        except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
            raise UsageError(f"{path!r} cannot be written: a file stands where a folder is needed, or the other way.") from error
        except OSError as error:
            raise full_disk(error) from error
        finally:
            aside.unlink(missing_ok=True)

    def delete(self, path: str) -> None:
        place = self.place(path)
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


def run_of(path: str) -> str | None:
    """The run whose files these are."""
    found = _RUN.fullmatch(path.strip("/"))
    return found[2] if found else None


def model_of(path: str) -> str | None:
    """The logged model whose files these are."""
    found = _MODEL.fullmatch(path.strip("/"))
    return found[2] if found else None
