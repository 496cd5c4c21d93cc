"""`azureml.widgets`: a run, live in a notebook."""

from __future__ import annotations

import threading
from html import escape
from typing import TYPE_CHECKING, Any

from shunter.errors import ShunterError

if TYPE_CHECKING:
    from shunter.azureml.core.run import Run

__all__ = ["RunDetails"]
_LOG_BYTES = 3000
_LOOK_SECONDS = 1.0


class RunDetails:
    """`RunDetails(run).show()`: status, metrics and the end of the log, looked at again until the run is over."""

    def __init__(self, run_instance: Run) -> None:
        self.run = run_instance
        self._over = threading.Event()

    def show(self, render_lib: Any = None, widget_settings: Any = None) -> None:
        if not _in_notebook():
            print(f"{self.run.id}: {self.run.get_status()}\n{self.run.get_portal_url()}")
            return
        from IPython.display import HTML, display  # type: ignore[import-not-found,unused-ignore]

        handle = display(HTML(page(self.get_widget_data())), display_id=True)  # type: ignore[no-untyped-call,unused-ignore]
        threading.Thread(target=self._follow, args=(handle, HTML), daemon=True).start()

    def get_widget_data(self, widget_settings: Any = None) -> dict[str, Any]:
        """What is shown."""
        run = self.run
        details = run.get_details()
        return {
            "status": details["status"], "run_id": run.id, "web_view": run.get_portal_url(), "details": details,
            "run_metrics": run.get_metrics(), "run_logs": run._ours.logs()[-_LOG_BYTES:],
        }  # fmt: skip

    def _follow(self, handle: Any, html: Any) -> None:
        while True:
            over = self.run._ours.is_over
            try:
                handle.update(html(page(self.get_widget_data())))
            except ShunterError:
                pass  # the server is away; the next look may find it again
            if over:
                self._over.set()
                return
            self._over.wait(_LOOK_SECONDS)


def page(data: dict[str, Any]) -> str:
    """The widget as HTML. Pure."""
    details = data["details"]
    rows = {
        "Run": data["run_id"], "Status": data["status"], "Target": details["target"],
        "Started": details.get("startTimeUtc", ""), "Ended": details.get("endTimeUtc", ""),
    }  # fmt: skip
    for name, value in data["run_metrics"].items():
        shown = value[-1] if isinstance(value, list) and value else value
        more = f" ({len(value)} values)" if isinstance(value, list) else ""
        rows[name] = f"{shown}{more}"[:200]
    cells = "".join(f"<tr><th style='text-align:left'>{escape(k)}</th><td>{escape(str(v))}</td></tr>" for k, v in rows.items())
    return f"<table>{cells}</table><pre style='max-height:20em;overflow:auto'>{escape(data['run_logs'])}</pre>"


def _in_notebook() -> bool:
    try:
        from IPython import get_ipython  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return False
    return hasattr(get_ipython(), "kernel")  # type: ignore[no-untyped-call,unused-ignore]
