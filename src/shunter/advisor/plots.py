"""Plots of predictions and forecasts; matplotlib is optional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shunter.advisor.errors import MissingLibrary
from shunter.advisor.forecast import Forecast
from shunter.advisor.values import Estimate, Probe


def plot_forecast(forecast: Forecast, axes: Any = None) -> Any:
    """Time against cost of every size, with intervals; the Pareto front joined, the named sizes labelled."""
    axes = _axes(axes)
    priced = [size for size in forecast.sizes if size.usd is not None]
    for size in priced:
        assert size.usd is not None
        axes.plot([size.time.low, size.time.high], [size.usd.median] * 2, color="0.85", linewidth=1)
    axes.scatter(
        [size.time.median for size in priced],
        [size.usd.median for size in priced if size.usd],
        c=[size.fits for size in priced],
        cmap="RdYlGn",
        vmin=0,
        vmax=1,
        zorder=2,
    )
    front = [size for size in forecast.front if size.usd is not None]
    axes.plot([s.time.median for s in front], [s.usd.median for s in front if s.usd], color="tab:blue")
    named = (("fastest", forecast.fastest), ("cheapest", forecast.cheapest), ("best value", forecast.best_value))
    for name, chosen in named:
        if chosen is not None and chosen.usd is not None:
            axes.annotate(f"{name}: {chosen.machine.name}", (chosen.time.median, chosen.usd.median))
    axes.set(xlabel="seconds", ylabel="USD per run", xscale="log", yscale="log")
    return axes


def plot_scale_out(
    nodes: Sequence[float], estimates: Sequence[Estimate], probes: Sequence[Probe] = (), axes: Any = None
) -> Any:
    """Predicted seconds over the node count with the 90 % band, and the probes that were made."""
    axes = _axes(axes)
    axes.fill_between(nodes, [e.low for e in estimates], [e.high for e in estimates], alpha=0.2, label="90 %")
    axes.plot(nodes, [e.median for e in estimates], label="median")
    done = [probe for probe in probes if probe.outcome == "completed"]
    axes.scatter([p.point.nodes for p in done], [p.seconds for p in done], color="black", zorder=3, label="measured")
    axes.set(xlabel="nodes", ylabel="seconds", xscale="log", yscale="log")
    axes.legend()
    return axes


def plot_machines(times: dict[str, Estimate], axes: Any = None) -> Any:
    """Predicted seconds on every machine type, fastest on top."""
    axes = _axes(axes)
    ordered = sorted(times.items(), key=lambda pair: -pair[1].median)
    middles = [estimate.median for _, estimate in ordered]
    below = [estimate.median - estimate.low for _, estimate in ordered]
    above = [estimate.high - estimate.median for _, estimate in ordered]
    axes.errorbar(middles, range(len(ordered)), xerr=[below, above], fmt="o")
    axes.set_yticks(range(len(ordered)), [name for name, _ in ordered])
    axes.set(xlabel="seconds", xscale="log")
    return axes


def _axes(axes: Any) -> Any:
    if axes is not None:
        return axes
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingLibrary("matplotlib is not installed", hint="pip install matplotlib") from error
    return Figure(figsize=(7, 5), layout="constrained").subplots()
