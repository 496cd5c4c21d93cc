"""Errors of the advisor.

AdvisorError
├── BadMeasurement      a value that no measurement can have: zero, negative, not a number
├── MixedUnits          measurements that are not in the same unit, or not on the same scale
├── TooFewProbes        nothing that finished, so there is nothing to learn from
├── UnknownFact         a machine or GPU whose data sheet we do not have
└── MissingLibrary      an optional library that an extra brings
"""

from __future__ import annotations


class AdvisorError(ValueError):
    """The advisor cannot answer."""

    code = "advisor_error"

    def __init__(self, message: str | None = None, *, hint: str = "") -> None:
        super().__init__(message or type(self).__doc__ or "")
        self.hint = hint


class BadMeasurement(AdvisorError):
    """A measured value is impossible."""

    code = "bad_measurement"


class MixedUnits(AdvisorError):
    """Measurements with different units were given together."""

    code = "mixed_units"


class TooFewProbes(AdvisorError):
    """No probe ended well, so there is nothing to predict from."""

    code = "too_few_probes"


class UnknownFact(AdvisorError):
    """A machine or GPU is not in the catalog."""

    code = "unknown_fact"


class MissingLibrary(AdvisorError):
    """An optional library is missing."""

    code = "missing_library"
