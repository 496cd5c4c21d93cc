"""Write docs/from-azureml.md: the first SDK's classes and members, each the same, different, or absent with what to use.

    python scripts/docs_azureml.py            writes the page
    python scripts/docs_azureml.py --check    fails when the page is not what the code says

What the first SDK has stands in `azureml_surface.json`: names of members and of their parameters, release 1.61. What
ours has is read from the code; only behaviour that no signature shows is told here, in `DIFFERENT`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "from-azureml.md"
SURFACE = ROOT / "scripts" / "azureml_surface.json"

SAME, DIFFERENT_, IN_SCRIPT, ABSENT = "same", "different", "in the script", "absent"

#: Behaviour that differs though the name and its parameters are the same.
DIFFERENT = {
    "Workspace.from_config": "without a config.json it is the default workspace, not an error",
    "Workspace.create": "storage, keys, identities and networks are accepted and not used",
    "Workspace.datasets": "empty: none yet",
    "Workspace.datastores": "empty: none yet",
    "Workspace.webservices": "empty: Shunter trains",
    "Workspace.location": "kept as it was said; `here` when nobody said one. So are subscription_id and resource_group",
    "Experiment.__init__": "blanks and any letters are fine in a name",
    "Experiment.submit": "takes ScriptRunConfig and estimators; also our own options: inputs, name, gpus, secrets",
    "Run.get_portal_url": "an address of your own server",
    "Run.get_file_names": "the log stands there twice: azureml-logs/70_driver_log.txt and user_logs/std_log.txt",
    "Run.get_metrics": "an image is the path of its file among the run's files",
    "ScriptRunConfig.__init__": "a command must run a Python script; resume_from takes a run, whose checkpoints are taken up",
    "RunConfiguration.__init__": "command is not there yet",
    "CondaDependencies.__init__": "without a version, Python is that of whoever submits",
    "CondaDependencies.create": "without a version, Python is that of whoever submits",
    "AmlCompute.provisioning_configuration": "vm_priority, nodes' users, networks and identities are accepted and not used",
    "AmlCompute.wait_for_completion": "waits for min_nodes; nodes beyond come with runs",
    "RemoteCompute.attach_configuration": "needs address; the host key must be in known_hosts",
    "Environment.build": "a run that builds it on a target",
    "Environment.from_docker_image": "registry passwords are refused: log in on the target",
    "Experiment.start_logging": "outputs names a folder that is uploaded at the end; tags and names as with submit",
    "Environment.get": "`AzureML-…` gives our curated environment of that framework",
    "Model.register": "from a file or folder here; datasets and sample inputs are accepted and not used",
    "Environment.list": "with those that come with Shunter; names beginning with AzureML- are not among them",
    "Estimator.__init__": "containers only when an image is named or use_docker=True",
    "SKLearn.__init__": "containers only when an image is named or use_docker=True",
    "PyTorch.__init__": "containers only when an image is named or use_docker=True",
    "TensorFlow.__init__": "containers only when an image is named or use_docker=True",
    "InteractiveLoginAuthentication.__init__": "accepted; SHUNTER_TOKEN says who you are",
    "ServicePrincipalAuthentication.__init__": "accepted; SHUNTER_TOKEN says who you are",
    "AzureCliAuthentication.__init__": "accepted; SHUNTER_TOKEN says who you are",
    "MsiAuthentication.__init__": "accepted; SHUNTER_TOKEN says who you are",
}

#: What to use where a member is absent and its own words do not say.
USE = {
    "Workspace.get_default_datastore": "`experiment.submit(config, inputs={'data': './folder'})`",
    "Workspace.set_default_datastore": "`experiment.submit(config, inputs={'data': './folder'})`",
    "Workspace.get_default_keyvault": "`shunter secret set NAME`, then `run.get_secret(NAME)` in the script",
    "Experiment.tag": "tag the runs: `run.tag(…)`",
    "Experiment.set_tags": "tag the runs: `run.set_tags(…)`",
    "Run.description": "a tag",
    "Run.list_by_compute": "`shunter run list --target NAME`",
    "Run.take_snapshot": "a submit takes one: `run.get_snapshot_id()`",
    "AmlCompute.get_active_runs": "`shunter compute show NAME`",
    "Environment.from_docker_build_context": "`Environment.from_dockerfile`; `context: snapshot` lets it copy files",
    "Environment.build_local": "`Environment.build(ws)`",
    "Model.deploy": "download the model and serve it elsewhere: Shunter trains",
}

HEAD = """\
# From Azure ML's first SDK

    python -m shunter.azureml submit.py

runs a program that imports `azureml`, unchanged, with Shunter in the place of the cloud. In a notebook say
`%load_ext shunter.azureml`; in a program `import shunter.azureml; shunter.azureml.install()` before the first
`import azureml`. Inside submitted runs `azureml` is ours by itself. An installed `azureml-core` stays as it is on disk;
`shunter.azureml.in_use()` says which of the two a process uses.

## Move a project over in five minutes

1. `pip install 'shunter[server,cluster,ssh]'`. The server starts by itself when it is needed; nothing to sign up for.
2. Leave `.azureml/config.json` where it is: `Workspace.from_config()` makes a workspace of that name here.
3. Leave the `.runconfig` and `conda_dependencies.yml` files: they are read as they are. No conda channel at hand?
   `shunter.Workspace.from_config().settings(package_source="pypi")` takes conda packages from PyPI.
4. Clusters: the idiom *look it up, else create it* works as it stands; `AmlCompute` is a cluster of Ray nodes.
   Machines: `RemoteCompute` with an address and a password or key. `az ml` commands become `shunter …`.
