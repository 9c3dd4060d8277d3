"""How far a metric may move when another configuration recomputes it: the table, and what two configurations differ in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fa_registry.records import Check, Scalar

SAME_MACHINE = ("threads", "device", "torch", "processor")
CONFIGURATION = ("instruction_set", "math_library", "fingerprint")  # an older run recorded none of them
CANNOT_TELL = "cannot tell here"  # begins the detail of a check that another configuration keeps from a conclusion
ASKED = ("figures", "initial weights", "feedback", "first steps")  # subjects of the checks that may end so and warn
LONGEST = 100  # characters of a recorded setting that a message repeats


SAFETY = 10.0  # times the largest deviation of docs/measured/configurations.json
GROSS_SHARE = 0.1  # of a metric's own size: no configuration deviates so far
GROSS, MOST_GROSS = 1000.0, 0.1  # times the absolute tolerance, at most this: of what may be near zero


@dataclass(frozen=True)
class Tolerance:
    """The largest deviation that another configuration explains: |a − b| ≤ max(relative · max(|a|, |b|), absolute)."""

    relative: float = 1e-6
    absolute: float = 0.0

    def allows(self, before: float, after: float) -> bool:
        """Whether the deviation is within the tolerance."""
        return abs(before - after) <= max(self.relative * max(abs(before), abs(after)), self.absolute)

    def is_gross(self, before: float, after: float) -> bool:
        """Whether no configuration explains the deviation, so that the run's files are changed."""
        near_zero = min(GROSS * self.absolute, MOST_GROSS)
        return abs(before - after) > max(GROSS_SHARE * max(abs(before), abs(after)), near_zero)


# By the beginning of the metric's name, the first that fits. Source: docs/measured/configurations.json, times SAFETY, and nowhere
# less than what was allowed before it was measured. Cosines and distances pass through zero and are compared absolutely. A norm
# may be 1e-9: it is compared by its own size, and absolutely only by what float32 leaves of a gradient that is fitted away.
COUNT = Tolerance()
TOLERANCES: dict[str, Tolerance] = {
    "gamma_samples": COUNT,
    "rho_defined": COUNT,
    "gamma_null_p": Tolerance(absolute=0.05),  # one place in a ranking among 20, the fewest that are drawn
    "gamma_null": Tolerance(absolute=1e-4),
    "gamma_block_input": Tolerance(absolute=2e-3),
    "gamma": Tolerance(absolute=2e-6),
    "fidelity": Tolerance(absolute=1e-6),
    "costate_cosine": Tolerance(absolute=1e-6),
    "rho": Tolerance(absolute=1e-4),
    "stability": Tolerance(absolute=1e-4),
    "nudge": Tolerance(absolute=1e-6),
    "feature_drift": Tolerance(absolute=5e-6),
    "g_norm_mean_ce": Tolerance(relative=5e-3, absolute=2e-8),
    "g_norm": Tolerance(relative=5e-3, absolute=2e-6),
    "g_L": Tolerance(relative=5e-3, absolute=2e-6),
    "gain": Tolerance(relative=1e-2),
    "norm_ratio": Tolerance(relative=1e-5),
}
DEFAULT = Tolerance()


def tolerance_of(name: str) -> Tolerance:
    """The tolerance of a metric by the beginning of its name."""
    return next((tolerance for start, tolerance in TOLERANCES.items() if name.startswith(start)), DEFAULT)


def differing_settings(logged: Mapping[str, Scalar], here: Mapping[str, Scalar]) -> list[str]:
    """Return the settings in which two configurations differ; bits are demanded only where there are none.

    Args:
        logged: a run's conventions. An older run recorded no CONFIGURATION; only SAME_MACHINE is compared then.
        here: the conventions of this process.
    """
    names = [*SAME_MACHINE, *(name for name in CONFIGURATION if name in logged)]
    return [name for name in names if logged.get(name) != here.get(name)]


def described_difference(logged: Mapping[str, Scalar], here: Mapping[str, Scalar]) -> str:
    """Return `trained with AMD EPYC, AVX512, measured with AMD EPYC, AVX2`; empty where the configurations are one."""
    names = differing_settings(logged, here)
    named = [name for name in names if name != "fingerprint"] or names
    return f"trained with {_values(named, logged)}, measured with {_values(named, here)}" if names else ""


def _values(names: Sequence[str], conventions: Mapping[str, Scalar]) -> str:
    return "; ".join(_value(name, conventions.get(name)) for name in names)


def _value(name: str, value: Scalar | None) -> str:
    """A setting in words: a number or a digest says nothing without its name."""
    text = re.sub(r"\s+", " ", str("nothing recorded" if value is None else value))[:LONGEST]
    return text if name in ("processor", "instruction_set", "math_library") else f"{name} {text}"


def cannot_tell(elsewhere: str, found: str) -> str:
    """Return the detail of a check that cannot be concluded. elsewhere: as `described_difference` returns it."""
    return f"{CANNOT_TELL}: {elsewhere}; {found}"


def is_cannot_tell(check: Check) -> bool:
    """Whether the check is one of those that every run is asked, and another configuration kept it from a conclusion."""
    return check.subject in ASKED and check.outcome == "not possible" and check.detail.startswith(CANNOT_TELL)
