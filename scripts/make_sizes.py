"""Make src/shunter/catalogue/sizes.csv.gz from a folder with the three source tables.

    python scripts/make_sizes.py FOLDER

FOLDER holds azure-vm-prices.csv and aws-gcp-vm-prices.csv (from skypilot-org/skypilot-catalog, commit
f2624ac056eee0df80c03f2e757c5d9dbf4623ed: facts of the clouds' public price lists) and azure-vm-specs.csv (parsed from
MicrosoftDocs/azure-compute-docs, commit 8e5a07752c8bbe05fe915aa37bcecffe909edcca, CC-BY-4.0). One line for each size;
prices are `region=dollars an hour/spot dollars an hour`, spot left out where the source has no offer of its own.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections import defaultdict
from pathlib import Path

COLUMNS = ["cloud", "name", "category", "series", "cpus", "memory_gib", "gpus", "gpu_model", "gpu_memory_gib", "prices"]
TARGET = Path(__file__).parent.parent / "src/shunter/catalogue/sizes.csv.gz"


def main(folder: Path) -> None:
    sizes: dict[tuple[str, str], dict[str, str]] = {}
    prices: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in _read(folder / "azure-vm-specs.csv"):
        count = _number(row["gpu_count"])
        memory = _number(row["gpu_mem_total_gb"])
        sizes["azure", row["size"]] = {
            "category": row["category"], "series": row["series"], "cpus": row["vcpu"], "memory_gib": row["mem_gib"],
            "gpus": row["gpu_count"], "gpu_model": row["gpu_model_doc"],
            "gpu_memory_gib": f"{memory / max(count, 1):g}" if memory else "",
        }  # fmt: skip
    for row in _read(folder / "azure-vm-prices.csv"):
        key = ("azure", row["size"])
        old = sizes.get(key, {})
        sizes[key] = {
            "category": row["category"], "series": row["series"], "cpus": row["vcpu"], "memory_gib": row["mem_gib"],
            "gpus": row["gpu_count"] or old.get("gpus", ""), "gpu_model": row["gpu_model"] or old.get("gpu_model", ""),
            "gpu_memory_gib": row["gpu_mem_gb"] or old.get("gpu_memory_gib", ""),
        }  # fmt: skip
        prices[key].append(_price(row, spot=row["low_priority_suspect"] != "1"))
    for row in _read(folder / "aws-gcp-vm-prices.csv"):
        key = (row["cloud"], row["size"])
        sizes[key] = {
            "category": "", "series": row["size"].split("." if row["cloud"] == "aws" else "-")[0], "cpus": row["vcpu"],
            "memory_gib": row["mem_gib"], "gpus": row["gpu_count"], "gpu_model": row["gpu_model"], "gpu_memory_gib": "",
        }  # fmt: skip
        prices[key].append(_price(row, spot=row["spot_usd_per_hour"] != row["usd_per_hour"]))
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for cloud, name in sorted(sizes, key=lambda k: (k[0] != "azure", k)):
        writer.writerow(
            {"cloud": cloud, "name": name, **sizes[cloud, name], "prices": ";".join(sorted(prices[cloud, name]))}
        )
    TARGET.write_bytes(gzip.compress(text.getvalue().encode(), 9, mtime=0))
    print(f"{len(sizes)} sizes, {TARGET.stat().st_size} bytes: {TARGET.name}")


def _price(row: dict[str, str], spot: bool) -> str:
    price = f"{row['region']}={float(row['usd_per_hour']):g}"
    return price + (f"/{float(row['spot_usd_per_hour']):g}" if spot and row["spot_usd_per_hour"] else "")


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _number(text: str) -> float:
    return float(text) if text else 0.0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
