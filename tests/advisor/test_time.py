"""Run time from a few points: what it survives, and what it promises."""

from __future__ import annotations

import math
import random
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.advisor.errors import BadMeasurement, MixedUnits, TooFewProbes
from shunter.advisor.time import predict_run_time
from shunter.advisor.values import Estimate, Machine, Point, Probe


def truth(nodes: float, data: float, serial: float = 20.0, each: float = 0.4) -> float:
    return serial + each * data / nodes + 0.5 * nodes


def probe(nodes: float, data: float, noise: float = 0.0, **kwargs: float) -> Probe:
    return Probe(Point(nodes, data, "MB"), truth(nodes, data, **kwargs) * math.exp(noise))


GRID = [(2, 1000), (4, 1000), (8, 2000), (4, 4000), (12, 3000), (2, 2000)]


def test_six_points_predict_a_new_node_count_and_size_within_a_tenth() -> None:
    points = [Point(6, 3000, "MB"), Point(10, 4000, "MB")]
    estimates = predict_run_time([probe(n, d) for n, d in GRID], points)
    for point, estimate in zip(points, estimates, strict=True):
        assert estimate.median == pytest.approx(truth(point.nodes, point.data_size or 0), rel=0.1)
        assert estimate.low < estimate.median < estimate.high


def test_one_point_answers_with_a_wide_interval_and_says_so() -> None:
    (estimate,) = predict_run_time([probe(4, 1000)], [Point(8, 4000, "MB")])
    assert estimate.high / estimate.low > 3
    assert "from one probe only" in estimate.notes


def test_two_equal_points_are_no_surprise() -> None:
    (estimate,) = predict_run_time([probe(4, 1000), probe(4, 1000)], [Point(4, 1000, "MB")])
    assert estimate.covers(truth(4, 1000))


def test_a_target_outside_anything_seen_gets_a_wider_interval_and_a_note() -> None:
    near, far = predict_run_time([probe(n, d) for n, d in GRID], [Point(6, 3000, "MB"), Point(200, 60000, "MB")])
    assert far.log_sd > near.log_sd
    assert "node count is outside anything measured" in far.notes
    assert "data size is outside anything measured" in far.notes


def test_failed_probes_are_left_out_and_a_cut_off_one_is_a_lower_bound() -> None:
    good = [probe(n, d) for n, d in GRID]
    dead = Probe(Point(1, 9000, "MB"), 5.0, "out_of_memory")
    asked = [Point(2, 8000, "MB")]
    assert predict_run_time([*good, dead], asked) == predict_run_time(good, asked)
    (without,) = predict_run_time(good, asked)
    cut = Probe(Point(2, 8000, "MB"), 40_000.0, "timed_out")
    (with_cut,) = predict_run_time([*good, cut], asked)
    assert with_cut.median > 2 * without.median


def test_nothing_that_ended_is_refused() -> None:
    with pytest.raises(TooFewProbes) as caught:
        predict_run_time([Probe(Point(1), 5.0, "failed")], [Point(2)])
    assert caught.value.hint
    assert caught.value.code == "too_few_probes"


@pytest.mark.parametrize("seconds", [0.0, -3.0, math.nan, math.inf])
def test_impossible_seconds_are_refused(seconds: float) -> None:
    with pytest.raises(BadMeasurement):
        Probe(Point(2), seconds)


def test_mixed_units_are_refused() -> None:
    with pytest.raises(MixedUnits):
        predict_run_time([Probe(Point(2, 10, "GB"), 5.0)], [Point(2, 10_000, "MB")])
    with pytest.raises(MixedUnits):
        predict_run_time([Probe(Point(2, 10, "MB"), 5.0), Probe(Point(2, 1e7, "MB"), 6.0)], [Point(2, 10, "MB")])
    with pytest.raises(MixedUnits):
        predict_run_time([Probe(Point(2, 10, "MB"), 5.0), Probe(Point(2), 6.0)], [Point(2, 10, "MB")])
    with pytest.raises(MixedUnits):
        predict_run_time([Probe(Point(2, parameters={"k": 3}), 5.0)], [Point(2)])


