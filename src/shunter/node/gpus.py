"""Which of a machine's GPUs a launch gets: those that no other launch of ours holds."""

from __future__ import annotations

import os

from shunter.node import contract, machine, signs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List


def assign(root, launch, count):
    # type: (str, str, int) -> Dict[str, str]
    """The environment that shows a launch its GPUs. Held for as long as its folder has no `done` and somebody lives there."""
    have = [int(card["index"]) for card in machine.gpus()]
    taken = set(held(root, launch))
    free = [index for index in have if index not in taken]
    # When the server counts more than are free it knows why (a launch that is over but not home): share, do not fail.
    chosen = (free + [index for index in have if index in taken])[:count]
    text = ",".join(str(index) for index in chosen)
    contract.write_whole(os.path.join(signs.launch_folder(root, launch), "gpus"), text.encode())
    return {"CUDA_VISIBLE_DEVICES": text, "NVIDIA_VISIBLE_DEVICES": text or "none"}


def held(root, but):
    # type: (str, str) -> List[int]
    base = os.path.join(root, contract.LAUNCHES)
    found = []  # type: List[int]
    for name in os.listdir(base) if os.path.isdir(base) else []:
        folder = os.path.join(base, name)
        if name == but or os.path.exists(os.path.join(folder, "outcome")):
            continue
        try:
            with open(os.path.join(folder, "gpus")) as file:
                found += [int(word) for word in file.read().split(",") if word]
        except (OSError, ValueError):
            continue
    return found
