"""How a launch stands, read from its folder, and what a driver does to it there.

A sign is a small JSON object: {"sign": "running" | "ended" | "gone" | "absent" | "unknown", …}. With "adopt" in it the
warm parent is to be told: a script lives whose launcher died.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time

from shunter.node import contract, exits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

#: A launcher that was asked for and has not claimed its launch yet is given so long before it is asked for again.
CLAIM_SECONDS = 2.0


def look(root, launch):
    # type: (str, str) -> Dict[str, Any]
    """The sign of one launch. Says gone only with evidence."""
    folder = launch_folder(root, launch)
    claim = contract.Claim.read(folder)
    if claim is not None and not claim.launcher_alive():
        claim = contract.Claim.read(folder)  # again: how far it came before it died, and who adopted it
    alive = claim is not None and claim.launcher_alive() and not is_done(folder)
    outcome = contract.read_json(os.path.join(folder, "outcome"))  # last: a launcher may write it and be gone in between
    if outcome is not None:
        return {"sign": "ended", "outcome": outcome, "pushing": alive}
    if claim is None:
        age = _age(os.path.join(folder, "job.json"))
        if age is not None and age < CLAIM_SECONDS:
            return {"sign": "unknown", "why": "The launcher is on its way."}
        return {"sign": "absent"}
    if alive:
        return {"sign": "running", "started": claim.script is not None, "pushing": True}
    if claim.launcher is None:
        # The claim's file is made before its first line is written: a launcher that is killed between has done nothing.
        if _is_recent(os.path.join(folder, "claim")):
            return {"sign": "unknown", "why": "The launcher is on its way."}
        return {"sign": "gone", "evidence": "The launcher was killed before it began.", "started": False}
    return _without_launcher(root, folder, launch, claim)


def cancel(root, launch):
    # type: (str, str) -> bool
    """Ask for the end of a launch, at whatever point it is. True when the warm parent must adopt it for that."""
    folder = launch_folder(root, launch)
    os.makedirs(folder, 0o700, exist_ok=True)
    with open(os.path.join(folder, "cancel"), "a"):
        pass
    claim = contract.Claim.read(folder)
    if claim is None:
        # Nobody took it yet: take it ourselves, then it never starts.
        if contract.take(folder, "canceled"):
            words = {"kind": "canceled", "message": "Canceled before the script was started.", "ended_at": time.time()}
            contract.write_whole(os.path.join(folder, "outcome"), json.dumps(words).encode(), sync=True)
        return False
    if claim.launcher_alive() and claim.launcher and not is_done(folder):
        try:
            os.kill(claim.launcher[0], signal.SIGUSR1)
            return False
        except ProcessLookupError:
            pass  # it is just gone: whoever adopts the launch finds the word
    return claim.script_alive()


def clean(root, launch):
    # type: (str, str) -> bool
    """Remove the folder of a launch that nobody works on any more. False when it is still needed."""
    folder = launch_folder(root, launch)
    claim = contract.Claim.read(folder)
    if claim is not None and claim.launcher_alive() and not is_done(folder):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return True


def stream_file(root, launch, stream):
    # type: (str, str, str) -> str
    """The file that holds a stream (`log`) or a file of the run (`files/outputs/a`); the caller checked its name."""
    folder = launch_folder(root, launch)
    return os.path.join(folder, "work", stream[6:]) if stream.startswith("files/") else os.path.join(folder, stream)


def is_done(folder):
    # type: (str) -> bool
    """Everything is home. Its launcher may live on, with another launch."""
    return os.path.exists(os.path.join(folder, "done"))


def give_up(folder, why):
    # type: (str, str) -> bool
    """Take a launch that nobody took, so that nobody ever does, and say that it was lost. False when somebody has it."""
    if not contract.take(folder, "canceled"):
        return False
    said = {"kind": "lost", "code": "never started", "message": why, "ended_at": time.time()}
    contract.write_whole(os.path.join(folder, "outcome"), json.dumps(said).encode(), sync=True)
    return True


def launch_folder(root, launch):
    # type: (str, str) -> str
    return os.path.join(root, contract.LAUNCHES, launch)


def is_settled(root, claim):
    # type: (str, contract.Claim) -> bool
    """False while the warm parent has yet to hear that the launcher or the script is over: it will say how it ended."""
    try:
        with open(os.path.join(root, "parent.lock")) as file:
            parent = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return True
    processes = [p for p in (claim.launcher, claim.script) if p is not None] if claim.same_boot() else []
    return not any(exits.is_unreaped(pid, started, parent) for pid, started in processes)


def _without_launcher(root, folder, launch, claim):
    # type: (str, str, str, contract.Claim) -> Dict[str, Any]
    if not claim.same_boot():
        words = "The machine was restarted while it ran (its boot id changed)."
        return {"sign": "gone", "evidence": words, "started": claim.starting}
    if not claim.starting:
        return {"sign": "gone", "evidence": "The launcher was killed before it started the script.", "started": False}
    survivors = claim.script_alive() or (claim.script is None and contract.find_processes(launch))
    survivors = survivors or not is_settled(root, claim)
    if survivors or os.path.exists(os.path.join(folder, "exit")) or _is_recent(os.path.join(folder, "claim")):
        # The warm parent hears of a launcher's death by itself; one that was started later must be told.
        return {"sign": "running", "started": True, "pushing": False, "adopt": True}
    words = "The launcher was killed, and the script is over too; nobody saw its exit status."
    return {"sign": "gone", "evidence": words, "started": True}


def _is_recent(path):
    # type: (str) -> bool
    """Just claimed or adopted: give the adopter a moment to write what it found."""
    age = _age(path)
    return age is not None and age < CLAIM_SECONDS


def _age(path):
    # type: (str) -> float | None
    try:
        return abs(time.time() - os.stat(path).st_mtime)
    except OSError:
        return None
