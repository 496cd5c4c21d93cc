"""`.runconfig` files in the layout that users of the first SDK have in their repositories: found, read, written.

FOLDER/.azureml/NAME.runconfig         (or aml_config/, when that is there already)
FOLDER/.azureml/conda_dependencies.yml  beside it, what the environment lists
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shunter.errors import ConfigError, NotFound, nearest
from shunter.model import environment as model
from shunter.sdk.config import RunConfiguration
from shunter.sdk.runconfig_environment import check_keys, from_section, to_section

FOLDERS = (".azureml", "aml_config")
SUFFIX = ".runconfig"
CONDA_FILE = "conda_dependencies.yml"

#: Sections that we keep as they are: their defaults, in the order of the file.
_DEFAULTS: dict[str, Any] = {
    "history": {"outputCollection": True, "snapshotProject": True, "directoriesToWatch": ["logs"]},
    "spark": {"configuration": {"spark.app.name": "Azure ML Experiment", "spark.yarn.maxAppAttempts": 1}},
    "docker": {"useDocker": False, "sharedVolumes": True, "arguments": [], "shmSize": "2g"},
    "hdi": {"yarnDeployMode": "cluster"},
    "tensorflow": {"workerCount": 1, "parameterServerCount": 1},
    "mpi": {"processCountPerNode": 1, "nodeCount": 1},
    "pytorch": {"communicationBackend": "nccl", "processCount": None, "nodeCount": 1},
    "paralleltask": {"maxRetriesPerWorker": 0, "workerCountPerNode": 1, "terminalExitCodes": None},
    "dataReferences": {},
    "data": {},
    "datacaches": [],
    "outputData": {},
    "sourceDirectoryDataStore": None,
    "amlcompute": {
        "vmSize": None,
        "vmPriority": None,
        "retainCluster": False,
        "name": None,
        "clusterMaxNodeCount": None,
    },
    "autoClusterComputeSpecification": None,
    "kubernetescompute": {"instanceType": None},
    "credentialPassthrough": False,
    "command": "",
    "environmentVariables": {},
    "applicationEndpoints": {},
}
#: Keys in which anything may stand, because users name what is inside.
_FREE = {
    "dataReferences",
    "data",
    "outputData",
    "environmentVariables",
    "applicationEndpoints",
    "datacaches",
    "tags",
    "configuration",
}
_TOP = {
    "script", "arguments", "target", "framework", "communicator", "maxRunDurationSeconds", "nodeCount", "priority",
    "environment", "autoPrepareEnvironment", "tags", "properties", "jobName", "shunter", *_DEFAULTS,
}  # fmt: skip
_INNER: dict[str, set[str]] = {
    name: set(value) for name, value in _DEFAULTS.items() if isinstance(value, dict) and name not in _FREE
}
_INNER["docker"] |= {"gpuSupport"}
_INNER["hdi"] |= {"yarnDeployMode"}
_INNER["autoClusterComputeSpecification"] = {"instanceSize", "instancePriority", "location", "instanceType"}
_SHUNTER = {
    "cpus": "cpus", "gpus": "gpus", "memoryBytes": "memory_bytes", "graceSeconds": "grace_seconds",
    "maxAttempts": "max_attempts", "processesPerNode": "processes_per_node", "environmentRef": "",
    "maxSilenceSeconds": "max_silence_seconds",
}  # fmt: skip


def find(path: Path, name: str | None) -> Path:
    """The file: `path` itself, or the configuration called `name` of the folder `path`."""
    if path.is_file():
        return path
    names = [name, name + SUFFIX] if name else []
    places = [path, *(path / f for f in FOLDERS)]
    for place in places:
        for one in names:
            if (place / one).is_file():
                return place / one
    there = sorted({f.name.removesuffix(SUFFIX) for p in places if p.is_dir() for f in p.glob("*" + SUFFIX)})
    if name is None and len(there) == 1:
        return find(path, there[0])
    what = f"There is no run configuration {name!r} in {path}." if name else f"{path} is not a run configuration."
    raise NotFound(
        what, hint=nearest(name or "", there) or f"RunConfiguration(...).save({str(path)!r}, name) writes one."
    )


def load(path: Path, name: str | None) -> RunConfiguration:
    from shunter.sdk.environment_files import load_yaml

    file = find(path, name)
    loaded = load_yaml(file)
    where = str(file)
    check_keys(loaded, _TOP, where)
    for section, known in _INNER.items():
        if loaded.get(section) is not None:
            check_keys(loaded[section], known, f"{where}: {section}")
    if loaded.get("command"):
        raise ConfigError(f"{where}: command is not supported.", hint="Name a script, and its arguments.")
    ours = check_keys(loaded.get("shunter") or {}, _SHUNTER, f"{where}: shunter")
    aml = loaded.get("amlcompute") or {}
    node_count, processes = _nodes(loaded)
    return RunConfiguration(
        script=loaded.get("script"),
        arguments=loaded.get("arguments") or [],
        framework=str(loaded.get("framework") or "python").lower(),
        communicator=_none(loaded.get("communicator")),
        target=str(loaded.get("target") or "local"),
        node_count=node_count,
        environment=_environment(loaded, ours, file, where),
        environment_variables={str(k): str(v) for k, v in (loaded.get("environmentVariables") or {}).items()} or None,
        max_run_duration_seconds=loaded.get("maxRunDurationSeconds"),
        auto_prepare_environment=bool(loaded.get("autoPrepareEnvironment", True)),
        vm_size=aml.get("vmSize"),
        vm_priority=aml.get("vmPriority"),
        tags=loaded.get("tags") or None,
        priority=loaded.get("priority"),
        processes_per_node=processes,
        **{v: ours[k] for k, v in _SHUNTER.items() if v and v != "processes_per_node" and k in ours},
        sections={k: loaded[k] for k in _DEFAULTS if k in loaded and k not in ("environmentVariables", "command")},
    )


def save(config: RunConfiguration, folder: Path, name: str | None, separate: bool) -> Path:
    import yaml

    if folder.suffix == SUFFIX or folder.is_file():
        home, name = folder.parent, folder.name
    else:
        home = next((folder / f for f in reversed(FOLDERS) if (folder / f).is_dir()), folder / FOLDERS[0])
        home = folder if folder.name in FOLDERS else home
        name = name or config.target or "local"
    home.mkdir(parents=True, exist_ok=True)
    file = home / (name if name.endswith(SUFFIX) else name + SUFFIX)
    content = to_mapping(config)
    environment = config.environment
    if isinstance(environment, model.Environment):
        conda = _write_conda(environment, home, file)
        section = to_section(environment, conda)
        if separate:
            (home / "environment.yml").write_text(yaml.safe_dump(section, sort_keys=False, allow_unicode=True), "utf-8")
        content["environment"] = "environment.yml" if separate else section
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    temporary = file.with_name(file.name + ".tmp")
    temporary.write_text(text, "utf-8")
    temporary.replace(file)
    return file


def to_mapping(config: RunConfiguration) -> dict[str, Any]:
    """The file's content but for its environment, every key in the order that users know."""
    kept = config.sections
    found: dict[str, Any] = {
        "script": config.script,
        "arguments": [a if isinstance(a, int | float) else str(a) for a in config.arguments or []],
        "target": config.target or "local",
        "framework": {"python": "Python", "pyspark": "PySpark", "tensorflow": "TensorFlow", "pytorch": "PyTorch"}.get(
            config.framework.lower(), config.framework
        ),
        "communicator": config.communicator or "None",
        "autoPrepareEnvironment": config.auto_prepare_environment,
        "maxRunDurationSeconds": config.max_run_duration_seconds,
        "nodeCount": config.node_count,
        "priority": config.priority,
        "environment": to_section(model.Environment(), None),
    }
    for name, default in _DEFAULTS.items():
        value = kept.get(name, default)
        found[name] = dict(value) if isinstance(value, dict) else value
    found["amlcompute"] |= {"vmSize": config.vm_size, "vmPriority": config.vm_priority}
    found["environmentVariables"] = dict(config.environment_variables or {})
    found["command"] = ""
    if config.tags:
        found["tags"] = dict(config.tags)
    if config.processes_per_node is not None and "mpi" in (config.communicator or "").lower():
        found["mpi"] |= {"processCountPerNode": config.processes_per_node, "nodeCount": config.node_count}
    ours = {k: getattr(config, v) for k, v in _SHUNTER.items() if v and getattr(config, v) is not None}
    if isinstance(config.environment, str):
        ours["environmentRef"] = config.environment
    if ours:
        found["shunter"] = ours
    return found


