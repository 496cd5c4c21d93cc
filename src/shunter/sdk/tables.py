"""Small tables for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any


def html_table(rows: Mapping[str, Any]) -> str:
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(str(k))}</th><td style="text-align:left">{escape(_text(v))}</td></tr>'
        for k, v in rows.items()
    )
    return f"<table>{cells}</table>"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return str(value)
