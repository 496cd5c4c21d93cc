"""Machine sizes by name: cores, memory, GPUs, and what an hour costs where.

The data lies in `sizes.csv.gz` and was made by `scripts/make_sizes.py`, which names its sources: skypilot-org/skypilot-catalog
(facts of public price lists) and MicrosoftDocs/azure-compute-docs (CC-BY-4.0). A person's own `sizes.csv` in SHUNTER_HOME, with
the same columns, adds sizes and replaces those of the same name.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from shunter.errors import ConfigError, NotFound, nearest

DATA = Path(__file__).parent / "sizes.csv.gz"
OWN = "sizes.csv"


@dataclass(frozen=True, slots=True)
class Price:
    usd_per_hour: float
    spot_usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Size:
    name: str
    cpus: int
    memory_gib: float
    cloud: str = ""
    category: str = ""
    series: str = ""
    gpus: float = 0.0
    gpu_model: str = ""
    gpu_memory_gib: float = 0.0
    prices: Mapping[str, Price] = field(default_factory=dict)

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib * 2**30)

    def price(self, region: str | None = None) -> Price | None:
        """In a region, or the lowest anywhere."""
        if region is not None:
            return self.prices.get(region.lower())
        return min(self.prices.values(), key=lambda p: p.usd_per_hour, default=None)

    def to_wire(self, region: str | None = None) -> dict[str, Any]:
        price = self.price(region)
        return {
            "name": self.name, "cloud": self.cloud, "category": self.category, "cpus": self.cpus,
            "memory_gib": self.memory_gib, "gpus": self.gpus, "gpu_model": self.gpu_model or None,
            "gpu_memory_gib": self.gpu_memory_gib or None,
            "usd_per_hour": price.usd_per_hour if price else None,
            "spot_usd_per_hour": price.spot_usd_per_hour if price else None,
            "regions": sorted(self.prices),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person looks for. Only what was said counts."""

    text: str | None = None
    cloud: str | None = None
    region: str | None = None
    min_cpus: int | None = None
    max_cpus: int | None = None
    min_memory_gib: float | None = None
    min_gpus: float | None = None
    gpu_model: str | None = None
    min_gpu_memory_gib: float | None = None
    max_usd_per_hour: float | None = None

    def fits(self, size: Size) -> bool:
        price = size.price(self.region)
        return (
            (self.text is None or self.text.lower() in size.name.lower())
            and (self.cloud is None or size.cloud == self.cloud.lower())
            and (self.region is None or price is not None)
            and (self.min_cpus is None or size.cpus >= self.min_cpus)
            and (self.max_cpus is None or size.cpus <= self.max_cpus)
            and (self.min_memory_gib is None or size.memory_gib >= self.min_memory_gib)
            and (self.min_gpus is None or size.gpus >= self.min_gpus)
            and (self.gpu_model is None or _plain(self.gpu_model) in _plain(size.gpu_model))
            and (self.min_gpu_memory_gib is None or size.gpu_memory_gib >= self.min_gpu_memory_gib)
            and (self.max_usd_per_hour is None or (price is not None and price.usd_per_hour <= self.max_usd_per_hour))
        )


class Catalogue:
    """All sizes known here. Names are found in any case, with or without `Standard_`."""

    def __init__(self, sizes: Iterable[Size]) -> None:
        self._by_name: dict[str, Size] = {}
        for size in sizes:
            self._by_name[size.name.lower()] = size

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Size:
        asked = name.strip().lower()
        found = self._by_name.get(asked) or self._by_name.get("standard_" + asked)
        if found is None:
            hint = nearest(asked, self._by_name)
            known = {n: s.name for n, s in self._by_name.items()}
            for lower, shown in known.items():
                hint = hint.replace(f"'{lower}'", f"'{shown}'")
            raise NotFound(
                f"There is no machine size {name!r}.", hint=f"{hint} `shunter compute sizes` lists them.".strip()
            )
        return found

    def find(self, wanted: Wanted) -> Sequence[Size]:
        """What fits, cheapest first; sizes whose price is not known come last."""
        fitting = [s for s in self._by_name.values() if wanted.fits(s)]

        def order(size: Size) -> tuple[bool, float, str]:
            price = size.price(wanted.region)
            return price is None, price.usd_per_hour if price else 0.0, size.name

        return sorted(fitting, key=order)


def load(home: Path | None = None) -> Catalogue:
    """The catalogue, with the person's own sizes over it."""
    own = home / OWN if home is not None else None
    if own is None or not own.exists():
        return _shipped()
    try:
        return Catalogue([*_shipped()._by_name.values(), *_read(own.read_text())])
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"{own} cannot be read: {error}.",
            hint="It has the columns name, cpus, memory_gib and, where known, prices.",
        ) from error


@lru_cache(maxsize=1)
def _shipped() -> Catalogue:
    return Catalogue(_read(gzip.decompress(DATA.read_bytes()).decode()))


def _read(text: str) -> list[Size]:
    found = []
    for row in csv.DictReader(io.StringIO(text)):
        if not row["cpus"] or not row["memory_gib"]:
            continue
        found.append(
            Size(
                name=row["name"], cpus=max(1, int(float(row["cpus"]))), memory_gib=float(row["memory_gib"]),
                cloud=row.get("cloud") or "own", category=row.get("category") or "", series=row.get("series") or "",
                gpus=float(row.get("gpus") or 0), gpu_model=row.get("gpu_model") or "",
                gpu_memory_gib=float(row.get("gpu_memory_gib") or 0),
                prices=_prices(row.get("prices") or "", free="cloud" not in row),
            )
        )  # fmt: skip
    return found


def _prices(text: str, free: bool) -> dict[str, Price]:
    """`free`: a price of 0 is meant. Price lists of clouds write so what they do not sell by the hour."""
    found = {}
    for part in filter(None, text.split(";")):
        region, _, price = part.partition("=")
        usual, _, spot = price.partition("/")
        if float(usual) > 0 or free:
            found[region] = Price(float(usual), float(spot) if spot else None)
    return found


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())
