"""Level of proof of a verdict, and texts on replays and on values that were only logged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fa_registry.records import PROOF_LEVELS, Check, Integrity, ProofLevel, Replay, RunRecord
from fa_registry.records.manifest_checks import keeps_every_state

# subjects of the checks of evidence.replay and evidence.replay_from_seed
WHOLE, FIRST, KEPT = "whole training", "first steps", "kept states"
LEAST_EPOCHS = 5  # replayed at random; a run of which half of the epochs were forged passes them with probability 1/32
AS_LOGGED = "as logged; not recomputed"
STATED, STARTED, REPLAYED = PROOF_LEVELS


def proof_level(runs: Iterable[RunRecord], controls: Iterable[RunRecord] = ()) -> ProofLevel:
    """Return how far replays prove the trainings on which a verdict is based.

    The runs, and the controls of each kind, are judged separately, and the lowest level is returned. One stated run makes its kind
    `stated`. Otherwise one replayed run makes its kind `replayed`: the author could not know which run the audit would replay. A
    method without controls has the level of its runs.

    Args:
        runs: the runs of the method that count.
        controls: the controls with which these runs were compared.
    """
    levels: dict[str, list[ProofLevel]] = {}
    for record in (*runs, *controls):
        levels.setdefault(record.spec.control, []).append(_level(record))
    return lowest_level(STATED if STATED in kind else max(kind, key=PROOF_LEVELS.index) for kind in levels.values())


def lowest_level(levels: Iterable[ProofLevel]) -> ProofLevel:
    """Return the weakest level; `stated` if there is none."""
    return min(levels, key=PROOF_LEVELS.index, default=STATED)


def _level(record: RunRecord) -> ProofLevel:
    """Return the level of one run.

    A run that no command trains again is stated, even if its checks claim a replay.
    """
    is_trained_here = not record.spec.weights and not record.spec.is_tracked
    if not is_trained_here or record.integrity.state in ("trusted", "mismatch"):
        return STATED
    agreeing = {check.subject for check in record.integrity.checks if check.outcome == "agrees"}
    if WHOLE in agreeing:
        return REPLAYED
    if KEPT in agreeing and keeps_every_state(record.provenance):
        # the author knows which epochs follow a kept state, but not which of them the nonce chooses where every state was kept
        replayed = sum(check.epochs for check in record.integrity.checks if check.subject == KEPT)
        return REPLAYED if replayed >= min(LEAST_EPOCHS, record.provenance["epochs_run"] - 1) else STARTED
    return STARTED if agreeing & {FIRST, KEPT} else STATED


def replays_text(integrities: Sequence[Integrity]) -> str:
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


def nonce_text(replay: Replay | None) -> str:
    """Return a sentence that warns of a chosen nonce, or an empty text.

    The author can choose a nonce that misses a run: by typing one, or by publishing one of several audits.
    """
    if replay is None or replay.asked != "auto":
        return ""
    facts = ["the nonce was typed"] * replay.typed
    facts += [f"this is audit {replay.audits} of these runs"] * (replay.audits > 1)
    text = " and ".join(facts)
    return f"{text[0].upper()}{text[1:]}, so the author may have chosen a nonce that misses a run." if facts else ""


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
