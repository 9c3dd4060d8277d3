"""Type checks of the fields in the JSON files of a run.

A number that determines the computing time or the memory of an audit has an upper limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fa_registry import jsonio
from fa_registry.errors import join_names
from fa_registry.schema_number import KEY

Is = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64


@dataclass(frozen=True)
class Within:
    """Check that a value is a whole number from `least` to `most`."""

    least: int
    most: int

    def __call__(self, value: Any) -> bool:
        return is_whole(value) and self.least <= value <= self.most


def is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def is_answer(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def is_list_of(kind: Is) -> Is:
    return lambda value: isinstance(value, (list, tuple)) and all(map(kind, value))


def is_nothing_or(kind: Is) -> Is:
    return lambda value: value is None or kind(value)


def is_table_of(kind: Is) -> Is:
    return lambda value: is_table(value) and all(map(kind, value.values()))


OWN_LOOP = "own_loop"  # only in the provenance of runs from a user's own training loop
EPOCH_WEIGHTS = "epoch_weights"  # of the entry OWN_LOOP: digest of the trained weights at epochs 0, 1, …
MOST_EPOCHS = 1_000_000  # length of the longest series
MOST_SAMPLES = 2**40
MOST_DRAWS = 1_000  # draws of the feedback for one null
MOST_BATCH = 1_000_000
# Fields of a run's specification. training.run_setup checks the options before it initialises a network or feedback.
SPEC: Mapping[str, Is] = {"seed": is_whole, "epochs": Within(0, MOST_EPOCHS)}
RECIPE: Mapping[str, Is] = {"batch_size": Within(1, MOST_BATCH)}
CONVENTIONS: Mapping[str, Is] = {
    "threads": Within(1, 2**20),  # training.devices.threads_refused limits the threads that are used
    "gamma_null_draws": Within(1, MOST_DRAWS),
    **dict.fromkeys(("eval_samples", "test_samples", "classes"), Within(0, MOST_SAMPLES)),
    "chance": jsonio.is_finite,
    "stream": is_text,
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
PROVENANCE: Mapping[str, Is] = {
    **dict.fromkeys(TEXTS, is_text),
    **dict.fromkeys(("epochs_run", "resumed_from", "points"), Within(0, MOST_EPOCHS)),
    **dict.fromkeys((KEY, "threads", "parameters"), is_whole),
    "charts": is_list_of(is_text),
    "code": is_table,
    "conformance": is_table,
    "digests": is_table_of(is_text),
    "dirty": is_answer,
    "epoch_chain": is_list_of(is_text),
    "kept_states": is_list_of(is_whole),
    "eval_indices": is_nothing_or(is_list_of(is_whole)),  # null without an evaluation batch
    "hardware": is_table,
    "origin": is_table_of(is_text),
    OWN_LOOP: is_table,
    "versions": is_table_of(is_text),
}
# Fields that only some runs have. TRAINED are recorded by every run that this package trained.
TRAINED = ("initial_weights", "epoch_chain")
OPTIONAL = ("charts", "conformance", "kept_states", "origin", OWN_LOOP)
RECORDED = tuple(name for name in PROVENANCE if name not in (*TRAINED, *OPTIONAL))  # fields that every run records
FEEDBACK: Mapping[str, Is] = {"sha256": is_text, "tensors": is_table_of(is_list_of(is_whole))}


def never_changed(epoch_weights: Any) -> bool:
    """Return whether the trained weights of a loop never changed.

    They are equal at all epochs from 0 to 2 or more, or from 1 to 3 or more.
    The loop may initialise the weights after epoch 0. One epoch without a change may be a learning rate that begins at 0.

    Args:
        epoch_weights: the recorded field EPOCH_WEIGHTS. An empty digest means that there are no such weights, or no finite ones.
    """
    if not is_list_of(is_text)(epoch_weights) or len(epoch_weights) < 3 or not epoch_weights[-1]:
        return False
    return len(set(epoch_weights)) == 1 or (len(epoch_weights) > 3 and len(set(epoch_weights[1:])) == 1)


def check(name: str, fields: Mapping[str, Is], stored: Any) -> None:
    """Raise ValueError if `stored` is not a table or a field has a wrong type.

    Args:
        name: name of the table in the message.
        fields: field name → check of its value. A missing field is valid.
        stored: value to check.
    """
    if not is_table(stored):
        raise ValueError(f"{name}: expected a table, found {jsonio.describe_value(stored)}")
    invalid = [field for field, is_valid in fields.items() if field in stored and not is_valid(stored[field])]
    if invalid:
        problems = [f"{field} = {jsonio.describe_value(stored[field])}{_expected(fields[field])}" for field in invalid]
        raise ValueError(f"{name}: invalid value: {join_names(problems)}")


def _expected(is_valid: Is) -> str:
    return (
        f" (expected a whole number from {is_valid.least} to {is_valid.most})" if isinstance(is_valid, Within) else ""
    )
