"""Other GPUs, more GPUs, more nodes, and where it stops to pay."""

from __future__ import annotations

import math

import pytest

from shunter.advisor.counts import CountExample, CountRun, predict_at_count
from shunter.advisor.errors import BadMeasurement, TooFewProbes, UnknownFact
from shunter.advisor.gpus import (
    GpuExample,
    GpuRun,
    find_gpu,
    gpu_facts,
    predict_more_gpus,
    where_scaling_stops,
)
from shunter.advisor.other_gpu import predict_other_gpu
from shunter.advisor.placement import Placement, StepTime, learn_placement, predict_step_time
from shunter.advisor.values import Estimate


def test_short_names_find_a_gpu_and_unknown_ones_are_refused() -> None:
    assert find_gpu("v100").model.startswith("V100")
    assert find_gpu("T4").memory_gib == 16
    assert len(gpu_facts()) > 20
    with pytest.raises(UnknownFact):
        find_gpu("abacus")


def gpu_examples() -> list[GpuExample]:
    out = []
    for index in range(12):
        compute, host = 0.1 * (1 + index), 0.01 * (1 + index % 3)
        runs = []
        for gpu, speed in (("k80", 1.0), ("p100", 3.0), ("v100", 5.0)):
            step = compute / speed + host
            runs += [GpuRun(gpu, n / (step * (1 + 0.1 * math.log2(n))), n) for n in (1, 2, 4, 8)]
        out.append(GpuExample(f"{index:03}", f"g{index % 4}", tuple(runs)))
    return out


def test_one_gpu_type_predicts_another() -> None:
    run = GpuRun("k80", 1 / 0.62)
    found = predict_other_gpu(run, "v100", gpu_examples())
    assert found.median == pytest.approx(1 / 0.14, rel=0.3)
    assert predict_other_gpu(run, "k80", ()).median == pytest.approx(run.steps_per_second)


def test_the_host_is_the_floor_of_a_step_and_not_added_to_it() -> None:
    examples = []
    for index in range(8):
        compute = 0.2 * 2 ** (index % 4)
        runs = tuple(GpuRun(gpu, 1 / max(0.08, compute / speed)) for gpu, speed in (("k80", 1.0), ("v100", 6.0)))
        examples.append(GpuExample(f"{index:03}", f"g{index}", runs))
    short, long = (predict_other_gpu(GpuRun("k80", 1 / step), "v100", examples) for step in (0.2, 3.0))
    assert short.median == pytest.approx(1 / 0.08, rel=0.1)
    assert long.median == pytest.approx(6 / 3.0, rel=0.1)


def test_the_data_sheet_alone_gives_a_wide_answer() -> None:
    found = predict_other_gpu(GpuRun("k80", 2.0), "v100", ())
    assert "data sheet only" in found.notes
    assert found.low < 2 * 3.75 < found.high


def test_many_small_items_keep_the_host_busy_whatever_the_gpu() -> None:
    few = predict_other_gpu(GpuRun("k80", 2.0, batch_size=32), "v100", gpu_examples())
    many = predict_other_gpu(GpuRun("k80", 2.0, batch_size=9000), "v100", gpu_examples())
    assert few.median > 4.5
    assert 1.9 < many.median < 4
    with pytest.raises(BadMeasurement):
        GpuRun("k80", 2.0, batch_size=0)


def test_more_gpus_from_one_and_two() -> None:
    runs = [GpuRun("v100", 10.0, 1), GpuRun("v100", 20 / 1.1, 2)]
    found = predict_more_gpus(runs, 8, gpu_examples())
    assert found.median == pytest.approx(80 / 1.3, rel=0.15)
    assert predict_more_gpus(runs[:1], 8, ()).median < 80
    with pytest.raises(TooFewProbes):
        predict_more_gpus([], 8, ())


def test_scaling_stops_where_a_doubling_brings_less_than_half() -> None:
    rates = {1: 10.0, 2: 19.0, 4: 33.0, 8: 40.0}
    assert where_scaling_stops([(n, Estimate(r, r, r)) for n, r in rates.items()]) == 4


def step(nodes: int, gpus: int, batch: float) -> float:
    exchange = 0.2 * nodes**0.4 * (gpus / nodes) ** 0.4 if nodes > 1 else 0.02 * (gpus - 1)
    return 0.01 * batch + exchange


def measured(largest: int) -> list[StepTime]:
    places = [(1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4), (3, 3), (4, 8), (8, 8), (8, 16), (16, 32)]
    return [
        StepTime(Placement(n, g, b), step(n, g, b)) for n, g in places if g <= largest for b in (16.0, 32.0)
    ]


def test_step_time_on_many_gpus_from_few_and_other_models() -> None:
    other = learn_placement("f", "other", measured(32))
    many = [s for s in measured(32) if s.placement.gpus >= 8]
    found = predict_step_time(measured(4), [s.placement for s in many], [other])
    for estimate, truth in zip(found, many, strict=True):
        assert estimate.median == pytest.approx(truth.seconds, rel=0.2)


def test_a_step_on_one_gpu_is_needed() -> None:
    with pytest.raises(TooFewProbes):
        predict_step_time([StepTime(Placement(2, 2, 8), 1.0)], [Placement(4, 4, 8)])
    with pytest.raises(BadMeasurement):
        StepTime(Placement(1, 1, 8), -1.0)


def count_examples() -> list[CountExample]:
    out = []
    for index in range(12):
        serial = 5.0 + index
        runs = tuple(CountRun(n, serial + 4000 / n) for n in (8, 16, 64, 256))
        out.append(CountExample(f"{index:03}", f"g{index % 4}", runs))
    return out


def test_time_at_a_larger_count() -> None:
    runs = [CountRun(8, 508.0), CountRun(64, 70.5), CountRun(64, 90.0)]
    found = predict_at_count(runs, 256, count_examples())
    assert found.median == pytest.approx(23.6, rel=0.25)
    one = predict_at_count(runs[:1], 256)
    assert one.log_sd > found.log_sd
    assert one.notes
    with pytest.raises(TooFewProbes):
        predict_at_count([], 8)
