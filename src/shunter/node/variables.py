"""The environment variables that a script finds: the node's own, its environment's, the run's, in this order."""

from __future__ import annotations

import json
import os

from shunter.node.relay import relay_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

_OF_THE_RUN = ("run_id", "attempt", "node_index", "node_count", "experiment", "workspace", "run_name", "snapshot_id")


def variables(job, folder, inherit, prepared, tracking, given):
    # type: (Dict[str, Any], str, bool, Dict[str, str], Dict[str, str], Dict[str, str]) -> Dict[str, str]
    """`prepared` comes from the environment, `tracking` from the relay, `given` are the run's inputs and secrets."""
    hidden = ("SHUNTER_", *(job.get("scrub_env") or ()))
    env = {k: v for k, v in os.environ.items() if not k.startswith(hidden)} if inherit else {}
    env.update(job.get("base_env") or {})
    env.update(prepared)
    env.update(tracking)
    env.update(job.get("env") or {})
    if tracking:
        past_proxies(env)
    client = os.path.join(os.path.dirname(os.path.abspath(__file__)), "client")
    env["PYTHONPATH"] = client + (os.pathsep + env["PYTHONPATH"] if env.get("PYTHONPATH") else "")
    for name in _OF_THE_RUN:
        if job.get(name) is not None:
            env["SHUNTER_" + name.upper()] = str(job[name])
    env["SHUNTER_LAUNCH_ID"] = job["id"]
    env["SHUNTER_SPOOL"] = folder
    env["SHUNTER_OUTPUT_DIR"] = os.path.join(folder, "work", "outputs")
    env["SHUNTER_CHECKPOINT_DIR"] = os.path.join(folder, "checkpoints")
    env["SHUNTER_RELAY"] = relay_address(folder)
    env["SHUNTER_RUN_TOKEN"] = job["home"]["token"]
    if job.get("tags"):
        env["SHUNTER_TAGS"] = json.dumps(job["tags"])
    env.update(given)
    return env


def past_proxies(env):
    # type: (Dict[str, str]) -> None
    """The relay is on the loopback: no proxy leads there. (Knowing so also saves MLflow's client a tenth of each call.)"""
    for name in [n for n in ("no_proxy", "NO_PROXY") if env.get(n)] or ["NO_PROXY"]:
        known = [one.strip() for one in env.get(name, "").split(",") if one.strip()]
        if "*" not in known and "127.0.0.1" not in known:
            env[name] = ",".join([*known, "127.0.0.1"])
