"""What a script runs in: an interpreter that is there, an environment built here once, or a container around either.

The launcher calls `prepare`; without an environment in its job it does not even import this.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from shunter.node.environments.container import Box

#: One folder for each thing kept on a node, below its root.
FOLDER = "environments"


class Unavailable(Exception):
    """The environment cannot be had here; in the words of an outcome."""

    def __init__(self, code, message, hint=""):
        # type: (str, str, str) -> None
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def words(self):
        # type: () -> Dict[str, Any]
        return {"kind": "failed", "code": self.code, "message": self.message, "hint": self.hint}


class Canceled(Exception):
    """Somebody wants the run over while it was being prepared."""


class Prepared:
    """How to start the script: what stands before its name, what is added to its environment, and what was found."""

    def __init__(self, argv_prefix, env, facts, wrap=None):
        # type: (List[str], Dict[str, str], Dict[str, Any], Optional[Box]) -> None
        self.argv_prefix = argv_prefix
        self.env = env
        self.facts = facts
        self.wrap = wrap


class Job:
    """What preparing needs to know of the launch: where it is, whom to tell, and whether anybody still wants it."""

    def __init__(self, spec, folder, root, say, canceled, job=None):
        # type: (Dict[str, Any], str, str, Callable[[str], None], Callable[[], bool], Optional[Dict[str, Any]]) -> None
        self.spec = spec
        self.folder = folder
        self.root = root
        self.say = say
        self.canceled = canceled
        self.whole = job or {}
        self.log = os.path.join(folder, "log")
        self.cache = spec.get("cache") or os.path.join(root, FOLDER)
        tools = self.whole.get("tools") or {}
        self.tools = {name: tools[name] for name in tools}  # type: Dict[str, str]

    def check(self) -> None:
        if self.canceled():
            raise Canceled

    def write(self, text):
        # type: (str) -> None
        """A line of ours in the run's log."""
        with open(self.log, "a") as file:
            file.write("shunter: " + text + "\n")


def prepare(spec, folder, root, say, canceled, job=None):
    # type: (Dict[str, Any], str, str, Callable[[str], None], Callable[[], bool], Optional[Dict[str, Any]]) -> Prepared
    """Make the environment `spec` ready on this node. Raises Unavailable or Canceled.

    `say` is called with what is being done as soon as it takes time; a warm hit never calls it.
    """
    work = Job(spec, folder, root, say, canceled, job)
    if spec["kind"] == "existing":
        from shunter.node.environments.existing import prepare_existing

        return prepare_existing(work)
    if spec["kind"] == "built":
        from shunter.node.environments.built import prepare_built

        return prepare_built(work)
    if spec["kind"] == "container":
        from shunter.node.environments.container import prepare_container

        return prepare_container(work)
    raise Unavailable("environment_unknown", "This node does not know environments of kind " + repr(spec["kind"]) + ".")