def _environment(loaded: dict[str, Any], ours: dict[str, Any], file: Path, where: str) -> Any:
    from shunter.sdk.environment_files import load_yaml

    if ours.get("environmentRef"):
        return str(ours["environmentRef"])
    section = loaded.get("environment")
    if isinstance(section, str):
        separate = next((p / section for p in (file.parent, file.parent.parent) if (p / section).is_file()), None)
        if separate is None:
            raise ConfigError(f"{where}: there is no file {section}.", hint="The key `environment` names it.")
        where, section = str(separate), load_yaml(separate)
    return from_section(section or {}, file.parent, where, loaded.get("docker"))


def _nodes(loaded: dict[str, Any]) -> tuple[int, int | None]:
    """How many nodes, and processes on each: the communicator's own section counts when the top does not say."""
    count = int(loaded.get("nodeCount") or 1)
    communicator = str(loaded.get("communicator") or "").lower()
    mpi, pytorch = loaded.get("mpi") or {}, loaded.get("pytorch") or {}
    processes = (loaded.get("shunter") or {}).get("processesPerNode")
    if "mpi" in communicator:
        count = max(count, int(mpi.get("nodeCount") or 1))
        processes = processes or (int(mpi.get("processCountPerNode") or 1) if "mpi" in loaded else None)
    elif communicator in ("nccl", "gloo"):
        count = max(count, int(pytorch.get("nodeCount") or 1))
        if processes is None and pytorch.get("processCount"):
            processes = max(1, int(pytorch["processCount"]) // count)
    return count, processes


def _write_conda(environment: model.Environment, home: Path, file: Path) -> str | None:
    """Write what the environment lists beside the configuration; another one's list of the same name is left alone."""
    from shunter.sdk.environment_files import conda_yaml

    if environment.user_managed or environment.files or not (environment.packages or environment.conda_packages):
        return None
    text = conda_yaml(environment.packages, environment.conda_packages, environment.channels, environment.python)
    target = home / CONDA_FILE
    others = [f for f in home.glob("*" + SUFFIX) if f != file and CONDA_FILE in f.read_text("utf-8", "replace")]
    if others and target.is_file() and target.read_text("utf-8") != text:
        target = home / f"{file.name.removesuffix(SUFFIX)}_{CONDA_FILE}"
    target.write_text(text, "utf-8")
    return f"{home.name}/{target.name}"


def _none(value: Any) -> str | None:
    return None if value in (None, "", "None", "none") else str(value)
