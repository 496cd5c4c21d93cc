"""Other machine types, and the verdict from one run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from shunter.advisor.errors import MixedUnits, TooFewProbes
from shunter.advisor.machines import pick_machine, predict_machines, usage_vector
from shunter.advisor.rules import RULES, reasons_for
from shunter.advisor.similar import MachineExample
from shunter.advisor.values import Machine, Point, Probe, Usage
from shunter.advisor.verdict import VerdictExample, advise, macro_f1, size_verdict, verdict_of, verdict_vector

MACHINES = [Machine(f"m{v}", v, 4 * v, 0.05 * v, "m") for v in (2, 4, 8, 16)]
BY_NAME = {machine.name: machine for machine in MACHINES}


def run(work: float, serial: float, machine: Machine) -> tuple[float, Usage]:
    seconds = serial + work / machine.vcpu
    busy = (serial / machine.vcpu + work / machine.vcpu) / seconds
    return seconds, Usage(busy, min(1.0, busy * 1.2), 0.01, memory_peak_gib=2.0)


def examples(start: float | None = None) -> list[MachineExample]:
    out = []
    rng = np.random.default_rng(0)
    for index in range(40):
        work, serial = float(np.exp(rng.normal(6, 1))), start or float(np.exp(rng.normal(3, 1)))
        seconds, usage = {}, {}
        for machine in MACHINES:
            took, used = run(work, serial, machine)
            seconds[machine.name] = took * math.exp(float(rng.normal(0, 0.03)))
            usage[machine.name] = usage_vector(used, machine, took)
        out.append(MachineExample(f"{index:03}", f"g{index % 10}", seconds, usage))
    return out


def probes(work: float, serial: float, *names: str) -> list[Probe]:
    out = []
    for name in names:
        seconds, usage = run(work, serial, BY_NAME[name])
        out.append(Probe(Point(machine=BY_NAME[name]), seconds, usage=usage))
    return out


def test_two_probes_predict_the_other_machines() -> None:
    times = predict_machines(probes(900, 30, "m4", "m8"), MACHINES, examples())
    assert times["m2"].median == pytest.approx(480, rel=0.15)
    assert times["m16"].median == pytest.approx(86, rel=0.2)
    assert times["m4"].covers(255)


def test_one_probe_is_enough_and_less_sure() -> None:
    one = predict_machines(probes(900, 30, "m4"), MACHINES, examples())
    assert set(one) == {"m2", "m4", "m8", "m16"}
    assert one["m2"].covers(480)


def test_the_pick_has_an_expected_regret() -> None:
    times = predict_machines(probes(900, 30, "m4", "m8"), MACHINES, examples())
    cheap, fast = pick_machine(times, MACHINES), pick_machine(times, MACHINES, by="time")
    assert cheap.machine.name == "m2"
    assert fast.machine.name == "m16"
    assert 0 <= cheap.expected_regret < 0.5
    assert cheap.usd is not None
    with pytest.raises(TooFewProbes):
        pick_machine(times, [replace(machine, usd_per_hour=None) for machine in MACHINES])


def test_a_disturbed_repetition_changes_little() -> None:
    calm = probes(900, 30, "m4", "m8")
    slow = replace(calm[0], seconds=3 * calm[0].seconds)
    again = predict_machines([*calm, calm[0], slow], MACHINES, examples())
    assert again["m2"].median == pytest.approx(predict_machines(calm, MACHINES, examples())["m2"].median, rel=0.02)


def test_the_order_of_probes_machines_and_examples_does_not_matter() -> None:
    given = probes(900, 30, "m4", "m8")
    one = predict_machines(given, MACHINES, examples())
    two = predict_machines(given[::-1], MACHINES[::-1], examples()[::-1])
    for name, estimate in one.items():
        assert two[name].median == pytest.approx(estimate.median)
    assert pick_machine(one, MACHINES).machine == pick_machine(two, MACHINES).machine


def test_a_machine_that_only_examples_without_physics_saw_is_predicted() -> None:
    known = []
    for example in examples():
        numbers = (6.0, 3.0, -5.0, 0.1, -3.0, 0.5, 1.6, 0.0)
        seen = {name: took for name, took in example.seconds.items() if name != "m16"}
        known.append(replace(example, seconds=seen, numbers=numbers) if example.fingerprint < "015" else example)
    times = predict_machines(probes(900, 30, "m4", "m8"), MACHINES, known)
    assert times["m16"].median == pytest.approx(86, rel=0.3)


def test_start_up_takes_its_seconds_however_little_work_there_is() -> None:
    """All examples start in 20 s; the workload has less work than any of them, and the same usage."""
    known = []
    for index in range(12):
        work = 400.0 * 1.3**index
        numbers = (math.log(work), math.log(20.0), -9.0, 0.0, -9.0, -9.0, 1.6, 0.0)
        seconds = {machine.name: 20 + work / machine.vcpu for machine in MACHINES}
        usage = {machine.name: usage_vector(Usage(0.7), machine, seconds[machine.name]) for machine in MACHINES}
        known.append(MachineExample(f"{index:03}", f"g{index}", seconds, usage, numbers))
    given = [
        Probe(Point(machine=BY_NAME[name]), 20 + 150 / BY_NAME[name].vcpu, usage=Usage(0.7)) for name in ("m4", "m8")
    ]
    times = predict_machines(given, MACHINES, known)
    assert times["m16"].median == pytest.approx(20 + 150 / 16, rel=0.15)
    assert times["m2"].median == pytest.approx(20 + 150 / 2, rel=0.2)


def test_a_cliff_that_some_like_it_had_is_avoided() -> None:
    """The small machine is a little cheaper for two of three neighbours and ten times as dear for the third."""
    names = ("m2", "m4", "m8", "m16")
    common = {"m2": 380.0, "m4": 200.0, "m8": 150.0, "m16": 120.0}
    used = {name: usage_vector(Usage(0.5), BY_NAME[name], 100.0) for name in names}
    known = [MachineExample(str(i), str(i), common | ({"m2": 4000.0} if i % 3 == 0 else {}), used) for i in range(9)]
    given = [Probe(Point(machine=BY_NAME[name]), common[name], usage=Usage(0.5)) for name in ("m4", "m8")]
    times = predict_machines(given, MACHINES, known)
    assert times["m2"].median == pytest.approx(380.0)
    assert pick_machine(times, MACHINES).machine.name == "m4"
    assert pick_machine(dict(times), MACHINES).machine.name in names


def test_probes_without_usage_or_on_unknown_machines_are_refused() -> None:
    with pytest.raises(MixedUnits):
        predict_machines([Probe(Point(machine=MACHINES[0]), 5.0)], MACHINES, examples())
    stranger = Machine("stranger", 4, 16)
    with pytest.raises(TooFewProbes):
        predict_machines([Probe(Point(machine=stranger), 5.0, usage=Usage(0.5))], MACHINES, examples())
    with pytest.raises(TooFewProbes):
        predict_machines([Probe(Point(machine=stranger), 5.0, "out_of_memory")], MACHINES, examples())


def test_a_percentage_instead_of_a_share_is_refused() -> None:
    with pytest.raises(MixedUnits):
        Usage(cpu_mean=85.0)


def verdict_examples() -> list[VerdictExample]:
    out = []
    rng = np.random.default_rng(2)
    for index in range(80):
        work, serial = float(np.exp(rng.normal(6, 1))), float(np.exp(rng.normal(3.5, 1.2)))
        took, used = run(work, serial, BY_NAME["m4"])
        up, down = took / run(work, serial, BY_NAME["m8"])[0], run(work, serial, BY_NAME["m2"])[0] / took
        out.append(VerdictExample(f"{index:03}", f"g{index % 10}", verdict_vector(used, BY_NAME["m4"], took), up, down))
    return out


@pytest.mark.parametrize(("work", "serial", "expected"), [(3000, 5, "up"), (60, 200, "down"), (400, 60, "keep")])
def test_the_verdict_follows_what_other_workloads_did(work: float, serial: float, expected: str) -> None:
    took, used = run(work, serial, BY_NAME["m4"])
    said, chances = size_verdict(used, BY_NAME["m4"], took, verdict_examples())
    assert said == expected
    assert sum(chances.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(("work", "serial", "expected"), [(3000, 40, "up"), (60, 200, "down"), (200, 40, "keep")])
def test_the_verdict_foresees_the_next_size_where_others_were_measured_on_it(
    work: float, serial: float, expected: str
) -> None:
    took, used = run(work, serial, BY_NAME["m4"])
    said, chances = size_verdict(used, BY_NAME["m4"], took, verdict_examples(), MACHINES, examples(start=40))
    assert said == expected
    assert sum(chances.values()) == pytest.approx(1.0)
    assert min(chances.values()) >= 0


def test_the_largest_size_and_one_that_nobody_measured_are_judged_without_foresight() -> None:
    took, used = run(3000, 5, BY_NAME["m4"])
    known = verdict_examples()
    for machine in (MACHINES[-1], Machine("stranger", 4, 16)):
        alone = size_verdict(used, machine, took, known)
        assert size_verdict(used, machine, took, known, MACHINES, examples()) == alone


def test_a_run_that_is_little_more_than_start_up_is_sent_down() -> None:
    known = []
    rng = np.random.default_rng(4)
    for index in range(60):
        took = float(np.exp(rng.uniform(3.5, 7)))
        down = 2 - 15 / took
        vector = verdict_vector(Usage(0.6), BY_NAME["m4"], took)
        known.append(VerdictExample(f"{index:03}", f"g{index % 10}", vector, 1.4 + 0.4 * (index % 2), 3 * down, down))
    assert size_verdict(Usage(0.6), BY_NAME["m4"], 15.0, known)[0] == "down"
    assert size_verdict(Usage(0.6), BY_NAME["m4"], 600.0, known)[0] != "down"


def test_advice_carries_reasons_evidence_and_confidence() -> None:
    took, used = run(3000, 5, BY_NAME["m4"])
    advice = advise(used, BY_NAME["m4"], took, verdict_examples())
    assert advice.verdict == "up"
    assert any(reason.rule == 9 for reason in advice.reasons)
    assert advice.evidence["cpu_p95"] > 0.8
    assert 0 < advice.confidence < 1


def test_without_examples_the_rules_alone_speak() -> None:
    assert advise(Usage(0.1, 0.2, memory_peak_gib=1.0), MACHINES[2], 60.0).verdict == "down"


GPU = Machine("gpu", 8, 64, 1.0, gpu_model="T4", gpu_count=1, gpu_memory_gib=16)
ROOMY = Machine("roomy", 4, 64)
TABLE: list[tuple[int, Usage, Machine]] = [
    (1, Usage(0.3, gpu_p95=0.01, gpu_mean=0.0), GPU),
    (2, Usage(0.95, gpu_p95=0.5, gpu_mean=0.3), GPU),
    (3, Usage(0.3, iowait_mean=0.4, gpu_p95=0.5, gpu_mean=0.3), GPU),
    (4, Usage(0.3, gpu_p95=0.5, gpu_mean=0.3, gpu_memory_peak=0.3), GPU),
    (5, Usage(0.3, gpu_p95=0.9, gpu_mean=0.7, gpu_memory_peak=0.95), GPU),
    (6, Usage(0.3, gpu_p95=1.0, gpu_mean=0.9), GPU),
    (7, Usage(0.3, sync_share=0.5), MACHINES[1]),
    (8, Usage(0.25, busiest_thread=0.99), MACHINES[1]),
    (9, Usage(0.9, 0.99), MACHINES[1]),
    (10, Usage(0.5, memory_peak_gib=15.0), MACHINES[1]),
    (11, Usage(0.5, memory_peak_gib=5.0), ROOMY),
    (12, Usage(0.1, 0.2, memory_peak_gib=2.0), MACHINES[1]),
    (13, Usage(0.5, steal_mean=0.2), MACHINES[1]),
    (14, Usage(0.5, workers_cpu_mean=0.02), MACHINES[1]),
    (15, Usage(0.5, spilled_bytes=1e9), MACHINES[1]),
    (15, Usage(0.5, skew=3.0), MACHINES[1]),
    (15, Usage(0.5, tasks_per_core=0.5), MACHINES[1]),
    (16, Usage(0.5, memory_rising=True), MACHINES[1]),
    (17, Usage(0.3, iowait_mean=0.5), MACHINES[1]),
]


@pytest.mark.parametrize(("number", "usage", "machine"), TABLE)
def test_each_rule_speaks_when_its_figures_say_so_and_only_then(number: int, usage: Usage, machine: Machine) -> None:
    assert number in {reason.rule for reason in reasons_for(usage, machine)}


def test_every_rule_is_in_the_table_and_an_ordinary_run_breaks_none() -> None:
    assert {rule.number for rule in RULES} == {number for number, _, _ in TABLE}
    ordinary = Usage(0.6, 0.75, 0.02, steal_mean=0.0, memory_peak_gib=8.0)
    assert reasons_for(ordinary, MACHINES[1]) == ()


def test_a_noisy_host_lowers_the_confidence() -> None:
    took, used = run(3000, 5, BY_NAME["m4"])
    calm = advise(used, BY_NAME["m4"], took, verdict_examples())
    noisy = advise(replace(used, steal_mean=0.3), BY_NAME["m4"], took, verdict_examples())
    assert noisy.confidence < calm.confidence


def test_macro_f1_counts_classes_alike() -> None:
    assert macro_f1(["up", "keep"], ["up", "keep"]) == 1.0
    assert macro_f1(["up", "keep", "keep"], ["keep", "keep", "keep"]) == pytest.approx(0.4)
    assert verdict_of(1.7, 2.0) == "up"
    assert verdict_of(1.2, 1.1) == "down"
    assert verdict_of(1.2, 1.5) == "keep"
