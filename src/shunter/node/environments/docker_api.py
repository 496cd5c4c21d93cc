"""Docker's API on a socket, as the few commands of `docker` that we use: for nodes that have the engine but no command.

    python docker_api.py --socket /var/run/docker.sock version | image inspect | pull | build | run | rm
"""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import socket
import struct
import sys
import tarfile
from urllib.parse import quote, urlencode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

VERSION = "v1.41"
_FLAGS = ("--rm", "--init", "--force", "--volumes")


class Api:
    """Calls to one engine. An answer that is an error ends the command with the engine's own words."""

    def __init__(self, path):
        # type: (str) -> None
        self.path = path

    def connect(self):
        # type: () -> socket.socket
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self.path)
        return connection

    def call(self, method, path, body=None, content_type="application/json", query=None):
        # type: (str, str, Any, str, Optional[Dict[str, str]]) -> http.client.HTTPResponse
        connection = http.client.HTTPConnection("engine")
        connection.sock = self.connect()
        data = json.dumps(body).encode() if content_type == "application/json" and body is not None else body
        address = "/" + VERSION + path + ("?" + urlencode(query) if query else "")
        connection.request(method, address, data, {"Content-Type": content_type} if data is not None else {})
        return connection.getresponse()

    def json(self, method, path, body=None, query=None):
        # type: (str, str, Any, Optional[Dict[str, str]]) -> Any
        answer = self.call(method, path, body, query=query)
        data = answer.read()
        if answer.status >= 400:
            raise SystemExit(_fail(_message(data)))
        return json.loads(data) if data else None


def main(arguments):
    # type: (List[str]) -> int
    api = Api(arguments[1])
    command, rest = arguments[2], arguments[3:]
    try:
        if command == "version":
            print(json.dumps(api.json("GET", "/version")))
            return 0
        if command == "image":  # image inspect NAME
            print(json.dumps([api.json("GET", "/images/" + quote(rest[1], safe="") + "/json")]))
            return 0
        if command == "pull":
            return _stream(api.call("POST", "/images/create", query={"fromImage": rest[0]}))
        if command == "build":
            return _build(api, rest)
        if command == "rm":
            api.call("DELETE", "/containers/" + quote(rest[-1]), query={"force": "1", "v": "1"}).read()
            return 0
        if command == "run":
            return _run(api, rest)
    except OSError as error:
        return _fail("the engine at " + api.path + " does not answer: " + str(error))
    return _fail("unknown command " + command)


def parse(arguments):
    # type: (List[str]) -> Tuple[Dict[str, List[str]], List[str]]
    """Options of `run` and `build` by name, and the words after them."""
    options = {}  # type: Dict[str, List[str]]
    rest = list(arguments)
    while rest and rest[0].startswith("--"):
        name, equals, value = rest.pop(0).partition("=")
        if name in _FLAGS:
            options.setdefault(name, []).append("")
        else:
            options.setdefault(name, []).append(value if equals else rest.pop(0))
    return options, rest


def container(options, image, command, environ):
    # type: (Dict[str, List[str]], str, List[str], Dict[str, str]) -> Dict[str, Any]
    """The body of `containers/create` for these options of `run`."""

    def one(name, default=""):
        # type: (str, str) -> str
        return options.get(name, [default])[-1]

    env = [e if "=" in e else e + "=" + environ.get(e, "") for e in options.get("--env", ())]
    host = {
        "AutoRemove": False,
        "Init": "--init" in options,
        "Binds": options.get("--volume", []),
        "NetworkMode": one("--network", "default"),
        "SecurityOpt": options.get("--security-opt", []),
        "LogConfig": {"Type": one("--log-driver", "none"), "Config": {}},
    }  # type: Dict[str, Any]
    if one("--shm-size"):
        host["ShmSize"] = int(one("--shm-size"))
    if one("--memory"):
        host["Memory"] = int(one("--memory"))
    if one("--cpus"):
        host["NanoCpus"] = int(float(one("--cpus")) * 1e9)
    if one("--userns"):
        host["UsernsMode"] = one("--userns")
    devices = [d.split(":") for d in options.get("--device", ())]
    host["Devices"] = [
        {"PathOnHost": d[0], "PathInContainer": d[-1] if len(d) < 3 else d[1], "CgroupPermissions": "rwm"} for d in devices
    ]
    if one("--gpus"):
        ids = one("--gpus").strip('"').replace("device=", "").split(",")
        host["DeviceRequests"] = [{"Driver": "nvidia", "DeviceIDs": ids, "Capabilities": [["gpu"]]}]
    return {
        "Image": image, "Entrypoint": [one("--entrypoint")] if one("--entrypoint") else None, "Cmd": command, "Env": env,
        "User": one("--user"), "WorkingDir": one("--workdir"), "AttachStdout": True, "AttachStderr": True, "Tty": False,
        "HostConfig": host,
    }  # fmt: skip


