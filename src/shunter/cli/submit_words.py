"""The words after `shunter submit`: which are its options, which is the script, which belong to the script.

Typer declares the command, but importing it (and with it pydantic) takes longer than everything else that a submit
does. So words that are plainly right are read here; whatever is not goes to Typer, which knows how to explain.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Option → parameter of `submitting.submit`, and what makes its value from a word. A test compares it with Typer's.
WITH_VALUE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--source": ("source", Path),
    "--target": ("target", str),
    "--experiment": ("experiment", str),
    "--name": ("name", str),
    "--environment": ("environment", str),
    "--run-config": ("run_config", Path),
    "--nodes": ("nodes", int),
    "--vm-size": ("vm_size", str),
    "--processes-per-node": ("processes_per_node", int),
    "--communicator": ("communicator", str),
    "--cpus": ("cpus", float),
    "--gpus": ("gpus", int),
    "--memory": ("memory", str),
    "--env": ("env", list),
    "--tag": ("tag", list),
    "--input": ("input", list),
    "--sample": ("sample", str),
    "--secret": ("secret", list),
    "--notify": ("notify", list),
    "--keep-checkpoints": ("keep_checkpoints", int),
    "--max-duration": ("max_duration", str),
    "--max-silence": ("max_silence", str),
    "--snapshot-limit": ("snapshot_limit", str),
}
FLAGS = {"--yes": "yes", "-y": "yes", "--detach": "detach", "--json": "as_json"}


def read(words: list[str]) -> dict[str, Any] | None:
    """The parameters for `submitting.submit`; None when Typer had better look at the words.

    >>> read(["--target", "vm1", "train.py", "--lr", "0.1"])
    {'target': 'vm1', 'script': 'train.py', 'arguments': ['--lr', '0.1']}
    >>> read(["--nodes", "two", "train.py"]) is None, read(["--help"]) is None
    (True, True)
    """
    sorted_words = arrange(words, set(WITH_VALUE), set(FLAGS) | {"-h", "--help"})
    if "--" not in sorted_words:
        return None
    end = sorted_words.index("--")
    options, rest = sorted_words[:end], sorted_words[end + 1 :]
    found: dict[str, Any] = {}
    while options:
        name, equals, value = options.pop(0).partition("=")
        if name in FLAGS and not equals:
            found[FLAGS[name]] = True
            continue
        if name not in WITH_VALUE or not (equals or options):
            return None
        parameter, convert = WITH_VALUE[name]
        value = value if equals else options.pop(0)
        if convert is list:
            found.setdefault(parameter, []).append(value)
            continue
        try:
            found[parameter] = convert(value)
        except ValueError:
            return None
    if not rest:
        return None
    return found | {"script": rest[0], "arguments": rest[1:]}


def arrange(words: list[str], with_value: set[str], flags: set[str]) -> list[str]:
    """Options of submit first, then `--`, the script, and its arguments as they are.

    >>> arrange(["train.py", "--target", "vm1", "--lr", "1", "--json"], {"--target"}, {"--json"})
    ['--target', 'vm1', '--', 'train.py', '--lr', '1', '--json']
    >>> arrange(["train.py", "--", "--json"], {"--target"}, {"--json"})
    ['--', 'train.py', '--json']
    """
    ours: list[str] = []
    script: list[str] = []
    left = list(words)
    while left:
        word = left[0]
        if word == "--":
            left.pop(0)
            break
        if word in flags or (word.startswith("--") and word.split("=", 1)[0] in with_value and "=" in word):
            ours.append(left.pop(0))
        elif word in with_value:
            ours += left[:2]
            del left[:2]
        elif script:
            break
        elif word.startswith("-") and word != "-":
            ours.append(left.pop(0))  # unknown: the parser says so
        else:
            script.append(left.pop(0))
    return [*ours, "--", *script, *left] if script or left else ours
