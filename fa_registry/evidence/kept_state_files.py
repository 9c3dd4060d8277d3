"""Check that the files of the kept states are states of one training.

A replay from a kept state proves one epoch. The files between the replayed epochs must fit too: otherwise an author could keep the
states of an honest training together with other final weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from torch import Tensor

from fa_registry.evidence.tensor_differences import equal_entries, misfit
from fa_registry.records import Check, RunRecord
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.reader import read_provenance
from fa_registry.training.checkpoint import load_tensors
from fa_registry.training.epoch_chain import is_in_chain
from fa_registry.training.trainer_state import GENERATOR

FILES = "files of kept states"  # subject of the check
SHOWN = 5  # problems that the check names


def kept_state_files(tracker: Tracker, record: RunRecord) -> Iterator[Check]:
    """Yield a check of the kept states of a run, if the run states that it kept any.

    Raises:
        IntegrityError: a file differs from its recorded digest, or is no safetensors file.
    """
    epochs = record.provenance.get(schema.KEPT_STATES, ())
    if not epochs:
        return
    problems = list(islice(_missing(record), SHOWN)) or list(islice(_breaks(tracker, record), SHOWN))
    text = (
        f"the states after {len(epochs)} epochs are in the recorded chain, and each state continues the one before it"
    )
    yield Check(FILES, "differs" if problems else "agrees", "; ".join(problems) or text)


def _missing(record: RunRecord) -> Iterator[str]:
    """Yield a text for each stated epoch that was not trained or has no recorded file."""
    for epoch in record.provenance[schema.KEPT_STATES]:
        if not 0 < epoch < _epochs(record):
            yield f"the run states that it kept the state after epoch {epoch} of {_epochs(record)}"
        names = (schema.kept_state(epoch), schema.after_kept_state(epoch))
        yield from (f"{name}: the run recorded no such file" for name in names if name not in record.digests)


def _breaks(tracker: Tracker, record: RunRecord) -> Iterator[str]:
    """Yield a text for each kept state that does not fit the chain or the other files."""
    provenance = read_provenance(tracker.artifact(record.run_id, schema.PROVENANCE))  # a record has no chain
    chain = provenance.get(schema.EPOCH_CHAIN, ())
    after: Mapping[str, Tensor] = {}  # the state after epoch `reached`, as the pair before recorded it
    reached = None
    for epoch in sorted(record.provenance[schema.KEPT_STATES]):
        state = _tensors(tracker, record, schema.kept_state(epoch))
        trained = {name: tensor for name, tensor in state.items() if not name.startswith(GENERATOR)}
        if not is_in_chain(chain, epoch, trained):
            yield f"the state after epoch {epoch} is not the one of the recorded chain"
        if reached == epoch and (problem := _difference(after, trained)):
            yield f"two files contain the state after epoch {epoch}: {problem}"
        after, reached = _tensors(tracker, record, schema.after_kept_state(epoch)), epoch + 1
    if reached == final_epoch(record) and (problem := _difference(after, _final(tracker, record))):
        yield f"the final files do not contain the state after epoch {reached}: {problem}"


def _epochs(record: RunRecord) -> int:
    return record.provenance.get("epochs_run", 0)


def final_epoch(record: RunRecord) -> int:
    """Return the epoch of the final files: the last epoch, or the one that the recipe selected."""
    return record.provenance.get(schema.SELECTED, _epochs(record))


def _final(tracker: Tracker, record: RunRecord) -> dict[str, Tensor]:
    files = {"network.": schema.FINAL, "feedback.": schema.FEEDBACK}
    return {
        f"{prefix}{name}": tensor
        for prefix, file in files.items()
        if file in record.digests
        for name, tensor in _tensors(tracker, record, file).items()
    }


def _difference(after: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """Compare network and feedback of two states of one epoch."""
    weights = {name: tensor for name, tensor in state.items() if name.startswith(("network.", "feedback."))}
    if problem := misfit(after, weights):
        return problem
    count = sum(not equal_entries(after[name], tensor) for name, tensor in weights.items())
    return f"{count} of {len(weights)} tensors differ" if count else ""


def _tensors(tracker: Tracker, record: RunRecord, name: str) -> dict[str, Tensor]:
    path = tracker.artifact(record.run_id, name)
    return load_tensors(path, record.digests[name]) if path else {}
