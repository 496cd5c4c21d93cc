"""Lines become points, each once, whatever happens on the way."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shunter.server.collect.metrics import MetricIngest, understand, whole_lines
from shunter.server.services.metrics import in_order, read_metrics
from shunter.server.storage.database import Database, sqlite_url
from shunter.server.storage.files import RunFiles
from shunter.server.storage.metrics import Entry, Metrics

RUN = "ab" * 16
LAUNCH = RUN + ".1.0"


class Heard:
    def __init__(self) -> None:
        self.children: set[str] = set()
        self.changes: list[tuple[str, str, Any]] = []

    def child(self, parent: Any, child_id: str, about: Mapping[str, Any], at: float) -> None:
        self.children.add(child_id)

    def family(self, run: Any) -> frozenset[str]:
        return frozenset(self.children)

    def change(self, run_id: str, kind: str, value: Any, at: float) -> None:
        self.changes.append((run_id, kind, value))


class Bench:
    """A store, an ingest and a stream to feed it with."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.database = Database.open(url or sqlite_url(folder / "db"))
        self.store = Metrics(self.database, RunFiles(folder / "runs"))
        self.heard = Heard()
        self.stream = folder / "stream"
        self.run: Any = SimpleNamespace(id=RUN, is_over=False)
        self.restart()

    def restart(self) -> None:
        self.ingest = MetricIngest(self.store, self.heard)

    def say(self, *lines: Any, end: str = "\n") -> None:
        with self.stream.open("a") as file:
            file.write("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + end)

    def take_in(self) -> None:
        self.ingest(self.run, LAUNCH, self.stream)

    @property
    def metrics(self) -> dict[str, Any]:
        return read_metrics(self.store, RUN)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def point(name: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"n": name, "v": value, "t": 1.5, **more}


def test_a_thousand_equal_values_come_back_as_a_thousand(bench: Bench) -> None:
    bench.say(*[point("same", 0.5)] * 1000)
    bench.take_in()
    assert bench.metrics == {"same": [0.5] * 1000}
    (metric,) = bench.store.list(RUN)
    assert bench.store.points(metric).steps.tolist() == list(range(1000))


def test_the_count_is_the_step_where_none_is_given(bench: Bench) -> None:
    bench.say(point("x", 1), point("x", 2, s=10), point("x", 3))
    bench.take_in()
    bench.say(point("x", 4))
    bench.take_in()
    (metric,) = bench.store.list(RUN)
    assert bench.store.points(metric).steps.tolist() == [0, 10, 2, 3]
    assert bench.metrics == {"x": [1, 2, 3, 4]}


def test_shapes_are_those_that_scripts_of_the_first_sdk_expect(bench: Bench) -> None:
    bench.say(
        point("once", 0.25), point("text", "good"), point("big", 10**30), point("yes", True),
        point("l", [1, 2], k="list"), point("row", {"x": 1}, k="row"), point("rows", {"x": 1, "y": 2}, k="row"),
        point("rows", {"x": 3, "y": 4}, k="row"), point("t", {"a": [1, 2]}, k="table"),
        point("i", "images/i.png", k="image"),
    )  # fmt: skip
    bench.take_in()
    assert bench.metrics == {
        "once": 0.25, "text": "good", "big": 10**30, "yes": True, "l": [1, 2], "row": {"x": 1},
        "rows": {"x": [1, 3], "y": [2, 4]}, "t": {"a": [1, 2]}, "i": "images/i.png",
    }  # fmt: skip


def test_a_name_that_is_logged_in_several_ways_keeps_the_order(bench: Bench) -> None:
    bench.say(point("x", 1), point("x", "two"), point("x", 3), point("x", 4), point("other", "a"))
    bench.take_in()
    bench.say(point("x", True), point("x", [6, 7], k="list"), point("x", 8), point("x", "nine"), point("x", {"a": 1}, k="row"))
    bench.take_in()
    bench.say(point("x", "eleven"), point("x", 12), point("other", 2))
    bench.take_in()
    assert bench.metrics == {
        "x": [1, "two", 3, 4, True, 6, 7, 8, "nine", {"a": 1}, "eleven", 12], "other": ["a", 2],
    }  # fmt: skip


def test_entries_of_before_places_were_kept_come_behind_the_numbers() -> None:
    assert in_order([1, 2], [("value", Entry(0, 1.0, "a")), ("value", Entry(1, 1.0, "b"))]) == [1, 2, "a", "b"]


def test_what_is_no_finite_number_comes_back(bench: Bench) -> None:
    bench.say(
        '{"n":"x","v":NaN,"t":1}', '{"n":"x","v":Infinity,"t":1}', '{"n":"x","v":-Infinity,"t":1}', point("x", 1.0)
    )
    bench.take_in()
    first, *rest = bench.metrics["x"]
    assert math.isnan(first)
    assert rest == [math.inf, -math.inf, 1.0]
    (metric,) = bench.store.list(RUN)
    assert (metric.min_value, metric.max_value) == (-math.inf, math.inf)


def test_a_line_is_taken_in_when_it_is_whole(bench: Bench) -> None:
    bench.say(point("x", 1), '{"n":"x","v":', end="")
    bench.take_in()
    assert bench.metrics == {"x": 1}
    bench.say('2,"t":1}')
    bench.take_in()
    bench.take_in()
    assert bench.metrics == {"x": [1, 2]}


def test_a_torn_line_harms_only_itself(bench: Bench) -> None:
    bench.say(point("x", 1), '{"n":"x","v":', point("x", 2), "\x00\x00", "[]", "5", '{"v":1}', point("x", 3))
    bench.take_in()
    assert bench.metrics == {"x": [1, 2, 3]}


def test_a_crash_between_the_points_and_their_row_counts_nothing_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.say(*[point("x", i) for i in range(10)])
    bench.take_in()
    bench.say(*[point("x", i) for i in range(10, 20)], point("new", {"a": 1}, k="row"))
    real = bench.store._append

    def append(*args: Any) -> None:
        real(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "_append", append)
        with pytest.raises(KeyboardInterrupt):
            bench.take_in()
    bench.restart()
    assert bench.metrics == {"x": list(range(10))}
    bench.take_in()
    assert bench.metrics == {"x": list(range(20)), "new": {"a": 1}}


def test_a_restarted_server_goes_on_where_it_was(bench: Bench) -> None:
    bench.say(point("x", 1))
    bench.take_in()
    bench.restart()
    bench.take_in()
    bench.say(point("x", 2))
    bench.restart()
    bench.take_in()
    assert bench.metrics == {"x": [1, 2]}


def test_lines_about_children_go_to_them_and_others_are_dropped(bench: Bench) -> None:
    child, stranger = "cd" * 16, "ef" * 16
    bench.say(
        {"k": "child", "v": {"parent": RUN}, "r": child, "t": 1}, point("x", 1, r=child), point("x", 2, r=stranger)
    )
    bench.say({"k": "tags", "v": {"a": "b"}, "t": 1}, {"k": "tags", "v": {"a": "b"}, "t": 1, "r": stranger})
    bench.take_in()
    assert read_metrics(bench.store, child) == {"x": 1}
    assert read_metrics(bench.store, stranger) == {}
    assert bench.heard.changes == [(RUN, "tags", {"a": "b"})]


def test_a_line_without_an_end_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.server.collect.metrics.READ_BYTES", 1000)
    monkeypatch.setattr("shunter.server.collect.metrics.LONGEST_LINE", 5000)
    file = tmp_path / "stream"
    file.write_bytes(b"x" * 20_000 + b"\n" + json.dumps(point("x", 1)).encode() + b"\n")
    found = [understand(data, RUN) for data, _ in whole_lines(file, 0)]
    assert sum(len(f.batches) for f in found) == 1
    assert list(whole_lines(file, 0))[-1][1] == file.stat().st_size


def test_names_that_no_database_keeps_are_cleaned(bench: Bench) -> None:
    bench.say(point("a\0b", 1), point("\ud800", 2), point("n" * 1000, 3), point("", 4))
    bench.take_in()
    assert list(bench.metrics) == ["a�b", "?", "n" * 255]


def test_deleting_a_run_forgets_its_metrics_and_offsets(bench: Bench) -> None:
    bench.say(point("x", 1))
    bench.take_in()
    bench.store.delete(RUN)
    assert bench.metrics == {}
    assert bench.store.offset(LAUNCH, "metrics") == 0
