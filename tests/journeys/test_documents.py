"""The code of the document that we stand in for, run as it is printed: every block, in its order, against real parts.

A local machine, a cluster of Ray nodes, a machine with an sshd, podman around the scripts. The document is not ours to
copy: it is read from `shared/seeds` beside the repository; where that is not, the same steps stand here in our words.
Changed are the placeholders alone. Packages come from an index that the test makes, so that nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shunter
from documents import DOCUMENTS, NOT_YET, OWN_WORDS, Block, blocks  # type: ignore[import-not-found,unused-ignore]
from shunter.azureml import install, uninstall
from shunter.testing.clusters import end_clusters, own_processes
from shunter.testing.containers import IMAGE, podman
from shunter.testing.house import end, wait_until
from shunter.testing.packages import Index, make_wheel

sys.path.insert(0, str(Path(__file__).parents[1] / "drivers" / "ssh"))
from machines import PASSWORD, Machine, is_possible  # type: ignore[import-not-found,unused-ignore]

TRAIN = """
import sys
import sklearn
from azureml.core import Run

run = Run.get_context()
run.log("accuracy", 0.5)
run.log("accuracy", 0.75)
with open("outputs/model.txt", "w") as file:
    file.write("a model")
print("scikit-learn", sklearn.__version__, "with", sys.executable)
"""
#: The user may use the container engine, as members of the group docker may: they are root, in effect.
MAY_USE_ENGINE = "sed 's/^vm:x:23000:23000/vm:x:0:0/' /etc/passwd > /run/passwd; cat /run/passwd > /etc/passwd\n"
#: What containers need and a new network namespace takes away; in the way that the host has it.
CGROUPS = (
    "mount -t cgroup2 cgroup2 /sys/fs/cgroup\n"
    if Path("/sys/fs/cgroup/cgroup.controllers").exists()
    else "mount -t tmpfs tmpfs /sys/fs/cgroup; mkdir /sys/fs/cgroup/unified\n"
)


def document() -> list[Block]:
    found = None if os.environ.get("SHUNTER_TEST_OWN_WORDS") else next(iter(sorted(DOCUMENTS.glob("004*"))), None)
    return blocks(found.read_text()) if found else list(OWN_WORDS)


BLOCKS = document()
#: The index listens here, at an address that nobody else has.
PORT = 8437
#: What each block came to: the scoreboard.
OUTCOMES: dict[str, str] = {}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine | None]:
    """The machine to attach; None where none can be made. It reaches the index that `index` will open, and nothing else."""
    if not is_possible():
        yield None
        return
    made = Machine(tmp_path_factory.mktemp("vm"), setup=MAY_USE_ENGINE + CGROUPS)
    made.extra += ["PermitRootLogin yes", f"SetEnv UV_DEFAULT_INDEX=http://{made.gateway}:{PORT}/simple"]
    try:
        yield made.up()
    finally:
        made.down()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, machine: Machine | None) -> Iterator[Index]:
    """A package index at an address that this machine and the attached one reach."""
    wheels = tmp_path_factory.mktemp("wheels")
    make_wheel(wheels, "scikit-learn", "1.5.2", files={"sklearn/__init__.py": "__version__ = '1.5.2'\n"})
    with Index(wheels, machine.gateway, PORT) if machine is not None else Index(wheels) as found:
        yield found


@pytest.fixture(scope="module")
def engine() -> Iterator[str | None]:
    """A container engine that knows the default image by its name; None where none is set up."""
    from shunter.azureml.core.runconfig import DEFAULT_CPU_IMAGE

    found = podman()
    if found is None:
        yield None
        return
    subprocess.run([found, "tag", IMAGE, DEFAULT_CPU_IMAGE], check=True, capture_output=True)
    yield found
    subprocess.run([found, "untag", IMAGE, DEFAULT_CPU_IMAGE], check=False, capture_output=True)


@pytest.fixture(scope="module")
def names(
    module_home: Path, tmp_path_factory: pytest.TempPathFactory, index: Index, machine: Machine | None, engine: str | None
) -> Iterator[dict[str, Any]]:
    """What the document takes for granted, and what its blocks leave behind."""
    home = tmp_path_factory.mktemp("user")
    (home / ".ssh").mkdir()
    if machine is not None:
        (home / ".ssh" / "known_hosts").write_text(machine.known_hosts().read_text())
    project = tmp_path_factory.mktemp("project")
    (project / "train.py").write_text(TRAIN)
    before = os.getcwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("UV_DEFAULT_INDEX", index.url)
        if engine is not None:
            patch.setenv("SHUNTER_CONTAINER_ENGINE", engine)
        os.chdir(project)
        install()
        try:
            import azureml.core  # type: ignore[import-not-found,import-untyped,unused-ignore]
            from azureml.exceptions import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
                UserErrorException,
            )

            ws = azureml.core.Workspace.from_config()
            shunter.Workspace.from_config().settings(package_source="pypi")
            yield {"ws": ws, "project": str(project), "azureml": azureml, "UserErrorException": UserErrorException}
        finally:
            uninstall()
            os.chdir(before)
            end_clusters(module_home)
            end(own_processes(module_home))


@pytest.mark.parametrize("block", BLOCKS, ids=[block.title for block in BLOCKS])
def test_a_block_of_the_document_runs(block: Block, names: dict[str, Any], machine: Machine | None, engine: str | None) -> None:
    if block.title in NOT_YET:
        OUTCOMES[block.title] = "not yet: " + NOT_YET[block.title]
        pytest.skip(NOT_YET[block.title])
    if "virtual machines" in block.title.lower() and machine is None:
        OUTCOMES[block.title] = "not here: needs root, sshd and network namespaces (scripts/parts/ssh)"
        pytest.skip(OUTCOMES[block.title])
    if "run_amlcompute)" in block.code and engine is None:
        OUTCOMES[block.title] = "not here: needs podman (scripts/parts/podman)"
        pytest.skip(OUTCOMES[block.title])
    if "my-vm-name" in block.code:
        as_the_portal_would(names, machine)
    OUTCOMES[block.title] = "failed"
    exec(compile(filled_in(block.code, machine), block.title, "exec"), names)
    if "exp.submit" in block.code:
        run = names["run"]
        assert run.get_status() == "Completed"
        assert run.get_metrics() == {"accuracy": [0.5, 0.75]}
        assert {"outputs/model.txt", "azureml-logs/70_driver_log.txt", "user_logs/std_log.txt"} <= set(run.get_file_names())
    OUTCOMES[block.title] = "runs"


def test_the_script_ran_where_and_in_what_the_document_says(names: dict[str, Any], engine: str | None) -> None:
    """The last block's run: on the cluster, in the image, with scikit-learn from PyPI instead of conda."""
    if engine is None:
        pytest.skip("needs podman (scripts/parts/podman)")
    run = names["run"]
    assert run.get_details()["target"] == "cpucluster"
    record = run._ours.refresh().data["properties"]["environment"]
    assert record["source"] == "pypi instead of conda"
    node = record["nodes"]["0"]
    assert node["image"] == names["DEFAULT_CPU_IMAGE"]
    run.download_file("user_logs/std_log.txt", "log.txt")
    assert "scikit-learn 1.5.2 with" in Path("log.txt").read_text()


