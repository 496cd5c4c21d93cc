"""Sizes: time, cost, chance to fit; the front; plots."""

from __future__ import annotations

import sys

import pytest

from shunter.advisor.errors import MissingLibrary, TooFewProbes
from shunter.advisor.forecast import forecast_sizes, memory_failures, points_on
from shunter.advisor.plots import plot_forecast, plot_machines, plot_scale_out
from shunter.advisor.time import predict_run_time
from shunter.advisor.values import Estimate, Machine, Point, Probe, estimate_from_log

MACHINES = [Machine(f"m{v}", v, 4 * v, 0.05 * v**1.2) for v in (2, 4, 8, 16)]
TIMES = {f"m{v}": Estimate(20 + 800 / v, 15 + 700 / v, 30 + 900 / v) for v in (2, 4, 8, 16)}


def test_the_named_sizes_are_on_the_front() -> None:
    forecast = forecast_sizes(TIMES, MACHINES)
    assert forecast.fastest.machine.name == "m16"
    assert forecast.cheapest is not None
    assert forecast.cheapest.machine.name == "m2"
    names = [size.machine.name for size in forecast.front]
    assert names[0] == "m16"
    assert names[-1] == "m2"
    assert forecast.best_value in forecast.front


def test_sizes_that_may_not_fit_are_not_named() -> None:
    forecast = forecast_sizes(TIMES, MACHINES, estimate_from_log(3.0, 0.1))
    assert forecast.cheapest is not None
    assert forecast.cheapest.machine.name == "m8"
    assert forecast.sizes[0].fits < 0.01
    assert forecast.sizes[-1].fits > 0.99


def test_a_catalog_without_prices_has_no_cheapest() -> None:
    free = [Machine(m.name, m.vcpu, m.memory_gib) for m in MACHINES]
    forecast = forecast_sizes(TIMES, free)
    assert forecast.cheapest is None
    assert forecast.fastest.machine.name == "m16"
    with pytest.raises(TooFewProbes):
        forecast_sizes({}, MACHINES)


def test_a_run_is_forecast_over_a_catalog_from_probes() -> None:
    probes = [Probe(Point(machine=m), 20 + 800 / m.vcpu) for m in MACHINES[:2]]
    asked = points_on(Point(), MACHINES)
    times = dict(zip((m.name for m in MACHINES), predict_run_time(probes, asked), strict=True))
    forecast = forecast_sizes(times, MACHINES)
    assert forecast.fastest.time.median < 250
    assert memory_failures([Probe(Point(machine=MACHINES[0]), 3.0, "out_of_memory")]) == 8
    assert memory_failures(probes) == 0


def test_plots_draw_everything_that_is_predicted() -> None:
    pytest.importorskip("matplotlib", reason="plots are optional")
    axes = plot_forecast(forecast_sizes(TIMES, MACHINES))
    assert axes.get_xlabel() == "seconds"
    assert len(plot_machines(TIMES).get_yticks()) == len(TIMES)
    plot_scale_out([1, 2], [TIMES["m2"], TIMES["m4"]], [Probe(Point(1), 3.0)])


def test_without_matplotlib_a_plot_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingLibrary, match="matplotlib") as caught:
        plot_machines(TIMES)
    assert caught.value.hint
