"""The evaluation runs on any folder of the layout, leaves whole workloads out, and prints its figures."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from shunter.advisor.evaluate.__main__ import evaluate, main
from shunter.advisor.evaluate.results import Case, Result, summed_up
from shunter.advisor.evaluate.tables import fingerprint, read_table
from shunter.advisor.learn import learn_examples, write_examples
from shunter.advisor.priors import Examples, others, packaged_examples


def write(path: Path, rows: list[dict[str, object]], delimiter: str = ",") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    bell: list[dict[str, object]] = [
        {"Nodes": n, "Runtime": 1000 * (20 + 900 / n) * float(np.exp(rng.normal(0, 0.01)))}
        for n in range(4, 40, 4)
        for _ in range(3)
    ]
    write(tmp_path / "bell" / "anything.csv", bell)
    jobs: list[dict[str, object]] = [
        {"instance_count": n, "machine_type": "x", "slots": n, "data_size_MB": d, "gross_runtime": 9 + d / n}
        for n in (2, 4, 6, 8, 10)
        for d in (100, 200, 300, 400, 500)
    ]
    write(tmp_path / "c3o" / "job.tsv", jobs, "\t")
    counts: list[dict[str, object]] = [
        {"round": "r", "submitter": s, "accelerator": "a", "benchmark": b, "n_accel": n, "ttt_median_s": 10 + 900 / n}
        for s in ("s1", "s2")
        for b in ("b1", "b2", "b3")
        for n in (8, 16, 64)
    ]
    write(tmp_path / "mlperf" / "results.csv", counts)
    return tmp_path


def test_an_incomplete_folder_gives_the_rows_that_it_can(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = evaluate(data, seeds=1, splits=2)
    rows = {result.row: result for result in results}
    assert rows["Bell scale-out, 4 spread"].ours < 0.07
    assert rows["C3O run time, 90/10"].ours < 0.05
    assert rows["MLPerf largest count"].met is not None
    assert not any(result.row.startswith("Scout") for result in results)
    assert main([str(data), "--json", "--only", "bell"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed[0]["met"] is True
    assert main([str(data), "--only", "mlperf"]) == 0
    assert "published" in capsys.readouterr().out


def test_a_wrong_folder_or_protocol_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, words in (([str(tmp_path / "nope")], "not a folder"), ([str(tmp_path), "--only", "bel"], "There are c3o, bell")):
        with pytest.raises(SystemExit):
            main(wrong)
        assert words in capsys.readouterr().err


def test_learned_examples_survive_the_way_to_the_file_and_back(data: Path, tmp_path: Path) -> None:
    learned = learn_examples(data)
    write_examples(learned, tmp_path / "out")
    text = json.loads((tmp_path / "out" / "counts.json").read_text())
    assert text["source"]
    assert [row["fingerprint"] for row in text["examples"]] == [e.fingerprint for e in learned.counts]


def test_packaged_examples_have_every_kind_but_the_set_for_evaluation_alone() -> None:
    packaged = packaged_examples()
    for kind in ("machines", "clusters", "memory", "verdicts", "samples", "gpus", "placements", "counts"):
        assert len(getattr(packaged, kind)) >= 4, kind


def test_a_workload_is_known_once_and_its_group_is_left_out() -> None:
    packaged = packaged_examples()
    assert packaged.joined(packaged) == packaged
    assert Examples().joined(packaged) == packaged
    group = packaged.counts[0].group
    assert all(example.group != group for example in others(packaged.counts, group))


def test_a_fingerprint_does_not_depend_on_names_or_on_order(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"app": "a", "x": 1.5}, {"app": "a", "x": 2.5}]
    write(tmp_path / "t.csv", rows)
    read = read_table(tmp_path / "t.csv")
    renamed = [{**row, "app": "b"} for row in read[::-1]]
    assert fingerprint(read) == fingerprint(renamed)
    assert read_table(tmp_path / "absent.csv") == []


def test_a_result_says_whether_its_bar_is_met() -> None:
    cases = [Case("a", 0.1, True), Case("a", 0.2, True), Case("b", 0.3, False)]
    result = summed_up("row", "how", cases, published="9", bar=0.25)
    assert isinstance(result, Result)
    assert result.ours == pytest.approx(0.225)
    assert result.met
    assert result.coverage == pytest.approx(2 / 3)
    assert "met" in result.line()
    assert summed_up("row", "how", [], published="9") is None
