"""Packages for a container: installed once by the image's own interpreter, into the node's cache, then mounted."""

from __future__ import annotations

import hashlib
import os

from shunter.node.environments import built
from shunter.node.environments.install import Steps, finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from shunter.node.environments import Job
    from shunter.node.environments.engines import Engine

_CERTIFICATES = "/run/shunter-certificates.pem"


class EnvironmentInImage:
    def __init__(self, work, engine, image):
        # type: (Job, Engine, Dict[str, Any]) -> None
        self.work = work
        self.engine = engine
        self.image = image

    def get(self):
        # type: () -> Dict[str, Any]
        """The finished environment for this image and lock; `interpreter` is its path inside and outside."""
        key = hashlib.sha256((self.work.spec["lock_id"] + " " + self.image["id"]).encode()).hexdigest()[:32]
        return built.get_or_build(self.work, key, self._build)

    def _build(self, work, folder):
        # type: (Job, str) -> Dict[str, Any]
        lock = work.spec["lock"]
        if lock.get("conda"):
            step = Steps(work, folder)  # a conda environment brings its own interpreter and libraries
        else:
            step = Steps(work, folder, self._inside)
        odd = []  # type: List[str]
        try:
            if lock.get("conda"):
                step.conda(lock["conda"])
            else:
                step.venv(self.image["interpreter"], lock["python"])
            if lock.get("pip", "").strip() and step.packages(lock["pip"]):
                odd = step.mend(lock["pip"])
        finally:
            step.close()
        return dict(finish(work, folder, inside=True), odd=odd)

    def _inside(self, argv, env):
        # type: (List[str], Dict[str, str]) -> List[str]
        """The command, in a container of the image: with the cache, uv itself, and what uv needs to reach an index."""
        work = self.work
        # Below the environments, in one mount with them: files are shared by links, which do not cross mounts.
        env["UV_CACHE_DIR"] = os.path.join(work.cache, "uv-cache")
        uv = os.path.realpath(argv[0])
        command = [*self.engine.command, "run", "--rm", "--init", "--pull", "never", "--network", "host",
                   "--security-opt", "label=disable", "--user", "%d:%d" % (os.getuid(), os.getgid()),
                   "--volume", work.cache + ":" + work.cache, "--volume", uv + ":/run/shunter-uv:ro",
                   "--workdir", work.cache, "--env", "HOME=/tmp", "--env", "UV_PYTHON_DOWNLOADS=never"]  # fmt: skip
        if self.engine.rootless:
            command += ["--userns", "keep-id"]
        if work.spec.get("wheels"):
            command += ["--volume", work.folder + ":" + work.folder + ":ro"]
        for link in work.spec.get("options") or ():
            if os.path.isdir(link):
                command += ["--volume", link + ":" + link + ":ro"]
        certificates = env.get("SSL_CERT_FILE")
        if certificates and os.path.exists(certificates):
            command += ["--volume", os.path.realpath(certificates) + ":" + _CERTIFICATES + ":ro",
                        "--env", "SSL_CERT_FILE=" + _CERTIFICATES]  # fmt: skip
        for name in sorted(env):
            if name.startswith("UV_") or name.lower() in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
                command += ["--env", name]
        return [*command, "--entrypoint", "/run/shunter-uv", self.image["id"], *argv[1:]]
