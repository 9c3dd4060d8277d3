"""Tolerances for metrics that are recomputed with another configuration.

A configuration consists of the machine (processor, device, threads) and the numerical libraries.
"""

from __future__ import annotations

from dataclasses import dataclass

SAFETY = 10.0  # factor on the largest deviation of docs/measured/configurations.json
GROSS_SHARE = 0.1  # no configuration deviates by more than this share of the metric's own size
GROSS, MOST_GROSS = 1000.0, 0.1  # for values near zero: factor on the absolute tolerance, and upper limit of the result


@dataclass(frozen=True)
class Tolerance:
    """Largest deviation that a change of the machine or its libraries can explain.

    The deviation between two values a and b may be at most max(relative · max(|a|, |b|), absolute).
    """

    relative: float = 1e-6
    absolute: float = 0.0

    def allowed(self, logged: float, recomputed: float) -> float:
        """Return the largest allowed deviation between two values."""
        return max(self.relative * max(abs(logged), abs(recomputed)), self.absolute)

    def allows(self, logged: float, recomputed: float) -> bool:
        return abs(logged - recomputed) <= self.allowed(logged, recomputed)

    def is_gross(self, logged: float, recomputed: float) -> bool:
        """Return whether no change of the machine explains the deviation: the run's files were changed."""
        near_zero = min(GROSS * self.absolute, MOST_GROSS)
        return abs(logged - recomputed) > max(GROSS_SHARE * max(abs(logged), abs(recomputed)), near_zero)


# Prefix of a metric's name → its tolerance; the first matching prefix is used. Each tolerance is SAFETY times the
# deviation in docs/measured/configurations.json, and at least that of earlier releases. Cosines and distances may be
# zero, so their tolerance is absolute. A norm may be 1e-9, so its tolerance is relative. The small absolute tolerance of
# a gradient norm is the float32 rounding error of a sample that is already fitted.
COUNT = Tolerance()
TOLERANCES: dict[str, Tolerance] = {
    "gamma_samples": COUNT,
    "rho_defined": COUNT,
    "gamma_null_p": Tolerance(absolute=0.05),  # one rank among 20, the smallest number of draws
    "gamma_null": Tolerance(absolute=1e-4),
    "gamma_block_input": Tolerance(absolute=2e-3),
    "gamma": Tolerance(absolute=2e-6),
    "fidelity": Tolerance(absolute=5e-4),
    "costate_cosine": Tolerance(absolute=1e-6),
    "rho": Tolerance(absolute=3e-4),
    "stability": Tolerance(absolute=1e-4),
    "nudge": Tolerance(absolute=1e-6),
    "feature_drift": Tolerance(absolute=5e-6),
    "g_norm_mean_ce": Tolerance(relative=5e-3, absolute=2e-8),
    "g_norm": Tolerance(relative=5e-3, absolute=2e-6),
    "g_L": Tolerance(relative=5e-3, absolute=2e-6),
    "gain": Tolerance(relative=1e-2),
    "norm_ratio": Tolerance(relative=1e-5),
    "growth": Tolerance(relative=5e-6),
    "growth_init": Tolerance(relative=5e-6),
    "h_": Tolerance(relative=2e-6),
    "reference_check": Tolerance(relative=1e-2, absolute=1e-3),  # values below the check's limit are rounding errors
}
DEFAULT = Tolerance()


def tolerance_of(name: str) -> Tolerance:
    """Return the tolerance of a metric, selected by the prefix of its name."""
    return next((tolerance for start, tolerance in TOLERANCES.items() if name.startswith(start)), DEFAULT)
