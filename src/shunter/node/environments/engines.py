"""Which container engine answers on this node, and what is known of it. Asked once, then remembered."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys

from shunter.node.contract import write_whole
from shunter.node.environments import Unavailable, process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from shunter.node.environments import Job

ASK_SECONDS = 60.0
SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")


class Engine:
    """How containers are run here. `kind` is podman or docker; `store` is podman's, where images can be looked up."""

    def __init__(self, command, kind, rootless=False, store="", version=""):
        # type: (List[str], str, bool, str, str) -> None
        self.command = command
        self.kind = kind
        self.rootless = rootless
        self.store = store
        self.version = version

    def has_image(self, image_id):
        # type: (str) -> bool
        """Whether an image is still there, as far as that can be told without asking the engine."""
        return not self.store or os.path.isdir(os.path.join(self.store, image_id.replace("sha256:", "")))

    def to_json(self):
        # type: () -> Dict[str, Any]
        return {"command": self.command, "kind": self.kind, "rootless": self.rootless, "store": self.store,
                "version": self.version}  # fmt: skip


def find(work):
    # type: (Job) -> Engine
    """The engine that was named, else docker or podman, whichever answers first; a bare socket serves too."""
    named = work.spec.get("engine") or os.environ.get("SHUNTER_CONTAINER_ENGINE") or ""
    memory = os.path.join(work.cache, "engine.json")
    try:
        with open(memory, "rb") as file:
            known = json.loads(file.read())
        if known.pop("named") == named and os.access(known["command"][0], os.X_OK):
            return Engine(**known)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    tried = []  # type: List[str]
    for command in _candidates(named):
        found = _ask(command, work, tried)
        if found is not None:
            os.makedirs(work.cache, exist_ok=True)
            write_whole(memory, json.dumps(dict(found.to_json(), named=named)).encode())
            return found
    raise Unavailable(
        "container_engine_missing",
        "No container engine answers on this node"
        + (" (" + "; ".join(tried) + ")." if tried else ": there is neither docker nor podman."),
        "Start Docker or install podman there, or use an environment without an image.",
    )


def forget(work):
    # type: (Job) -> None
    try:
        os.unlink(os.path.join(work.cache, "engine.json"))
    except OSError:
        pass


def _candidates(named):
    # type: (str) -> List[List[str]]
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "docker_api.py")
    if named.startswith("unix://"):
        return [[sys.executable, here, "--socket", named[7:]]]
    if named:
        return [shlex.split(named)]
    found = [[path] for path in (shutil.which("docker"), shutil.which("podman")) if path]
    host = os.environ.get("DOCKER_HOST", "")
    sockets = [host[7:]] if host.startswith("unix://") else []
    sockets += [s for s in SOCKETS if os.path.exists(s)]
    user = "/run/user/%d/podman/podman.sock" % os.getuid()
    if os.path.exists(user):
        sockets.append(user)
    return found + [[sys.executable, here, "--socket", s] for s in sockets]


def _ask(command, work, tried):
    # type: (List[str], Job, List[str]) -> Optional[Engine]
    path = shutil.which(command[0])
    if path is None:
        tried.append(command[0] + " is not there")
        return None
    command = [path, *command[1:]]
    env = dict(os.environ)
    done = process.run([*command, "version", "--format", "{{json .}}"], env, None, work.canceled, ASK_SECONDS)
    if done.code:
        last = [line for line in done.output.splitlines() if line.strip()]
        tried.append(os.path.basename(command[0]) + ": " + (last[-1].strip()[:200] if last else "no answer"))
        return None
    told = "podman" in os.path.basename(command[0]) or "Podman" in done.output
    kind = "podman" if told and len(command) == 1 else "docker"
    store, rootless = "", False
    if kind == "podman" and len(command) == 1:
        info = process.run([*command, "info", "--format", "{{json .}}"], env, None, work.canceled, ASK_SECONDS)
        try:
            loaded = json.loads(info.output[info.output.index("{") :])
            rootless = bool(loaded["host"]["security"]["rootless"])
            images = os.path.join(loaded["store"]["graphRoot"], loaded["store"]["graphDriverName"] + "-images")
            store = images if os.path.isdir(images) else ""
        except (ValueError, KeyError, TypeError):
            pass
    return Engine(command, kind, rootless, store, _version(done.output))


def _version(output):
    # type: (str) -> str
    import re

    match = re.search(r'"Version"\s*:\s*"([^"]+)"', output)
    return match.group(1) if match else ""
