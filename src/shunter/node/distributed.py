"""Distributed training on a node: what each process is told about the others, and who starts the processes.

One process on each node needs nothing but variables. Several are started by `ranks.py`; MPI's own by `mpirun` on the first
node, through helpers on the others (`mpi.py`), so that no node needs to log in to another.
"""

from __future__ import annotations

import json
import os
import sys

from shunter.node import interfaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

MPI = ("mpi", "openmpi", "intelmpi")
#: Twice as many as this from the first on: all below those that machines give to connections by themselves (32768).
FIRST_PORT, PORTS = 20000, 6000


def is_distributed(job):
    # type: (Dict[str, Any]) -> bool
    return int(job.get("node_count") or 1) > 1 or processes_of(job) > 1 or _communicator(job) in MPI


def processes_of(job):
    # type: (Dict[str, Any]) -> int
    return int(job.get("processes_per_node") or 1)


def environment(job, local_rank=0):
    # type: (Dict[str, Any], int) -> Dict[str, str]
    """The variables of one process, as PyTorch and TensorFlow read them."""
    gang = job.get("gang") or {}
    addresses = gang.get("addresses") or ["127.0.0.1"]
    ports = gang.get("ports") or [port_from(job["id"])]
    node, nodes, each = int(job["node_index"]), int(job["node_count"]), processes_of(job)
    found = {
        "MASTER_ADDR": str(addresses[0]),
        "MASTER_PORT": str(ports[0]),
        "WORLD_SIZE": str(nodes * each),
        "RANK": str(node * each + local_rank),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(each),
        "NODE_RANK": str(node),
        "GROUP_RANK": str(node),
    }
    # gloo takes the interface of the machine's own name, which many machines give to loopback.
    interface = "lo" if is_here(addresses) else interfaces.of_address(str(addresses[min(node, len(addresses) - 1)]))
    if interface:
        found["GLOO_SOCKET_IFNAME"] = interface
    if job.get("max_silence_seconds"):
        found["PYTHONUNBUFFERED"] = "1"  # words that wait in a buffer are not heard
    if str(job.get("framework") or "").lower() == "tensorflow" or _communicator(job) == "parameterserver":
        workers = ["%s:%s" % (addresses[min(i, len(addresses) - 1)], ports[min(i, len(ports) - 1)]) for i in range(nodes)]
        found["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": node}})
    return found


def command(job, argv, folder, work, python=""):
    # type: (Dict[str, Any], List[str], str, str, str) -> List[str]
    """The command to start instead of `argv`: itself when this node has one process, else that which starts them all.

    `python`: the interpreter inside, when the processes run in a container: what starts them runs there too.
    """
    if _communicator(job) in MPI:
        return _helper("mpi", _mpi_spec(job, argv, folder), folder, work, python)
    each, node = processes_of(job), int(job["node_index"])
    silence = _silence(job)
    if each == 1 and silence is None:
        return argv
    ranks = [{"rank": node * each + i, "env": environment(job, i)} for i in range(each)]
    return _helper("ranks", {"argv": argv, "ranks": ranks, "node": node, **_watched(silence, folder)}, folder, work, python)


def mounts():
    # type: () -> List[str]
    """What a container must see of us, so that `command` works inside."""
    package = _package()
    paths = [os.path.join(package, "shunter", name) for name in ("__init__.py", "node")]
    return [path + ":" + path + ":ro" for path in paths]


def _silence(job):
    # type: (Dict[str, Any]) -> Optional[Dict[str, Any]]
    """How long all ranks may say nothing, and where the first node hears of them; None when nobody asked for it."""
    seconds = job.get("max_silence_seconds")
    if not seconds:
        return None
    gang = job.get("gang") or {}
    addresses, ports = gang.get("addresses") or ["127.0.0.1"], gang.get("ports") or []
    nodes = int(job["node_count"])
    port = ports[nodes] if len(ports) > nodes else port_from(job["id"]) + PORTS
    return {
        "seconds": seconds, "world": nodes * processes_of(job), "address": str(addresses[0]), "port": int(port),
        "secret": _secret(job),
    }  # fmt: skip


def _watched(silence, folder):
    # type: (Optional[Dict[str, Any]], str) -> Dict[str, Any]
    """A metric that is logged is a word, too."""
    return {} if silence is None else {"silence": silence, "also": [os.path.join(folder, "metrics")]}


def is_here(addresses):
    # type: (List[str]) -> bool
    """Whether all nodes are on this machine."""
    return all(str(a).startswith("127.") for a in addresses)


def port_from(text):
    # type: (str) -> int
    """A port that all members of an attempt agree on without asking each other."""
    return FIRST_PORT + int(_digest(text.rsplit(".", 1)[0])[:8], 16) % PORTS


def _mpi_spec(job, argv, folder):
    # type: (Dict[str, Any], List[str], str) -> Dict[str, Any]
    gang = job.get("gang") or {}
    nodes = int(job["node_count"])
    return {
        "argv": argv,
        "node": int(job["node_index"]),
        "processes": processes_of(job),
        "addresses": (gang.get("addresses") or ["127.0.0.1"] * nodes)[:nodes],
        "ports": gang.get("ports") or [port_from(job["id"]) + i for i in range(nodes)],
        "secret": _secret(job),
        **_watched(_silence(job), folder),
    }


def _secret(job):
    # type: (Dict[str, Any]) -> str
    """What only the nodes of this attempt know."""
    return _digest(str(job["home"]["token"]) + job["id"].rsplit(".", 1)[0])


def _package():
    # type: () -> str
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _helper(module, spec, folder, work, python):
    # type: (str, Dict[str, Any], str, str, str) -> List[str]
    path = os.path.join(folder, module + ".json")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(dict(spec, work=work), file)
    code = "import sys; sys.path.insert(0, %r); from shunter.node.%s import main; sys.exit(main(sys.argv[1]))"
    code = code % (_package(), module)
    return [python or sys.executable, "-I", "-S", "-E", "-c", code, path]


def _digest(text):
    # type: (str) -> str
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def _communicator(job):
    # type: (Dict[str, Any]) -> str
    return str(job.get("communicator") or "").lower()
