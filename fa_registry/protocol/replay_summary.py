"""Sentences that state what an audit's replays prove, and which measurements were only logged."""

from __future__ import annotations

from collections.abc import Sequence

from fa_registry.records import Check, Integrity, RunRecord

WHOLE, FIRST = "whole training", "first steps"  # subjects of the checks of training.replay and replay_from_seed
AS_LOGGED = "as logged; not recomputed"


def proof(integrities: Sequence[Integrity]) -> str:
    """Return a text that states how many trainings of a group were replayed.

    An example is `1 of 3 seeds replayed completely; first 8 steps of all`.
    """
    first_step_checks = [
        check
        for integrity in integrities
        for check in integrity.checks
        if (check.subject, check.outcome) == (FIRST, "agrees")
    ]
    complete_count = sum(_whole(integrity) is not None for integrity in integrities)
    seeds = f"{len(integrities)} seed{'' if len(integrities) == 1 else 's'}"
    replayed = f"{complete_count or 'none'} of {seeds} replayed completely"
    if complete_count == len(integrities) and complete_count:
        return replayed
    if not first_step_checks:
        return f"{replayed}; no first steps replayed"
    share = "all" if len(first_step_checks) == len(integrities) else f"{len(first_step_checks)} of {len(integrities)}"
    steps = min(check.steps for check in first_step_checks)
    return f"{replayed}; first {f'{steps} ' if steps else ''}steps of {share}"


def series_label(integrities: Sequence[Integrity]) -> str:
    """Return a text that states which values by epoch are only logged; empty if there are none."""
    checks = [_whole(integrity) for integrity in integrities]
    if all(check is not None and check.rows > check.epochs for check in checks):
        return ""
    rows = sum(check.rows for check in checks if check)
    if not rows:
        return AS_LOGGED
    partly_recomputed = sum(bool(check and check.rows) for check in checks)
    runs = f"{partly_recomputed} of {len(checks)} runs"
    return f"{AS_LOGGED}, except the last epoch of each run and {rows} replayed epochs (in {runs})"


def series_sentence(integrities: Sequence[Integrity]) -> str:
    """Return `series_label` as a sentence for a caption; empty if the label is empty."""
    label = series_label(integrities)
    return f" Values by epoch are {label}." if label else ""


def as_logged(record: RunRecord) -> str:
    """Return `, as logged` if some values by epoch were not recomputed, or an empty string."""
    return ", as logged" if series_label([record.integrity]) else ""


def _whole(integrity: Integrity) -> Check | None:
    """Return the check of a replay of the complete training, or None if no such check agrees."""
    return next((check for check in integrity.checks if (check.subject, check.outcome) == (WHOLE, "agrees")), None)
