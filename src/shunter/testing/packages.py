"""Package indexes and channels that a test makes itself: small wheels, an index that can misbehave, conda packages."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
import time
import zipfile
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def make_wheel(
    folder: Path, name: str, version: str = "1.0", requires: Sequence[str] = (), files: Mapping[str, str] | None = None
) -> Path:
    """A wheel that any Python installs; without `files` it is a module that knows its version."""
    module = name.replace("-", "_")
    contents = dict(files or {f"{module}/__init__.py": f"__version__ = {version!r}\n"})
    info = f"{module}-{version}.dist-info"
    requirements = "".join(f"Requires-Dist: {r}\n" for r in requires)
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirements}"
    contents[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: shunter\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{path},sha256={_hash(text.encode())},{len(text.encode())}\n" for path, text in contents.items())
    contents[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as out:
        for inner, text in contents.items():
            out.writestr(zipfile.ZipInfo(inner, (2020, 1, 1, 0, 0, 0)), text)
    return path


def make_broken_sdist(folder: Path, name: str, version: str = "1.0") -> Path:
    """A source package that fails while it is built."""
    setup = b"raise SystemExit('the compiler is on strike')\n"
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as out:
        _add(out, f"{name}-{version}/setup.py", setup)
        _add(out, f"{name}-{version}/PKG-INFO", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode())
    return path


class Index:
    """A package index over a folder of wheels. `mood` makes it hang or fail; `password` asks for it."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self.folder = folder
        self.mood = ""
        self.password = ""
        self.calls: list[str] = []
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index._answer(self)

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.address = f"{host}:{self._server.server_address[1]}"
        self.url = f"http://{self.address}/simple"

    def close(self) -> None:
        self.mood = ""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        self.calls.append(request.path)
        until = time.monotonic() + 60
        while self.mood == "hang" and time.monotonic() < until:
            time.sleep(0.01)
        if self.mood == "500":
            return _send(request, 500, b"out of order")
        if self.password:
            wanted = "Basic " + base64.b64encode(f"user:{self.password}".encode()).decode()
            if request.headers.get("Authorization") != wanted:
                return _send(request, 401, b"who are you?")
        parts = request.path.strip("/").split("/")
        if parts[0] == "files":
            path = self.folder / parts[-1]
            return _send(request, 200, path.read_bytes()) if path.is_file() else _send(request, 404, b"")
        name = parts[-1] if len(parts) > 1 else ""
        links = [
            f'<a href="/files/{p.name}#sha256={hashlib.sha256(p.read_bytes()).hexdigest()}">{p.name}</a>'
            for p in sorted(self.folder.iterdir())
            if p.suffix in (".whl", ".gz") and p.name.split("-")[0].replace("_", "-").lower() == name
        ]
        if not links:
            return _send(request, 404, b"")
        return _send(request, 200, f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode(), "text/html")


def make_conda_package(
    channel: Path, name: str, version: str = "1.0", depends: Sequence[str] = (), *,
    files: Mapping[str, bytes] | None = None, subdir: str = "noarch", trees: Mapping[str, Path] | None = None,
) -> Path:  # fmt: skip
    """A conda package. `files` by path; `trees` puts whole folders at a path; noarch ones are Python packages."""
    python = subdir == "noarch"
    contents: dict[str, bytes] = dict(
        files or {f"site-packages/{name}/__init__.py": f"__version__ = {version!r}\n".encode()}
    )
    entries: list[tuple[str, bytes | Path]] = list(contents.items())
    for at, folder in (trees or {}).items():
        entries += [
            (f"{at}/{p.relative_to(folder)}", p) for p in sorted(folder.rglob("*")) if p.is_file() or p.is_symlink()
        ]
    build = "py_0" if python else "0"
    about = {
        "name": name, "version": version, "build": build, "build_number": 0, "depends": list(depends), "subdir": subdir,
        "timestamp": 1_700_000_000_000,
        **({"noarch": "python"} if python else {"arch": "x86_64", "platform": "linux"}),
    }  # fmt: skip
    paths = [{"_path": path, "path_type": "softlink" if isinstance(x, Path) and x.is_symlink() else "hardlink",
              "sha256": hashlib.sha256(_bytes(x)).hexdigest(), "size_in_bytes": len(_bytes(x))}
             for path, x in entries]  # fmt: skip
    (channel / subdir).mkdir(parents=True, exist_ok=True)
    package = channel / subdir / f"{name}-{version}-{build}.tar.bz2"
    with tarfile.open(package, "w:bz2", compresslevel=1) as out:
        _add(out, "info/index.json", json.dumps(about).encode())
        _add(out, "info/paths.json", json.dumps({"paths": paths, "paths_version": 1}).encode())
        _add(out, "info/files", "\n".join(path for path, _ in entries).encode())
        if python:
            _add(
                out,
                "info/link.json",
                json.dumps({"noarch": {"type": "python"}, "package_metadata_version": 1}).encode(),
            )
        for path, x in entries:
            if isinstance(x, Path):
                out.add(x, path, recursive=False)
            else:
                _add(out, path, x)
    _index(channel, subdir, about, package)
    return package


def _index(channel: Path, subdir: str, about: Mapping[str, Any], package: Path) -> None:
    for one in {subdir, "noarch"}:
        file = channel / one / "repodata.json"
        file.parent.mkdir(exist_ok=True)
        known: dict[str, Any] = {"info": {"subdir": one}, "packages": {}}
        if file.exists():
            known = json.loads(file.read_text())
        if one == subdir:
            data = package.read_bytes()
            known["packages"][package.name] = {
                **about, "size": len(data), "md5": hashlib.md5(data).hexdigest(),
                "sha256": hashlib.sha256(data).hexdigest(),
            }  # fmt: skip
        file.write_text(json.dumps(known))


def _bytes(x: bytes | Path) -> bytes:
    return x if isinstance(x, bytes) else x.read_bytes()


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _add(out: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o755 if name.startswith("bin/") else 0o644
    out.addfile(info, io.BytesIO(data))


def _send(request: BaseHTTPRequestHandler, status: int, body: bytes, kind: str = "application/octet-stream") -> None:
    try:
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        if status == 401:
            request.send_header("WWW-Authenticate", 'Basic realm="packages"')
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)
    except OSError:
        pass  # whoever asked has gone
