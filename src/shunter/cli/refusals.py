"""How errors are told: what happened, then what to do next. Never a traceback."""

from __future__ import annotations

import json
import sys
from typing import Any

from shunter.errors import ShunterError

REFUSED, INTERRUPTED = 2, 130


def tell(error: Exception, arguments: list[str]) -> int:
    """Print an error on stderr and, where JSON was asked for, as the one value on stdout; the exit status."""
    if type(error).__name__ == "NoArgsIsHelpError":  # a noun alone: its help is what is wanted
        print(error.format_message())  # type: ignore[attr-defined]
        return REFUSED
    wire = describe(error)
    if wire is None:
        return INTERRUPTED
    if _wants_json(arguments):
        print(json.dumps({"error": wire}))
    from shunter.cli.screen import clean_lines, paint

    lines = clean_lines(wire["message"])
    sys.stdout.flush()
    print(paint("Error:", "red", sys.stderr), lines, file=sys.stderr)
    if wire["hint"]:
        print(clean_lines(wire["hint"]), file=sys.stderr)
    return REFUSED


def describe(error: Exception) -> dict[str, str] | None:
    """An error as code, message and hint; None when the person gave up."""
    if isinstance(error, ShunterError):
        return error.to_wire()
    if isinstance(error, TimeoutError | PermissionError | FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return {"code": "io", "message": str(error), "hint": ""}
    import typer

    if isinstance(error, typer.Abort):
        return None
    # Typer brings Click under varying names; its exceptions share a base whatever the release.
    base = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")
    if isinstance(error, base):
        return {"code": "usage", "message": _sentence(error), "hint": _try_help(error)}
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return {
        "code": "unexpected",
        "message": f"Something that Shunter did not expect: {words}",
        "hint": "SHUNTER_DEBUG=1 shows where it happened; please report it.",
    }


def _sentence(error: Any) -> str:
    text = str(error.format_message()).strip()
    return text if text.endswith((".", "?", "!")) else text + "."


def _try_help(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path} --help` shows how it is used." if context is not None else ""


def _wants_json(arguments: list[str]) -> bool:
    from shunter.cli.screen import json_asked

    if json_asked():
        return True
    until = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:until]
