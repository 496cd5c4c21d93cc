"""Why does it wait, and can it ever start? Answered with data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shunter.model.run import OWNER, Launch, Run, Status
from shunter.server.dispatch.place import Pool, fits


@dataclass(frozen=True, slots=True)
class Why:
    """The answer to `run why`: the reasons, most telling first; whether it can ever start; what would make it."""

    status: Status
    since: float
    owner: str
    deadline_at: float | None
    reasons: tuple[str, ...]
    can_start: bool
    would_help: tuple[str, ...] = ()


def explain(
    run: Run, launches: Sequence[Launch], pool: Pool | None, ahead: int, target_problem: str, now: float
) -> Why:
    reasons: list[str] = []
    helps: list[str] = []
    can_start = True
    if run.status == Status.QUEUED:
        if target_problem:
            reasons.append(target_problem)
            helps.append(f"`shunter compute probe {run.target}` tries the target again.")
        if pool is not None:
            fit = fits(pool.capacity, slots=run.slots, node_count=run.node_count,
                       gpus=int(run.config.get("gpus") or 0), memory_bytes=int(run.config.get("memory_bytes") or 0))  # fmt: skip
            if not fit.possible:
                can_start = False
                reasons.append(f"It can never start on {run.target}: {fit.why}.")
                helps.append(f"Submit it again with {fit.nearest}.")
            elif ahead:
                reasons.append(f"{ahead} run{'s' if ahead > 1 else ''} wait{'' if ahead > 1 else 's'} before it on {run.target}.")
            wanted = int(run.config.get("gpus") or 0) * run.node_count
            free_gpus = pool.capacity.gpus * pool.capacity.nodes - pool.gpus_in_use
            if can_start and wanted > free_gpus:
                reasons.append(f"It needs {wanted} GPUs of {run.target}, and {max(free_gpus, 0)} are free.")
            if can_start and pool.in_use:
                holders = ", ".join(f"{rid[:8]} ({n})" for rid, n in pool.in_use[:6])
                reasons.append(
                    f"{run.target} has {pool.total} slots and {max(pool.free, 0)} of them are free; "
                    f"it needs {run.slots * run.node_count}. In use by {holders}{' …' if len(pool.in_use) > 6 else ''}."
                )
                helps.append("It starts when one of these ends; `shunter run cancel` ends one.")
        if pool is not None and pool.capacity.why:
            reasons.append(pool.capacity.why)
        if run.reason and run.attempt:
            reasons.append(run.reason)
        if not reasons:
            reasons.append("It is about to be started.")
    else:
        reasons.append(run.reason)
        if run.error and run.error.hint:
            helps.append(run.error.hint)
    if run.deadline_at is not None and not run.is_over:
        reasons.append(f"If it is still {run.status} in {max(0, run.deadline_at - now):.0f} s, it is looked into.")
    old = [m for m in launches if m.attempt < run.attempt]
    for lost in old:
        reasons.append(f"Attempt {lost.attempt}: {lost.evidence or (lost.outcome.message if lost.outcome else 'over')}")
    return Why(run.status, run.since, OWNER[run.status], run.deadline_at, tuple(reasons), can_start, tuple(helps))