5. Run it: `python -m shunter.azureml submit.py`. What is not there yet says so, and what to use instead.

New code is shorter in our own words (`import shunter`): see the quickstart.

## What is the same and what is not

*same*: the name, its parameters and what it gives. *different*: works, with what is told. *in the script*: not for the
submitter, but on `Run.get_context()` inside the run. *absent*: not there, or not yet.

Spellings of the documents that the first SDK itself refuses work too: `run_config.user_managed_dependencies`,
`run_config.vm_size`, `run_config.prepare_environment`, `RunConfiguration.load(project_object=…, run_name=…)`.
"""


class Entry(NamedTuple):
    name: str
    verdict: str
    note: str


def page() -> str:
    surface: dict[str, dict[str, list[str] | None]] = json.loads(SURFACE.read_text())
    parts: list[str] = [HEAD]
    absent: dict[str, list[str]] = {}
    counts = dict.fromkeys((SAME, DIFFERENT_, IN_SCRIPT, ABSENT), 0)
    for path, members in surface.items():
        found, why = find(path)
        if found is None:
            absent.setdefault(why, []).append(f"`{path}`")
            continue
        entries = [judge(found, name, parameters) for name, parameters in members.items()]
        for entry in entries:
            counts[entry.verdict] += 1
        parts.append(table(path, entries))
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    parts.insert(1, f"Of the members of the classes that are there: {summary}.\n")
    rows = "".join(f"| {', '.join(classes)} | {use} |\n" for use, classes in absent.items())
    parts.append("### Classes that are not there yet\n\n| classes | use |\n|---|---|\n" + rows)
    return "\n".join(parts)


def table(path: str, entries: list[Entry]) -> str:
    """Those with something to say in a table, the others in a line for each verdict."""
    text = f"### `{path}`\n"
    for verdict in (SAME, IN_SCRIPT, ABSENT):
        names = [f"`{e.name}`" for e in entries if e.verdict == verdict and not e.note]
        if names:
            text += "\n" + textwrap.fill(f"{verdict}: " + ", ".join(names), 118, break_on_hyphens=False) + "\n"
    others = [e for e in entries if e.note]
    if others:
        text += "\n| | | |\n|---|---|---|\n" + "".join(f"| `{e.name}` | {e.verdict} | {e.note} |\n" for e in others)
    return text


def find(path: str) -> tuple[Any, str]:
    """Our class of that path; None and what to use when it is not there."""
    from shunter.azureml._places import MODULES, NAMES, Place
    from shunter.azureml.core.compute.elsewhere import _Elsewhere

    inner, _, name = path.removeprefix("azureml.").rpartition(".")
    use = next((use for module, use in MODULES.items() if (inner + ".").startswith(module + ".")), "")
    try:
        found = getattr(importlib.import_module(f"shunter.azureml.{inner}"), name)
    except (ImportError, AttributeError):
        return None, NAMES.get(name) or use
    if isinstance(found, Place):
        return None, found.use
    if isinstance(found, type) and issubclass(found, _Elsewhere):
        return None, found._use
    return found, ""


def judge(cls: Any, name: str, parameters: list[str] | None) -> Entry:
    from shunter.azureml.core import run as runs

    shown = "()" if name == "__init__" else name
    ours = inspect.getattr_static(cls, name, None)
    if ours is None and name not in getattr(cls, "__dataclass_fields__", {}):
        if issubclass(cls, runs.Run) and name in runs._IN_SCRIPT:
            return Entry(shown, IN_SCRIPT, "")
        return Entry(shown, ABSENT, USE.get(f"{cls.__name__}.{name}", ""))
    word = refusal(ours)
    if word:
        return Entry(shown, ABSENT, USE.get(f"{cls.__name__}.{name}") or word)
    note = next((n for c in cls.__mro__ if (n := DIFFERENT.get(f"{c.__name__}.{name}"))), "")
    missing = [p for p in parameters or () if not accepts(cls, name, p)]
    if missing:
        without = "without " + ", ".join(f"`{p}`" for p in missing)
        return Entry(shown, DIFFERENT_, f"{note}; {without}" if note else without)
    return Entry(shown, DIFFERENT_ if note else SAME, note)


def accepts(cls: Any, name: str, parameter: str) -> bool:
    member = getattr(cls, name)
    if name == "__init__" and cls.__new__ is not object.__new__:
        member = cls.__new__
    try:
        known = inspect.signature(member).parameters
    except (TypeError, ValueError):
        return False
    return parameter in known or any(p.kind is p.VAR_KEYWORD for p in known.values())


def refusal(member: Any) -> str:
    """The words of a method that does nothing but say that it is not there yet."""
    function = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
    function = inspect.unwrap(function) if callable(function) else function
    if not inspect.isfunction(function):
        return ""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except OSError:  # made by dataclass
        return ""
    assert isinstance(tree, ast.FunctionDef)
    body = [s for s in tree.body if not isinstance(s, ast.Expr | ast.Import | ast.ImportFrom)]
    if not body or not isinstance(body[0], ast.Raise) or "NotYet" not in ast.unparse(body[0]):
        return ""
    texts = [n.value for n in ast.walk(body[0]) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    words = " ".join(" ".join(texts).split())
    return words.partition(". ")[2] or "not yet"


def main() -> None:
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != text:
            raise SystemExit(f"{PAGE.relative_to(ROOT)} is not what the code says. scripts/docs_azureml.py writes it.")
        return
    PAGE.write_text(text)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    main()