def _run(api, arguments):
    # type: (Api, List[str]) -> int
    options, rest = parse(arguments)
    query = {"name": options["--name"][-1]} if "--name" in options else {}
    made = api.json("POST", "/containers/create", container(options, rest[0], rest[1:], dict(os.environ)), query)
    path = "/containers/" + made["Id"]

    def forward(number, _):
        # type: (int, object) -> None
        api.call("POST", path + "/kill", query={"signal": signal.Signals(number).name}).read()

    try:
        stream = _attach(api, path)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, forward)
        api.json("POST", path + "/start")
        _copy(stream)
        return int(api.json("POST", path + "/wait")["StatusCode"])
    finally:
        api.call("DELETE", path, query={"force": "1", "v": "1"}).read()


def _attach(api, path):
    # type: (Api, str) -> socket.socket
    """The container's output from its first byte on: attached before it is started."""
    connection = api.connect()
    connection.sendall(
        ("POST /" + VERSION + path + "/attach?stream=1&stdout=1&stderr=1 HTTP/1.1\r\nHost: engine\r\n"
         "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n").encode()
    )  # fmt: skip
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte:
            raise OSError("the engine closed the connection")
        head += byte
    if head.split()[1] not in (b"101", b"200"):
        raise OSError(head.split(b"\r\n")[0].decode())
    return connection


def _copy(stream):
    # type: (socket.socket) -> None
    """Frames of eight bytes before each piece: which stream it is of, and its length."""
    with stream.makefile("rb") as file:
        while True:
            head = file.read(8)
            if len(head) < 8:
                return
            kind, size = struct.unpack(">BxxxI", head)
            data = file.read(size)
            out = 2 if kind == 2 else 1
            while data:
                data = data[os.write(out, data) :]


def _build(api, arguments):
    # type: (Api, List[str]) -> int
    options, rest = parse(arguments)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as out:
        out.add(rest[0], ".")
        out.add(options["--file"][-1], ".shunter.Dockerfile")
    query = {"t": options["--tag"][-1], "dockerfile": ".shunter.Dockerfile"}
    return _stream(api.call("POST", "/build", packed.getvalue(), "application/x-tar", query))


def _stream(answer):
    # type: (http.client.HTTPResponse) -> int
    """What the engine says while it pulls or builds, line by line; 1 when it ends with an error."""
    if answer.status >= 400:
        return _fail(_message(answer.read()), 1)
    for line in answer:
        if not line.strip():
            continue
        said = json.loads(line)
        if said.get("error"):
            return _fail(str(said["error"]), 1)
        text = said.get("stream") or (said.get("status", "") + "\n" if not said.get("progress") else "")
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0


def _message(data):
    # type: (bytes) -> str
    try:
        found = json.loads(data)
        return str(found.get("message") or found.get("cause") or found)
    except ValueError:
        return data.decode("utf-8", "replace").strip()


def _fail(message, code=125):
    # type: (str, int) -> int
    sys.stderr.write("Error: " + message + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
