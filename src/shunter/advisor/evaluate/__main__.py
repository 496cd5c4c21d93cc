"""`python -m shunter.advisor.evaluate DATA_DIR [--json]`: every protocol, through the public functions."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from shunter.advisor.errors import AdvisorError
from shunter.advisor.evaluate import accelerators, sizing, spark
from shunter.advisor.evaluate.results import Result
from shunter.advisor.learn import learn_examples
from shunter.advisor.priors import packaged_examples


def evaluate(data: Path, seeds: int = 5, splits: int = 300, only: str = "") -> list[Result]:
    """All results on a folder of measured sets.

    What is known about other workloads is the packaged examples and those of the folder, each fingerprint once; of
    the workload under test, and of everything in its group, only the probes are seen.
    """
    pool = cache(lambda: learn_examples(data).joined(packaged_examples()))
    protocols: dict[str, Callable[[], Sequence[Result | None]]] = {
        "c3o": lambda: spark.c3o(data / "c3o", seeds, splits),
        "bell": lambda: spark.bell(data / "bell"),
        "clusters": lambda: sizing.clusters(data / "scout", seeds, pool()),
        "machines": lambda: sizing.machine_types(data / "scout", pool()),
        "memory": lambda: sizing.memory(data / "scout", pool()),
        "verdict": lambda: sizing.verdicts(data / "scout", seeds, pool()),
        "trimtuner": lambda: accelerators.samples(data / "trimtuner", pool()),
        "gavel": lambda: accelerators.gpu_types(data / "gavel", pool()),
        "pollux": lambda: accelerators.placements(data / "pollux", pool()),
        "mlperf": lambda: accelerators.counts(data / "mlperf", pool()),
    }
    if only and only not in protocols:
        raise AdvisorError(f"There is no protocol {only!r}. There are {', '.join(protocols)}.")
    out: list[Result] = []
    for name, protocol in protocols.items():
        if only in ("", name):
            started = time.monotonic()
            try:
                out += [result for result in protocol() if result is not None]
            except Exception as error:  # one set that cannot be read must not cost the figures of the others
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m shunter.advisor.evaluate", description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--splits", type=int, default=300, help="C3O 90/10 splits per job and machine type")
    parser.add_argument("--only", default="", help="one protocol: c3o, bell, clusters, machines, memory, ...")
    chosen = parser.parse_args(arguments)
    if not chosen.data.is_dir():
        parser.error(f"{chosen.data} is not a folder.")
    try:
        results = evaluate(chosen.data, chosen.seeds, chosen.splits, chosen.only)
    except AdvisorError as error:
        parser.error(str(error))
    if chosen.json:
        print(json.dumps([result.as_dict() for result in results], indent=1))
    else:
        for result in results:
            print(result.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
