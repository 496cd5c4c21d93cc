"""Make the packaged priors: `python -m shunter.advisor.learn DATA_DIR [OUT_DIR]`.

Only sets with permissive licences are read; the C3O set (GPL) is for evaluation alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from shunter.advisor.evaluate import scout, training
from shunter.advisor.placement import learn_placement
from shunter.advisor.priors import Examples

SCOUT = "oxhead/scout, commit e0dfc3a7d08e, MIT; Arrow (ICDCS 2018), Scout (arXiv 1803.01296)"
SOURCES = {
    "machines": SCOUT,
    "clusters": SCOUT,
    "memory": SCOUT,
    "verdicts": SCOUT,
    "samples": "pedrogbmendes/TrimTuner, commit a9dec1f1ac61, MIT; arXiv 2011.04726",
    "gpus": "stanford-futuredata/gavel, commit c4fa40097339, MIT",
    "placements": "petuum/adaptdl, branch osdi21-artifact, commit c793c7089bd3, Apache-2.0",
    "counts": "mlcommons/training_results v0.7 to v5.1, Apache-2.0; re-parsed, unofficial",
}


def learn_examples(data: Path) -> Examples:
    """Every example that a folder of measured sets holds; a set that is absent gives none."""
    machines = scout.read_machines(data / "scout")
    workloads = scout.read_workloads(data / "scout", machines)
    steps = training.read_placements(data / "pollux")
    return Examples(
        machines=tuple(scout.machine_examples(workloads, machines)),
        clusters=tuple(scout.cluster_examples(scout.read_clusters(data / "scout"), machines)),
        memory=tuple(scout.memory_examples(scout.memory_runs(workloads, machines))),
        verdicts=tuple(scout.verdict_examples(workloads, machines)),
        samples=tuple(training.read_samples(data / "trimtuner")),
        gpus=tuple(training.read_gpus(data / "gavel")),
        placements=tuple(learn_placement(mark, job, measured) for job, (mark, measured) in steps.items()),
        counts=tuple(training.read_counts(data / "mlperf")),
    )


def write_examples(examples: Examples, folder: Path) -> None:
    """One JSON file per kind, with its source."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in fields(examples):
        rows = [_rounded(asdict(example)) for example in getattr(examples, each.name)]
        head = {"source": SOURCES[each.name], "made_by": "python -m shunter.advisor.learn"}
        lines = ",\n".join(json.dumps(row, separators=(",", ":"), sort_keys=True) for row in rows)
        text = json.dumps(head)[:-1] + ', "examples": [\n' + lines + "\n]}\n"
        (folder / f"{each.name}.json").write_text(text)


def main(arguments: Sequence[str]) -> int:
    """Read DATA_DIR, write OUT_DIR (the package's own folder when not given)."""
    if not arguments:
        print(__doc__)
        return 2
    out = Path(arguments[1]) if len(arguments) > 1 else Path(__file__).parent / "priors"
    write_examples(learn_examples(Path(arguments[0])), out)
    return 0


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
