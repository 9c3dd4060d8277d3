"""How far a metric may move when another configuration recomputes it: the table, and what two configurations differ in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fa_registry.records import Check, Scalar

SAME_MACHINE = ("threads", "device", "torch", "processor")
CONFIGURATION = ("instruction_set", "math_library", "fingerprint")  # an older run recorded none of them
CANNOT_TELL = "cannot tell here"  # begins the detail of a check that another configuration keeps from a conclusion
LONGEST = 100  # characters of a recorded setting that a message repeats


@dataclass(frozen=True)
class Tolerance:
    """The largest deviation that another configuration explains: |a − b| ≤ max(relative · max(|a|, |b|), absolute).

    gross: the deviation, measured in the same way, from which on no configuration explains it and the run's files are changed.
    """

    relative: float = 1e-6
    absolute: float = 0.0
    gross: float = 0.1

    def allows(self, before: float, after: float) -> bool:
        """Whether the deviation is within the tolerance."""
        return abs(before - after) <= max(self.relative * max(abs(before), abs(after)), self.absolute)

    def is_gross(self, before: float, after: float) -> bool:
        """Whether no configuration explains the deviation."""
        size = 1.0 if self.absolute else max(abs(before), abs(after))
        return abs(before - after) > self.gross * size


# By the beginning of the metric's name, the first that fits.
TOLERANCES: dict[str, Tolerance] = {}
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
    """Whether the check ended so."""
    return check.outcome == "not possible" and check.detail.startswith(CANNOT_TELL)
