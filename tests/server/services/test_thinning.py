"""Thinning for plots, and the wire."""

from __future__ import annotations

import math
import time
from array import array

from shunter.server.services.metrics import thin, to_wire
from shunter.server.storage.metrics import Points


def points(values: list[float]) -> Points:
    return Points(array("q", range(len(values))), array("d", map(float, range(len(values)))), array("d", values))


def test_few_points_stay_as_they_are() -> None:
    given = points([1.0, 2.0, 3.0])
    assert thin(given, 10) is given


def test_thinning_keeps_the_ends_and_the_extremes() -> None:
    values = [math.sin(i / 500) for i in range(10_000)]
    values[1234], values[7777] = 50.0, -50.0
    found = thin(points(values), 200)
    assert len(found.values) <= 200
    assert found.steps[0] == 0
    assert found.steps[-1] == 9999
    assert max(found.values) == 50.0
    assert min(found.values) == -50.0
    assert list(found.steps) == sorted(found.steps)


def test_nan_does_not_disturb_thinning() -> None:
    values = [math.nan if i % 7 == 0 else float(i) for i in range(5000)]
    assert 10 <= len(thin(points(values), 100).values) <= 100


def test_a_million_points_of_twenty_metrics_are_thinned_in_time() -> None:
    given = points([float(i % 977) for i in range(50_000)])
    begun = time.process_time()
    for _ in range(20):
        thin(given, 1000)
    assert time.process_time() - begun < 3.0


def test_what_json_has_no_number_for_travels_by_name() -> None:
    assert to_wire({"a": math.nan, "b": [1.0, math.inf], "c": [0.5] * 20}) == {
        "a": {"float": "nan"}, "b": [1.0, {"float": "inf"}], "c": [0.5] * 20
    }  # fmt: skip
