"""Scripts in containers: the command line as a golden value, and the real thing with podman and with Docker."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from shunter.node.environments import Unavailable, turns
from shunter.node.environments.container import Box, gpu_options, run_options
from shunter.node.environments.engines import Engine
from shunter.testing.containers import IMAGE, docker, podman
from shunter.testing.environments import Node

PODMAN = Engine(["/usr/bin/podman"], "podman", rootless=True)
DOCKER = Engine(["/usr/bin/docker"], "docker")


def test_the_command_line_for_podman_without_root() -> None:
    box = {"image": "i", "shm_bytes": 64 << 20, "mounts": [{"source": "/data", "target": "/d", "read_only": True}],
           "arguments": ["--ulimit", "nofile=1024"]}  # fmt: skip
    options = run_options(PODMAN, "name", "/n/one", box, {"cpus": 2, "memory_bytes": 1 << 30}, 1000, 100)
    assert options == [
        "--rm", "--init", "--name", "name", "--pull", "never", "--log-driver", "none",
        "--security-opt", "label=disable", "--network", "host",
        "--workdir", "/n/one/work", "--volume", "/n/one:/n/one", "--shm-size", "67108864",
        "--user", "1000:100", "--pidfile", "/n/one/container.pid", "--userns", "keep-id", "--cpus", "2",
        "--memory", "1073741824", "--volume", "/data:/d:ro", "--ulimit", "nofile=1024",
    ]  # fmt: skip


def test_the_command_line_for_docker_has_nothing_that_only_podman_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-container-cli").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    options = run_options(DOCKER, "name", "/n/one", {}, {"gpus": 2}, 1000, 100)
    assert "--pidfile" not in options
    assert options[-2:] == ["--gpus", '"device=0,1"']
    assert options[options.index("--shm-size") + 1] == str(2 << 30)


def test_gpu_devices_are_passed_when_the_run_asks_and_the_node_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    none: tuple[str, ...] = ()
    assert gpu_options(PODMAN, {}, str(tmp_path), none) == []
    found = gpu_options(PODMAN, {"gpus": 1}, str(tmp_path), none)
    assert found == [
        x for n in ("nvidia0", "nvidiactl", "nvidia-uvm") for x in ("--device", f"{tmp_path}/{n}:/dev/{n}")
    ]
    assert f"{tmp_path}/nvidia1:/dev/nvidia1" in gpu_options(PODMAN, {"gpus": 1, "gpu_ids": [1]}, str(tmp_path), none)
    with pytest.raises(Unavailable, match="nvidia2"):
        gpu_options(PODMAN, {"gpus": 3}, str(tmp_path), none)
    cdi = tmp_path / "cdi"
    cdi.mkdir()
    (cdi / "nvidia.yaml").touch()
    assert gpu_options(PODMAN, {"gpus": 2}, str(tmp_path), (str(cdi),)) == [
        "--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1",
    ]  # fmt: skip
    # Docker without NVIDIA's tools knows no GPUs, and takes their devices.
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_options(DOCKER, {"gpus": 1}, str(tmp_path), (str(cdi),)) == found


def test_secrets_are_not_seen_among_the_arguments_and_paths_do_not_confuse_the_engine() -> None:
    box = Box(PODMAN, "image", "python3", {"id": "a" * 32 + ".1.0"}, {"container": {}}, "/n/one")
    argv, env = box.command(["python3", "train.py", "--lr", "1"], {"TOKEN": "secret\nline", "PATH": "/inside"})
    assert argv[argv.index("--entrypoint") :] == ["--entrypoint", "python3", "image", "train.py", "--lr", "1"]
    assert "secret" not in " ".join(argv)
    assert env["TOKEN"] == "secret\nline"
    assert "PATH=/inside" in argv
    assert env["PATH"] == os.environ["PATH"]


def test_a_node_without_an_engine_says_so(node: Node) -> None:
    with pytest.raises(Unavailable, match="no-such-engine is not there") as caught:
        node.prepare({"kind": "container", "container": {"image": "i"}, "engine": "no-such-engine"})
    assert caught.value.code == "container_engine_missing"


# The real thing


@pytest.fixture(scope="module", params=["podman", "docker"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with nullcontext(podman()) if request.param == "podman" else docker() as found:
        if found is None:
            pytest.skip(f"{request.param} is not set up: scripts/parts/{request.param} does it")
        yield found


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "engine" in request.fixturenames:
        engine = request.getfixturevalue("engine")
        assert containers(engine) == []


def containers(engine: str) -> list[str]:
    out = subprocess.run([engine, "ps", "-a", "--format", "{{.Names}}"], capture_output=True, text=True, check=True)
    return [name for name in out.stdout.split() if name.startswith("shunter-")]


def spec(engine: str, **box: Any) -> dict[str, Any]:
    return {"kind": "container", "engine": engine, "container": {"image": IMAGE, **box}}


def run(
    node: Node, asked: dict[str, Any], code: str, limits: dict[str, Any] | None = None, uid: int | None = None
) -> tuple[int, str]:
    """Prepare and run a script as a launcher does; its exit code and output."""
    folder = node.launch()
    (folder / "work" / "outputs").mkdir(exist_ok=True)
    (folder / "work" / "s.py").write_text(code)
    prepared = node.prepare(asked)
    assert prepared.wrap is not None
    prepared.wrap.job["limits"] = limits or {}
    argv, env = prepared.wrap.command([*prepared.argv_prefix, "s.py"], dict(prepared.env))
    if uid is not None:
        argv[argv.index("--user") + 1] = f"{uid}:{uid}"
        subprocess.run(["chown", "-R", f"{uid}:{uid}", str(folder)], check=True)
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    prepared.wrap.ended(done.returncode << 8)
    return done.returncode, done.stdout + done.stderr


def test_a_script_runs_in_an_image_that_has_nothing_of_ours(node: Node, engine: str) -> None:
    code = "import sys, os\nprint(sys.executable, os.getcwd())\nopen('outputs/a', 'w').write('x')\nsys.exit(7)\n"
    status, said = run(node, spec(engine), code)
    assert (status, said.split()) == (7, ["/usr/bin/python3", str(node.launch() / "work")])
    assert (node.launch() / "work" / "outputs" / "a").read_text() == "x"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_files_belong_to_the_user_and_not_to_root(node: Node, engine: str) -> None:
    for folder in [node.root, *node.root.parents]:
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    status, said = run(node, spec(engine), "open('outputs/a', 'w').write('x')\n", uid=4321)
    assert status == 0, said
    assert (node.launch() / "work" / "outputs" / "a").stat().st_uid == 4321


def test_the_image_is_pinned_by_its_digest_and_asked_for_once(node: Node, engine: str) -> None:
    first = node.prepare(spec(engine)).facts
    node.said.clear()
    again = node.prepare(spec(engine)).facts
    assert first["image_digest"].startswith("sha256:")
    assert (first["image_digest"], first["image_id"]) == (again["image_digest"], again["image_id"])
    assert node.said == []
    pinned = node.prepare(spec(engine, pinned=first["image_digest"])).facts
    assert pinned["image_id"] == first["image_id"]


def test_memory_and_cpu_limits_and_shared_memory_are_applied(node: Node, engine: str) -> None:
    code = "import os\ns = os.statvfs('/dev/shm')\nprint(s.f_frsize * s.f_blocks >> 20, flush=True)\n"
    code += "bytearray(200 << 20)\n"
    status, said = run(node, spec(engine, shm_bytes=32 << 20), code, {"memory_bytes": 64 << 20, "cpus": 1})
    assert status == 137
    assert said.startswith("32")


def test_extra_mounts_and_devices_are_there(node: Node, engine: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("hello")
    dev = tmp_path / "dev"
    dev.mkdir()
    for name in ("nvidia0", "nvidiactl"):
        subprocess.run(["mknod", str(dev / name), "c", "1", "3"], check=True)
    mount = {"source": str(tmp_path / "data"), "target": "/data", "read_only": True}
    code = "import os\nprint(open('/data/x').read(), [n for n in sorted(os.listdir('/dev')) if 'nvidia' in n])\n"
    code += "open('/data/y', 'w')\n"
    status, said = run(node, spec(engine, mounts=[mount], dev=str(dev)), code, {"gpus": 1})
    assert "hello ['nvidia0', 'nvidiactl']" in said
    assert status == 1
    assert "Read-only" in said


def test_packages_are_installed_for_the_image_and_shared_between_its_runs(node: Node, engine: str) -> None:
    built = node.spec(node.wheel("alpha", "1.4"))
    built["lock"]["python"] = "3.11"
    asked = {**built, **spec(engine)}
    code = "import alpha, sys\nprint(alpha.__version__, sys.prefix)\n"
    first, again = run(node, asked, code), run(node, asked, code)
    assert first[1].startswith("1.4 " + str(node.cache))
    assert first == again
    assert len(node.folders()) == 1
    # A file that a power cut left empty, here and in the installer's cache: found, and fetched again.
    memory = node.cache / (node.folders()[0].partition(".")[0] + ".json")
    known = json.loads(memory.read_text())
    memory.write_text(json.dumps({**known, "boot": "the one before"}))
    Path(known["packages_folder"], "alpha/__init__.py").write_bytes(b"")
    while turns.held:
        os.close(turns.held.pop())
    assert run(node, asked, code)[1].startswith("1.4 ")
    assert "damaged in the package cache, fetched again: alpha" in node.log()


def test_an_image_with_another_python_than_the_lock_is_said(node: Node, engine: str) -> None:
    built = node.spec(node.wheel("alpha"))
    built["lock"]["python"] = "3.9"
    with pytest.raises(Unavailable, match=r"The image has Python 3.11.* asks for 3.9"):
        node.prepare({**built, **spec(engine)})


def test_a_dockerfile_is_built_once_and_may_copy_from_the_snapshot(node: Node, engine: str) -> None:
    (node.launch() / "work" / "given.txt").write_text("from the snapshot")
    text = f"FROM {IMAGE}\nCOPY given.txt /given.txt\n"
    asked = spec(engine, image="", dockerfile=text, context="snapshot")
    assert run(node, asked, "print(open('/given.txt').read())\n") == (0, "from the snapshot\n")
    node.said.clear()
    node.prepare(asked)
    assert node.said == []
    with pytest.raises(Unavailable) as caught:
        node.prepare(spec(engine, image="", dockerfile=f"FROM {IMAGE}\nRUN exit 3\n"))
    assert caught.value.code == "image_build_failed"
    subprocess.run([engine, "rmi", "--force", node.prepare(asked).facts["image_id"]], capture_output=True, check=False)


@pytest.mark.parametrize(
    ("box", "code", "words"),
    [
        ({"image": "localhost/no-such-image:1", "pull": "never"}, "image_missing", "localhost/no-such-image:1"),
        ({"image": "127.0.0.1:9/nobody/there:1"}, "image_unavailable", "127.0.0.1:9/nobody/there:1"),
        ({"interpreter": "/opt/nothing/python"}, "interpreter_missing", "/opt/nothing/python"),
    ],
)
def test_what_is_missing_is_said_plainly(node: Node, engine: str, box: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(Unavailable) as caught:
        node.prepare(spec(engine, **box))
    assert caught.value.code == code
    assert words in caught.value.message


@pytest.fixture
def api(engine: str, tmp_path: Path) -> Iterator[str]:
    """Docker's API, as Docker itself and podman serve it."""
    if Path(engine).name == "docker":
        yield f"unix://{Path(engine).parent}/docker.sock"
        return
    path = tmp_path / "engine.sock"
    service = subprocess.Popen([engine, "system", "service", "--time=0", f"unix://{path}"], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until, "podman did not serve its socket"
        time.sleep(0.02)
    yield f"unix://{path}"
    service.terminate()
    service.wait()


def test_dockers_api_on_a_socket_is_enough(node: Node, engine: str, api: str) -> None:
    code = "import sys, os\nprint('out', os.environ['A'], flush=True)\nprint('err', file=sys.stderr)\n"
    code += "open('outputs/a', 'w')\nsys.exit(5)\n"
    status, said = run(node, {**spec(api), "env": {"A": "b c"}}, code, {"memory_bytes": 200 << 20})
    assert (status, sorted(said.split("\n"))) == (5, ["", "err", "out b c"])
    assert (node.launch() / "work" / "outputs" / "a").exists()
    built = spec(api, image="", dockerfile=f"FROM {IMAGE}\nRUN echo made > /made\n")
    assert run(node, built, "print(open('/made').read().strip())\n") == (0, "made\n")
    with pytest.raises(Unavailable) as caught:
        node.prepare(spec(api, image="localhost/no-such-image:1", pull="never"))
    assert caught.value.code == "image_missing"


def test_a_killed_container_leaves_nothing(node: Node, engine: str) -> None:
    folder = node.launch()
    (folder / "work" / "s.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    prepared = node.prepare(spec(engine))
    assert prepared.wrap is not None
    variables = {**prepared.env, "SHUNTER_LAUNCH_ID": prepared.wrap.job["id"]}
    argv, env = prepared.wrap.command([*prepared.argv_prefix, "s.py"], variables)
    child = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    inside = prepared.wrap.pid()
    assert inside
    child.kill()
    child.wait()
    prepared.wrap.ended(9)
    until = time.monotonic() + 60
    while os.path.exists(f"/proc/{inside}") and time.monotonic() < until:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{inside}")
    child.stdout.close()
