"""Watching a run: its log as it comes, then its outcome as an exit status."""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from shunter.cli import CANCELED, COMPLETED, FAILED, INTERRUPTED
from shunter.cli.screen import clean, clean_lines, is_interactive, is_terminal, paint, print_json, status_text
from shunter.cli.units import between, duration

if TYPE_CHECKING:
    from shunter.sdk.run import Run

EXIT_STATUS = {"Completed": COMPLETED, "Failed": FAILED, "Canceled": CANCELED}


def watch(run: Run, as_json: bool, extra: dict[str, Any] | None = None) -> int:
    """Stream the log (to stderr when JSON is asked for), say how it ended; the exit status is the run's.

    Ctrl-C asks whether to leave it running or to cancel it; where nobody can be asked it is left running.
    """
    while True:
        try:
            _stream(run, as_json)
            return _tell_outcome(run, as_json, extra)
        except KeyboardInterrupt:
            run.workspace.client.close()
            answer = _ask(run) if is_interactive() and not as_json else "leave"
        if answer == "watch":
            continue
        if answer == "cancel":
            run.cancel().wait()
            return _tell_outcome(run, as_json, extra)
        _say_how_to_go_on(run, as_json, extra)
        return INTERRUPTED


def outcome_line(run: Run) -> str:
    """How a run ended, in a sentence."""
    data = run.data
    took = between(data["started_at"], data["ended_at"])
    words = f"Run {run.id[:8]} {status_text(data['status'])}"
    if took is not None:
        words += f" {'in' if data['status'] == 'Completed' else 'after'} {duration(took)}"
    if data["status"] == "Completed":
        return words + "."
    error = run.error or {}
    return f"{words}: {clean_lines(error.get('message') or data['reason'])}"


def _stream(run: Run, as_json: bool) -> None:
    out = sys.stderr.buffer if as_json else sys.stdout.buffer
    last = b"\n"
    for chunk in run.follow(on_silence=partial(_tell_why_it_waits, run) if not as_json and is_terminal() else None):
        out.write(chunk)
        out.flush()
        last = chunk[-1:]
    run.wait()
    if last != b"\n":
        out.write(b"\n")
        out.flush()


def _tell_outcome(run: Run, as_json: bool, extra: dict[str, Any] | None) -> int:
    if as_json:
        print_json(run.data | (extra or {}))
    else:
        print(outcome_line(run))
        hint = (run.error or {}).get("hint")
        if hint:
            print(clean_lines(hint))
        print(paint(f"shunter run show {run.id[:8]} shows all about it.", "dim"))
    return EXIT_STATUS.get(run.data["status"], FAILED)


def _ask(run: Run) -> str:
    print(f"\nRun {run.id[:8]} is still {run.data['status']}.")
    try:
        while True:
            answer = input("Leave it running [l], cancel it [c], or watch on [w]? [l] ").strip().lower()
            for word in ("leave", "cancel", "watch"):
                if word.startswith(answer or "l"):
                    return word
    except (EOFError, KeyboardInterrupt):
        print()
        return "leave"


def _say_how_to_go_on(run: Run, as_json: bool, extra: dict[str, Any] | None) -> None:
    short = run.id[:8]
    words = f"Run {short} goes on: `shunter run logs -f {short}` watches it, `shunter run cancel {short}` ends it."
    if as_json:
        print_json(run.data | (extra or {}))
        print(words, file=sys.stderr)
    else:
        print(words)


def _tell_why_it_waits(run: Run) -> None:
    with contextlib.suppress(Exception):
        why = run.why()
        if why["status"] not in ("Running", "Finalizing", *EXIT_STATUS):
            print(paint(f"{why['status']}: {clean(' '.join(why['reasons']))}", "dim"), flush=True)
