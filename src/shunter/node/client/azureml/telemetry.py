"""`azureml.telemetry`: nothing is ever sent anywhere."""


def set_diagnostics_collection(send_diagnostics=True, verbosity=20):  # type: ignore[no-untyped-def]
    """Accepted; Shunter collects nothing."""
