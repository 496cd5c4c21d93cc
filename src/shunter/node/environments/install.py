"""Filling an environment's folder from its lock: uv for PyPI packages, rattler for conda's; both travelled here."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys

from shunter.node.environments import Unavailable, process, words
from shunter.node.environments.built import remember
from shunter.node.environments.damage import damaged
from shunter.node.environments.pythons import as_numbers, at_hand, site_packages, uv_cache, version_of
from shunter.node.environments.turns import at_work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence

    from shunter.node.environments import Job

TIMEOUT_SECONDS = 1700.0  # below the deadline of the state Preparing
HTTP_TIMEOUT_SECONDS = 30
HTTP_RETRIES = 3


def install(work, folder):
    # type: (Job, str) -> Dict[str, Any]
    """Build the lock of `work` into `folder`, which is empty. Returns what to remember of it."""
    lock = work.spec["lock"]
    step = Steps(work, folder)
    odd = []  # type: List[str]
    try:
        if lock.get("conda"):
            step.conda(lock["conda"])
        else:
            step.venv(lock["python"])
        if lock.get("pip", "").strip() and step.packages(lock["pip"]):
            odd = step.mend(lock["pip"])
    finally:
        step.close()
    found = dict(finish(work, folder), odd=odd)
    if work.spec.get("compile"):
        step.compile(found["interpreter"], found.get("packages_folder") or folder)
    return found


def finish(work, folder, inside=False):
    # type: (Job, str, bool) -> Dict[str, Any]
    """What to remember of a filled folder. `inside`: its interpreter leads somewhere only in an image."""
    interpreter = os.path.join(folder, "bin", "python")
    if not (os.path.lexists(interpreter) if inside else os.access(interpreter, os.X_OK)):
        raise Unavailable(
            "interpreter_missing", "The environment has no Python interpreter.", "Add python to its conda packages."
        )
    return remember(folder, interpreter, version_of(folder), site_packages(folder), inside)


class Steps:
    """The commands, each with its output in the run's log and in the log that others follow."""

    def __init__(self, work, folder, around=None):
        # type: (Job, str, Optional[Callable[[List[str], Dict[str, str]], List[str]]]) -> None
        self.work = work
        self.folder = folder
        self.around = around  # puts a command into a container
        self.base = folder.rpartition(".")[0]
        self.log = self.base + ".log"
        open(self.log, "w").close()
        self.copied = 0
        self.env = self._environment()

    def venv(self, python, must_be=""):
        # type: (str, str) -> None
        """`python` is a version or the path of an interpreter; `must_be` the version that the lock was made for."""
        self.work.say("creating the environment (Python " + (must_be or python) + ")")
        preference = ["--python-preference", "only-system" if self.work.spec.get("offline") else "system"]
        if self.around is None:
            python = at_hand(python) or python
        done = self._uv(
            ["venv", "--no-project", "--allow-existing", "--quiet", "--python", python, *preference, self.folder]
        )
        if must_be and not done.code and not (version_of(self.folder) + ".").startswith(must_be + "."):
            raise Unavailable(
                "python_unavailable",
                "The image has Python " + version_of(self.folder) + ", and the environment asks for " + must_be + ".",
                "Ask for the Python that the image has, or take another image.",
            )
        if done.code:
            self._check_known(done)
            raise Unavailable(
                "python_unavailable",
                "Python " + python + " cannot be had on this node: " + words.reason(done.output),
                "It has " + (", ".join(self._pythons()) or "no Python that uv finds")
                + ". Ask for one of these, or use a conda environment.",
            )

    def mend(self, lock):
        # type: (str) -> List[str]
        """Files are shared with the installer's cache: one that a power cut damaged there is fetched again.

        Returns the packages that are not as they say even so.
        """
        read = bool(self.work.spec.get("verify"))
        bad = damaged(site_packages(self.folder), (), read)
        if not bad:
            return []
        self.work.write("damaged in the package cache, fetched again: " + ", ".join(bad))
        self._uv(["cache", "clean", "--quiet", *bad])
        self.packages(lock, [x for name in bad for x in ("--reinstall-package", name)])
        return damaged(site_packages(self.folder), (), read)

    def packages(self, lock, options=()):
        # type: (str, Sequence[str]) -> bool
        """Install them all; True when some were not fetched now, but taken from the installer's cache."""
        count = len(re.findall(r"(?m)^[A-Za-z0-9]", lock))
        self.work.say("installing %d packages" % count)
        file = self.folder + ".txt"
        with open(file, "w") as out:
            out.write(lock)
        try:
            python = os.path.join(self.folder, "bin", "python")
            command = ["pip", "install", "--no-deps", "--python", python, "--requirement", file, "--no-progress"]
            if self.work.spec.get("lock", {}).get("conda"):
                command += ["--break-system-packages"]
            done = self._uv([*command, *options, *self._sources()])
        finally:
            os.unlink(file)
        if done.code:
            self._fail(done, "The packages could not be installed")
        fetched = re.search(r"(?m)^Prepared (\d+) package", done.output)
        return fetched is None or int(fetched.group(1)) < count

    def _sources(self):
        # type: () -> List[str]
        """Where the packages come from: an index, folders, or wheels that the server hands on."""
        if not self.work.spec.get("wheels"):
            return [str(o) for o in self.work.spec.get("options") or ()]
        from shunter.node.environments.wheels import get_wheels

        return ["--offline", "--no-index", "--find-links", get_wheels(self.work)]

    def conda(self, lock):
        # type: (str) -> None
        rattler = self.work.tools.get("rattler")
        if not rattler:
            raise Unavailable("tool_missing", "This node was given no tool to install conda packages.")
        self.work.say("installing conda packages")
        file = self.folder + ".conda.json"
        with open(file, "w") as out:
            cache = os.path.join(self.work.cache, "conda-packages")
            json.dump({"lock": lock, "prefix": self.folder, "cache": cache}, out)
        here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "conda_install.py")
        try:
            command = [self._modern_python(), "-I", here, os.path.dirname(rattler), file]
            done = self._run(command)
            if done.code < 0:
                self.work.write("the installer was killed by signal %d; once more, from the start" % -done.code)
                for name in os.listdir(self.folder):
                    shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
                done = self._run(command)
        finally:
            os.unlink(file)
        if done.code:
            self._fail(done, "The conda packages could not be installed")

    def compile(self, interpreter, packages):
        # type: (str, str) -> None
        """Where byte code may not be written at run time, every start would compile everything again."""
        self.work.say("compiling")
        self._run([interpreter, "-m", "compileall", "-q", "-j", "0", packages])
        self.close()

    def close(self) -> None:
        """Bring what the others follow up to date."""
        self._copy()

    def _uv(self, arguments):
        # type: (List[str]) -> process.Done
        uv = self.work.tools.get("uv") or self.work.spec.get("uv")
        if not uv:
            raise Unavailable("tool_missing", "This node was given no uv to build environments with.")
        return self._run([uv, *arguments])

    def _run(self, argv):
        # type: (List[str]) -> process.Done
        def canceled():
            # type: () -> bool
            self._copy()
            return self.work.canceled()

        if self.around is not None:
            argv = self.around(argv, self.env)
        limit = float(self.work.spec.get("timeout_seconds") or TIMEOUT_SECONDS)

        def on_start(pid):
            # type: (int) -> None
            at_work(self.folder, pid)

        return process.run(argv, self.env, self.log, canceled, limit, self.work.cache, on_start)

    def _copy(self) -> None:
        """What the installer said since the last look, into the run's own log."""
        with open(self.log, "rb") as file:
            file.seek(self.copied)
            data = file.read()
        if data:
            self.copied += len(data)
            with open(self.work.log, "ab") as out:
                out.write(data)

    def _environment(self):
        # type: () -> Dict[str, str]
        others = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "CONDA_PREFIX")
        env = {k: v for k, v in os.environ.items() if k not in others}
        env["UV_NO_PROGRESS"] = "1"
        env.setdefault("UV_HTTP_TIMEOUT", str(self.work.spec.get("http_timeout_seconds") or HTTP_TIMEOUT_SECONDS))
        env.setdefault("UV_HTTP_RETRIES", str(HTTP_RETRIES))
        if "UV_CACHE_DIR" not in env:
            env["UV_CACHE_DIR"] = uv_cache(self.work.cache)
        env.update(self.work.spec.get("secrets") or {})
        return env

    def _fail(self, done, what):
        # type: (process.Done, str) -> None
        self._check_known(done)
        code, hint = words.category(done.output)
        how = " (killed by signal %d)" % -done.code if done.code < 0 else ""
        said = words.reason(done.output) or "the installer ended with code %d and said nothing." % done.code
        raise Unavailable(code, what + how + ": " + said, hint)

    def _check_known(self, done):
        # type: (process.Done) -> None
        code, hint = words.category(done.output)
        if code == "node_disk_full":
            raise Unavailable(code, "The disk of the node is full (" + self.work.cache + ").", hint)

    def _pythons(self):
        # type: () -> List[str]
        uv = self.work.tools.get("uv") or ""
        done = process.run(
            [uv, "python", "list", "--no-python-downloads", "--output-format", "json"], self.env, None,
            self.work.canceled, 60.0,
        )  # fmt: skip
        try:
            # Warnings about interpreters that cannot be asked stand around it.
            start = done.output.index('[{"key"')
            found = json.JSONDecoder().raw_decode(done.output[start:])[0]
        except ValueError:
            return []
        return sorted({one["version"] for one in found if one.get("path")}, key=as_numbers)

    def _modern_python(self):
        # type: () -> str
        """The conda installer's library wants Python 3.10; ours may be older."""
        if tuple(sys.version_info) >= (3, 10):
            return sys.executable
        uv = self.work.tools.get("uv") or ""
        done = process.run([uv, "python", "find", ">=3.10", "--quiet"], self.env, None, self.work.canceled, 300.0)
        if done.code:
            raise Unavailable("python_unavailable", "Conda packages need Python 3.10 or newer on this node.")
        return done.output.strip().splitlines()[-1]
