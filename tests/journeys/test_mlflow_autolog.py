"""`mlflow.autolog()` in a run, with the libraries that people train with (scikit-learn's is in test_mlflow)."""

from __future__ import annotations

from pathlib import Path

import pytest

import shunter

pytest.importorskip("mlflow")
pytestmark = [pytest.mark.usefixtures("module_home"), pytest.mark.filterwarnings("ignore")]

XGBOOST = """
import mlflow, numpy, xgboost
mlflow.autolog()
x = numpy.arange(40.0).reshape(20, 2)
data = xgboost.DMatrix(x, label=x.sum(axis=1))
xgboost.train({"max_depth": 2, "nthread": 1}, data, num_boost_round=3, evals=[(data, "train")], verbose_eval=False)
"""
TORCH = """
import lightning, mlflow, torch
mlflow.autolog()

class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

x = torch.arange(8.0).reshape(8, 1) / 8
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 3 * x), batch_size=4)
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False)
trainer.fit(Line(), loader)
"""


@pytest.mark.parametrize(
    ("package", "script", "metric", "param"),
    [("xgboost", XGBOOST, "train-rmse", "max_depth"), ("lightning", TORCH, "train_loss", "lr")],
)
def test_what_a_library_trains_is_logged_by_itself(package: str, script: str, metric: str, param: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason="scripts/parts/autolog was not run")
    (tmp_path / "train.py").write_text(script)
    # Working out a model's requirements starts Python and imports everything: not our matter here.
    env = {"MLFLOW_REQUIREMENTS_INFERENCE_TIMEOUT": "1", "CUDA_VISIBLE_DEVICES": ""}
    ws = shunter.Workspace.from_config()
    run = ws.submit("train.py", source_directory=tmp_path, environment_variables=env).wait(timeout_seconds=200)
    assert run.status == "Completed", run.logs()
    run.refresh()
    assert len(run.metrics(metric)[metric]) >= 2
    assert param in run.params, run.params
    assert run.register_model(package, "model").version == 1
