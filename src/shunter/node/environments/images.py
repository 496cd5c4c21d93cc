"""The image of a container environment on this node: pulled or built once, known by its id, its interpreter found."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile

from shunter.node.contract import write_whole
from shunter.node.environments import Unavailable, process, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from shunter.node.environments import Job
    from shunter.node.environments.engines import Engine

PULL_SECONDS = 1700.0
_FIND = (
    'for p in "$@"; do q=$(command -v "$p" 2>/dev/null) && "$q" -c '
    "'import sys; print(\"python:\", sys.executable, sys.version.split()[0])' && exit 0; done; exit 3"
)
_CANDIDATES = (
    "python3", "python", "/opt/conda/bin/python", "/opt/venv/bin/python", "/usr/local/bin/python3", "/usr/bin/python3",
    "/opt/python/bin/python3", "/root/miniconda3/bin/python",
)  # fmt: skip


def get(work, engine):
    # type: (Job, Engine) -> Dict[str, Any]
    """What is known of the image: id, digest, interpreter, python. Asks the engine only the first time."""
    box = work.spec["container"]
    path = os.path.join(work.cache, "images", _key(work, box) + ".json")
    known = _read(path)
    if known is not None and box.get("pull") != "always" and engine.has_image(known["id"]):
        return known
    reference = _build(work, engine, box) if box.get("dockerfile") else _pull(work, engine, box)
    facts = _inspect(work, engine, reference)
    work.say("looking for the interpreter in the image")
    facts.update(_interpreter(work, engine, facts["id"], box.get("interpreter") or "", reference))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_whole(path, json.dumps(facts).encode())
    return facts


def _key(work, box):
    # type: (Job, Dict[str, Any]) -> str
    parts = [box.get(k) or "" for k in ("image", "pinned", "dockerfile", "context", "interpreter")]
    if box.get("context") == "snapshot":
        parts.append(str(work.whole.get("snapshot_id")))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _pull(work, engine, box):
    # type: (Job, Engine, Dict[str, Any]) -> str
    reference = str(box.get("image") or "")
    if box.get("pinned"):
        reference = re.sub(r"(@sha256:[0-9a-f]+|:[\w.-]+)?$", "", reference) + "@" + box["pinned"]
    if box.get("pull") != "always" and _run(work, engine, ["image", "inspect", reference], log=False).code == 0:
        return reference
    if box.get("pull") == "never":
        raise Unavailable(
            "image_missing",
            "The image " + reference + " is not on this node, and the environment says not to pull it.",
            "Pull it there, or leave out pull: never.",
        )
    work.say("pulling the image " + reference)
    done = _run(work, engine, ["pull", reference])
    if done.code:
        # A pinned digest that no registry knows (an image made on the node): the name may still be that very image.
        plain = str(box.get("image"))
        known = box.get("pinned") and _run(work, engine, ["image", "inspect", plain], log=False).code == 0
        if known and _inspect(work, engine, plain)["digest"] == box["pinned"]:
            return plain
        code = words.category(done.output)[0]
        raise Unavailable(
            code if code == "node_disk_full" else "image_unavailable",
            "The image " + reference + " cannot be pulled: " + words.reason(done.output),
            "Is the name right, and is this node logged in to the registry?",
        )
    return reference


def _build(work, engine, box):
    # type: (Job, Engine, Dict[str, Any]) -> str
    work.say("building the image from its Dockerfile")
    tag = "localhost/shunter/" + _key(work, box)
    folder = tempfile.mkdtemp(prefix="shunter-image-")
    try:
        dockerfile = os.path.join(folder, "Dockerfile")
        with open(dockerfile, "w") as file:
            file.write(box["dockerfile"])
        context = os.path.join(work.folder, "work") if box.get("context") == "snapshot" else folder
        done = _run(work, engine, ["build", "--tag", tag, "--file", dockerfile, context])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.code:
        code = words.category(done.output)[0]
        raise Unavailable(
            code if code == "node_disk_full" else "image_build_failed",
            "The image could not be built from its Dockerfile: " + words.reason(done.output),
            "`shunter run logs` shows the build.",
        )
    return tag


def _inspect(work, engine, reference):
    # type: (Job, Engine, str) -> Dict[str, Any]
    done = _run(work, engine, ["image", "inspect", reference], log=False)
    try:
        found = json.loads(done.output[done.output.index("[") : done.output.rindex("]") + 1])[0]
    except (ValueError, IndexError):
        why = words.reason(done.output)
        raise Unavailable("image_missing", "The image " + reference + " is not on this node: " + why) from None
    image_id = str(found["Id"]).replace("sha256:", "")
    digests = [d.rpartition("@")[2] for d in found.get("RepoDigests") or ()]
    return {
        "reference": reference,
        "id": image_id,
        "digest": str(found.get("Digest") or (digests[0] if digests else "") or "sha256:" + image_id),
        "os": "%s/%s" % (found.get("Os", "linux"), found.get("Architecture", "")),
    }


def _interpreter(work, engine, image_id, told, reference):
    # type: (Job, Engine, str, str, str) -> Dict[str, str]
    """Which Python in the image runs the script: the one that was told, or the first that answers."""
    candidates = [told] if told else list(_CANDIDATES)
    base = ["run", "--rm", "--network", "none", "--pull", "never"]
    done = _run(work, engine, [*base, "--entrypoint", "/bin/sh", image_id, "-c", _FIND, "sh", *candidates], log=False)
    found = _parse(done.output)
    if found is None and done.code not in (0, 3):
        # No shell in the image: ask the candidates themselves.
        for one in candidates[:3]:
            code = "import sys; print('python:', sys.executable, sys.version.split()[0])"
            done = _run(work, engine, [*base, "--entrypoint", one, image_id, "-c", code], log=False)
            found = _parse(done.output)
            if found:
                break
    if found is not None:
        return found
    if work.spec.get("lock", {}).get("conda"):
        return {"interpreter": "", "python": ""}  # the conda packages bring their own
    missing = told + "." if told else "Python (looked for " + ", ".join(_CANDIDATES[:4]) + ", …)."
    raise Unavailable(
        "interpreter_missing",
        "The image " + reference + " has no " + missing,
        "Tell its path (container.interpreter), or use an image that has one, such as docker.io/library/python.",
    )


def _parse(output):
    # type: (str) -> Optional[Dict[str, str]]
    match = re.search(r"(?m)^python: (\S+) (\S+)\s*$", output)
    return {"interpreter": match.group(1), "python": match.group(2)} if match else None


def _run(work, engine, arguments, log=True):
    # type: (Job, Engine, List[str], bool) -> process.Done
    return process.run(
        [*engine.command, *arguments], dict(os.environ), work.log if log else None, work.canceled, PULL_SECONDS
    )


def _read(path):
    # type: (str) -> Optional[Dict[str, Any]]
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())  # type: ignore[no-any-return]
    except (OSError, ValueError):
        return None
