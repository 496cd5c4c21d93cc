"""Object stores on this machine that speak the clouds' own protocols: moto for s3, Azurite for az, an emulator for gs."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 60.0
#: The account and the key that every Azurite has; they are written in its documentation and open nothing else.
AZURITE = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IF"
    "suFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
)
PUT = """
import fsspec, json, sys
made = set()
for url, text in json.load(sys.stdin).items():
    system, path = fsspec.core.url_to_fs(url)
    bucket = path.split("/")[0]
    if bucket not in made and not system.exists(bucket):
        system.mkdir(bucket)
    made.add(bucket)
    system.pipe_file(path, text.encode())
"""


@dataclass(frozen=True)
class Cloud:
    """A store that runs, the scheme of its URLs, and the variables by which fsspec's packages find it."""

    scheme: str
    env: Mapping[str, str]

    def put(self, files: Mapping[str, str]) -> None:
        """Write files, by their path behind the scheme (`bucket/name`), through the package that reads them too."""
        given = json.dumps({f"{self.scheme}://{path}": text for path, text in files.items()})
        subprocess.run([sys.executable, "-c", PUT], input=given, text=True, check=True, env={**os.environ, **self.env})


@contextmanager
def cloud(scheme: str) -> Iterator[Cloud | None]:
    """A store for `s3`, `az` or `gs`, as long as it is needed; None when it is not installed here."""
    with tempfile.TemporaryDirectory(prefix="shunter-cloud-") as folder:
        for last in (False, False, True):
            port = _free_port()
            command = _command(scheme, port, folder)
            if command is None:
                yield None
                return
            with open(Path(folder, "log"), "wb") as log:
                store = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                if _answers(scheme, port, store):
                    yield Cloud(scheme, _env(scheme, port))
                    return
            finally:
                store.terminate()
                store.wait(START_SECONDS)
            if last:
                raise RuntimeError("The store did not start:\n" + Path(folder, "log").read_text()[-2000:])


def _command(scheme: str, port: int, folder: str) -> list[str] | None:
    beside = Path(sys.executable).parent
    if scheme == "s3":
        found = shutil.which("moto_server", path=str(beside))
        return [found, "--host", "127.0.0.1", "--port", str(port)] if found else None
    if scheme == "gs":
        found = shutil.which("gcp-storage-emulator", path=str(beside))
        return [found, "start", "--host=127.0.0.1", f"--port={port}", "--in-memory"] if found else None
    parts = Path(os.environ.get("SHUNTER_TEST_PARTS") or "/var/tmp/shunter-test-parts")
    script = parts / "azurite/node_modules/.bin/azurite-blob"
    if not script.exists():
        return None
    return [str(script), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", folder, "--silent",
            "--skipApiVersionCheck", "--disableTelemetry"]  # fmt: skip


def _env(scheme: str, port: int) -> dict[str, str]:
    address = f"http://127.0.0.1:{port}"
    if scheme == "s3":
        return {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
                "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip
    if scheme == "gs":
        # The last: the emulator has no gRPC, by which gcsfs asks first what kind of bucket it is.
        return {"STORAGE_EMULATOR_HOST": address, "FSSPEC_GCS_TOKEN": "anon", "FSSPEC_GS_TOKEN": "anon",
                "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}  # fmt: skip
    return {"AZURE_STORAGE_CONNECTION_STRING": AZURITE.format(port=port)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


#: What is asked of a store to see that it answers, and what only its answer has.
_SIGNS = {
    "s3": ("/", b"ListAllMyBucketsResult"),
    "gs": ("/storage/v1/b?project=any", b"storage#buckets"),
    "az": ("/devstoreaccount1?comp=list", b"Azurite"),
}


def _answers(scheme: str, port: int, store: subprocess.Popen[bytes]) -> bool:
    """Wait until the store answers a request. False when it ended, or another has got its port since it was chosen.

    That somebody listens there is not enough: a store may be slow to its first answer, and the emulator for gs stays, and
    is silent, when its port is taken.
    """
    path, sign = _SIGNS[scheme]
    until = time.monotonic() + START_SECONDS
    while store.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=START_SECONDS) as answer:
                said = bytes(answer.headers) + answer.read()
        except urllib.error.HTTPError as error:
            said = bytes(error.headers) + error.read()
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
            continue
        return sign in said
    return False
