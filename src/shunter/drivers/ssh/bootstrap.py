"""The first words on a new connection: a Python is found there, our tree is put there if it is not, the agent starts.

Nothing is assumed of the login shell but that it can run `sh`; what it prints before our mark is noise and skipped.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from functools import cache
from pathlib import Path

import shunter

PYTHONS = ("python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9", "python3.8",
           "python", "/usr/local/bin/python3", "/opt/conda/bin/python3")  # fmt: skip
NO_PYTHON = "shunter-no-python"


@cache
def tree() -> tuple[str, bytes]:
    """What runs on the node (`shunter/__init__.py` and `shunter/node`): its name and its bytes."""
    base = Path(shunter.__file__).parent
    files = [base / "__init__.py", *sorted((base / "node").rglob("*.py"))]
    content = {f"shunter/{path.relative_to(base).as_posix()}": path.read_text() for path in files}
    text = json.dumps(content, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:16], zlib.compress(text, 6)


def command(python: str | None) -> str:
    """What the login shell is asked to run. Single quotes outside, so it is the same to every shell."""
    names = " ".join(_quoted(name) for name in ((python,) if python else PYTHONS))
    test = "import sys; sys.exit(sys.version_info < (3, 8))"
    start = "import sys; exec(sys.stdin.buffer.readline())"
    return (
        f"sh -c 'for p in {names}; do "
        f'if command -v "$p" >/dev/null 2>&1 && "$p" -I -S -c "{test}" </dev/null >/dev/null 2>&1; then '
        f'exec "$p" -I -S -E -u -c "{start}"; fi; done; '
        f'echo; echo {NO_PYTHON} $(for p in {names}; do command -v "$p" >/dev/null 2>&1 && "$p" -V 2>&1; done)\''
    )


def first_line(root: str, mark: str) -> bytes:
    """The program that the found Python reads from its first line of input."""
    name, data = tree()
    words = {"root": root, "mark": mark, "tree": name, "size": len(data)}
    return f"exec({_PROGRAM.replace('@WORDS@', json.dumps(words))!r})\n".encode()


_PROGRAM = """
import errno, json, os, sys, zlib
words = json.loads(r'''@WORDS@''')
def say(**what):
    os.write(1, ("\\n" + words["mark"] + json.dumps(what) + "\\n").encode())
root = os.path.abspath(os.path.expanduser(words["root"]))
try:
    os.makedirs(root, 0o700, exist_ok=True)
    os.chmod(root, 0o700)
    probe = os.path.join(root, "probe%d" % os.getpid())
    with open(probe, "wb") as file:
        file.write(b"x" * 65536)
    os.unlink(probe)
    tree = os.path.join(root, "tree", words["tree"])
    if not os.path.isdir(tree):
        say(need="tree")
        data = b""
        while len(data) < words["size"]:
            more = os.read(0, 1 << 16)
            if not more:
                sys.exit(1)
            data += more
        aside = tree + ".tmp%d" % os.getpid()
        for path, text in json.loads(zlib.decompress(data)).items():
            target = os.path.join(aside, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "w", encoding="utf-8") as file:
                file.write(text)
        try:
            os.rename(aside, tree)
        except OSError:
            if not os.path.isdir(tree):
                raise
    sys.path.insert(0, tree)
except OSError as error:
    say(problem=error.strerror, errno=errno.errorcode.get(error.errno, ""), path=error.filename or root)
    sys.exit(1)
from shunter.node import agent
agent.main(root, words["mark"])
"""


def _quoted(name: str) -> str:
    """A name inside double quotes inside single quotes."""
    if re.fullmatch(r"[A-Za-z0-9_./~+@%:,=-]+", name):
        return name
    return '"' + re.sub(r'(["\\$`])', r"\\\1", name.replace("'", "")) + '"'
