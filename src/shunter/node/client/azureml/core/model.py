"""`azureml.core.model` inside a run: the models of the run's workspace."""

from shunter import _models  # type: ignore[attr-defined,unused-ignore]
from shunter.run import RunUsageError, get_context

__all__ = ["Model"]


class Model(_models.Model):  # type: ignore[misc,unused-ignore]
    """One version of a registered model: the newest, unless a version is said."""

    def __init__(self, workspace, name=None, id=None, tags=None, properties=None, version=None, **kwargs):  # type: ignore[no-untyped-def]
        if id:
            name, _, version = id.rpartition(":")
        super().__init__(_models.find(name, version).data)
        self.workspace = workspace

    @property
    def properties(self):  # type: ignore[no-untyped-def]
        return {k[17:]: v for k, v in self.tags.items() if k.startswith("azureml.property.")}

    @staticmethod
    def list(workspace, name=None, tags=None, properties=None, run_id=None, latest=False, **kwargs):  # type: ignore[no-untyped-def]
        found = [one for one in _models.listed(name) if run_id in (None, one.run_id)]
        for wanted in tags or ():
            key, value = (wanted, None) if isinstance(wanted, str) else wanted
            found = [one for one in found if key in one.tags and value in (None, one.tags[key])]
        return found[:1] if latest and name else found

    @staticmethod
    def register(  # type: ignore[no-untyped-def]
        workspace, model_path, model_name, tags=None, properties=None, description=None, model_framework=None, **kwargs
    ):
        """Register a file or a folder of this machine; it becomes one of the run's files."""
        run = get_context()
        if not hasattr(run, "register_model"):
            raise RunUsageError("Model.register: this script is not in a run.")
        return _models.register(run, model_name, str(model_path), tags, description or "")

    @staticmethod
    def get_model_path(model_name, version=None, _workspace=None):  # type: ignore[no-untyped-def]
        return _models.path_of(model_name, version)
