"""Real interpreters of versions that this machine may have beside its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def find_prefix(version: str) -> Path | None:
    """The folder of an interpreter of this version (`3.8`), with its bin and lib; None when there is none here."""
    usual = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    managed = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local" / "share" / "uv" / "python")
    found = [*usual.glob(f"{version}.*"), *managed.glob(f"cpython-{version}.*")]
    named = shutil.which(f"python{version}")
    if named:
        found.append(Path(named).resolve().parent.parent)
    for prefix in found:
        python = prefix / "bin" / f"python{version}"
        if python.exists() and not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
            return prefix
    return None


def lend(prefix: Path) -> dict[str, object]:
    """Options of a machine whose only Python is this one, whoever may read the folder that it lies in here."""
    setup = f"mkdir -p /run/py && mount --bind {prefix} /run/py && mkdir -p /run/empty\n"
    setup += "for name in /usr/bin/python3*; do mount --bind /run/sshd.none $name; done"
    return {
        "setup": "touch /run/sshd.none\n" + setup,
        "sshd": ["SetEnv PATH=/run/py/bin:/usr/bin:/bin LD_LIBRARY_PATH=/run/py/lib"],
    }
