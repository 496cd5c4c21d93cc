"""Scripts that the tests of clusters run, and how they are submitted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from shunter.sdk.environment import Environment
from shunter.sdk.run import Run
from shunter.sdk.workspace import Workspace

#: The interpreter of the tests, which has PyTorch: installing it would take minutes.
HERE = Environment.existing(sys.executable)

#: Writes when it starts and ends, then waits for its gate.
LEDGER = """
import os, sys, time
ledger, gate = sys.argv[1:]
def note(what):
    fd = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, (what + " " + os.environ["SHUNTER_ATTEMPT"] + " " + os.environ["SHUNTER_NODE_INDEX"] + "\\n").encode())
note("on")
while not os.path.exists(gate):
    time.sleep(0.05)
note("off")
"""
GLOO = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
sum_ = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(sum_)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "local", os.environ["LOCAL_RANK"], "sum", int(sum_), flush=True)
dist.destroy_process_group()
"""
MPI = """
import os, sys
sys.stdout.write("rank {OMPI_COMM_WORLD_RANK} of {OMPI_COMM_WORLD_SIZE} {SHUNTER_RUN_ID}\\n".format(**os.environ))
"""
#: Ranks that talk: within a node through memory, to another through its network.
MPI_TALKS = """
from mpi4py import MPI
world, data = MPI.COMM_WORLD, bytearray(1 << 20)
world.Sendrecv_replace(data, (world.rank + 1) % world.size, source=world.rank - 1 if world.rank else world.size - 1)
print("rank", world.rank, "of", world.size, "sum", world.allreduce(world.rank + 1), flush=True)
"""


def submit(ws: Workspace, source: Path, code: str, *arguments: object, target: str = "cpu", **options: Any) -> Run:
    (source / "train.py").write_text(code)
    return ws.submit("train.py", source_directory=source, arguments=arguments, target=target, **options)


def lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []
