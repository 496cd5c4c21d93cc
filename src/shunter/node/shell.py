"""A shell where a run's script lives: in its folder and its very environment, for a person who looks into it."""

from __future__ import annotations

import os
import sys

from shunter.node import contract, signs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List


def command(root, launch):
    # type: (str, str) -> List[str]
    """What opens the shell on this machine. Raises ValueError when there is nothing left to look into."""
    folder = signs.launch_folder(root, launch)
    if not os.path.isdir(os.path.join(folder, "work")):
        raise ValueError("the run's folder is not on this machine any more")
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = "import sys; sys.path.insert(0, sys.argv[1]); from shunter.node import shell; shell.main(*sys.argv[2:])"
    return [sys.executable, "-I", "-S", "-E", "-c", code, tree, root, launch]


def main(root, launch):
    # type: (str, str) -> None
    """Become the shell."""
    folder = signs.launch_folder(root, launch)
    env = dict(os.environ)
    claim = contract.Claim.read(folder)
    if claim is not None and claim.script is not None and claim.script_alive():
        env = dict(environment_of(claim.script[0]), TERM=os.environ.get("TERM", "dumb"))
    os.chdir(os.path.join(folder, "work"))
    shell = login_shell()
    os.execvpe(shell, [shell, "-i"], env)


def environment_of(pid):
    # type: (int) -> Dict[str, str]
    with open("/proc/%d/environ" % pid, "rb") as file:
        pairs = [os.fsdecode(word).partition("=") for word in file.read().split(b"\0") if b"=" in word]
    return {name: value for name, _, value in pairs}


def login_shell():
    # type: () -> str
    try:
        import pwd

        found = pwd.getpwuid(os.getuid()).pw_shell
    except (ImportError, KeyError):
        found = ""
    return found if found and os.access(found, os.X_OK) else "/bin/sh"