def test_a_parameter_may_be_zero() -> None:
    share = [0.0, 0.25, 0.5, 0.75, 1.0]
    probes = [
        Probe(Point(n, 1000, "MB", {"share": s}), 10 + 100 * s + 200 / n)
        for n, s in zip((2, 4, 6, 8, 10), share, strict=True)
    ]
    (estimate,) = predict_run_time(probes, [Point(4, 1000, "MB", {"share": 0.5})])
    assert estimate.median == pytest.approx(110, rel=0.2)


def test_runs_that_were_held_up_do_not_slow_down_what_is_foretold_beside_them() -> None:
    def run(nodes: int, data: int, width: float) -> Probe:
        held_up = 1.45 if width > 1 and nodes in (6, 10) else 1 + 0.01 * ((nodes + data // 100) % 3 - 1)
        return Probe(Point(nodes, data, "MB", {"width": width}), truth(nodes, data) * width**-0.1 * held_up)

    grid = [(n, d, 1.0) for n in (2, 4, 6, 8, 10, 12) for d in (1010, 1200, 1400, 1600, 1800)]
    rare = [(n, 1000, 10.0) for n in (2, 4, 6, 8, 10)]
    asked = Point(12, 1000, "MB", {"width": 10.0})
    (estimate,) = predict_run_time([run(*each) for each in [*grid, *rare]], [asked])
    assert estimate.median == pytest.approx(truth(12, 1000) * 10**-0.1, rel=0.1)


def test_one_run_from_another_regime_does_not_spoil_the_rest() -> None:
    clean = [probe(n, d) for n in (2, 4, 8, 12) for d in (1000, 2000, 3000)]
    odd = Probe(Point(2, 4000, "MB"), truth(2, 4000) * 15)
    (estimate,) = predict_run_time([*clean, odd], [Point(6, 2500, "MB")])
    assert estimate.median == pytest.approx(truth(6, 2500), rel=0.1)


def test_another_machine_type_is_said_to_be_untried() -> None:
    small, large = Machine("small", 4, 16), Machine("large", 8, 32)
    probes = [Probe(Point(n, machine=small), 100 / n + 5) for n in (1, 2, 4)]
    (estimate,) = predict_run_time(probes, [Point(2, machine=large)])
    assert "no probe on this machine type" in estimate.notes
    (same,) = predict_run_time(probes, [Point(2, machine=small)])
    assert estimate.log_sd > same.log_sd


def test_many_sizes_asked_at_once_get_the_answers_that_each_gets_alone() -> None:
    sizes = [Machine("tried", 4, 16), Machine("same cores", 4, 64), Machine("more", 8, 32), Machine("as many", 8, 64)]
    probes = [Probe(Point(n, machine=sizes[0]), 100 / n + 5) for n in (1, 2, 4)]
    asked = [Point(2, machine=size) for size in sizes] + [Point(2), Point(2, machine=sizes[0])]
    together = predict_run_time(probes, asked)
    for point, estimate in zip(asked, together, strict=True):
        (alone,) = predict_run_time(probes, [point])
        assert (estimate.median, estimate.log_sd) == pytest.approx((alone.median, alone.log_sd), rel=1e-6)
        assert estimate.notes == alone.notes
    assert together[0] == together[5] != together[1]
    assert together[2] == together[3] != together[1]


def test_four_small_clusters_leave_it_open_where_scaling_stops() -> None:
    probes = [Probe(Point(n), 400 / n) for n in (2, 4, 6, 8)]
    near, far, farther = predict_run_time(probes, [Point(7), Point(32), Point(128)])
    assert near.log_sd < far.log_sd < farther.log_sd
    assert far.covers(400 / 32)
    assert far.covers(2 * 400 / 32)


def noisy(seed: int, count: int) -> list[Probe]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        nodes, data = float(rng.integers(2, 16)), float(rng.integers(5, 50)) * 100
        made.append(probe(nodes, data, float(rng.normal(0, 0.05))))
    return made


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8))
def test_permuting_the_probes_changes_nothing(seed: int, count: int) -> None:
    probes = noisy(seed, count)
    mixed = probes.copy()
    random.Random(seed).shuffle(mixed)
    asked = [Point(6, 2500, "MB")]
    assert predict_run_time(probes, asked) == predict_run_time(mixed, asked)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1e-3, 60.0, 1e6]), st.sampled_from([1e-3, 1024.0]))
