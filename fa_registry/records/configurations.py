"""Two configurations of machines and libraries: the settings that differ, and checks that they keep from a conclusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fa_registry.records.runs import Check, Scalar
from fa_registry.text_safety import escape_to_one_line

SAME_MACHINE = ("threads", "device", "torch", "processor")
CONFIGURATION = ("instruction_set", "math_library", "fingerprint")  # an older run recorded none of them
CANNOT_TELL = "cannot tell here"  # begins the detail of such a check, for people
# Subjects of the checks that may end so and warn.
ASKED = ("figures", "initial weights", "feedback", "first steps", "whole training")
LONGEST = 150  # characters of a recorded setting that a message repeats


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
    text = escape_to_one_line(str("nothing recorded" if value is None else value)[:LONGEST])
    return text if name in ("processor", "instruction_set", "math_library") else f"{name} {text}"


def cannot_tell(subject: str, elsewhere: str, found: str, **more: int) -> Check:
    """Return a check that cannot be concluded. elsewhere: as `described_difference` returns it; more: further fields."""
    return Check(subject, "not possible", f"{CANNOT_TELL}: {elsewhere}; {found}", elsewhere=True, **more)


def is_cannot_tell(check: Check) -> bool:
    """Whether the check is one of those that every run is asked, and another configuration kept it from a conclusion."""
    return check.subject in ASKED and check.outcome == "not possible" and check.elsewhere
