"""What a script is given before it starts (inputs, secrets, checkpoints), and what it leaves to be said at its end.

The parts that do the work are imported only for a run that uses them.
"""

from __future__ import annotations

import json
import os
import time

from shunter.node.home import Home, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    from shunter.node.checkpoints import CheckpointPusher


class NotProvided(Exception):
    """Something that the script was promised cannot be had: `words` says what, why, and what to do."""

    def __init__(self, code, message, hint=""):
        # type: (str, str, str) -> None
        super().__init__(message)
        self.words = {"code": code, "message": message, "hint": hint}


def before_start(folder, job, patience, canceled):
    # type: (str, Dict[str, Any], Callable[[int], float], Callable[[], bool]) -> Dict[str, str]
    """Bring what the run was given to the node and return the variables that tell the script of it."""
    try:
        os.mkdir(os.path.join(folder, "checkpoints"))
    except FileExistsError:
        pass
    found = {}  # type: Dict[str, str]
    if job.get("restore"):
        from shunter.node import checkpoints

        checkpoints.restore(folder, job, patience)
    if job.get("inputs"):
        from shunter.node import inputs

        found.update(inputs.bring(folder, job, patience, canceled))
    if job.get("secrets"):
        found.update(_secrets(job, patience, canceled))
    return found


def mounts(folder, given):
    # type: (str, Dict[str, str]) -> List[str]
    """What a container must see beside the launch's folder: the inputs that lie elsewhere, read-only."""
    paths = json.loads(given.get("SHUNTER_INPUTS") or "{}").values()
    return [path + ":" + path + ":ro" for path in paths if not path.startswith(folder + os.sep)]


def has_checkpoints(folder):
    # type: (str) -> bool
    try:
        with os.scandir(os.path.join(folder, "checkpoints")) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def checkpoint_pusher(folder, job, hear, patience):
    # type: (str, Dict[str, Any], Callable[[Dict[str, Any]], None], Callable[[int], float]) -> CheckpointPusher
    from shunter.node.checkpoints import CheckpointPusher

    return CheckpointPusher(folder, job, hear, patience)


def said_failed(folder):
    # type: (str) -> Dict[str, Any]
    """`run.fail()` was called: the script's exit code does not make it a success."""
    try:
        with open(os.path.join(folder, "failed")) as file:
            words = json.load(file)
    except (OSError, ValueError):
        words = {}
    return {
        "kind": "failed",
        "code": "script_said_failed",
        "message": str(words.get("message") or "The script said that it failed.")[:2000],
        "hint": "It called run.fail(), and then ended with exit code 0.",
    }


def hide(words, given):
    # type: (Dict[str, Any], Dict[str, str]) -> Dict[str, Any]
    """The outcome's words quote the log: not the secrets in it."""
    secrets = [v for k, v in given.items() if not k.startswith("SHUNTER_") and len(v) >= 4]
    if not secrets:
        return words
    found = {}
    for key, value in words.items():
        if isinstance(value, str):
            for secret in secrets:
                value = value.replace(secret, "*" * len(secret))
        found[key] = value
    return found


def _secrets(job, patience, canceled):
    # type: (Dict[str, Any], Callable[[int], float], Callable[[], bool]) -> Dict[str, str]
    """Asked for at the last moment and kept in memory only: they are in no file of the node."""
    home = Home(job["id"], job["home"])
    tries = 0
    try:
        while not canceled():
            try:
                return {str(k): str(v) for k, v in json.loads(home.request("POST", "/ask/secrets", b"{}")).items()}
            except Refused as error:
                if error.status < 500:
                    said = json.loads(error.body or b"{}").get("error", {})
                    raise NotProvided(
                        "secret_missing", str(said.get("message") or error), str(said.get("hint") or "")
                    ) from error
            except OSError:
                pass
            tries += 1
            time.sleep(patience(tries))
    finally:
        home.close()
    return {}
