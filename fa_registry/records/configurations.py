"""Comparison of the machines and libraries of two measurements.

A check can be inconclusive if the audit runs on another machine or with other libraries than the training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fa_registry.records.runs import DATA_CHECK, Check, Scalar
from fa_registry.text_safety import escape_to_one_line

SAME_MACHINE = ("threads", "device", "torch", "processor")
CONFIGURATION = ("instruction_set", "math_library", "fingerprint")
UNDECIDABLE = "cannot tell here"  # start of an inconclusive check's detail
# Subjects of checks that may be inconclusive; an inconclusive check warns.
ASKED = ("figures", "initial weights", "feedback", "first steps", "whole training", DATA_CHECK)
LONGEST = 150  # characters of a recorded setting that a message shows


def differing_settings(logged: Mapping[str, Scalar], current: Mapping[str, Scalar]) -> list[str]:
    """Return the names of the settings that are not known to be equal in two configurations.

    A setting that is not recorded is unknown, so it counts as different. If no setting differs, recomputed metrics must equal
    the logged metrics in every bit.
    """
    return [name for name in (*SAME_MACHINE, *CONFIGURATION) if name not in logged or logged[name] != current.get(name)]


def described_difference(logged: Mapping[str, Scalar], current: Mapping[str, Scalar]) -> str:
    """Return how two configurations differ, or an empty text if they are equal.

    Example: `trained with AMD EPYC, AVX512, measured with AMD EPYC, AVX2`.
    """
    names = differing_settings(logged, current)
    compared = [name for name in names if name != "fingerprint"] or names
    return f"trained with {_values(compared, logged)}, measured with {_values(compared, current)}" if names else ""


def _values(names: Sequence[str], conventions: Mapping[str, Scalar]) -> str:
    return "; ".join(_value(name, conventions.get(name)) for name in names)


def _value(name: str, value: Scalar | None) -> str:
    """Return a setting as text, with its name if the value is a number or a digest."""
    text = escape_to_one_line(str("nothing recorded" if value is None else value)[:LONGEST])
    return text if name in ("processor", "instruction_set", "math_library") else f"{name} {text}"


def undecidable(subject: str, difference: str, observation: str, **counts: int) -> Check:
    """Return a Check that is inconclusive because of a `described_difference` of the configurations."""
    return Check(subject, "not possible", f"{UNDECIDABLE}: {difference}; {observation}", elsewhere=True, **counts)


def is_undecidable(check: Check) -> bool:
    """Return whether differing configurations made a mandatory check inconclusive."""
    return check.subject in ASKED and check.outcome == "not possible" and check.elsewhere
