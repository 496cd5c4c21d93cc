"""Writes docs/reference from the code: commands, targets, errors, SDK. What is generated cannot be out of date."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Written by scripts/docs from the code. Do not edit. -->\n\n"


def main() -> int:
    pages = {"cli.md": cli_page(), "targets.md": targets_page(), "errors.md": errors_page(), "sdk.md": sdk_page()}
    if "--check" in sys.argv:
        stale = [name for name, text in pages.items() if not _same(FOLDER / name, NOTE + text)]
        print("\n".join(f"docs/reference/{name} is out of date: run scripts/docs" for name in stale))
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (FOLDER / name).write_text(NOTE + text)
    return 0


def cli_page() -> str:
    import typer

    from shunter.cli import NOUNS, build

    out = ["# Commands", "", "    shunter submit train.py", ""]
    out += [
        "Every command takes `--json`: standard output is then one JSON value and nothing else. Exit statuses: 0 done or",
        "completed, 1 the run failed, 2 refused or wrong use, 3 the run was canceled, 130 interrupted.",
        "`shunter --install-completion` teaches your shell to complete commands, runs and targets.",
        "",
    ]
    root = typer.main.get_command(build(list(NOUNS)))
    for path, command in _leaves(root, ("shunter",)):
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
        words = " ".join([*path, "[OPTIONS]", *[_argument(p) for p in arguments]])
        out += [f"## {' '.join(path)}", "", f"    {words}", "", inspect.cleandoc(command.help or "").split("\f")[0], ""]
        rows = [(f"`{_argument(p)}`", p.help) for p in arguments] + [(f"`{_option(p)}`", p.help) for p in options]
        out += [*_table(("option", "what it does"), [(a, (b or "").replace("|", "\\|")) for a, b in rows]), ""]
    return "\n".join(out)


def targets_page() -> str:
    from shunter.cli.compute_options import option_rows
    from shunter.drivers.base import Capabilities
    from shunter.drivers.registry import DRIVERS, driver_class

    classes = {kind: driver_class(kind) for kind in sorted(DRIVERS)}
    names = list(Capabilities.__dataclass_fields__)
    out = ["# Compute targets", "", "    shunter compute kinds", "", "What each kind can do:", ""]
    rows = [(f"[{kind}](#{kind})", *["yes" if getattr(c.can, n) else "" for n in names]) for kind, c in classes.items()]
    out += [*_table(("kind", *[n.replace("_", " ") for n in names]), rows), ""]
    for kind, cls in classes.items():
        schema = cls.Config.model_json_schema()
        out += [f"## {kind}", "", str(schema.get("description", "")).strip(), ""]
        out += [*_table(("option", "value", "what it is"), [_escaped(row) for row in option_rows(schema)]), ""]
    return "\n".join(out)


def errors_page() -> str:
    from shunter import errors

    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    out = ["# Errors", "", "    try:", '        ws.submit("train.py", target="vm1")']
    out += ["    except shunter.ShunterError as error:", "        print(error.code, error.message, error.hint)", ""]
    out += ["What the server raises, the SDK raises: the same class, told by its `code`.", "", "```", tree, "```", ""]
    known = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.ShunterError)]
    rows = [(f"`{c.__name__}`", f"`{c.code}`", str(c.http_status), (c.__doc__ or "").strip()) for c in known]
    out += [*_table(("class", "code", "HTTP status", "meaning"), rows), ""]
    return "\n".join(out)


def sdk_page() -> str:
    import shunter

    out = ["# SDK", "", "    import shunter", "    ws = shunter.Workspace.from_config()"]
    out += ['    ws.submit("train.py").wait(show_output=True)', ""]
    for name in shunter._PUBLIC:
        cls = getattr(shunter, name)
        out += [f"## {name}", "", _prose(cls.__doc__), ""]
        for member, value in vars(cls).items():
            if member.startswith("_") or not _documented(value):
                continue
            out += [f"### {name}.{member}{_signature(value)}", "", _prose(_documented(value)), ""]
    return "\n".join(out)


def _leaves(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, (*path, name))
        else:
            yield (*path, name), command


def _argument(param: Any) -> str:
    name = (param.metavar or param.name.upper()).strip("[]").removesuffix("...").rstrip("]")
    name += "..." if param.nargs == -1 else ""
    return name if param.required else f"[{name}]"


def _option(param: Any) -> str:
    names = ", ".join([*param.opts, *param.secondary_opts])
    words = names if param.is_flag else f"{names} {param.metavar or 'VALUE'}"
    return words.replace("|", "\\|")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def _escaped(row: list[str]) -> tuple[str, ...]:
    option, value, words = (cell.replace("|", "\\|") for cell in row)
    return f"`{option}`", value, words


def _documented(value: Any) -> str:
    inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return (inner.__doc__ or "") if inspect.isfunction(inner) else ""


def _signature(value: Any) -> str:
    if isinstance(value, property):
        return ""
    inner = getattr(value, "__func__", value)
    names = [p.name if p.default is p.empty else f"{p.name}=…" for p in inspect.signature(inner).parameters.values()]
    return f"({', '.join(n for n in names if n not in ('self', 'cls'))})"


def _prose(text: str | None) -> str:
    """A docstring with its examples as code."""
    out = []
    for block in inspect.cleandoc(text or "").split("\n\n"):
        out.append(textwrap.indent(block, "    ") if block.lstrip().startswith(">>>") else block)
    return "\n\n".join(out)


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
