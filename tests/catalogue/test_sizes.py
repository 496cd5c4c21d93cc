"""Machine sizes: found by any spelling, filtered, and replaced by a person's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from shunter.catalogue.sizes import Wanted, load
from shunter.errors import ConfigError, NotFound


@pytest.mark.parametrize("name", ["STANDARD_D2_V2", "standard_d2_v2", " Standard_D2_v2 ", "d2_v2"])
def test_a_name_is_found_in_any_case(name: str) -> None:
    size = load().get(name)
    assert (size.name, size.cpus, size.memory_gib, size.gpus) == ("Standard_D2_v2", 2, 7.0, 0)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(NotFound, match="Did you mean 'Standard_D2_v2'"):
        load().get("standard_d2v2")


def test_sizes_are_filtered_and_the_cheapest_comes_first() -> None:
    found = load().find(Wanted(cloud="azure", region="eastus", min_cpus=4, min_memory_gib=16, max_usd_per_hour=0.5))
    prices = [s.prices["eastus"].usd_per_hour for s in found]
    assert len(found) > 5
    assert prices == sorted(prices)
    assert all(s.cpus >= 4 and s.memory_gib >= 16 and p <= 0.5 for s, p in zip(found, prices, strict=True))


def test_gpus_are_found_by_model_and_memory() -> None:
    found = load().find(Wanted(cloud="azure", gpu_model="a100", min_gpu_memory_gib=80))
    assert found
    assert all("A100" in s.gpu_model and s.gpu_memory_gib >= 80 for s in found)
    assert load().get("Standard_ND96isr_H100_v5").gpus == 8


def test_a_persons_own_sizes_add_to_the_catalogue_and_replace(tmp_path: Path) -> None:
    (tmp_path / "sizes.csv").write_text("name,cpus,memory_gib,prices\nrack-7,64,512,cellar=0.5\nStandard_D2_v2,2,7,here=0.01\n")
    own = load(tmp_path)
    assert own.get("RACK-7").price("cellar") is not None
    price = own.get("standard_d2_v2").price()
    assert price is not None
    assert price.usd_per_hour == 0.01
    assert load().get("standard_d2_v2").price("here") is None


def test_a_size_that_is_not_sold_by_the_hour_is_not_free_but_ones_own_may_be(tmp_path: Path) -> None:
    assert [s.name for s in load().find(Wanted(max_usd_per_hour=0.0))] == []
    (tmp_path / "sizes.csv").write_text("name,cpus,memory_gib,prices\nrack-7,64,512,cellar=0\n")
    assert [s.name for s in load(tmp_path).find(Wanted(max_usd_per_hour=0.0))] == ["rack-7"]


def test_a_broken_list_of_ones_own_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "sizes.csv").write_text("name,cpus,memory_gib\nrack-7,many,512\n")
    with pytest.raises(ConfigError, match=r"sizes\.csv cannot be read"):
        load(tmp_path)
