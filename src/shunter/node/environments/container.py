"""A script in a container: the launcher stays on the host, the engine is its child, nothing is needed inside."""

from __future__ import annotations

import hashlib
import os
import shutil

from shunter.node.environments import Prepared, Unavailable, engines, images
from shunter.node.environments.in_image import EnvironmentInImage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from shunter.node.environments import Job
    from shunter.node.environments.engines import Engine

SHM_BYTES = 2 << 30
#: Variables that mean something to the engine's own command: given by value, never through its environment.
_ENGINES_OWN = (
    "PATH", "HOME", "TMPDIR", "LD_", "XDG_", "CONTAINER", "DOCKER_", "STORAGE_", "BUILDAH_", "PODMAN_", "PYTHON",
)  # fmt: skip
#: What Docker's own option for GPUs needs; without it the devices are passed as they are.
_NVIDIA_TOOLS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit", "nvidia-container-cli")


def prepare_container(work):
    # type: (Job) -> Prepared
    engine = engines.find(work)
    image = images.get(work, engine)
    interpreter = image["interpreter"]
    mounts = []  # type: List[str]
    facts = {
        "kind": "container", "image": image["reference"], "image_id": image["id"], "image_digest": image["digest"],
        "python": image["python"], "engine": (engine.kind + " " + engine.version).strip(),
    }  # type: Dict[str, Any]
    env = dict(work.spec.get("env") or {})
    if work.spec.get("lock_id"):
        found = EnvironmentInImage(work, engine, image).get()
        interpreter = found["interpreter"]
        env.setdefault("VIRTUAL_ENV", found["folder"])
        mounts.append(work.cache + ":" + work.cache + ":ro")
        facts.update({"lock": work.spec["lock_id"], "python": found.get("python") or image["python"]})
    facts["interpreter"] = interpreter
    box = Box(engine, image["id"], interpreter, work.whole, work.spec, work.folder, mounts)
    return Prepared([interpreter], env, facts, box)


class Box:
    """One launch's container: how it is started, what its end means, and how nothing of it is left."""

    def __init__(self, engine, image, interpreter, job, spec, folder, mounts=()):
        # type: (Engine, str, str, Dict[str, Any], Dict[str, Any], str, Any) -> None
        self.engine = engine
        self.image = image
        self.interpreter = interpreter
        self.job = job
        self.spec = spec
        self.folder = folder
        self.mounts = list(mounts)
        self.name = name_of(str(job["id"]))

    @classmethod
    def adopt(cls, work):
        # type: (Job) -> Box
        """The container of a launch whose launcher died: enough to end it and to clean up."""
        return cls(engines.find(work), "", "", work.whole, work.spec, work.folder)

    def command(self, argv, env):
        # type: (List[str], Dict[str, str]) -> Tuple[List[str], Dict[str, str]]
        """The engine's command line and its environment. `argv` begins with the interpreter inside."""
        inner = dict(env)
        if os.getuid() != 0:
            inner.setdefault("HOME", "/tmp")
        outer = dict(os.environ)
        limits = self.job.get("limits") or {}
        options = run_options(
            self.engine, self.name, self.folder, self.spec["container"], limits, os.getuid(), os.getgid()
        )
        client = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "client")
        for mount in [client + ":" + client + ":ro", *self.mounts]:
            options += ["--volume", mount]
        for name, value in sorted(inner.items()):
            if name.startswith(_ENGINES_OWN):
                options += ["--env", name + "=" + value]
            else:
                options += ["--env", name]
                outer[name] = value
        return [*self.engine.command, "run", *options, "--entrypoint", argv[0], self.image, *argv[1:]], outer

    def pid(self):
        # type: () -> Optional[int]
        """The first process inside, as the host sees it; None as long as it is not known."""
        try:
            with open(os.path.join(self.folder, "container.pid")) as file:
                return int(file.read())
        except (OSError, ValueError):
            pass
        from shunter.node.contract import find_processes

        ours = [p for p in find_processes(str(self.job["id"])) if not _is_engine(p, self.engine)]
        return ours[0] if ours else None

    def ended(self, status):
        # type: (int) -> int
        """The script's wait status, from that of the engine's command: 128 + n is signal n. Cleans up where needed."""
        if not os.WIFEXITED(status) or os.WEXITSTATUS(status) >= 125:
            self.remove()
        if os.WIFEXITED(status) and 128 < os.WEXITSTATUS(status) <= 128 + 64:
            return os.WEXITSTATUS(status) - 128
        return status

    def trouble(self, status, log):
        # type: (int, str) -> Optional[Dict[str, Any]]
        """Why the container itself could not be run, in words; None when the script is to blame."""
        if not os.WIFEXITED(status) or os.WEXITSTATUS(status) not in (125, 126, 127):
            return None
        last = _last_lines(log)
        if not (last.startswith(("Error:", "docker:", "error:", "time=")) or "OCI runtime" in last):
            return None
        gone = "no such image" in last.lower() or "unable to find image" in last.lower()
        if gone:
            return {"code": "image_missing", "message": "The image was removed from the node: " + last,
                    "hint": "`shunter run rerun` gets it again."}  # fmt: skip
        return {"code": "container_failed", "message": "The container could not be started: " + last,
                "hint": "`shunter run logs` shows all the engine said."}  # fmt: skip

    def remove(self) -> None:
        """End the container, if there is one, and remove all of it. May be repeated."""
        import subprocess

        try:
            subprocess.run([*self.engine.command, "rm", "--force", "--volumes", self.name], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False)  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            pass


