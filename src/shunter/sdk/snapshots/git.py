"""What git knows about the folder. It is asked beside the walk, in a thread, and may be missing or slow."""

from __future__ import annotations

import os
import threading

from shunter.model.snapshot import GitState

TIMEOUT_SECONDS = 5.0


class GitProbe:
    """Asks git at once and answers when asked. Without a repository it costs a few calls of lstat."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._state: GitState | None = None
        self._thread: threading.Thread | None = None
        if _in_repository(folder):
            self._thread = threading.Thread(target=self._ask, name="git-state", daemon=True)
            self._thread.start()

    def result(self) -> GitState | None:
        """The state, or None where there is no repository, no git, or no answer."""
        if self._thread is not None:
            self._thread.join(TIMEOUT_SECONDS + 1)
        return self._state

    def _ask(self) -> None:
        import subprocess  # here, for a client outside of a repository does not need it

        try:
            status = _git(self._folder, "status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--", ".")
            if status is None:
                return
            remotes = _git(self._folder, "config", "--get-regexp", r"^remote\..*\.url$") or ""
        except subprocess.TimeoutExpired:
            self._state = GitState(None, None, None, None)
            return
        except OSError:
            return  # git is not installed
        self._state = _parse(status, remotes)


def without_credentials(url: str) -> str:
    """The address of a remote as it may be stored: no user, password or token in it.

    >>> without_credentials("https://me:secret@example.org/team/repo.git?token=x")
    'https://example.org/team/repo.git'
    """
    if "://" not in url:
        return url  # a path, or git@host:path, which has no place for a password
    from urllib.parse import urlsplit, urlunsplit

    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _in_repository(folder: str) -> bool:
    here = folder
    while True:
        if os.path.lexists(os.path.join(here, ".git")):
            return True
        above = os.path.dirname(here)
        if above == here:
            return False
        here = above


def _git(folder: str, *arguments: str) -> str | None:
    import subprocess

    # Inside a git hook these would name another repository. The repository's own fsmonitor hook must not run.
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", *arguments],
        cwd=folder,
        env={**clean, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _parse(status: str, remotes: str) -> GitState:
    commit = branch = None
    dirty = False
    for line in status.splitlines():
        if line.startswith("# branch.oid "):
            commit = line.removeprefix("# branch.oid ")
        elif line.startswith("# branch.head "):
            branch = line.removeprefix("# branch.head ")
        elif line and not line.startswith("#"):
            dirty = True
    urls = dict(line.split(" ", 1) for line in remotes.splitlines() if " " in line)
    remote = urls.get("remote.origin.url") or next(iter(urls.values()), None)
    return GitState(
        commit=None if commit == "(initial)" else commit,
        branch=None if branch == "(detached)" else branch,
        dirty=dirty,
        remote=without_credentials(remote) if remote else None,
    )
