"""Do logged and recomputed figures agree?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from fa_registry.records import Check, FigureDifference, Integrity, Measurements, Reading

TOLERANCE = 1e-6  # where one of SAME_MACHINE differs; otherwise figures must be bit-equal
SAME_MACHINE = ("threads", "device", "torch", "processor")
# Elsewhere, by the beginning of the name: how far quantities of order 1 may lie apart, for they pass through zero. A norm may
# be 1e-9 and is compared by its own size alone; trials (ρ, nudges, nulls) amplify the last bits of what they start from.
ABSOLUTE = {
    "gamma_null_p": 0.05,  # one place in a ranking among 20, the fewest that are drawn
    "gamma_null": 1e-4,
    "gamma": TOLERANCE,
    "fidelity": TOLERANCE,
    "costate_cosine": TOLERANCE,
    "rho": 1e-4,
    "stability": 1e-4,
    "nudge": TOLERANCE,
}
ONLY_IN_TRAINING = ("loss_train", "accuracy_train", "penalty", "frozen_accuracy")  # no checkpoint can give them again
FIGURES = "figures"  # subject of the check that compare makes
SHOWN = 5  # differences listed by number; the rest is counted


def compare(logged: Measurements, recomputed: Measurements) -> Integrity:
    """verified (all recomputed figures agree), mismatch (with both numbers), or unverifiable (some cannot be recomputed)."""
    differing = [name for name in SAME_MACHINE if logged.conventions.get(name) != recomputed.conventions.get(name)]
    exact = not differing
    differences, absent = [], []
    for name, site, before, after in _pairs(logged, recomputed):
        if before.value is not None and after.value is None:
            absent.append(f"{_place(name, site)}: logged {before.value!r}, cannot be recomputed: {after.reason}")
        elif not _equal(name, before, after, exact):
            differences.append(FigureDifference(name, site, before, after))
    how = "bit-equal" if exact else f"to {TOLERANCE:g} ({', '.join(differing)} not the run's)"
    if differences:
        mismatch = _integrity("mismatch", difference_words(differences))
        return dataclasses.replace(mismatch, differences=tuple(differences))
    if absent:
        return _integrity("unverifiable", _shortened(absent))
    return _integrity("verified", [f"every recomputed figure agrees, {how}"])


def difference_words(differences: Sequence[FigureDifference]) -> list[str]:
    """`gain[2]: logged 0.5, recomputed 0.7`: a line each for the first SHOWN, and how many there are."""
    return _shortened(
        [
            f"{_place(difference.quantity, difference.site)}: "
            f"logged {_text(difference.logged)}, recomputed {_text(difference.recomputed)}"
            for difference in differences
        ]
    )


def _place(name: str, site: int | None) -> str:
    return name if site is None else f"{name}[{site}]"


def _integrity(state: str, details: list[str]) -> Integrity:
    outcome = {"mismatch": "differs", "unverifiable": "not possible", "verified": "agrees"}[state]
    return Integrity(state, tuple(details), (Check(FIGURES, outcome, "; ".join(details)),))


def with_checks(integrity: Integrity, checks: Sequence[Check]) -> Integrity:
    """The integrity after further checks: one that differs makes it a mismatch, which is told before what was found earlier."""
    differing = tuple(f"{check.subject}: {check.detail}" for check in checks if check.outcome == "differs")
    earlier = integrity.details if not differing or integrity.state == "mismatch" else ()
    state = "mismatch" if differing else integrity.state
    return Integrity(state, (*differing, *earlier), (*integrity.checks, *checks), integrity.differences)


def merged(logged: Measurements, recomputed: Measurements) -> Measurements:
    """The recomputed figures, with those that only training itself (or its owner) could give kept as logged."""
    kept = {name: logged.scalars[name] for name in ONLY_IN_TRAINING if name in logged.scalars}
    return dataclasses.replace(recomputed, scalars={**kept, **recomputed.scalars})


def _pairs(logged: Measurements, recomputed: Measurements) -> Iterator[tuple[str, int | None, Reading, Reading]]:
    """(quantity, site, logged, recomputed) of every figure that can be measured again."""
    absent = Reading(None, "not recomputed")
    for name, row in logged.sites.items():
        again = recomputed.sites.get(name, ())
        for site, reading in enumerate(row):
            yield name, site, reading, again[site] if site < len(again) else absent
    for name, reading in logged.scalars.items():
        if name not in ONLY_IN_TRAINING:
            yield name, None, reading, recomputed.scalars.get(name, absent)


def _equal(name: str, before: Reading, after: Reading, exact: bool) -> bool:
    if before.value is None or after.value is None:
        return before.value is after.value
    if exact:
        return before.value == after.value
    absolute = next((limit for start, limit in ABSOLUTE.items() if name.startswith(start)), 0.0)
    return math.isclose(before.value, after.value, rel_tol=TOLERANCE, abs_tol=absolute)


def _text(reading: Reading) -> str:
    return repr(reading.value) if reading.value is not None else f"N/A ({reading.reason})"


def _shortened(lines: list[str]) -> list[str]:
    rest = len(lines) - SHOWN
    return lines if rest <= 0 else [*lines[:SHOWN], f"and {rest} more ({len(lines)} in all)"]
