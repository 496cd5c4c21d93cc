"""Six steps to a model that reads handwriting, in the first SDK's spelling: script, workspace, target, environment, submit,
and the model registered and brought back. A network in PyTorch, tried on a part of the data here, trained on a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shunter.azureml.core import Environment, Experiment, Model, ScriptRunConfig, Workspace
from shunter.azureml.core.compute import AmlCompute, ComputeTarget
from shunter.azureml.core.compute_target import ComputeTargetException
from shunter.testing.clusters import end_clusters, own_processes
from shunter.testing.house import end

NETWORK = """
from torch import nn


def network():
    return nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12 * 16, 10))
"""
TRAIN = """
import argparse
import torch
from azureml.core import Run
from network import network
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--images", type=int, default=1500)
parser.add_argument("--epochs", type=int, default=60)
options = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
pixels, digits = load_digits(return_X_y=True)
pixels = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
digits = torch.tensor(digits)
train_x, train_y, test_x, test_y = pixels[: options.images], digits[: options.images], pixels[1500:], digits[1500:]
model = network()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
run = Run.get_context()
for epoch in range(options.epochs):
    loss = torch.nn.functional.cross_entropy(model(train_x), train_y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    run.log("loss", loss.item())
accuracy = (model(test_x).argmax(1) == test_y).float().mean().item()
run.log("accuracy", accuracy)
torch.save(model.state_dict(), "outputs/model.pt")
print(f"{options.images} images, accuracy {accuracy:.2f}")
"""


@pytest.fixture
def ws(home: Path) -> Iterator[Workspace]:
    yield Workspace.from_config()
    end_clusters(home)
    end(own_processes(home))


def test_six_steps_to_a_model_that_reads_handwriting(ws: Workspace, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="scripts/parts/torch installs it")
    datasets = pytest.importorskip("sklearn.datasets")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "network.py").write_text(NETWORK)
    (folder / "train.py").write_text(TRAIN)  # 1. the script; 2. the workspace is `ws`

    try:  # 3. the target
        target = ComputeTarget(workspace=ws, name="cluster")
    except ComputeTargetException:
        wanted = AmlCompute.provisioning_configuration(vm_size="STANDARD_D2_V2", max_nodes=1)
        target = ComputeTarget.create(ws, "cluster", wanted)
    target.wait_for_completion()

    environment = Environment("pytorch-here")  # 4. the environment
    environment.python.user_managed_dependencies = True
    environment.python.interpreter_path = sys.executable

    experiment = Experiment(ws, "handwriting")  # 5. submit: first a part of the data here, then all of it there
    arguments = ["--images", 100, "--epochs", 5]
    trial = experiment.submit(ScriptRunConfig(folder, "train.py", arguments, compute_target="local", environment=environment))
    run = experiment.submit(ScriptRunConfig(folder, "train.py", compute_target=target, environment=environment))
    trial.wait_for_completion()
    assert len(trial.get_metrics()["loss"]) == 5
    details = run.wait_for_completion()
    assert (details["target"], details["status"]) == ("cluster", "Completed")
    metrics = run.get_metrics()
    assert metrics["loss"][-1] < metrics["loss"][0] / 4
    assert metrics["accuracy"] > 0.8 > trial.get_metrics()["accuracy"]

    run.register_model("reader", "outputs/model.pt", model_framework=Model.Framework.PYTORCH)  # 6. the model
    path = Model(ws, "reader").download(tmp_path)
    images, digits = datasets.load_digits(return_X_y=True)
    pixels = torch.tensor(images[1500:], dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    names: dict[str, Any] = {}
    exec(NETWORK, names)
    model = names["network"]()
    model.load_state_dict(torch.load(path, weights_only=True))
    read = model(pixels).argmax(1).numpy()
    assert abs((read == digits[1500:]).mean() - metrics["accuracy"]) < 1e-6
