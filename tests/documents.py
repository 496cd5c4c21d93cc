"""The code blocks of the document that we stand in for: cut out, titled, and which of them wait for something."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DOCUMENTS = Path(__file__).parents[2] / "shared" / "seeds"

#: Blocks that are not run yet, and what they wait for.
NOT_YET = {
    "Azure HDInsight 1": "attaching a Spark cluster",
    "Azure HDInsight 2": "running on a Spark cluster",
}


class Block(NamedTuple):
    title: str
    code: str


def blocks(text: str) -> list[Block]:
    """The code blocks of a document, each titled with its heading and, where there are several, a number."""
    found: list[tuple[str, str]] = []
    heading, fence = "", ""
    lines: list[str] = []
    for line in text.splitlines():
        if fence:
            if line.strip() == "```":
                found.append((heading, "\n".join(row.removeprefix(fence) for row in lines)))
                fence, lines = "", []
            else:
                lines.append(line)
        elif match := re.match(r"(\s*)```(python)?\s*$", line):
            fence = match[1] or "\0"
        elif match := re.match(r"#+\s+(.*)", line):
            heading = re.sub(r"<[^>]*>", "", match[1]).strip()
    names = [name for name, _ in found]
    titled = []
    for index, (name, code) in enumerate(found):
        number = names[: index + 1].count(name)
        titled.append(Block(f"{name} {number}" if names.count(name) > 1 else name, code))
    return titled


#: The same steps in our words, for where the document is not.
OWN_WORDS = (
    Block("User-managed environment", """
from azureml.core.runconfig import RunConfiguration
run_cfg_user = RunConfiguration()
run_cfg_user.environment.python.user_managed_dependencies = True
"""),
    Block("Local computer", """
run_local = RunConfiguration()
run_local.user_managed_dependencies = True
"""),
    Block("Run-based creation", """
run_temp_compute = RunConfiguration()
run_temp_compute.target = "amlcompute"
run_temp_compute.vm_size = "STANDARD_D2_V2"
"""),
    Block("Persistent compute 1", """
from azureml.core.compute import AmlCompute, ComputeTarget
from azureml.core.compute_target import ComputeTargetException
try:
    cpu_cluster = ComputeTarget(workspace=ws, name="cpucluster")
except ComputeTargetException:
    wanted = AmlCompute.provisioning_configuration(vm_size="STANDARD_D2_V2", max_nodes=4)
    cpu_cluster = ComputeTarget.create(ws, "cpucluster", wanted)
cpu_cluster.wait_for_completion(show_output=True)
"""),
    Block("Persistent compute 2", """
from azureml.core.conda_dependencies import CondaDependencies
from azureml.core.runconfig import DEFAULT_CPU_IMAGE
run_amlcompute = RunConfiguration()
run_amlcompute.target = cpu_cluster
run_amlcompute.environment.docker.enabled = True
run_amlcompute.environment.docker.base_image = DEFAULT_CPU_IMAGE
run_amlcompute.auto_prepare_environment = True
run_amlcompute.environment.python.conda_dependencies = CondaDependencies.create(conda_packages=["scikit-learn"])
"""),
    Block("Remote virtual machines 1", """
from azureml.core.compute import RemoteCompute
wanted = RemoteCompute.attach_configuration(address="<fqdn>", ssh_port=22, username="<username>", password="<password>")
compute_target_name = "attach-dsvm"
compute = ComputeTarget.attach(ws, compute_target_name, wanted)
compute.wait_for_completion(show_output=True)
"""),
    Block("Remote virtual machines 2", """
run_dsvm = RunConfiguration(framework="python")
run_dsvm.target = compute_target_name
run_dsvm.environment.docker.enabled = True
run_dsvm.environment.docker.base_image = azureml.core.runconfig.DEFAULT_CPU_IMAGE
run_dsvm.prepare_environment = True
run_dsvm.environment.python.conda_dependencies = CondaDependencies.create(conda_packages=["scikit-learn"])
"""),
    Block("Reuse existing compute targets", "assert ComputeTarget(workspace=ws, name='my-vm-name').name == 'my-vm-name'"),
    Block("Create an experiment", """
from azureml.core import Experiment
exp = Experiment(workspace=ws, name="my experiment")
"""),
    Block("Submit the experiment 1", """
import os
from azureml.core import ScriptRunConfig
script_folder = os.getcwd()
run = exp.submit(ScriptRunConfig(source_directory=script_folder, script="train.py", run_config=run_local))
run.wait_for_completion(show_output=True)
"""),
    Block("Submit the experiment 2", """
run = exp.submit(ScriptRunConfig(source_directory=script_folder, script="train.py", run_config=run_amlcompute))
run.wait_for_completion(show_output=True)
"""),
)  # fmt: skip
