"""MPI on the nodes of a run: a real `mpirun` on the first, helpers on the others that start what it asks for.

`mpirun` reaches other nodes by a remote shell of one's choice. Ours is this module: it takes the command to the helper on that
node, which runs it there and carries its output back. Nobody logs in anywhere; a secret of the attempt opens the door.
"""

from __future__ import annotations

import hmac
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

CONNECT_SECONDS = 120.0


def main(spec_file):
    # type: (str) -> int
    with open(spec_file) as file:
        spec = json.load(file)  # type: Dict[str, Any]
    return first_node(spec, spec_file) if spec["node"] == 0 else helper(spec)


def first_node(spec, spec_file):
    # type: (Dict[str, Any], str) -> int
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        print("mpirun is not on this node: install Open MPI there (Debian: openmpi-bin).", flush=True)
        return 127
    count = len(spec["addresses"])
    names = ["localhost"] + ["shunter-%d" % i for i in range(1, count)]
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    agent = os.path.join(os.path.dirname(spec_file), "remote_shell")
    lines = ["#!%s -ISE" % sys.executable, "import sys", "sys.path.insert(0, %r)" % package]
    lines += ["from shunter.node.mpi import call", "sys.exit(call(%r, sys.argv[1:]))" % spec_file]
    with open(agent, "w") as file:
        file.write("\n".join(lines) + "\n")
    os.chmod(agent, 0o700)
    command = [mpirun, "--host", ",".join("%s:%d" % (name, spec["processes"]) for name in names)]
    command += ["--mca", "plm_rsh_agent", agent, "--mca", "orte_keep_fqdn_hostnames", "1"]
    if all(str(a).startswith("127.") for a in spec["addresses"]):
        command += ["--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo"]
    command += ["--mca", "btl", "self,vader,tcp", "--oversubscribe", "--tag-output", "--wdir", spec["work"]]
    command += ["--output-filename", os.path.join(spec["work"], "logs", "mpi") + ":nojobid"]
    if os.getuid() == 0:
        command.append("--allow-run-as-root")
    for name in spec["export"]:
        command += ["-x", name]
    status = 1
    try:
        status = subprocess.call(command + spec["argv"])
    finally:
        for node in range(1, count):
            tell(spec, node, {"stop": status})
    return status


def helper(spec):
    # type: (Dict[str, Any]) -> int
    """Wait for what the first node wants started here; end with its verdict."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((spec["addresses"][spec["node"]], spec["ports"][spec["node"]]))
    listener.listen(8)
    while True:
        connection, _ = listener.accept()
        request = receive(connection)
        if not hmac.compare_digest(str(request.get("secret")), spec["secret"]):
            connection.close()
            continue
        if "stop" in request:
            return int(request["stop"])
        if os.fork() == 0:
            listener.close()
            os._exit(serve(connection, request["command"], spec["work"]))
        connection.close()


def serve(connection, command, work):
    # type: (socket.socket, str, str) -> int
    # Open MPI's daemon goes where mpirun was started; that folder is another node's.
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    fd = process.stdout.fileno()
    while True:
        ready = select.select([fd, connection.fileno()], [], [])[0]
        if connection.fileno() in ready and not connection.recv(1):
            process.send_signal(signal.SIGTERM)  # the first node hung up
            break
        if fd in ready:
            data = os.read(fd, 65536)
            if not data:
                break
            connection.sendall(data)
    return process.wait()


def call(spec_file, arguments):
    # type: (str, List[str]) -> int
    """What `mpirun` calls as its remote shell: HOST COMMAND…"""
    with open(spec_file) as file:
        spec = json.load(file)  # type: Dict[str, Any]
    node = int(arguments[0].rsplit("-", 1)[1])
    connection = tell(spec, node, {"command": " ".join(arguments[1:])})
    if connection is None:
        print("Node %d did not answer in %d s." % (node, CONNECT_SECONDS), file=sys.stderr)
        return 255
    while True:
        data = connection.recv(65536)
        if not data:
            return 0
        os.write(1, data)


def tell(spec, node, request):
    # type: (Dict[str, Any], int, Dict[str, Any]) -> Any
    until = time.monotonic() + CONNECT_SECONDS
    while time.monotonic() < until:
        try:
            connection = socket.create_connection((spec["addresses"][node], spec["ports"][node]), timeout=10)
            connection.settimeout(None)
            connection.sendall(json.dumps(dict(request, secret=spec["secret"])).encode() + b"\n")
            return connection
        except OSError:
            if "stop" in request:
                return None
            time.sleep(0.2)
    return None


def receive(connection):
    # type: (socket.socket) -> Dict[str, Any]
    connection.settimeout(10)
    data = b""
    try:
        while not data.endswith(b"\n") and len(data) < 1 << 20:
            piece = connection.recv(65536)
            if not piece:
                break
            data += piece
        connection.settimeout(None)
        return dict(json.loads(data))
    except (OSError, ValueError):
        return {}
