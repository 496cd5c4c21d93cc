"""What nodes on this machine may use at most."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import shunter
from shunter.drivers.cluster import limits
from shunter.drivers.cluster.limits import Mount

#: A view of the old hierarchies as a process has it that nobody put into a group: children nest below our own.
VIEW = """
set -e
mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
for c in cpu memory; do mkdir -p /sys/fs/cgroup/$c; mount -t cgroup -o $c cgroup /sys/fs/cgroup/$c; done
exec "$@"
"""
GREEDY = """
import subprocess, sys
from shunter.drivers.cluster import limits
groups = limits.make("shunter-test", 0.5, 256 << 20)
# It enters before it starts anything, as a node's warm parent does.
waits = "import os, sys; sys.stdin.readline(); os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
def inside(code):
    process = subprocess.Popen([sys.executable, "-c", waits, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    limits.enter(groups, process.pid)
    out, _ = process.communicate(b"\\n")
    return process.returncode, out.decode().strip()
try:
    print(inside("print(len(bytearray(64 << 20)))"))
    print(inside("print(len(bytearray(600 << 20)))"))
    busy = "import time; w = time.time()\\nwhile time.time() < w + 1: pass\\nprint(time.process_time() < 0.75)"
    print(inside(busy))
finally:
    limits.remove(groups)
print(limits.problem() or "possible")
"""


def has_old_groups() -> bool:
    return os.geteuid() == 0 and shutil.which("unshare") is not None and "memory" in Path("/proc/cgroups").read_text()


@pytest.mark.skipif(not has_old_groups(), reason="needs root and control groups")
def test_a_node_is_held_to_its_memory_and_cores() -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(shunter.__file__).parents[1])}
    view = ["unshare", "--mount", "--cgroup", "--propagation", "private", "bash", "-c", VIEW, "_"]
    done = subprocess.run([*view, sys.executable, "-c", GREEDY], capture_output=True, text=True, check=False, env=env)
    if "mount" in done.stderr:
        pytest.skip(done.stderr)  # only the new hierarchy, which a container gives no part of
    assert done.stdout.splitlines() == [f"(0, '{64 << 20}')", "(-9, '')", "(0, 'True')", "possible"], done.stderr


def test_the_new_hierarchy_is_used_where_it_is_given_to_us(tmp_path: Path) -> None:
    own = tmp_path / "user" / "app" / "ours"
    own.mkdir(parents=True)
    for place in (tmp_path / "user" / "app", own):
        (place / "cgroup.procs").touch()
    (tmp_path / "user" / "app" / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (own / "cgroup.subtree_control").write_text("\n")
    [group] = limits.make("node", 2, 1 << 30, [Mount("", tmp_path, "/user/app/ours")])
    assert group == str(tmp_path / "user" / "app" / "node")
    assert Path(group, "memory.max").read_text() == str(1 << 30)
    assert Path(group, "cpu.max").read_text() == "200000 100000"


def test_a_group_that_belongs_to_another_program_is_left_alone(tmp_path: Path) -> None:
    mounts = [Mount("cpu", tmp_path / "cpu", "/"), Mount("memory", tmp_path / "memory", "/somebody/else")]
    for mount in mounts:
        mount.here.mkdir(parents=True)
    with pytest.raises(PermissionError, match="no control group for memory is open"):
        limits.make("node", 1, 1 << 30, mounts)
    assert not (tmp_path / "memory" / "somebody" / "else" / "node").exists()


def test_hierarchies_are_found_with_our_place_in_them() -> None:
    mounts = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    own = "4:memory:/x\n1:cpu,cpuacct:/a\n0::/u\n"
    assert limits.find_mounts(mounts, own) == [
        Mount("cpu", Path("/sys/fs/cgroup/cpu,cpuacct"), "/a"), Mount("", Path("/sys/fs/cgroup/unified"), "/u"),
    ]  # fmt: skip
