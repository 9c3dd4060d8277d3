"""Level of proof of a verdict, and texts on replays and on values that were only logged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fa_registry.errors import pluralise
from fa_registry.records import PROOF_LEVELS, Check, Integrity, ProofLevel, Replay, RunRecord
from fa_registry.records.manifest_checks import keeps_every_state

# subjects of the checks of evidence.replay and evidence.replay_from_seed
WHOLE, FIRST, KEPT = "whole training", "first steps", "kept states"
LEAST_EPOCHS = 5  # replayed at random; a run of which half of the epochs were forged passes them with probability 1/32
AS_LOGGED = "as logged"
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

    An example is `all of it for 1 of 3 seeds, the first 8 steps for all seeds`; of one run, `the first 8 steps`.
    """
    first_step_checks = [
        check
        for integrity in integrities
        for check in integrity.checks
        if (check.subject, check.outcome) == (FIRST, "agrees")
    ]
    complete_count = sum(_whole(integrity) is not None for integrity in integrities)
    parts = [f"all of it{_share(complete_count, integrities)}"] if complete_count else []
    if first_step_checks and complete_count < len(integrities):
        steps = min(check.steps for check in first_step_checks)
        first_steps = f"the first {f'{steps} ' if steps else ''}steps"
        parts.append(f"{first_steps}{_share(len(first_step_checks), integrities)}")
    return ", ".join(parts) or "nothing"


def _share(count: int, integrities: Sequence[Integrity]) -> str:
    """Return ` for 1 of 3 seeds` or ` for all seeds`; empty if there is one run only."""
    if len(integrities) == 1:
        return ""
    return " for all seeds" if count == len(integrities) else f" for {count} of {len(integrities)} seeds"


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
    recomputed = [check.rows for check in checks if check and check.rows]
    if not recomputed:
        return AS_LOGGED
    return f"{AS_LOGGED}, except each run's last epoch and {sum(recomputed)} replayed epochs of {pluralise(len(recomputed), 'run')}"


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
