"""The server's hand on a machine of its own: one process at the end of one connection, asked in frames on standard input.

It writes launches down, has the warm parent start them, tells how they stand, and carries contents both ways. It holds
nothing that matters: when the connection falls it ends, runs go on, and the next one finds everything in the files.

A frame is a JSON header with its length in four bytes before it, and `size` bytes after it. A request has a number `n` and
an `op`; the answer has the same number and `ok` or `error`. See `ssh/session.py` for the other end.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib

from shunter.node import contract, gpus, housekeeping, machine, signs
from shunter.node.courier import Courier
from shunter.node.store import Store
from shunter.node.warm_parent import WarmParent, start_process, tree
from shunter.node.workfolder import kept_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    Answer = Tuple[Dict[str, Any], bytes]

ENDPOINT = "endpoint.json"
MOST_FETCH_BYTES = 4 << 20
END_SECONDS = 15.0
LATER = None  # type: Optional[Answer]


def main(root, mark):
    # type: (str, str) -> None
    """Serve the connection on standard input and output until it ends."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    supersede(root)
    Agent(root).serve(mark)


class Agent:
    def __init__(self, root):
        # type: (str) -> None
        self.root = root
        self.store = Store(root)
        self.courier = None  # type: Optional[Courier]
        self.buffer = bytearray()
        self.chores = {}  # type: Dict[int, Chore]
        self.parent = WarmParent(root)

    def serve(self, mark):
        # type: (str) -> None
        os.write(1, ("\n" + mark + json.dumps({"ready": contract.VERSION, "time": time.time()}) + "\n").encode())
        while True:
            sources = [0, *self.chores, *(self.courier.sockets() if self.courier else [])]  # type: List[Any]
            for ready in select.select(sources, [], [])[0]:
                if ready == 0:
                    data = os.read(0, 1 << 18)
                    if not data:
                        return
                    self.buffer += data
                    self._work_off()
                elif ready in self.chores:
                    self._on_chore(ready)
                elif self.courier:
                    self.courier.hear(ready)

    def _work_off(self) -> None:
        at = 0
        while len(self.buffer) - at >= 4:
            (length,) = struct.unpack_from(">I", self.buffer, at)
            if len(self.buffer) - at - 4 < length:
                break
            header = json.loads(bytes(self.buffer[at + 4 : at + 4 + length]))
            size = int(header.get("size") or 0)
            if len(self.buffer) - at - 4 - length < size:
                break
            begin = at + 4 + length
            with memoryview(self.buffer) as view:
                payload = bytes(view[begin : begin + size])
            at = begin + size
            if "wire" in header:
                if self.courier:
                    self.courier.answer(header["wire"], header["event"], payload)
            else:
                self._answer(header, payload)
        del self.buffer[:at]

    def _answer(self, header, payload):
        # type: (Dict[str, Any], bytes) -> None
        def work():
            # type: () -> Optional[Answer]
            found = getattr(self, "do_" + str(header["op"]), None)  # type: Optional[Callable[..., Optional[Answer]]]
            if found is None:
                raise ValueError("the node does not know " + str(header["op"]))
            return found(header, payload)

        self._reply(header, work)

    def _reply(self, header, work):
        # type: (Dict[str, Any], Callable[[], Optional[Answer]]) -> None
        """Do what was asked and send the answer; None: it comes later."""
        try:
            answer = work()
            if answer is not None and header.get("n") is not None:
                self.send({"n": header["n"], "ok": answer[0], "size": len(answer[1])}, answer[1])
        except Exception as error:
            words = {
                "code": _code(error),
                "message": (str(error) or repr(error))[:500],
                "path": getattr(error, "filename", None),
            }
            self.send({"n": header.get("n"), "error": words}, b"")

    def send(self, header, payload):
        # type: (Dict[str, Any], bytes) -> None
        text = json.dumps(header).encode()
        view = memoryview(struct.pack(">I", len(text)) + text + payload)
        while view:
            view = view[os.write(1, view) :]

    # What can be asked. Each may be asked again.

    def do_facts(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        found = machine.facts(self.root)
        found["launches"] = self._running()
        found["kept_bytes"] = self.store.kept_bytes()
        return found, b""

    def do_load(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        """How busy the machine is now, and how much of it is work that other servers sent here for this user."""
        above = os.path.dirname(self.root)
        others = [os.path.join(above, name) for name in os.listdir(above) if name != os.path.basename(self.root)]
        return dict(machine.load(self.root), others=sum(len(_running(root)) for root in others)), b""

    def do_ping(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        return {"time": time.time()}, b""

    def do_home(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        """Where launchers find the server from now on: a tunnel's address, or through us when there is none."""
        url = header.get("url")
        if not url:
            if self.courier is None:
                self.courier = Courier(self.root, self.send)
            url = "unix:" + self.courier.path
        contract.write_whole(os.path.join(self.root, ENDPOINT), json.dumps({"url": url}).encode())
        return {"url": url, "endpoint_file": os.path.join(self.root, ENDPOINT)}, b""

    def do_lack(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        """Which of these contents, tools and layouts are not here."""
        wanted = json.loads(zlib.decompress(payload)) if payload else []
        snapshot = header.get("snapshot")
        if snapshot and self.store.use_layout(snapshot):
            return {"layout": True}, b""
        tools = [t for t in header.get("tools") or [] if not os.path.exists(self.store.tool(t[0], t[1]))]
        return {"layout": False, "tools": tools}, zlib.compress(json.dumps(self.store.lacking(wanted)).encode(), 1)

    def do_pack(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        self.store.write(header["name"], int(header["offset"]), payload, header.get("table"))
        return {}, b""

    def do_layout(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        return {"lacking": self.store.layout(header["snapshot"], json.loads(zlib.decompress(payload)))}, b""

    def do_tool(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        self.store.make_tool(header["digest"], header["name"], json.loads(zlib.decompress(payload)))
        return {"path": self.store.tool(header["digest"], header["name"])}, b""

    def do_launch(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        """Write the job down, then tell the warm parent: one that is killed now loses nothing."""
        job = json.loads(payload)
        launch = _launch(header["launch"])
        layout = self.store.use_layout(job["snapshot_id"])
        if layout is None:
            return {"lacks": "layout"}, b""
        tools = job.get("tools") or {}
        for name, digest in tools.items():
            tools[name] = self.store.tool(digest, name)
            if not os.path.exists(tools[name]):
                return {"lacks": "tools"}, b""
            os.utime(os.path.dirname(tools[name]))  # what is used is kept longest
        folder = signs.launch_folder(self.root, launch)
        os.makedirs(folder, 0o700, exist_ok=True)
        if contract.Claim.read(folder) is None:
            job["layout"] = layout
            if not job.get("environment"):
                job["interpreter"] = job.get("interpreter") or sys.executable
            wanted = int((job.get("limits") or {}).get("gpus") or 0)
            if wanted:
                try:
                    job["env"] = dict(job.get("env") or {}, **gpus.assign(self.root, launch, wanted))
                except gpus.Busy as error:
                    return {"busy": str(error)}, b""
            contract.write_whole(os.path.join(folder, "job.json"), json.dumps(job).encode())
            answer = self.parent.tell({"launch": launch})
            if wanted:
                gpus.hand_over(self.root, launch, int(answer["pid"]))
        return {}, b""

    def do_poll(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        found = []
        for launch in header["launches"]:
            try:
                sign = signs.look(self.root, _launch(launch))
                gpus.hold(self.root, launch)
                if sign.pop("adopt", None):
                    self.parent.tell({"adopt": launch})
            except (OSError, ValueError) as error:
                sign = {"sign": "unknown", "why": str(error)}
            found.append(sign)
        return {"signs": found, "time": time.time()}, b""

    def do_fetch(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        stream = str(header["stream"])
        if ".." in stream.split("/") or not (stream.startswith("files/") or stream.isidentifier()):
            raise ValueError(repr(stream) + " is not a stream")
        try:
            fd = os.open(signs.stream_file(self.root, _launch(header["launch"]), stream), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return {}, b""
        try:
            return {}, os.pread(fd, MOST_FETCH_BYTES, int(header["offset"]))
        finally:
            os.close(fd)

    def do_files(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        work = os.path.join(signs.launch_folder(self.root, _launch(header["launch"])), "work")
        return {"files": [f for top in ("outputs", "logs") for f in kept_files(work, top)]}, b""

    def do_cancel(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        if signs.cancel(self.root, _launch(header["launch"])):
            self.parent.tell({"adopt": header["launch"]})
        return {}, b""

    def do_clean(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        cleaned = signs.clean(self.root, _launch(header["launch"]))
        if cleaned:
            gpus.release(header["launch"])
        return {"cleaned": cleaned}, b""

    def do_shell(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        from shunter.node import shell

        return {"command": shell.command(self.root, _launch(header["launch"]))}, b""

    def do_tether(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        """For a cluster that this machine is lent to: hold or end the lease of its work, in the folder beside ours."""
        from shunter.node import tether

        root = os.path.join(os.path.dirname(self.root), os.path.basename(header["beside"]))
        name = str(header["node"])
        if not name.isalnum():
            raise ValueError(repr(name) + " is not the name of a node")
        if header.get("end"):
            return tether.end(root, name, bool(header.get("all"))), b""
        return tether.hold(root, name, float(header["lease"]), header.get("granted"), header.get("known") or ()), b""

    def do_tidy(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Optional[Answer]
        """Have what we keep here measured by a process of its own; what is too much goes when that is done."""
        launches = self.store.drop_old_launches()
        chore = start_process("housekeeping", "housekeeping.main(sys.argv[1])", self.root, subprocess.PIPE, subprocess.DEVNULL)
        assert chore.stdout is not None
        self.chores[chore.stdout.fileno()] = Chore(chore, dict(header, launches=launches))
        return LATER

    def _on_chore(self, fd):
        # type: (int) -> None
        chore = self.chores[fd]
        data = os.read(fd, 1 << 18)
        chore.said += data
        if data:
            return
        del self.chores[fd]
        assert chore.process.stdout is not None
        chore.process.stdout.close()
        chore.process.wait()
        self._reply(chore.header, lambda: self._tidy(chore))

    def _tidy(self, chore):
        # type: (Chore) -> Answer
        found = housekeeping.free(self.root, self.store, json.loads(chore.said), int(chore.header["limit_bytes"]))
        if not self._running():
            housekeeping.drop_old_trees(self.root, os.path.basename(tree()))
        return dict(found, launches=chore.header["launches"]), b""

    def do_inputs(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        """Copies of inputs that nobody needs and none used for a while: how many, how much; with `really` they go."""
        base = housekeeping.inputs(self.root, housekeeping.unfinished_jobs(self.root))
        busy, before = set(header.get("busy") or ()), time.time() - float(header["older_than_seconds"])
        going = [
            t for t in base if not t["in_use"] and os.path.basename(t["path"]) not in busy and t["used_at"] < before
        ]
        if header.get("really"):
            going = [t for t in going if housekeeping.remove(self.root, t) or not t["bytes"]]
        return {"count": len(going), "bytes": sum(t["bytes"] for t in going)}, b""

    def do_remove(self, header, payload):
        # type: (Dict[str, Any], bytes) -> Answer
        """The server lets go of this machine: nothing of it stays, unless something of it still runs."""
        until = time.monotonic() + END_SECONDS
        while True:
            running = self._running()
            if not running:
                break
            base = os.path.join(self.root, contract.LAUNCHES)
            over = all(os.path.exists(os.path.join(base, name, "outcome")) for name in running)
            if not over or time.monotonic() > until:
                return {"running": running}, b""
            time.sleep(0.05)  # the last of them is just cleaning up after itself
        try:
            self.parent.connect().sendall(b'{"stop": ""}\n')
        except OSError:
            pass
        import shutil

        shutil.rmtree(self.root, ignore_errors=True)
        try:
            os.rmdir(os.path.dirname(self.root))  # the last one takes the folder above with it
        except OSError:
            pass
        return {"running": []}, b""

    def _running(self):
        # type: () -> List[str]
        return _running(self.root)


class Chore:
    """Work that a process of its own does for a request that is answered later."""

    def __init__(self, process, header):
        # type: (subprocess.Popen[bytes], Dict[str, Any]) -> None
        self.process = process
        self.header = header
        self.said = bytearray()


def supersede(root):
    # type: (str) -> None
    """End the agent that an earlier connection left here: its end of the line may not have noticed that it is cut."""
    path = os.path.join(root, "agent.pid")
    try:
        with open(path) as file:
            pid, started = map(int, file.read().split())
        if contract.is_alive(pid, started):
            door = _parent_of(pid)
            os.kill(pid, signal.SIGTERM)
            if door > 1 and _name(door).startswith("sshd"):
                os.kill(door, signal.SIGTERM)  # its sshd holds the old tunnel's port
    except (OSError, ValueError):
        pass
    me = os.getpid()
    contract.write_whole(path, ("%d %d" % (me, contract.start_time(me))).encode())


def _parent_of(pid):
    # type: (int) -> int
    with open("/proc/%d/stat" % pid, "rb") as file:
        data = file.read()
    return int(data[data.rfind(b")") + 2 :].split()[1])


def _name(pid):
    # type: (int) -> str
    with open("/proc/%d/comm" % pid) as file:
        return file.read().strip()


def _running(root):
    # type: (str) -> List[str]
    base = os.path.join(root, contract.LAUNCHES)
    names = os.listdir(base) if os.path.isdir(base) else []
    return [name for name in names if _is_active(os.path.join(base, name))]


def _is_active(folder):
    # type: (str) -> bool
    claim = contract.Claim.read(folder)
    return claim is not None and not signs.is_done(folder) and (claim.launcher_alive() or claim.script_alive())


def _launch(name):
    # type: (str) -> str
    """A launch's id, as it becomes a folder's name."""
    if not name or not all(c in "0123456789abcdef." for c in name) or name.startswith("."):
        raise ValueError(repr(name) + " is not the id of a launch")
    return name


def _code(error):
    # type: (Exception) -> str
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "node_disk_full"
    if number in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "node_not_writable"
    return "node_error"
