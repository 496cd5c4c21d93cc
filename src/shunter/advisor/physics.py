"""The physics of a run on a cluster: which power laws its time is made of, and what is believed of them beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shunter.advisor.features import Columns
from shunter.advisor.posynomial import Posynomial, Term
from shunter.advisor.residual import ResidualPrior
from shunter.advisor.values import Array


@dataclass(frozen=True)
class TimePrior:
    """What other workloads taught about run times; log shares are against the parallel part at the centre.

    `coordinators` are the nodes that only coordinate: the models with each number are averaged by their evidence.
    """

    parallel_sd: float = 1.0
    load: float = -0.5
    load_sd: float = 1.2
    serial: float = -1.0
    serial_sd: float = 1.2
    data_serial: float = -1.75
    data_serial_sd: float = 1.5
    talk: float = -4.0
    talk_sd: float = 1.0
    spill: float = -3.0
    spill_sd: float = 2.5
    spill_power: float = 18.0
    spill_parameter: float = 0.3
    spill_parameter_sd: float = 2.0
    spill_power_sd: float = 2.5
    parameter_sd: float = 0.4
    data_sd: float = 0.3
    nodes_sd: float = 0.1
    machine_sd: float = 0.25
    level_sd: float = 1.0
    outlier_freedom: float = 2.0
    coordinators: tuple[float, ...] = (0.0, 0.5, 1.0)
    residual: ResidualPrior = field(default_factory=ResidualPrior)


def run_time_physics(columns: Columns, z: Array, level: float, prior: TimePrior) -> Posynomial:
    """The sum for these columns; `z` are the log features of all points, `level` a typical log time.

    Where there is a data size, the last term is the one for data that does not fit in memory.
    """
    width = len(columns.names)
    data = 1 if columns.has_data else None
    parameters = range(columns.first_parameter, width)

    def term(
        share: float,
        sd: float,
        nodes: float,
        size: float,
        of: float | None = None,
        sds: tuple[float, float] = (0, 0),
        of_sd: float = prior.parameter_sd,
    ) -> Term:
        exponents, spreads = np.zeros(width), np.zeros(width)
        exponents[0], spreads[0] = nodes, sds[0]
        if data is not None:
            exponents[data], spreads[data] = size, sds[1]
        if of is not None:
            for j in parameters:
                exponents[j], spreads[j] = of, of_sd
        return Term(level + share, sd, list(exponents), list(spreads))

    depends = 0.0 if parameters else None
    terms = [term(0.0, prior.parallel_sd, -1, 1, depends, (prior.nodes_sd, prior.data_sd))]
    if parameters:
        terms.append(term(prior.load, prior.load_sd, -1, 1))
    terms.append(term(prior.serial, prior.serial_sd, 0, 0))
    terms.append(term(prior.talk, prior.talk_sd, 1, 0))
    if data is not None:
        terms.append(term(prior.data_serial, prior.data_serial_sd, 0, 1, depends))
        heaviest = float((z[:, data] - z[:, 0]).max())
        share = prior.spill - prior.spill_power * heaviest
        spill_of = prior.spill_parameter if parameters else None
        power, loose = prior.spill_power, prior.spill_power_sd
        terms.append(term(share, prior.spill_sd, -power, power, spill_of, (loose, loose), prior.spill_parameter_sd))
    return Posynomial(terms)
