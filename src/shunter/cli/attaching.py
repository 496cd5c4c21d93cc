"""An attach as a person sees it: each check with its verdict as it is made, and what is asked when it stops."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from shunter.cli.screen import clean, is_interactive, paint
from shunter.errors import AlreadyExists, HostKeyUnknown

if TYPE_CHECKING:
    from shunter.sdk.compute import Compute
    from shunter.sdk.workspace import Workspace

_SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


def attach(
    ws: Workspace, name: str, kind: str, tags: Mapping[str, str], config: dict[str, Any], *, quiet: bool = False
) -> Compute:
    """Create or attach a target. On a terminal a new host key and other settings than before are asked about."""
    say = None if quiet else show_step
    may_ask = not quiet and is_interactive()
    try:
        return ws.compute.create(name, kind, tags=tags, on_step=say, **config)
    except HostKeyUnknown as error:
        shown = re.search(r"SHA256:[A-Za-z0-9+/]+", error.message)
        if not may_ask or shown is None or not typer.confirm(f"Is {shown[0]} its key, and do you trust it?"):
            raise
        return ws.compute.create(name, kind, tags=tags, on_step=say, **config, host_key_fingerprint=shown[0])
    except AlreadyExists:
        if not may_ask or not typer.confirm(f"{name} is there with other settings. Change them to these?"):
            raise
        return ws.compute.get(name).update(**config)


def show_step(step: Mapping[str, Any]) -> None:
    """One line of the check list: `✓ login  Logged in to vm1.example.`"""
    if "check" not in step:
        return
    sign, color = _SIGNS.get(str(step.get("verdict")), ("·", "cyan"))
    print(f"{paint(sign, color)} {clean(step['check']):<12} {clean(step.get('message', ''))}", flush=True)
    if step.get("hint") and step.get("verdict") == "warning":
        print(f"  {'':<12} {clean(step['hint'])}", flush=True)
