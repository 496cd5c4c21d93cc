"""MPI on the nodes of a run: a real `mpirun` on the first, helpers on the others that start what it asks for.

`mpirun` reaches other nodes by a remote shell of one's choice. Ours is this module: it takes the command to the helper on that
node, which runs it there and carries its output back. Nobody logs in anywhere; a secret of the attempt opens the door. What
`mpirun` starts on a node is a small keeper (`rank`) that goes to that node's own folder and environment: nodes need not share
a disk.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

from shunter.node import interfaces
from shunter.node.distributed import is_here
from shunter.node.ranks import SILENT, Rank, Watch, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

CONNECT_SECONDS = 120.0
PAUSE_SECONDS = 0.05
#: Where the keeper of a rank finds its node's spec. Set on each node by itself.
SPEC, PYTHON, CODE = "SHUNTER_MPI_SPEC", "SHUNTER_MPI_PYTHON", "SHUNTER_MPI_CODE"
_INCLUDE = re.compile(r'(_tcp_if_include"?\s+"?)([^\s"]+)')
_BLAME = re.compile(rb"^Rank \d+ (ended|was ended|has said nothing|is gone)")


def main(spec_file):
    # type: (str) -> int
    with open(spec_file) as file:
        spec = json.load(file)  # type: Dict[str, Any]
    os.environ.update({SPEC: spec_file, PYTHON: sys.executable, CODE: _code("rank(sys.argv[1])")})
    return first_node(spec, spec_file) if spec["node"] == 0 else helper(spec, spec_file)


def first_node(spec, spec_file):
    # type: (Dict[str, Any], str) -> int
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        print("mpirun is not on this node: install Open MPI there (Debian: openmpi-bin).", flush=True)
        return 127
    count = len(spec["addresses"])
    names = ["localhost"] + ["shunter-%d" % i for i in range(1, count)]
    command = [mpirun, "--host", ",".join("%s:%d" % (name, spec["processes"]) for name in names)]
    command += ["--mca", "plm_rsh_agent", write_agent(spec_file), "--mca", "orte_keep_fqdn_hostnames", "1"]
    for part in ("btl", "oob") if _interface(spec) else ():
        command += ["--mca", part + "_tcp_if_include", _interface(spec)]
    command += ["--mca", "btl", "self,vader,tcp", "--oversubscribe"]
    if os.getuid() == 0:
        command.append("--allow-run-as-root")
    command += ["/bin/sh", "-c", 'exec "$%s" -I -S -E -c "$%s" "$%s"' % (PYTHON, CODE, SPEC)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/")
    status, blame = 1, b""
    try:
        blame = _pass_on(process, Watch(spec.get("silence"), True))
        status = SILENT if b"said nothing" in blame or b"is gone" in blame else process.wait()
    finally:
        if process.poll() is None:
            process.kill()
        for node in range(1, count):
            tell(spec, node, {"stop": True})
    if blame:
        write(blame + b"\n")  # last, so that it is what the run failed with
    return status


def _pass_on(process, watch):
    # type: (subprocess.Popen[bytes], Watch) -> bytes
    """What mpirun says, until it ends; returns the line that names the rank to blame, if there is one."""
    assert process.stdout is not None
    fd, rest, blame = process.stdout.fileno(), b"", b""
    kill_at = 0.0
    while True:
        if select.select([fd], [], [], 0.5)[0]:
            data = os.read(fd, 65536)
            if not data:
                write(rest)
                return blame
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                blame = blame or (line if _BLAME.match(line) else b"")
                write(line + b"\n")
        silent = b"" if blame else watch.look([]).encode()
        if silent:
            blame = silent
            kill_at = time.monotonic() + 5
            process.terminate()
        if kill_at and time.monotonic() > kill_at:
            process.kill()


def _interface(spec):
    # type: (Dict[str, Any]) -> str
    """The one that the other nodes reach this one by: a machine may have others that lead nowhere.

    By name, each node its own: Open MPI 4 takes ADDRESS/32 for "any address", and ranks then call their own loopback.
    """
    if is_here([str(a) for a in spec["addresses"]]):
        return "lo"
    return interfaces.of_address(str(spec["addresses"][spec["node"]]))


def write_agent(spec_file):
    # type: (str) -> str
    """The remote shell of this node, as a program that `mpirun` and its daemons can call."""
    agent = os.path.join(os.path.dirname(spec_file), "remote_shell")
    with open(agent, "w") as file:
        file.write("#!/bin/sh\nexec %s -I -S -E -c %s \"$@\"\n" % (
            _quoted(sys.executable), _quoted(_code("call(%r, sys.argv[1:])" % spec_file))))  # fmt: skip
    os.chmod(agent, 0o700)
    return agent


def helper(spec, spec_file):
    # type: (Dict[str, Any], str) -> int
    """Wait for what the first node wants started here. How it all ended is for the first node to say: it knows the reason."""
    agent = write_agent(spec_file)
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
            return 0
        if os.fork() == 0:
            listener.close()
            # The daemon is told the first node's remote shell and interface; ours are others.
            command = str(request["command"]).replace(str(request["agent"]), agent)
            command = _INCLUDE.sub(lambda found: found.group(1) + (_interface(spec) or found.group(2)), command)
            os._exit(serve(connection, command, spec["work"]))
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


def rank(spec_file):
    # type: (str) -> int
    """What `mpirun` starts: one rank in its node's own folder, with a file of its own under logs/."""
    with open(spec_file) as file:
        spec = json.load(file)  # type: Dict[str, Any]
    number = int(os.environ["OMPI_COMM_WORLD_RANK"])
    local = os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")
    env = {k: v for k, v in os.environ.items() if k not in (SPEC, PYTHON, CODE)}
    env.update(RANK=str(number), LOCAL_RANK=local, WORLD_SIZE=os.environ["OMPI_COMM_WORLD_SIZE"])
    if _interface(spec):
        env["OMPI_MCA_btl_tcp_if_include"] = _interface(spec)
    if is_here(spec["addresses"]):
        # Nodes on one machine: memory that ranks share is named after the machine and their number on the node.
        env["OMPI_MCA_btl_vader_backing_directory"] = os.path.dirname(spec_file)
    os.makedirs(os.path.join(spec["work"], "logs"), exist_ok=True)
    one = Rank(number, spec["argv"], env, spec["work"], spec.get("also") or ())
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda number, _: one.process.send_signal(number))
    watch = Watch(spec.get("silence"), False)
    while one.process.poll() is None:
        one.repeat()
        watch.look([one])
        time.sleep(PAUSE_SECONDS)
    one.repeat(final=True)
    watch.look([one], now=True)
    code = one.process.returncode
    if code:
        write(one.how_it_ended())
    return code if code >= 0 else 128 - code


def call(spec_file, arguments):
    # type: (str, List[str]) -> int
    """What `mpirun` calls as its remote shell: HOST COMMAND…"""
    with open(spec_file) as file:
        spec = json.load(file)  # type: Dict[str, Any]
    node = int(arguments[0].rsplit("-", 1)[1])
    agent = os.path.join(os.path.dirname(spec_file), "remote_shell")
    connection = tell(spec, node, {"command": " ".join(arguments[1:]), "agent": agent})
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


def _code(what):
    # type: (str) -> str
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return "import sys; sys.path.insert(0, %r); from shunter.node.mpi import call, rank; sys.exit(%s)" % (package, what)


def _quoted(text):
    # type: (str) -> str
    import shlex

    return shlex.quote(text)
