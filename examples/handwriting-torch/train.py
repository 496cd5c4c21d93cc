"""Learn to read handwritten digits with PyTorch, on as many processes as there are.

    python train.py                                            here, alone
    shunter submit train.py --target cpu                       on one node of a cluster
    shunter submit train.py --target cpu --nodes 2             on two: each learns from half of the images
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

OUTPUTS = Path("outputs")


def main() -> None:
    options = read_options()
    rank, world = join()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    train_x, train_y, test_x, test_y = load(options.seed)
    mine = slice(rank, None, world)  # each process its own part of the images
    model = nn.Sequential(nn.Linear(64, options.width), nn.ReLU(), nn.Linear(options.width, 10))
    learner = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.Adam(learner.parameters(), lr=options.learning_rate * world)
    begun = time.monotonic()
    for epoch in range(1, options.epochs + 1):
        loss = learn(learner, optimizer, train_x[mine], train_y[mine], options.batch)
        if rank == 0:
            accuracy = (model(test_x).argmax(1) == test_y).float().mean().item()
            report(epoch, options.epochs, loss, accuracy)
    seconds = time.monotonic() - begun
    print(f"rank {rank} of {world} learned from {len(train_x[mine])} images in {seconds:.1f} s", flush=True)
    if rank == 0:
        OUTPUTS.mkdir(exist_ok=True)
        torch.save(model.state_dict(), OUTPUTS / "model.pt")
        print(f"accuracy {accuracy:.1%} after {seconds:.1f} s on {world} process{'es' if world > 1 else ''}", flush=True)
    if world > 1:
        dist.destroy_process_group()


def join() -> tuple[int, int]:
    """Meet the other processes. Alone, there is nobody to meet."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        dist.init_process_group("gloo")
    return int(os.environ.get("RANK", "0")), world


def load(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    x = torch.tensor(images[order] / 16.0, dtype=torch.float32)
    y = torch.tensor(digits[order])
    return x[450:], y[450:], x[:450], y[:450]


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, batch: int) -> float:
    total = 0.0
    for start in range(0, len(x) - batch + 1, batch):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[start : start + batch]), y[start : start + batch])
        loss.backward()
        optimizer.step()
        total += loss.item() * batch
    return total / len(x)


def report(epoch: int, epochs: int, loss: float, accuracy: float) -> None:
    print(f"epoch {epoch}/{epochs}: loss {loss:.3f}, accuracy {accuracy:.1%}", flush=True)
    try:
        from shunter.run import get_context
    except ImportError:
        return  # alone, without Shunter
    run = get_context()
    run.log("loss", loss)
    run.log("accuracy", accuracy)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--width", type=int, default=64, help="neurons of the hidden layer")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
