"""The command line: one file for each noun, each command a few lines over the SDK.

`shunter submit` has to start quickly, so only the module of the noun that is called is imported, and Rich, HTTP and the
snapshot code only where they are used.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

#: Exit statuses. 1 and 3 are a run's; what could not be done at all is 2.
COMPLETED, FAILED, REFUSED, CANCELED, INTERRUPTED = 0, 1, 2, 3, 130

#: Noun → module. A module holds either `app` (commands of its own) or a `command`.
NOUNS = {
    "submit": "shunter.cli.submit",
    "run": "shunter.cli.run",
    "compute": "shunter.cli.compute",
    "experiment": "shunter.cli.experiment",
    "snapshot": "shunter.cli.snapshot",
    "server": "shunter.cli.server",
    "env": "shunter.cli.env",
    "secret": "shunter.cli.secret",
    "model": "shunter.cli.model",
    "gc": "shunter.cli.gc",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit status. Errors are told in words, SHUNTER_DEBUG=1 shows where they arose."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        status = _call(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`| head`). Python must not try to flush again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = COMPLETED
    except Exception as error:
        if os.environ.get("SHUNTER_DEBUG"):
            raise
        from shunter.cli.refusals import tell

        status = tell(error, given)
    return status


def build(nouns: list[str]) -> typer.Typer:
    """The application with these nouns; the help and the reference want all of them."""
    import importlib
    import importlib.util

    import typer

    app = typer.Typer(
        name="shunter",
        help="One training script, any compute.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        version: bool = typer.Option(
            False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
        ),
    ) -> None:
        pass

    for noun in nouns:
        if importlib.util.find_spec(NOUNS[noun]) is None:
            continue
        module = importlib.import_module(NOUNS[noun])
        if hasattr(module, "app"):
            app.add_typer(module.app, name=noun)
        else:
            app.command(noun, cls=getattr(module, "Command", None))(module.command)
    return app


def _call(arguments: list[str]) -> int:
    noun = arguments[0] if arguments else ""
    completing = any(name.startswith("_SHUNTER_COMPLETE") for name in os.environ)
    if noun == "submit" and not completing:
        from shunter.cli.submit_words import read

        words = read(arguments[1:])
        if words is not None:
            from shunter.cli.submitting import submit

            return submit(**words)
    app = build([noun] if noun in NOUNS and not completing else list(NOUNS))
    found = app(arguments, prog_name="shunter", standalone_mode=False)
    return found if isinstance(found, int) else COMPLETED


def _print_version(wanted: bool) -> Any:
    if wanted:
        import typer

        from shunter import __version__

        print(__version__)
        raise typer.Exit