def run_options(engine, name, folder, box, limits, uid, gid):
    # type: (Engine, str, str, Dict[str, Any], Dict[str, Any], int, int) -> List[str]
    """The options of `run`. Files that the script makes belong to the user: it runs under the user's own ids."""
    work = os.path.join(folder, "work")
    options = [
        "--rm", "--init", "--name", name, "--pull", "never", "--log-driver", "none", "--security-opt", "label=disable",
        "--network", str(box.get("network") or "host"), "--workdir", work, "--volume", folder + ":" + folder,
        "--shm-size", str(box.get("shm_bytes") or SHM_BYTES), "--user", "%d:%d" % (uid, gid),
    ]  # fmt: skip
    if engine.kind == "podman":
        options += ["--pidfile", os.path.join(folder, "container.pid")]
        if engine.rootless:
            options += ["--userns", "keep-id"]
    if limits.get("cpus"):
        options += ["--cpus", str(limits["cpus"])]
    if limits.get("memory_bytes"):
        options += ["--memory", str(int(limits["memory_bytes"]))]
    for mount in box.get("mounts") or ():
        options += ["--volume", mount["source"] + ":" + mount["target"] + (":ro" if mount.get("read_only") else "")]
    options += gpu_options(engine, limits, str(box.get("dev") or "/dev"))
    return options + [str(a) for a in box.get("arguments") or ()]


def gpu_options(engine, limits, dev="/dev", cdi=("/etc/cdi", "/var/run/cdi")):
    # type: (Engine, Dict[str, Any], str, Any) -> List[str]
    """The GPUs a run asked for, the way this engine takes them."""
    count = int(limits.get("gpus") or 0)
    if not count:
        return []
    ids = [str(i) for i in limits.get("gpu_ids") or range(count)]
    if engine.kind == "docker" and any(shutil.which(name) for name in _NVIDIA_TOOLS):
        return ["--gpus", '"device=' + ",".join(ids) + '"']
    if engine.kind == "podman" and any(os.path.isdir(d) and any("nvidia" in n for n in os.listdir(d)) for d in cdi):
        return [x for i in ids for x in ("--device", "nvidia.com/gpu=" + i)]
    nodes = ["nvidia" + i for i in ids] + ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"]
    there = [n for n in nodes if os.path.exists(os.path.join(dev, n))]
    missing = [n for n in nodes[: len(ids)] if n not in there]
    if missing:
        raise Unavailable(
            "gpu_missing", "The run asks for %d GPUs, and %s is not there." % (count, os.path.join(dev, missing[0])),
            "Ask for fewer, or take a target that has them.",
        )  # fmt: skip
    return [x for n in there for x in ("--device", os.path.join(dev, n) + ":/dev/" + n)]


def name_of(launch_id):
    # type: (str) -> str
    return "shunter-" + hashlib.sha256(launch_id.encode()).hexdigest()[:8] + "-" + launch_id.replace(".", "-")[:40]


def _is_engine(pid, engine):
    # type: (int, Engine) -> bool
    try:
        with open("/proc/%d/comm" % pid) as file:
            return file.read().strip() in ("podman", "docker", "conmon", os.path.basename(engine.command[0])[:15])
    except OSError:
        return True


def _last_lines(log):
    # type: (str) -> str
    from shunter.node.script import last_line

    return last_line(log)
