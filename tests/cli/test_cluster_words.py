"""Clusters and their sizes on the command line. Nothing is started: a cluster at zero is only written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Shunter

pytest.importorskip("ray", reason="clusters need shunter[cluster]")


def test_a_cluster_is_created_shown_resized_and_deleted(shunter: Shunter) -> None:
    words = "--vm-size standard_d2_V2 --max-nodes 4 --idle-seconds-before-scaledown 60 --subnet 127.0.0.0/8"
    said = shunter("compute", "create", "cpu", "--kind", "cluster", *words.split(), "--description", "For us.", "--tag", "a=b",
                   "--json")  # fmt: skip
    assert said.status == 0, said.err
    made = said.json
    assert (made["state"], made["tags"], made["config"]["description"]) == ("Succeeded", {"a": "b"}, "For us.")
    assert (made["config"]["max_nodes"], made["config"]["subnet"]) == (4, "127.0.0.0/8")
    assert (made["facts"]["details"]["size"], made["facts"]["cpus"]) == ("Standard_D2_v2", 2)
    shown = shunter("compute", "show", "cpu", "--json").json
    assert shown["node_counts"] == dict.fromkeys(["idle", "running", "preparing", "leaving", "preempted", "unusable"], 0)
    assert "cpu has no nodes now." in shunter("compute", "nodes", "cpu").out
    assert shunter("compute", "update", "cpu", "--max-nodes", "8", "--json").json["config"]["max_nodes"] == 8
    said = shunter("compute", "create", "cpu", "--kind", "cluster", "--vm-size", "Standard_A1_v2")
    assert said.status == 2
    assert "There is a compute target 'cpu' already, with other settings." in said.err
    assert shunter("compute", "delete", "cpu").status == 0
    assert "cpu" not in shunter("compute", "list").out.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--vm-size Standard_D2_v2 --min-nodes 3 --max-nodes 2", "min_nodes (3) is more than max_nodes (2)"),
        ("--vm-size Standard_D2_v2 --min-nodes 2", "min_nodes (2) is more than max_nodes (1)"),
        ("--vm-size Standard_D2v2", "Did you mean 'Standard_D2_v2'"),
        ("--max-nodes 2", "vm_size is needed"),
        ("--vm-size Standard_D2_v2 --max-nodes 0", "max_nodes"),
        ("--vm-size Standard_D2_v2 --machines a", "machines are for --pool ssh"),
    ],
)
def test_what_cannot_be_is_refused_in_words(shunter: Shunter, words: str, expected: str) -> None:
    said = shunter("compute", "create", "x", "--kind", "cluster", *words.split())
    assert said.status == 2
    assert expected in " ".join(said.err.split())


def test_sizes_are_found_by_name_region_cores_memory_and_price(shunter: Shunter) -> None:
    assert "Standard_D2_v2" in shunter("compute", "sizes", "sTANDARD_d2_V2").out
    words = "--region eastus --cpus 4 --memory 16 --price 0.5 --limit 7 --json"
    found = shunter("compute", "sizes", *words.split()).json
    assert len(found) == 7
    prices = [one["usd_per_hour"] for one in found]
    assert prices == sorted(prices)
    assert all(0 < p <= 0.5 and s["cpus"] >= 4 and s["memory_gib"] >= 16 for p, s in zip(prices, found, strict=True))


def test_sizes_are_found_by_the_gpu(shunter: Shunter) -> None:
    words = "--gpu a100 --gpu-memory 80 --gpus 4 --json"
    found = shunter("compute", "sizes", *words.split()).json
    assert found
    assert all("A100" in s["gpu_model"] and s["gpu_memory_gib"] >= 80 and s["gpus"] >= 4 for s in found)
    said = shunter("compute", "sizes", "--cpus", "100000")
    assert said.status == 0
    assert "No size fits." in said.out + said.err


def test_sizes_of_ones_own_are_listed_and_taken(shunter: Shunter, module_home: Path) -> None:
    (module_home / "sizes.csv").write_text("name,cpus,memory_gib,prices\nrack-7,3,5,cellar=0.5\n")
    try:
        assert [s["name"] for s in shunter("compute", "sizes", "--cloud", "own", "--json").json] == ["rack-7"]
        said = shunter("compute", "create", "own", "--kind", "cluster", "--vm-size", "RACK-7", "--json")
        assert (said.json["facts"]["cpus"], said.json["facts"]["memory_bytes"]) == (3, 5 << 30)
        assert shunter("compute", "delete", "own").status == 0
    finally:
        (module_home / "sizes.csv").unlink()
