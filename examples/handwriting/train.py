"""Learn to read handwritten digits: 1797 images of 8 × 8 pixels that come with scikit-learn.

    python train.py                                  here and now
    shunter submit train.py                          the same, kept as a run
    shunter submit train.py --epochs 60 --width 128  with other parameters
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

OUTPUTS = Path("outputs")


def main() -> None:
    options = read_options()
    run = current_run()

    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    images, digits = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images / 16.0, digits, test_size=0.25, stratify=digits, random_state=options.seed
    )
    print(f"{len(train_x)} images to learn from, {len(test_x)} to be tested with", flush=True)
    model = MLPClassifier((options.width,), learning_rate_init=options.learning_rate, random_state=options.seed)
    history: list[tuple[float, float]] = []
    begun = time.monotonic()
    for epoch in range(1, options.epochs + 1):
        model.partial_fit(train_x, train_y, classes=np.unique(digits))
        accuracy = float(model.score(test_x, test_y))
        history.append((float(model.loss_), accuracy))
        run.log("loss", float(model.loss_))
        run.log("accuracy", accuracy)
        print(progress_line(epoch, options.epochs, model.loss_, accuracy), flush=True)
    seconds = time.monotonic() - begun
    guesses = model.predict(test_x)
    wrong = int((guesses != test_y).sum())
    run.log("wrong", wrong)

    OUTPUTS.mkdir(exist_ok=True)
    save_model(model, OUTPUTS / "model.joblib")
    draw(history, test_x, test_y, guesses, OUTPUTS / "training.png")
    print(f"{wrong} of {len(test_x)} test images read wrongly: accuracy {history[-1][1]:.1%} after {seconds:.1f} s")
    print(f"In {OUTPUTS}/: model.joblib, training.png", flush=True)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--width", type=int, default=64, help="neurons of the hidden layer")
    parser.add_argument("--learning-rate", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def current_run() -> Any:
    """The run that this script is; where Shunter is not installed or did not start it, metrics are only printed below."""
    try:
        from shunter.run import Run

        return Run.get_context(allow_offline=False)
    except Exception:
        return Silent()


class Silent:
    def log(self, name: str, value: float) -> None:
        """Nobody keeps it."""


def progress_line(epoch: int, epochs: int, loss: float, accuracy: float) -> str:
    done = round(20 * epoch / epochs)
    return f"epoch {epoch:3}/{epochs} [{'#' * done}{'.' * (20 - done)}] loss {loss:.3f}  accuracy {accuracy:.3f}"


def save_model(model: Any, path: Path) -> None:
    import joblib

    joblib.dump(model, path)


def draw(history: list[tuple[float, float]], images: Any, digits: Any, guesses: Any, path: Path) -> None:
    """How the learning went, and the first images that were read wrongly."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[3, 2])
    axes = left.subplots()
    epochs = range(1, len(history) + 1)
    axes.plot(epochs, [loss for loss, _ in history], color="tab:red", label="loss (training)")
    axes.plot(epochs, [accuracy for _, accuracy in history], color="tab:blue", label="accuracy (test)")
    axes.set_xlabel("epoch")
    axes.set_ylim(bottom=0)
    axes.legend()
    right.suptitle("read wrongly")
    wrong = [i for i in range(len(digits)) if guesses[i] != digits[i]][:9]
    for place, index in zip(right.subplots(3, 3).flat, [*wrong, *[None] * 9], strict=False):
        place.axis("off")
        if index is not None:
            place.imshow(images[index].reshape(8, 8), cmap="gray_r")
            place.set_title(f"{digits[index]} as {guesses[index]}", fontsize=8)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
