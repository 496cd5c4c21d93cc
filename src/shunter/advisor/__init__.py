"""Sizing advice: pure functions from measurements to predictions and verdicts.

    predict_run_time(probes, points)            seconds over nodes, data, parameters, machines
    Search(candidates).ask() / .tell(...)       which probe next
    predict_machines(probes, machines, ...)     every other machine type; pick_machine picks
    predict_peak_memory, predict_full_time      the full size from samples
    predict_other_gpu, predict_more_gpus, predict_step_time, predict_at_count
    advise(usage, machine, seconds, ...)        up, keep, down or another family, with reasons
    forecast_sizes(times, machines, ...)        time, cost, chance to fit, the Pareto front

Examples of other workloads come from `packaged_examples()`. Needs NumPy and SciPy: `pip install 'shunter[advisor]'`.
"""

from __future__ import annotations

from shunter.advisor.clusters import Candidate
from shunter.advisor.counts import CountRun, predict_at_count
from shunter.advisor.errors import (
    AdvisorError,
    BadMeasurement,
    MissingLibrary,
    MixedUnits,
    TooFewProbes,
    UnknownFact,
)
from shunter.advisor.forecast import Forecast, SizeForecast, forecast_sizes, points_on
from shunter.advisor.gpus import GpuRun, predict_more_gpus, where_scaling_stops
from shunter.advisor.machines import MachineTimes, Pick, pick_machine, predict_machines
from shunter.advisor.memory import MemoryForecast, MemorySample, predict_peak_memory
from shunter.advisor.other_gpu import predict_other_gpu
from shunter.advisor.placement import Placement, StepTime, predict_step_time
from shunter.advisor.priors import Examples, packaged_examples
from shunter.advisor.rules import Reason, reasons_for
from shunter.advisor.samples import TimeSample, predict_full_time
from shunter.advisor.search import Goal, Search
from shunter.advisor.time import predict_run_time
from shunter.advisor.values import Estimate, Machine, Point, Probe, Usage
from shunter.advisor.verdict import Advice, advise

__all__ = [
    "Advice",
    "AdvisorError",
    "BadMeasurement",
    "Candidate",
    "CountRun",
    "Estimate",
    "Examples",
    "Forecast",
    "Goal",
    "GpuRun",
    "Machine",
    "MachineTimes",
    "MemoryForecast",
    "MemorySample",
    "MissingLibrary",
    "MixedUnits",
    "Pick",
    "Placement",
    "Point",
    "Probe",
    "Reason",
    "Search",
    "SizeForecast",
    "StepTime",
    "TimeSample",
    "TooFewProbes",
    "UnknownFact",
    "Usage",
    "advise",
    "forecast_sizes",
    "packaged_examples",
    "pick_machine",
    "points_on",
    "predict_at_count",
    "predict_full_time",
    "predict_machines",
    "predict_more_gpus",
    "predict_other_gpu",
    "predict_peak_memory",
    "predict_run_time",
    "predict_step_time",
    "reasons_for",
    "where_scaling_stops",
]
