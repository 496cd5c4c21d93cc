"""Batches of real runs on a machine while its cable is pulled or its server is killed, at seeded moments."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from machines import Machine

from shunter.errors import ShunterError
from shunter.sdk.connect import connect
from shunter.testing.faults import Batch
from shunter.testing.house import House


def batch_on(house: House, folder: Path, seed: int, target: str) -> Batch:
    """A batch whose ledger the machine's user can write."""
    batch = Batch(house, folder, seed, target)
    folder.chmod(0o777)
    batch.ledger.touch()
    batch.ledger.chmod(0o666)
    return batch


def cut_while_runs_come_and_go(
    machine: Machine, batch: Batch, cuts: int, count: int, longest_seconds: float, longest_run_seconds: float = 2.0
) -> int:
    """Submit `count` runs while the link is cut `cuts` times, for up to `longest_seconds` each. Returns the cuts made."""
    dice = random.Random(batch.seed)
    thread = threading.Thread(target=lambda: batch.submit(count, longest_seconds=longest_run_seconds))
    thread.start()
    for _ in range(cuts):
        time.sleep(dice.uniform(0.0, 1.0))
        machine.cut()
        try:
            # Mostly short; now and then long enough for both ends to give the connection up.
            time.sleep(dice.uniform(0.0, longest_seconds) * dice.choice([0.2, 0.2, 1.0]))
        finally:
            machine.heal()
    thread.join()
    return cuts


def kill_the_server_while_runs_are_there(
    house: House, batch: Batch, kills: int, count: int, longest_run_seconds: float = 2.0
) -> int:
    """Submit `count` runs while the server is killed `kills` times; someone always starts it again."""
    thread = threading.Thread(target=lambda: batch.submit(count, longest_seconds=longest_run_seconds))
    thread.start()
    killed = 0
    for _ in range(kills):
        time.sleep(batch.random.uniform(0.0, 1.5))
        killed += house.kill_server()
        try:
            connect()
        except ShunterError:
            pass
    thread.join()
    batch.workspace.client = connect()
    return killed
