"""The small forest that verdicts are learned with."""

from __future__ import annotations

import numpy as np

from shunter.advisor.trees import grow_forest


def table(count: int = 120) -> tuple[np.ndarray, np.ndarray, list[str]]:
    rng = np.random.default_rng(1)
    rows = rng.random((count, 3))
    classes = np.where(rows[:, 0] > 0.6, 0, np.where(rows[:, 1] > 0.9, 2, 1))
    return rows, classes, [f"g{i % 10}" for i in range(count)]


def test_a_forest_finds_what_decides_and_rare_classes_count() -> None:
    rows, classes, groups = table()
    forest = grow_forest(rows, classes, groups)
    said = forest.predict(np.array([[0.9, 0.2, 0.5], [0.2, 0.2, 0.5], [0.2, 0.98, 0.5]]))
    assert said.argmax(axis=1).tolist() == [0, 1, 2]
    assert np.allclose(said.sum(axis=1), 1)


def test_examples_are_judged_by_trees_that_did_not_see_their_group() -> None:
    rows, classes, groups = table()
    told = grow_forest(rows, classes, groups).left_out
    assert np.mean(told.argmax(axis=1) == classes) > 0.8
    # A group whose classes contradict all others is not foretold by them.
    odd = np.where(np.array(groups) == "g0", (classes + 1) % 3, classes)
    alone = grow_forest(rows, odd, groups).left_out.argmax(axis=1)
    assert np.mean(alone[np.array(groups) == "g0"] == odd[np.array(groups) == "g0"]) < 0.3


def test_the_same_examples_grow_the_same_forest() -> None:
    rows, classes, groups = table(40)
    one, two = grow_forest(rows, classes, groups), grow_forest(rows, classes, groups)
    assert np.array_equal(one.predict(rows), two.predict(rows))


def test_examples_that_are_all_alike_give_their_shares() -> None:
    forest = grow_forest(np.ones((8, 2)), np.array([0] * 4 + [1] * 4), list("abababab"))
    assert np.allclose(forest.predict(np.ones((1, 2)))[0, :2], 0.5)
