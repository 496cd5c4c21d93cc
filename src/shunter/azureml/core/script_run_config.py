"""`azureml.core.script_run_config`."""

from __future__ import annotations

import copy
import logging
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shunter.azureml._places import NAMES, Place
from shunter.azureml._strict import Strict
from shunter.azureml.core.environment import Environment
from shunter.azureml.core.runconfig import DockerConfiguration, RunConfiguration, definition_of, with_distribution
from shunter.azureml.exceptions import NotYetException, UserErrorException

log = logging.getLogger("azureml.core")


@dataclass(init=False)
class ScriptRunConfig(Strict):
    """A script with its folder, its arguments and its run configuration. Nothing is looked at before the submit."""

    MAX_DURATION_SECONDS_DEFAULT = 30 * 24 * 60 * 60

    source_directory: str
    script: str | None
    arguments: list[Any] | None
    run_config: RunConfiguration
    resume_from: Any
    command: Any

    def __init__(
        self, source_directory: str | os.PathLike[str], script: str | None = None, arguments: Sequence[Any] | None = None,
        run_config: RunConfiguration | None = None, compute_target: Any = None, environment: Environment | None = None,
        distributed_job_config: Any = None, resume_from: Any = None,
        max_run_duration_seconds: float | None = MAX_DURATION_SECONDS_DEFAULT, command: Any = None,
        docker_runtime_config: DockerConfiguration | None = None,
    ) -> None:  # fmt: skip
        if isinstance(arguments, str):
            raise UserErrorException(f"arguments is a list, not {arguments!r}.")
        if command is not None:
            if script is not None or arguments is not None:
                raise UserErrorException("Give a command, or a script with its arguments, not both.")
            script, arguments = _script_of(command)
        self.source_directory = os.fspath(source_directory)
        self.resume_from = resume_from
        self.command = command
        said = {"compute_target": compute_target, "environment": environment,
                "distributed_job_config": distributed_job_config, "docker_runtime_config": docker_runtime_config}  # fmt: skip
        if run_config is not None:
            ignored = [name for name, value in said.items() if value is not None]
            if ignored:
                log.warning("If run_config is given, %s is ignored: it comes from there.", ", ".join(ignored))
            self.run_config = copy.deepcopy(run_config)
        else:
            self.run_config = _configuration(**said)
            self.run_config.max_run_duration_seconds = max_run_duration_seconds
        self.script = script if script is not None else self.run_config.script
        self.arguments = list(arguments) if arguments is not None else self.run_config.arguments

    def _words(self) -> list[str]:
        """The arguments as the script gets them."""
        for one in self.arguments or ():
            if isinstance(type(one), Place):
                raise NotYetException(f"{type(one).__name__} is not there yet. {NAMES['Dataset']}")
        return [str(one) for one in self.arguments or ()]


def _script_of(command: Any) -> tuple[str, list[Any]]:
    """The script and its arguments in a command like `python train.py --rate 0.1`, as text or as a list."""
    words = shlex.split(command) if isinstance(command, str) else [*command]
    names = ("python", "python3")
    while len(words) > 1 and isinstance(words[0], str) and words[0] in names and words[1] in ("-u", "-B"):
        del words[1]
    is_script = len(words) > 1 and words[0] in names and str(words[1]).endswith(".py")
    if not is_script or (isinstance(command, str) and any(word in _OF_A_SHELL for word in words)):
        raise NotYetException(
            f"A command that does not run a Python script cannot be submitted yet: {command!r}. "
            "Put it into a script that calls subprocess.run, and name that script."
        )
    return str(words[1]), words[2:]


#: What only a shell understands.
_OF_A_SHELL = frozenset({"&&", "||", ";", "|", ">", ">>", "<", "&"})


def _configuration(
    compute_target: Any, environment: Environment | None, distributed_job_config: Any, docker_runtime_config: Any
) -> RunConfiguration:
    made = RunConfiguration()
    if compute_target is not None:
        made.target = compute_target
    if environment is not None:
        made.environment = definition_of(environment)
    if distributed_job_config is not None:
        with_distribution(made, distributed_job_config)
    if docker_runtime_config is not None:
        made.docker = docker_runtime_config
    return made