def test_scaling_the_units_scales_the_prediction(seed: int, seconds: float, size: float) -> None:
    probes = noisy(seed, 6)
    other = [Probe(Point(p.point.nodes, (p.point.data_size or 0) * size, "X"), p.seconds * seconds) for p in probes]
    (plain,) = predict_run_time(probes, [Point(6, 2500, "MB")])
    (scaled,) = predict_run_time(other, [Point(6, 2500 * size, "X")])
    for name in ("median", "low", "high"):
        assert getattr(scaled, name) == pytest.approx(getattr(plain, name) * seconds, rel=2e-2)


@pytest.mark.parametrize("count", [4, 8, 16])
def test_more_probes_never_make_the_interval_lie(count: int) -> None:
    asked = [Point(n, d, "MB") for n in (3, 7, 11) for d in (1500, 3500)]
    held = []
    for seed in range(12):
        estimates: tuple[Estimate, ...] = predict_run_time(noisy(seed, count), asked)
        held += [e.covers(truth(p.nodes, p.data_size or 0)) for e, p in zip(estimates, asked, strict=True)]
    assert np.mean(held) >= 0.85


def test_a_cluster_of_noise_gives_an_honest_interval() -> None:
    rng = np.random.default_rng(1)
    probes = [Probe(Point(4), float(np.exp(rng.normal(3, 0.5)))) for _ in range(12)]
    (estimate,) = predict_run_time(probes, [Point(4)])
    assert estimate.low < math.exp(3) < estimate.high
    assert sum(estimate.covers(probe.seconds) for probe in probes) >= 8


def test_a_parameter_that_was_zero_in_all_probes_is_answered_without_a_warning() -> None:
    probes = [Probe(Point(n, 1000, "MB", {"share": 0.0}), 10 + 100 / n) for n in (2, 4, 8)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same, other = predict_run_time(
            probes, [Point(6, 1000, "MB", {"share": 0.0}), Point(6, 1000, "MB", {"share": 0.5})]
        )
    assert same.covers(10 + 100 / 6)
    assert other.log_sd >= same.log_sd


def test_a_parameter_without_effect_is_found_to_have_none() -> None:
    rng = np.random.default_rng(3)
    points = [Point(n, d, "MB", {"odd": o}) for n in (2, 4, 8) for d in (500, 1000, 2000) for o in (1.0, 10.0)]
    probes = [Probe(p, (20 + 0.5 * (p.data_size or 0) / p.nodes) * float(np.exp(0.02 * rng.normal()))) for p in points]
    one, two = predict_run_time(probes, [Point(6, 1500, "MB", {"odd": o}) for o in (1.0, 10.0)])
    assert one.median == pytest.approx(two.median, rel=0.03)
    assert one.median == pytest.approx(20 + 0.5 * 1500 / 6, rel=0.05)


def test_a_limit_that_is_never_reached_changes_nothing() -> None:
    probes = [
        Probe(Point(nodes, data, "GB", {"rounds": rounds}), 10 + data * min(rounds, 50) / nodes)
        for nodes in (2.0, 4.0, 8.0)
        for data in (10.0, 20.0)
        for rounds in (10.0, 50.0, 100.0)
    ]
    asked = [Point(4.0, 20.0, "GB", {"rounds": rounds}) for rounds in (50.0, 100.0, 400.0)]
    reached, beyond, far = predict_run_time(probes, asked)
    assert beyond.median == pytest.approx(reached.median, rel=1e-6)
    assert far.median == pytest.approx(reached.median, rel=1e-6)
    assert predict_run_time(probes, [Point(4.0, 20.0, "GB", {"rounds": 20.0})])[0].median < 0.7 * reached.median
    again = [*probes, *(Probe(probe.point, probe.seconds * 1.2) for probe in probes)]
    assert predict_run_time(again, asked) == predict_run_time(again[::-1], asked)
