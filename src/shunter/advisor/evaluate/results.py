"""One line of the table: our figure beside the published one, the plain baselines and the bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from shunter.advisor.values import Array, Estimate


@dataclass(frozen=True)
class Result:
    """A figure with its bootstrap interval (95 %, workloads resampled), the share of truths inside the 90 %
    intervals, and what it is compared with; `lower_is_better` says which way the bar is."""

    row: str
    protocol: str
    ours: float
    low: float
    high: float
    unit: str
    bar: float | None
    published: str
    baselines: Mapping[str, float] = field(default_factory=dict)
    coverage: float | None = None
    cases: int = 0
    workloads: int = 0
    lower_is_better: bool = True

    @property
    def met(self) -> bool | None:
        """Whether the bar is reached; None when there is no bar."""
        if self.bar is None:
            return None
        return self.ours <= self.bar if self.lower_is_better else self.ours >= self.bar

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"met": self.met, "coverage_met": _inside(self.coverage)}

    def line(self) -> str:
        """For people."""
        scale = 100 if self.unit == "%" else 1
        bar = "" if self.bar is None else f"bar {'≤' if self.lower_is_better else '≥'} {self.bar * scale:g}"
        state = {None: "", True: "met", False: "MISSED"}[self.met]
        cover = "" if self.coverage is None else f"covers {100 * self.coverage:.0f} %"
        beside = ", ".join(f"{name} {value * scale:.3g}" for name, value in self.baselines.items())
        figure = f"{self.ours * scale:.3g} [{self.low * scale:.3g}, {self.high * scale:.3g}] {self.unit}"
        head = f"{self.row:<34} {figure:<26} {bar:<11} {state:<7} {cover:<12}"
        return f"{head} published: {self.published}; here: {beside}"


@dataclass(frozen=True)
class Case:
    """One prediction that was checked: which workload, relative error, whether the interval held."""

    workload: str
    error: float
    covered: bool | None = None


def checked(workload: str, estimate: Estimate, truth: float) -> Case:
    """The case of an estimate against the truth."""
    return Case(workload, abs(estimate.median / truth - 1), estimate.covers(truth))


def summed_up(
    row: str,
    protocol: str,
    cases: Sequence[Case],
    *,
    published: str,
    bar: float | None = None,
    unit: str = "%",
    baselines: Mapping[str, float] | None = None,
    median: bool = False,
    lower_is_better: bool = True,
) -> Result | None:
    """The result of many cases: the mean over workloads of their mean (or the median of all cases)."""
    if not cases:
        return None
    by_workload: dict[str, list[float]] = {}
    for case in cases:
        by_workload.setdefault(case.workload, []).append(case.error)
    groups = [np.array(errors) for errors in by_workload.values()]
    figure = _figure(groups, median)
    rng = np.random.default_rng(0)
    again = [_figure([groups[i] for i in rng.integers(len(groups), size=len(groups))], median) for _ in range(500)]
    held = [case.covered for case in cases if case.covered is not None]
    return Result(
        row, protocol, figure, float(np.quantile(again, 0.025)), float(np.quantile(again, 0.975)), unit, bar, published,
        baselines or {}, float(np.mean(held)) if held else None, len(cases), len(groups), lower_is_better,
    )  # fmt: skip


def _figure(groups: Sequence[Array], median: bool) -> float:
    if median:
        return float(np.median(np.concatenate(groups)))
    return float(np.mean([errors.mean() for errors in groups]))


def _inside(coverage: float | None) -> bool | None:
    return None if coverage is None else 0.87 <= round(coverage, 2) <= 0.93