def test_the_same_experiment_runs_on_the_machine_in_a_container(
    names: dict[str, Any], machine: Machine | None, engine: str | None
) -> None:
    """Switch to another target by using another run configuration: nothing else changes."""
    if machine is None or engine is None:
        pytest.skip("needs a machine and podman (scripts/parts/ssh, scripts/parts/podman)")
    run = submit(names, "run_dsvm")
    assert run.get_details()["target"] == "attach-dsvm"
    assert run._ours.data["properties"]["environment"]["nodes"]["0"]["image"] == names["DEFAULT_CPU_IMAGE"]


def test_the_same_experiment_runs_on_a_cluster_made_for_it_which_is_gone_after(names: dict[str, Any]) -> None:
    exec("run_temp_compute.environment.python.conda_dependencies.add_conda_package('scikit-learn')", names)
    run = submit(names, "run_temp_compute")
    target = run.get_details()["target"]
    assert target.startswith("run-")
    wait_until(lambda: target not in names["ws"].compute_targets, 60, "the end of the run's own cluster")


def test_the_scoreboard_says_which_blocks_run(record_property: Callable[[str, object], None]) -> None:
    """What ran in this very session, and nothing else."""
    if len(OUTCOMES) < len(BLOCKS):
        pytest.skip("only some of the blocks were asked for")
    done = [title for title, outcome in OUTCOMES.items() if outcome == "runs"]
    what = "code blocks" if BLOCKS[0] != OWN_WORDS[0] else "steps in our words"
    lines = [f"Scoreboard: {len(done)} of {len(BLOCKS)} of the document's {what} run"]
    for title, outcome in OUTCOMES.items():
        lines.append(f"  [x] {title}" if title in done else f"  [ ] {title} – {outcome}")
    record_property("table", lines)
    assert "failed" not in OUTCOMES.values()


def submit(names: dict[str, Any], configuration: str) -> Any:
    code = f"src = ScriptRunConfig(source_directory = script_folder, script = 'train.py', run_config = {configuration})"
    exec(f"{code}\nrun = exp.submit(src)\nrun.wait_for_completion(show_output = True)", names)
    assert names["run"].get_metrics() == {"accuracy": [0.5, 0.75]}
    return names["run"]


def filled_in(code: str, machine: Machine | None) -> str:
    """The placeholders, and nothing else."""
    if machine is None:
        return code
    values = {"<fqdn>": machine.address, "<username>": machine.user, "<password>": PASSWORD}
    for placeholder, value in values.items():
        code = code.replace(placeholder, value)
    return code


def as_the_portal_would(names: dict[str, Any], machine: Machine | None) -> None:
    """The document's machine has been attached in the portal before."""
    ours = shunter.Workspace.from_config()
    if machine is not None:
        ours.compute.create("my-vm-name", "ssh", address=machine.address, username=machine.user, password=PASSWORD)
    else:
        ours.compute.create("my-vm-name", "cluster", vm_size="STANDARD_D2_V2", max_nodes=1)
