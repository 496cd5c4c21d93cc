"""Locks of PyPI packages: uv solves, for the node's platform, with exact versions and hashes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shunter.errors import EnvironmentInvalid, ExtraMissing
from shunter.node.environments import words
from shunter.server.environments.platforms import Platform

SOLVE_SECONDS = 600.0
HTTP_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Sources:
    """Where packages come from, with the values of secrets that stand in the addresses."""

    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict)

    def options(self) -> list[str]:
        """As uv's options, without those that hold a secret: this is stored, and sent to the node."""
        found = []
        if self.index_url and not _has_secret(self.index_url):
            found += ["--default-index", self.index_url]
        if not any(map(_has_secret, self.extra_index_urls)):
            for url in self.extra_index_urls:
                found += ["--index", url]
        for link in self.find_links:
            if not _has_secret(link):
                found += ["--find-links", link]
        if self.no_index:
            found += ["--no-index"]
        return found

    def secret_env(self) -> dict[str, str]:
        """Addresses with secrets as variables of uv's process: never stored, never seen among its arguments."""
        found = {}
        if _has_secret(self.index_url):
            found["UV_DEFAULT_INDEX"] = fill_in(self.index_url, self.secrets)
        if any(map(_has_secret, self.extra_index_urls)):
            found["UV_INDEX"] = " ".join(fill_in(u, self.secrets) for u in self.extra_index_urls)
        links = [fill_in(u, self.secrets) for u in self.find_links if _has_secret(u)]
        if links:
            found["UV_FIND_LINKS"] = " ".join(links)
        return found


def _has_secret(address: str) -> bool:
    return "${" in address


def fill_in(text: str, secrets: Mapping[str, str]) -> str:
    import re
    from urllib.parse import quote

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in secrets:
            raise EnvironmentInvalid(
                f"The address of a package index needs the secret {name}, which is not known.",
                hint=f"`shunter secret set {name}` keeps it.",
            )
        return quote(secrets[name], safe="")

    return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", value, text)


def solve(
    packages: Sequence[str], python: str, platform: Platform, sources: Sources, constraints: Sequence[str] = ()
) -> str:
    """Requirements with exact versions and hashes, as `uv pip compile` writes them."""
    if not packages:
        return ""
    with tempfile.TemporaryDirectory(prefix="shunter-solve-") as folder:
        Path(folder, "requirements.in").write_text("\n".join(packages) + "\n", "utf-8")
        command = [
            "pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate",
            "--python-version", python, "--python-platform", platform.for_uv, "requirements.in",
        ]  # fmt: skip
        if constraints:
            Path(folder, "constraints.txt").write_text("\n".join(constraints) + "\n", "utf-8")
            command += ["--constraint", "constraints.txt"]
        return _uv([*command, *sources.options()], folder, "The packages cannot be had together", sources.secret_env())


def list_files(pip_lock: str, python: str, platform: Platform, sources: Sources) -> str:
    """The files of a lock with their addresses and hashes, as a `pylock.toml`; only those that fit the platform."""
    with tempfile.TemporaryDirectory(prefix="shunter-solve-") as folder:
        Path(folder, "lock.txt").write_text(pip_lock, "utf-8")
        command = [
            "pip", "compile", "--quiet", "--no-deps", "--no-header", "--format", "pylock.toml", "--python-version", python,
            "--python-platform", platform.for_uv, "lock.txt",
        ]  # fmt: skip
        return _uv(
            [*command, *sources.options()], folder, "The files of the lock cannot be listed", sources.secret_env()
        )


def export(files: Mapping[str, str]) -> str:
    """The requirements of a project's own `uv.lock`, as they are locked there."""
    with tempfile.TemporaryDirectory(prefix="shunter-solve-") as folder:
        for name, text in files.items():
            if name not in ("pyproject.toml", "uv.lock"):
                raise EnvironmentInvalid(f"{name!r} is not a file that an environment can have.")
            Path(folder, name).write_text(text, "utf-8")
        return _uv(
            ["export", "--quiet", "--frozen", "--no-emit-project", "--no-dev", "--no-header", "--no-annotate"],
            folder,
            "The uv.lock cannot be used",
        )


def find_uv() -> str:
    """The uv binary that came with the server."""
    beside = Path(sysconfig.get_path("scripts"), "uv")
    if beside.exists():
        return str(beside)
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
        if found is None:
            raise ExtraMissing(
                "Building environments needs uv.", hint="pip install 'shunter[server]' brings it."
            ) from None
        return found


def _uv(arguments: Sequence[str], folder: str, what: str, more: Mapping[str, str] | None = None) -> str:
    env = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    env.setdefault("UV_HTTP_TIMEOUT", str(HTTP_SECONDS))
    env |= {"UV_NO_PROGRESS": "1", "NO_COLOR": "1", **(more or {})}
    try:
        done = subprocess.run(
            [find_uv(), *arguments],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=SOLVE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentInvalid(
            f"{what}: the solver took longer than {SOLVE_SECONDS:.0f} s.", hint="Does the package index answer?"
        ) from error
    if done.returncode:
        code, hint = words.category(done.stderr)
        if code == "package_index_unreachable":
            what = "The package index does not answer as it should"
        elif code != "node_disk_full":
            hint = "Change the versions asked for."
        raise EnvironmentInvalid(f"{what}: {words.reason(done.stderr)}", hint=hint)
    return done.stdout
