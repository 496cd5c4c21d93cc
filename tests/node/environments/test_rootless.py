"""Containers of an ordinary user: podman without root, in the user's own namespaces."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shunter
from shunter.server.environments.pypi import find_uv
from shunter.testing.containers import IMAGE, rootless
from shunter.testing.environments import Node
from shunter.testing.house import wait_until

#: What a launcher does, in a process of the user: prepare, run, clean up.
LAUNCH = """
import json, os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from shunter.node import environments
spec, folder, root, job = json.loads(sys.argv[2])
found = environments.prepare(spec, folder, root, lambda what: None, lambda: False, job)
argv, env = found.wrap.command([*found.argv_prefix, "s.py"], dict(found.env))
status = subprocess.run(argv, env=env).returncode
found.wrap.ended(status << 8)
print(json.dumps({"status": status, "facts": found.facts, "rootless": found.wrap.engine.rootless}))
"""


@pytest.fixture(scope="module")
def user() -> Iterator[tuple[str, Path]]:
    with rootless() as found:
        if found is None:
            pytest.skip("there is no user for it: scripts/parts/rootless makes one")
        yield found


def launch(user: tuple[str, Path], name: str, code: str, **spec: Any) -> tuple[list[str], dict[str, Any]]:
    """Run a script as the user; what it printed, and what came of it."""
    as_user, place = user
    folder = place / "launches" / name
    (folder / "work" / "outputs").mkdir(parents=True)
    (folder / "work" / "s.py").write_text(code)
    asked = {"kind": "container", "engine": "podman", "container": {"image": IMAGE}, **spec}
    job = {"id": "b" * 32 + ".1.0", "tools": {"uv": find_uv()}}
    owner = place.stat()
    subprocess.run(["chown", "-R", f"{owner.st_uid}:{owner.st_gid}", str(place)], check=True)
    source = Path(shunter.__file__).parents[1]
    given = json.dumps([asked, str(folder), str(place), job])
    done = subprocess.run(
        [as_user, "/usr/bin/python3", "-c", LAUNCH, str(source), given], capture_output=True, text=True, check=False
    )
    if "Permission denied" in done.stderr and str(source) in done.stderr:
        pytest.skip(f"an ordinary user cannot read {source}")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    found = json.loads(lines[-1])
    return lines[:-1], {**found, "stderr": done.stderr}


def test_a_script_runs_under_the_users_own_id_and_its_files_are_the_users(user: tuple[str, Path]) -> None:
    said, found = launch(user, "one", "import os\nprint(os.getuid())\nopen('outputs/a', 'w').write('x')\n")
    assert found["rootless"]
    assert found["status"] == 0, found
    uid = user[1].stat().st_uid
    assert uid != 0
    assert said == [str(uid)]
    assert (user[1] / "launches/one/work/outputs/a").stat().st_uid == uid


def test_packages_are_installed_for_the_image_without_root(user: tuple[str, Path]) -> None:
    node = Node(user[1] / "node")
    built = node.spec(node.wheel("alpha", "1.4"))
    built["lock"]["python"] = "3.11"
    spec = {k: v for k, v in built.items() if k != "kind"}
    said, found = launch(user, "two", "import alpha, sys\nprint(alpha.__version__, sys.prefix)\n", **spec)
    assert found["status"] == 0, (said, found)
    assert said[-1].startswith("1.4 " + str(user[1]))
    list_all = [user[0], "podman", "ps", "-aq"]
    wait_until(lambda: not subprocess.run(list_all, capture_output=True, text=True, check=True).stdout, what="no container")
    assert os.path.isdir(user[1] / "environments")
