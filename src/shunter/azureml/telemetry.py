"""`azureml.telemetry`: nothing is ever sent anywhere, whatever is asked for."""

from __future__ import annotations


def set_diagnostics_collection(send_diagnostics: bool = True, verbosity: int = 20) -> None:
    """Accepted; Shunter collects nothing."""
