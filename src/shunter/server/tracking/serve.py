"""MLflow's own server in its lightest form: its Flask application in one process, without the libraries it can do without.

Started by `process.py` as `python serve.py FD ROOT`: FD is the listening socket, standard input a pipe whose end says
that our server is gone; the database is named by SHUNTER_MLFLOW_DATABASE.
Measured: 2.5 s and 144 MB, against 7 s and 540 MB for `mlflow server --workers 1`.
"""

from __future__ import annotations

import os
import sys
import threading

#: Not needed by the tracking store, the registry and the UI; half of the start and of the memory.
HEAVY = ("pandas", "numpy", "scipy", "pyarrow", "sklearn", "matplotlib", "torch", "tensorflow", "skops")
ARTIFACT_ROOT = "mlflow-artifacts:/mlflow/artifacts"


def main() -> None:
    fd, root = int(sys.argv[1]), sys.argv[2]
    database = os.environ.pop("SHUNTER_MLFLOW_DATABASE")
    threading.Thread(target=_end_with_our_server, daemon=True).start()
    for name in HEAVY:
        sys.modules[name] = None  # type: ignore[assignment]
    # Private names of MLflow: tests hold them.
    os.environ.update({
        "_MLFLOW_SERVER_FILE_STORE": database, "_MLFLOW_SERVER_REGISTRY_STORE": database,
        "_MLFLOW_SERVER_ARTIFACT_ROOT": ARTIFACT_ROOT, "_MLFLOW_SERVER_ARTIFACT_DESTINATION": root,
        "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true",
    })  # fmt: skip
    from mlflow.server import app
    from mlflow.server.handlers import _get_model_registry_store, _get_tracking_store
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        def log(self, *args: object, **kwargs: object) -> None:
            pass

    _bring_up_to_date(database)
    _get_tracking_store(database)  # makes the tables of a new database
    _get_model_registry_store(database)
    server = make_server("unix://mlflow", 0, app, threaded=True, request_handler=Handler, fd=fd)
    print("ready", flush=True)
    server.serve_forever()


def _bring_up_to_date(database: str) -> None:
    """An older release's tables are migrated. A newer release's are refused by MLflow itself, in words."""
    import importlib

    import sqlalchemy as sa

    if database.startswith("sqlite:///") and not os.path.exists(database[10:]):
        return
    utils = importlib.import_module("mlflow.store.db.utils")
    engine = utils.create_sqlalchemy_engine(database)
    try:
        if sa.inspect(engine).has_table("alembic_version"):
            try:
                utils._verify_schema(engine)
            except Exception:
                utils._upgrade_db(engine)
    finally:
        engine.dispose()


def _end_with_our_server() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
