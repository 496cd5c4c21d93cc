"""Peak memory and time at full size from small samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.advisor.errors import BadMeasurement, TooFewProbes
from shunter.advisor.memory import MemoryExample, MemorySample, predict_peak_memory
from shunter.advisor.samples import SampleExample, TimeSample, predict_full_time
from shunter.advisor.values import Machine


def test_a_straight_line_of_memory_is_followed_and_the_reserve_is_above_it() -> None:
    found = predict_peak_memory([MemorySample(1e9, 4.0), MemorySample(2e9, 6.0)], 3e9, 64.0)
    assert found.peak_gib.median == pytest.approx(8.0, rel=0.15)
    assert found.reserve_gib > found.peak_gib.median


def test_memory_that_fills_the_machine_stops_growing() -> None:
    found = predict_peak_memory([MemorySample(1e9, 10.0), MemorySample(2e9, 14.0)], 4e9, 16.0)
    assert found.peak_gib.median < 17


def test_flat_memory_stays_flat() -> None:
    found = predict_peak_memory([MemorySample(1e9, 4.0), MemorySample(2e9, 4.01)], 4e9, 64.0)
    assert found.peak_gib.median == pytest.approx(4.0, rel=0.06)


def test_one_sample_says_that_growth_is_unknown() -> None:
    found = predict_peak_memory([MemorySample(1e9, 4.0)], 4e9, 64.0)
    assert found.peak_gib.notes
    assert found.peak_gib.high / found.peak_gib.low > 2


def test_impossible_memory_is_refused() -> None:
    with pytest.raises(TooFewProbes):
        predict_peak_memory([], 1e9, 16.0)
    with pytest.raises(BadMeasurement):
        MemorySample(1e9, 0.0)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.5, 20), st.floats(1.0, 1.8), st.sampled_from([1e-9, 1.0, 1024.0]))
def test_memory_predictions_scale_with_their_units(low: float, growth: float, unit: float) -> None:
    def ask(gib: float, size: float) -> float:
        samples = [MemorySample(size, low * gib), MemorySample(2 * size, low * growth * gib)]
        return predict_peak_memory(samples[::-1], 3 * size, 64 * gib).peak_gib.median

    assert ask(unit, 1e9) == pytest.approx(ask(1.0, 7.0) * unit, rel=1e-6)


def examples_of_memory() -> list[MemoryExample]:
    out = []
    for index in range(40):
        base, slope = 2 + index % 7, 0.2 + 0.1 * (index % 5)
        peaks = (base + slope, base + 2 * slope, base + 3.1 * slope)
        out.append(MemoryExample(f"{index:03}", f"g{index % 8}", (1.0, 2.0, 3.0), peaks, 64.0))
    return out


def test_other_workloads_teach_how_memory_grows() -> None:
    learned = predict_peak_memory([MemorySample(1, 5.0), MemorySample(2, 6.0)], 3, 64.0, examples_of_memory())
    assert learned.peak_gib.median == pytest.approx(7.0, rel=0.05)
    assert learned.peak_gib.log_sd < 0.1


def test_time_over_samples_is_a_line() -> None:
    samples = [TimeSample(1000, 13.0), TimeSample(6000, 28.0), TimeSample(15000, 55.0)]
    found = predict_full_time(samples, 60000)
    assert found.median == pytest.approx(190, rel=0.05)


def test_one_sample_that_was_held_up_does_not_bend_the_whole_line() -> None:
    even = [TimeSample(1000, 13.0), TimeSample(6000, 28.0)]
    found = predict_full_time([*even, TimeSample(15000, 110.0)], 60000)
    start, each = np.polyfit([1000, 6000, 15000], [13.0, 28.0, 110.0], 1)[::-1]
    assert 190 < found.median < start + each * 60000


def test_a_job_that_was_cut_off_stays_cut_off() -> None:
    samples = [TimeSample(1000, 100.0), TimeSample(6000, 602.0)]
    found = predict_full_time(samples, 60000, limit_seconds=600)
    assert found.median == pytest.approx(602.0)
    assert predict_full_time(samples[:1] * 2, 60000, limit_seconds=600).high <= 612


def test_a_burstable_machine_slows_down_when_its_credits_are_gone() -> None:
    samples = [TimeSample(1000, 10.0), TimeSample(5000, 50.0)]
    steady = predict_full_time(samples, 20000)
    burst = predict_full_time(samples, 20000, Machine("b", 1, 2, baseline_vcpu=0.2))
    assert burst.median > 2 * steady.median


def test_repetitions_that_differ_were_throttled_on_a_burstable_machine_only() -> None:
    alike = [TimeSample(1000, 10), TimeSample(6000, 60), TimeSample(15000, 250)]
    apart = [TimeSample(1000, 10), TimeSample(6000, 60), TimeSample(15000, 250, 100)]
    burst, steady = Machine("b", 1, 2, baseline_vcpu=0.2), Machine("s", 1, 2)
    assert predict_full_time(apart, 60000, burst).median < predict_full_time(alike, 60000, burst).median
    assert predict_full_time(apart, 60000, steady) == predict_full_time(alike, 60000, steady)


def test_one_sample_is_proportional_and_wide() -> None:
    one = predict_full_time([TimeSample(1000, 10.0)], 10_000)
    two = predict_full_time([TimeSample(1000, 10.0), TimeSample(2000, 20.0)], 10_000)
    assert one.median == pytest.approx(100, rel=0.01)
    assert one.log_sd > two.log_sd


def test_other_workloads_correct_the_line() -> None:
    examples = []
    for index in range(30):
        samples = tuple(TimeSample(s, 0.01 * s * (1 + index / 60)) for s in (1000, 2000, 4000))
        full = 200 * (1 + index / 60)
        examples.append(SampleExample(f"{index:03}", f"g{index % 5}", samples, 16000, full, None, None))
    found = predict_full_time(examples[3].samples, 16000, examples=examples)
    assert found.median == pytest.approx(210, rel=0.08)


def test_growth_ends_where_others_ended_on_the_same_shape_of_machine() -> None:
    full = [MemoryExample(f"f{i}", f"g{i}", (1.0, 2.0, 3.0), (9.0, 9.9, 10.0), 16.0, 4.0) for i in range(6)]
    samples = [MemorySample(1.0, 6.0), MemorySample(2.0, 9.0)]
    assert predict_peak_memory(samples, 4.0, 16.0, full, vcpu=4.0).peak_gib.median == pytest.approx(10.0, rel=0.02)
    assert predict_peak_memory(samples, 4.0, 16.0, full, vcpu=8.0).peak_gib.median > 11.5


def test_a_difference_between_almost_equal_sizes_is_noise() -> None:
    found = predict_peak_memory([MemorySample(1.0, 4.0), MemorySample(1.005, 4.2)], 1.1, 16.0)
    assert found.peak_gib.median == pytest.approx(4.2, rel=0.03)


def test_pages_that_a_heap_happened_to_touch_are_not_growth_unless_more_was_asked_for() -> None:
    touched = [MemorySample(1.0, 17.0, 32.0), MemorySample(2.5, 23.0, 32.1)]
    needed = [MemorySample(1.0, 17.0, 26.0), MemorySample(2.5, 23.0, 32.1)]
    plain = [MemorySample(1.0, 17.0), MemorySample(2.5, 23.0)]
    calm, grown, unknown = (predict_peak_memory(samples, 5.0, 61.0) for samples in (touched, needed, plain))
    assert calm.peak_gib.median < 25.0 < min(grown.peak_gib.median, unknown.peak_gib.median)
    assert calm.reserve_gib > unknown.peak_gib.median


def test_repetitions_are_averaged_and_the_reserve_is_above_all_of_them() -> None:
    runs = [MemorySample(1.0, 9.0), MemorySample(2.0, 10.0), MemorySample(2.0, 14.0), MemorySample(2.0001, 10.0)]
    found, again = predict_peak_memory(runs, 3.0, 64.0), predict_peak_memory(runs[::-1], 3.0, 64.0)
    assert found == again
    assert 10.0 < found.peak_gib.median < 14.0 < found.reserve_gib
    steady = predict_peak_memory([MemorySample(1.0, 9.0), MemorySample(2.0, 14.0)], 3.0, 64.0)
    assert found.reserve_gib / found.peak_gib.median > steady.reserve_gib / steady.peak_gib.median
