"""`azureml.exceptions`: the first SDK's errors, and which of ours become which of these."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shunter import errors


class AzureMLException(Exception):
    """The root of the first SDK's errors."""

    def __init__(self, exception_message: str = "", inner_exception: BaseException | None = None, **kwargs: Any) -> None:
        super().__init__(exception_message)
        self.message = exception_message
        self.inner_exception = inner_exception

    def __str__(self) -> str:
        code = "UserError" if isinstance(self, UserErrorException) else "SystemError"
        answer = json.dumps({"error": {"code": code, "message": self.message}}, indent=4, ensure_ascii=False)
        head = f"{type(self).__name__}:\n\tMessage: {self.message}\n\tInnerException {self.inner_exception}"
        return f"{head}\n\tErrorResponse \n{answer}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r})"


class ActivityFailedException(AzureMLException):
    """A run failed."""

    def __init__(self, error_details: str = "", **kwargs: Any) -> None:
        super().__init__(f"Activity Failed:\n{error_details}", **kwargs)
        self.error_details = error_details


class ComputeTargetException(AzureMLException):
    """Something about a compute target."""


class DatasetTimestampMissingError(AzureMLException):
    """Kept for `except` clauses."""


class DiscoveryUrlNotFoundException(AzureMLException):
    """Kept for `except` clauses."""


class ExperimentExecutionException(AzureMLException):
    """An experiment could not be run."""


class ModelNotFoundException(AzureMLException):
    """There is no such model."""


class ModelPathNotFoundException(AzureMLException):
    """There is no model at that path."""


class ParallelRunException(AzureMLException):
    """Kept for `except` clauses."""


class ProjectSystemException(AzureMLException):
    """The server could not do it."""


class RunConfigurationException(AzureMLException):
    """A run configuration makes no sense."""


class RunEnvironmentException(AzureMLException):
    """There is no run here."""


class SnapshotException(AzureMLException):
    """A folder could not be frozen or brought back."""


class TrainingException(AzureMLException):
    """An estimator makes no sense."""


class UserErrorException(AzureMLException):
    """What was asked for makes no sense."""


class AuthenticationException(UserErrorException):
    """The server does not let us in."""


class WebserviceException(AzureMLException):
    """Something about a model's name or its registration."""


class WorkspaceException(AzureMLException):
    """Something about a workspace."""


class WorkspacePrivateEndpointException(AzureMLException):
    """Kept for `except` clauses."""


class NotYetException(AzureMLException):
    """Ours alone: the first SDK has it, Shunter does not, or not yet. The message says what to use instead."""


#: The first that fits counts.
_BECOMES: tuple[tuple[type[errors.ShunterError], type[AzureMLException]], ...] = (
    (errors.SnapshotError, SnapshotException),
    (errors.AuthError, AuthenticationException),
    (errors.DriverError, ComputeTargetException),
    (errors.ServerError, ProjectSystemException),
)


@contextmanager
def as_first_sdk(other: type[AzureMLException] = UserErrorException) -> Iterator[None]:
    """Errors of ours come out as the first SDK's; those that it has no kind for as `other`. Also a decorator."""
    try:
        yield
    except errors.ShunterError as error:
        kind = next((theirs for ours, theirs in _BECOMES if isinstance(error, ours)), other)
        raise kind(str(error), inner_exception=error) from error
