"""Types of the fields in the JSON files of a run.

A number that determines the computing time or the memory of an audit has an upper limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fa_registry.field_types import Fields, FirstError, Limits, Positive
from fa_registry.schema_number import KEY

Whole = Annotated[int, Limits(ge=-(2**63), lt=2**63)]
Wholes = Annotated[list[Whole], FirstError()]
Texts = Annotated[list[str], FirstError()]
Digests = dict[str, str]  # name of a file → SHA-256
OWN_LOOP = "own_loop"  # only in the provenance of runs from a user's own training loop
EPOCH_WEIGHTS = "epoch_weights"  # of the entry OWN_LOOP: digest of the trained weights at epochs 0, 1, …
Epochs = Annotated[int, Limits(ge=0, le=1_000_000)]  # the length of the longest series
Samples = Annotated[int, Limits(ge=0, le=2**40)]
BatchSize = Annotated[int, Limits(ge=1, le=1_000_000)]
CONVENTIONS: Mapping[str, Any] = {
    # training.devices.threads_refused limits the threads that are used
    "threads": Annotated[int, Limits(ge=1, le=2**20)],
    "gamma_null_draws": Annotated[int, Limits(ge=1, le=1_000)],  # draws of the feedback for one null
    **dict.fromkeys(("eval_samples", "test_samples", "test_samples_in_train", "g_norm_mean_ce_samples"), Samples),
    "classes": Samples,
    "nudge_step": Positive,
    "chance": float,
    "bigram_loss": float,
    "stream": str,
}
# Conventions that every run records. A run of a user-supplied loop does not record those in MEASURED_HERE.
MEASURED = (
    *("eval_samples", "eval_digest", "site_convention", "gradient_reduction", "g_norm_mean_ce_samples", "precision"),
    *("threads", "device", "torch", "processor", "instruction_set", "math_library", "fingerprint"),
)
MEASURED_HERE = (
    *("test_samples", "test_samples_in_train", "stream"),
    *("gamma_null_draws", "first_credited_site", "fidelity_least_error"),
)
TEXTS = (
    *("status", "ended_by", "stop_on", "study", "method", "setting", "initial_weights", "final_weights"),
    *("commit", "dataset_digest", "stepping"),
)
PROVENANCE: Mapping[str, Any] = {
    **dict.fromkeys(TEXTS, str),
    **dict.fromkeys(("epochs_run", "resumed_from", "points", "selected_epoch"), Epochs),
    **dict.fromkeys((KEY, "threads", "parameters"), Whole),
    "charts": Texts,
    "code": dict[str, dict[str, Any]],  # kind/name of a plug-in → its package, version and digest
    "conformance": dict[str, Any],
    "digests": Digests,
    "dirty": bool | None,
    "epoch_chain": Texts,
    "kept_states": Wholes,
    "eval_indices": Wholes | None,  # null without an evaluation batch
    "hardware": dict[str, Any],
    "origin": dict[str, str],
    OWN_LOOP: Annotated[dict[str, Any], Fields({EPOCH_WEIGHTS: Texts, "commit": str, "dirty": bool | None})],
    "versions": dict[str, str],
}
# Fields that only some runs have. TRAINED are recorded by every run that this package trained.
TRAINED = ("initial_weights", "epoch_chain")
OPTIONAL = ("charts", "conformance", "kept_states", "origin", "selected_epoch", OWN_LOOP)
RECORDED = tuple(name for name in PROVENANCE if name not in (*TRAINED, *OPTIONAL))  # fields that every run records
Provenance = Annotated[Mapping[str, Any], Fields(PROVENANCE)]
Manifest = Annotated[Mapping[str, Any], Fields(PROVENANCE, needed=("digests",))]
Feedback = Annotated[Mapping[str, Any], Fields({"sha256": str, "tensors": dict[str, Wholes]})]


def never_changed(epoch_weights: Sequence[str]) -> bool:
    """Return whether the trained weights of a loop never changed.

    They are equal at all epochs from 0 to 2 or more, or from 1 to 3 or more.
    The loop may initialise the weights after epoch 0. One epoch without a change may be a learning rate that begins at 0.

    Args:
        epoch_weights: the recorded field EPOCH_WEIGHTS. An empty digest means that there are no such weights, or no finite ones.
    """
    if len(epoch_weights) < 3 or not epoch_weights[-1]:
        return False
    return len(set(epoch_weights)) == 1 or (len(epoch_weights) > 3 and len(set(epoch_weights[1:])) == 1)


def keeps_every_state(provenance: Mapping[str, Any]) -> bool:
    """Return whether a run states that it kept the state after every epoch but the last.

    Then the reader's nonce chooses the replayed epochs among all epochs after the first, and no author knows them in advance. The
    audit checks that the files are there (`evidence.kept_state_files`).
    """
    epochs = provenance.get("epochs_run", 0)
    return epochs > 1 and set(provenance.get("kept_states", ())) == set(range(1, epochs))
