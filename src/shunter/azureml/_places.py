"""What the first SDK has and we do not, or not yet: importable where scripts import it, with a clear word on use."""

from __future__ import annotations

from typing import Any

from shunter.azureml.exceptions import NotYetException

_DATA = (
    "Give data to a run with inputs: `experiment.submit(config, inputs={'data': './folder'})`; "
    "the script finds it in `run.input_datasets`."
)
_PIPELINES = "Submit the steps one after the other; pipelines are not there yet."
_TUNING = "Submit a run for each set of parameters and compare them with `ws.compare(…)`; tuning is not there yet."
_SERVING = "Download the model with `model.download()` and serve it elsewhere: Shunter trains."

#: Names of `azureml.core` and its modules → what to use instead.
NAMES: dict[str, str] = {
    "Dataset": _DATA,
    "Datastore": _DATA,
    "Keyvault": "Secrets: `shunter secret set NAME`, then `run.get_secret(NAME)` in the script.",
    "Webservice": _SERVING,
    "AciWebservice": _SERVING,
    "AksWebservice": _SERVING,
    "LocalWebservice": _SERVING,
    "InferenceConfig": _SERVING,
    "DataReference": _DATA,
    "OutputFileDatasetConfig": "Write to ./outputs: what is there comes home with the run.",
    "DataPath": _DATA,
    "DataPathComputeBinding": _DATA,
    "DatasetConsumptionConfig": _DATA,
}

#: Modules that are not there → what to use instead.
MODULES: dict[str, str] = {
    "data": _DATA,
    "dataprep": _DATA,
    "opendatasets": _DATA,
    "pipeline": _PIPELINES,
    "train.hyperdrive": _TUNING,
    "train.automl": _TUNING,
    "core.webservice": _SERVING,
    "core.image": _SERVING,
    "tensorboard": "Write event files to ./logs or ./outputs and download them with the run.",
    "contrib": "Nothing of azureml.contrib is there.",
}


class Place(type):
    """A class that is not there yet: it can be imported and named, and says so when it is used."""

    use: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise cls.not_yet()

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise cls.not_yet(name)

    def not_yet(cls, name: str = "") -> NotYetException:
        return NotYetException(f"{cls.__name__}{'.' + name if name else ''} is not there yet. {cls.use}")


def place(name: str) -> Any:
    """The place of a class that is not there yet."""
    return Place(name, (), {"use": NAMES[name], "__doc__": f"Not yet. {NAMES[name]}"})
