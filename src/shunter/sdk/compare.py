"""What differs between runs, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shunter.sdk.metrics import number, readable

if TYPE_CHECKING:
    from shunter.sdk.run import Run


def compare(runs: Sequence[Run]) -> dict[str, Any]:
    """Compare runs with the first of them: `sections` of rows (name, a value for each run), and `code` as diffs."""
    client = runs[0].workspace.client
    found: dict[str, Any] = readable(client.post("/api/v1/compare", {"runs": [run.id for run in runs]}))
    return found


def shown(value: Any, width: int = 40) -> str:
    """A value for a table's cell."""
    if value is None:
        return "–"
    if value is True:
        return "yes"
    if isinstance(value, float):
        return number(value)
    text = str(value)
    return text if len(text) <= width else text[: width - 1] + "…"
