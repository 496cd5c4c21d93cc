"""`azureml.core.compute.compute`: a compute target, of whatever kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from shunter.azureml.exceptions import ComputeTargetException, as_first_sdk
from shunter.errors import NotFound
from shunter.sdk.compute import Compute as Ours

if TYPE_CHECKING:
    from shunter.azureml.core.workspace import Workspace


@dataclass
class ComputeConfiguration:
    """What `provisioning_configuration` and `attach_configuration` give: which kind, and its options."""

    kind: str
    options: dict[str, Any] = field(repr=False)
    tags: dict[str, str] | None = None


class ComputeTarget:
    """`ComputeTarget(ws, name)` gives an object of the target's own class."""

    _compute_type: ClassVar[str] = ""
    _kind: ClassVar[str] = ""

    def __new__(cls, workspace: Workspace, name: str, **kwargs: Any) -> ComputeTarget:
        try:
            ours = workspace._ours.compute.get(name)
        except NotFound as error:
            raise ComputeTargetException(
                f"ComputeTargetNotFound: Compute Target with name {name} not found in provided workspace"
            ) from error
        found = _class_of(ours.kind)
        if cls not in (ComputeTarget, found):
            raise ComputeTargetException(f"{name} is of the class {found.__name__}, not {cls.__name__}.")
        return found._of(workspace, ours)

    def __init__(self, workspace: Workspace, name: str, **kwargs: Any) -> None:
        """All has been done above."""

    @classmethod
    def _of(cls, workspace: Workspace, ours: Ours) -> Self:
        made = object.__new__(cls)
        made.workspace, made._ours = workspace, ours
        return made

    workspace: Workspace
    _ours: Ours

    @staticmethod
    def create(workspace: Workspace, name: str, provisioning_configuration: ComputeConfiguration) -> Any:
        """Make a target. `wait_for_completion` tells how it went."""
        return _made(workspace, name, provisioning_configuration)

    @staticmethod
    def attach(workspace: Workspace, name: str, attach_configuration: ComputeConfiguration) -> Any:
        """Attach one that is there: it is reached and looked at before this returns."""
        return _made(workspace, name, attach_configuration)

    @staticmethod
    def list(workspace: Workspace) -> list[Any]:
        with as_first_sdk(ComputeTargetException):
            return [_class_of(ours.kind)._of(workspace, ours) for ours in workspace._ours.compute.list()]

    @property
    def name(self) -> str:
        return self._ours.name

    @property
    def id(self) -> str:
        return f"{self.workspace._path}/computes/{self.name}"

    @property
    def type(self) -> str:
        return self._compute_type or self._ours.kind

    @property
    def location(self) -> str:
        return str(self._ours.config.get("region") or self.workspace.location)

    cluster_location = location

    @property
    def tags(self) -> dict[str, str]:
        return dict(self._ours.data["tags"])

    @property
    def description(self) -> str:
        return str(self._ours.config.get("description") or "")

    @property
    def created_on(self) -> str:
        return str(self._ours.data["created_at"])

    modified_on = created_on

    @property
    def provisioning_state(self) -> str:
        return self._ours.state

    @property
    def provisioning_errors(self) -> Any:
        return [{"error": {"code": "failed", "message": self._ours.data["reason"]}}] if self._ours.state == "Failed" else None

    @property
    def cluster_resource_id(self) -> str:
        return self.id

    @property
    def is_attached(self) -> bool:
        return self._ours.kind not in ("cluster", "local")

    @as_first_sdk(ComputeTargetException)
    def refresh_state(self) -> None:
        self._ours = self.workspace._ours.compute.get(self.name)

    def get_status(self) -> Any:
        self.refresh_state()
        return self.provisioning_state

    def wait_for_completion(self, show_output: bool = False, is_delete_operation: bool = False) -> None:
        """Until it is there, or gone. It was looked at when it was attached, so there is hardly anything to wait for."""
        if is_delete_operation:
            return
        self.refresh_state()
        if show_output:
            print(self.provisioning_state)
        self._check()

    @as_first_sdk(ComputeTargetException)
    def delete(self) -> None:
        """Refused while runs are there."""
        self._ours.delete()

    detach = delete

    def serialize(self) -> dict[str, Any]:
        names = ("id", "name", "location", "type", "tags", "description", "provisioning_state")
        return {name: getattr(self, name) for name in names}

    def _check(self) -> None:
        if self._ours.state == "Failed":
            raise ComputeTargetException(f"{self.name}: {self._ours.data['reason']}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name}, type={self.type}, provisioning_state={self.provisioning_state})"


def _made(workspace: Workspace, name: str, configuration: ComputeConfiguration) -> Any:
    if not isinstance(configuration, ComputeConfiguration):
        raise ComputeTargetException(f"{configuration!r} is not a configuration of a compute target.")
    with as_first_sdk(ComputeTargetException):
        ours = workspace._ours.compute.create(name, configuration.kind, tags=configuration.tags, **configuration.options)
    return _class_of(ours.kind)._of(workspace, ours)


def _class_of(kind: str) -> type[ComputeTarget]:
    import shunter.azureml.core.compute  # noqa: F401  # so that all of them are there

    return next((cls for cls in ComputeTarget.__subclasses__() if cls._kind == kind), ComputeTarget)
