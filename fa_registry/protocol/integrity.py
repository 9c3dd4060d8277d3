"""Comparison of logged metrics with recomputed metrics, with a tolerance for other configurations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fa_registry.metrics import DECLARED, headline_of
from fa_registry.records import NOT_DUE, Check, FigureDifference, Integrity, Measurements, Reading, RunRecord
from fa_registry.records.configurations import described_difference, is_undecidable, undecidable

SAFETY = 10.0  # factor on the largest deviation of docs/measured/configurations.json
GROSS_SHARE = 0.1  # no configuration deviates by more than this share of the metric's own size
GROSS, MOST_GROSS = 1000.0, 0.1  # for values near zero: factor on the absolute tolerance, and upper limit of the result


@dataclass(frozen=True)
class Tolerance:
    """Largest deviation that a change of the configuration, i.e. machine or libraries, can explain.

    The machine includes processor, device and threads. The deviation between two values a and b may be at most max(relative ·
    max(|a|, |b|), absolute).
    """

    relative: float = 1e-6
    absolute: float = 0.0

    def allowed(self, logged: float, recomputed: float) -> float:
        """Return the largest allowed deviation between two values."""
        return max(self.relative * max(abs(logged), abs(recomputed)), self.absolute)

    def allows(self, logged: float, recomputed: float) -> bool:
        return abs(logged - recomputed) <= self.allowed(logged, recomputed)

    def is_gross(self, logged: float, recomputed: float) -> bool:
        """Return whether the deviation is too large to be explained by a change of the machine.

        Such a deviation means that the files of the run were changed.
        """
        near_zero = min(GROSS * self.absolute, MOST_GROSS)
        return abs(logged - recomputed) > max(GROSS_SHARE * max(abs(logged), abs(recomputed)), near_zero)


# Prefix of a metric's name → its tolerance; the first matching prefix is used. Each tolerance is SAFETY times the
# deviation in docs/measured/configurations.json, or larger. Cosines and distances may be zero, so their tolerance is absolute.
# A norm may be 1e-9, so its tolerance is relative. The small absolute tolerance of a gradient norm is the float32 rounding
# error of a sample that is already fitted.
COUNT = Tolerance()
SAMPLE_SCORES = "sample_scores"  # share of samples whose score is the recorded one
TOLERANCES: dict[str, Tolerance] = {
    SAMPLE_SCORES: Tolerance(absolute=1e-3),  # another machine may change a few scores
    "gamma_samples": COUNT,
    "rho_defined": COUNT,
    "gamma_null_p": Tolerance(absolute=0.05),  # one rank among 20, the smallest number of draws
    "gamma_null": Tolerance(absolute=1e-4),
    "gamma_block_input": Tolerance(absolute=2e-3),
    "gamma_deep_input": Tolerance(absolute=2e-3),
    "gamma_centred": Tolerance(absolute=2e-5),
    "gamma": Tolerance(absolute=2e-6),
    "fidelity": Tolerance(absolute=5e-4),
    "costate_cosine": Tolerance(absolute=1e-6),
    "rho": Tolerance(absolute=1e-3),  # another machine may compute other sites in float32, see diagnostics.rho
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


ONLY_IN_TRAINING = ("loss_train", "accuracy_train", "penalty", "frozen_accuracy")  # not computable from a checkpoint
FIGURES = "figures"  # subject of the check that `compare` returns
SECOND_TRAINING = "the report judges a second training of the run, which its audit made on another machine"
SHOWN = 5  # differences that are listed with both values; the others are only counted


def compare(logged: Measurements, recomputed: Measurements, is_complete: bool = False) -> Integrity:
    """Compare logged metrics with recomputed metrics.

    If the configurations are equal, the metrics must be bitwise equal. Otherwise, each metric has a tolerance. A deviation above
    the tolerance is inconclusive if different configurations can explain the deviation. A larger deviation is a mismatch. The
    state is "verified" if all recomputed metrics agree, and "mismatch" if some metrics differ; the details then contain both
    values. It is "unverifiable" if some metrics cannot be recomputed, or differ inconclusively.

    Args:
        is_complete: whether every run records all metrics of `recomputed`. A metric that `logged` lacks is then a mismatch, because
            the author of a run could remove a metric that shows its fault.
    """
    configuration_difference = described_difference(logged.conventions, recomputed.conventions)
    differences, absent = [], []
    unlogged = list(_unlogged(logged, recomputed)) if is_complete else []
    scores = _scores(logged, recomputed)
    for name, site, logged_reading, recomputed_reading in (*pairs(logged, recomputed), *scores, *unlogged):
        is_absent = logged_reading.value is not None and recomputed_reading.value is None
        if is_absent and recomputed_reading.kind != NOT_DUE:  # a value that no run measures was not measured
            absent.append(
                f"{_place(name, site)}: logged {logged_reading.value!r}, cannot be recomputed: {recomputed_reading.reason}"
            )
        elif not _equal(name, logged_reading, recomputed_reading, exact=not configuration_difference):
            differences.append(FigureDifference(name, site, logged_reading, recomputed_reading))
    if differences and (not configuration_difference or unlogged or any(map(_is_gross, differences))):
        mismatch = _integrity("mismatch", difference_text(differences))
        return dataclasses.replace(mismatch, differences=tuple(differences))
    if differences:
        differences_text = "; ".join(difference_text(differences))
        check = undecidable(FIGURES, configuration_difference, "; ".join([differences_text, *_shortened(absent)]))
        return Integrity("unverifiable", (check.detail,), (check,))
    if absent:
        return _integrity("unverifiable", _shortened(absent))
    agreement = (
        f"within the tolerances for a different configuration: {configuration_difference}"
        if configuration_difference
        else "bit-equal"
    )
    return _integrity("verified", [f"every recomputed metric agrees, {agreement}"])


def recorded_main_metric(record: RunRecord) -> Reading | None:
    """Return the main metric of the recorded weights, even if the record judges a second training."""
    own = record.measurements.scalars.get(headline_of(record.measurements).name)
    return own if record.recorded_result is None else record.recorded_result


def compare_records(first: RunRecord, second: RunRecord) -> Integrity:
    """Compare the metrics of two records of one run.

    A record may judge a second training on another machine (`RunRecord.recorded_result`). No other machine reproduces that
    training, so only the main metric of the recorded weights is compared, and the state is never "verified".
    """
    sides = [first.measurements, second.measurements]
    has_second_training = [record.recorded_result is not None for record in (first, second)]
    is_same_machine = not described_difference(*(side.conventions for side in sides))
    if not any(has_second_training) or (all(has_second_training) and is_same_machine):
        return compare(*sides)
    name = headline_of(first.measurements).name
    readings = [recorded_main_metric(record) or Reading(None, "not recorded") for record in (first, second)]
    mains = (Measurements({}, {name: reading}, side.conventions) for reading, side in zip(readings, sides, strict=True))
    found = compare(*mains)
    return found if found.state == "mismatch" else Integrity("unverifiable", (SECOND_TRAINING,))


def difference_text(differences: Sequence[FigureDifference]) -> list[str]:
    """Return one line per difference, such as `gain[2]: logged 0.5, recomputed 0.7`.

    After SHOWN lines, one line with the number of further differences follows.
    """
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
    """Add further checks to an Integrity.

    If a check failed, the state becomes "mismatch". If a check is inconclusive because the configurations differ, the state
    "verified" becomes "unverifiable". The problems of the checks come first in the details.
    """
    differing = tuple(f"{check.subject}: {check.detail}" for check in checks if check.outcome == "differs")
    undecided = tuple(f"{check.subject}: {check.detail}" for check in checks if is_undecidable(check))
    earlier = integrity.details if not differing or integrity.state == "mismatch" else ()
    state = "unverifiable" if undecided and integrity.state == "verified" else integrity.state
    state = "mismatch" if differing else state
    return Integrity(state, (*differing, *undecided, *earlier), (*integrity.checks, *checks), integrity.differences)


def with_replaced(integrity: Integrity, checks: Sequence[Check]) -> Integrity:
    """Replace the checks that have the subjects of `checks`, and add the other checks.

    A check that is as inconclusive as the one before stays, so the details contain its text once.
    """
    inconclusive = {check.subject for check in integrity.checks if is_undecidable(check)}
    added = [check for check in checks if not (is_undecidable(check) and check.subject in inconclusive)]
    subjects = {check.subject for check in added}
    others = tuple(check for check in integrity.checks if check.subject not in subjects)
    return with_checks(dataclasses.replace(integrity, checks=others), added)


def merged(logged: Measurements, recomputed: Measurements) -> Measurements:
    """Return the recomputed metrics, together with the logged metrics that exist only in training."""
    training_scalars = {name: logged.scalars[name] for name in ONLY_IN_TRAINING if name in logged.scalars}
    return dataclasses.replace(recomputed, scalars={**training_scalars, **recomputed.scalars})


def pairs(logged: Measurements, recomputed: Measurements) -> Iterator[tuple[str, int | None, Reading, Reading]]:
    """Yield (metric, site, logged, recomputed) for the metrics to compare.

    Metrics that exist only in training are excluded. The site is None for a scalar metric.
    """
    absent = Reading(None, "not recomputed")
    for name, row in logged.sites.items():
        recomputed_row = recomputed.sites.get(name, ())
        for site, reading in enumerate(row):
            yield name, site, reading, recomputed_row[site] if site < len(recomputed_row) else absent
    for name, reading in logged.scalars.items():
        if name not in ONLY_IN_TRAINING:
            yield name, None, reading, recomputed.scalars.get(name, absent)


def _scores(logged: Measurements, recomputed: Measurements) -> Iterator[tuple[str, None, Reading, Reading]]:
    """Yield the share of samples with equal scores for each metric with different scores, as `pairs` does.

    The logged share is 1 by definition.
    """
    for name, scores in recomputed.sample_scores.items():
        logged_scores = logged.sample_scores.get(name)
        if logged_scores != scores:
            share = logged_scores.agreement(scores) if logged_scores else 0.0
            yield f"{SAMPLE_SCORES} {name}", None, Reading(1.0), Reading(share)


def _unlogged(logged: Measurements, recomputed: Measurements) -> Iterator[tuple[str, int | None, Reading, Reading]]:
    """Yield the values of declared metrics that exist only in `recomputed`, as `pairs` does.

    The metrics of a third-party diagnostic are left out: it may have been installed after the training.
    """
    absent = Reading(None, "not logged")
    for name, row in recomputed.sites.items():
        first = len(logged.sites.get(name, ())) if name in DECLARED else len(row)
        yield from ((name, site, absent, row[site]) for site in range(first, len(row)) if row[site].value is not None)
    for name, reading in recomputed.scalars.items():
        is_expected = name in DECLARED and name not in ONLY_IN_TRAINING
        if is_expected and name not in logged.scalars and reading.value is not None:
            yield name, None, absent, reading


def _equal(name: str, logged: Reading, recomputed: Reading, exact: bool) -> bool:
    if logged.value is None or recomputed.value is None:
        return logged.value is recomputed.value
    if exact:
        return logged.value == recomputed.value
    return tolerance_of(name).allows(logged.value, recomputed.value)


def _is_gross(difference: FigureDifference) -> bool:
    """Return whether two values differ by more than any configuration can explain."""
    logged, recomputed = difference.logged.value, difference.recomputed.value
    return None not in (logged, recomputed) and tolerance_of(difference.quantity).is_gross(logged, recomputed)


def _text(reading: Reading) -> str:
    return repr(reading.value) if reading.value is not None else f"N/A ({reading.reason})"


def _shortened(lines: list[str]) -> list[str]:
    hidden_count = len(lines) - SHOWN
    return lines if hidden_count <= 0 else [*lines[:SHOWN], f"and {hidden_count} more ({len(lines)} in all)"]
