"""The adopt verb: a checkpoint that was trained elsewhere becomes a run, measured here and judged like any other."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fa_registry import jsonio
from fa_registry.errors import IntegrityError, InvalidFields, UsageError
from fa_registry.records import Measurements, Reading, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import read_record
from fa_registry.tracking.writer import Origin, RunWriter
from fa_registry.training.devices import pinned_threads
from fa_registry.training.foreign import SAFETENSORS, put_into, read_foreign
from fa_registry.training.loop import EpochRow, Outcome, has_diverged
from fa_registry.training.measuring import measure, with_final
from fa_registry.training.specs import parse_spec, run_name
from fa_registry.training.task import Task, prepare
from fa_registry.workflows.conformance import code_changes
from fa_registry.workflows.requests import Place
from fa_registry.workflows.stores import open_tracker
from fa_registry.workflows.training import finished_run, headline

FROZEN_ACCURACY = "frozen_accuracy"
MOST_EPOCHS = 100_000  # a record holds one reading an epoch of every headline, measured or not


@dataclass(frozen=True)
class AdoptRequest:
    """What to adopt. fields: those of a run specification, as typed. feedback: file of the feedback state, if any.

    frozen_accuracy: of the frozen control that stood beside the run elsewhere, a fraction of the test set.
    """

    weights: str
    fields: Mapping[str, Any]
    feedback: str = ""
    frozen_accuracy: str = ""
    name: str = ""
    place: Place = Place()
    threads: int = 1
    force: bool = False


@dataclass(frozen=True)
class Adoption:
    """adopted: False where the store already held the run. absent: why there is no Γ, empty where there is one."""

    run_id: str
    status: str
    adopted: bool
    headline: Mapping[str, float] = field(default_factory=dict)
    absent: str = ""


@dataclass(frozen=True)
class _Checked:
    """A request whose every part could be read."""

    spec: RunSpec
    weights: Any
    feedback: Any | None
    frozen_accuracy: float | None
    origin: Origin


def run_adopt(request: AdoptRequest) -> Adoption:
    """Measure the checkpoint and log it as one run; InvalidFields names all that is wrong before anything is written."""
    checked = _check(request)
    tracker = open_tracker(request.place.store, request.place.experiment)
    present = None if request.force else finished_run(tracker, checked.spec)
    if present and not code_changes(tracker, present, checked.spec):
        _check_same(tracker, present, checked)
        return Adoption(present.run_id, present.tags[schema.TAG_STATUS], adopted=False)
    with pinned_threads(request.threads):
        task = prepare(checked.spec, torch.device(checked.spec.device_class), request.place.root)
        absent = put_into(task, checked.weights, checked.feedback)
        measured = measure(task, absent)
        status = "diverged" if has_diverged(measured) else "complete"
        final = _with_frozen(with_final(measured, task, absent), checked.frozen_accuracy)
        outcome = Outcome(status, 0, final)  # no epoch was run here
        run_id = _write(tracker, task, checked.origin, EpochRow(checked.spec.epochs, measured), outcome)
    return Adoption(run_id, status, True, headline(outcome), absent)


def _write(tracker: Tracker, task: Task, origin: Origin, row: EpochRow, outcome: Outcome) -> str:
    writer = RunWriter(tracker, task, origin=origin)
    try:
        writer.start(None)
        writer.write_down(row)
        writer.complete(outcome)
    except BaseException as error:
        writer.fail(error)
        raise
    return writer.run_id


def _with_frozen(measured: Measurements, frozen_accuracy: float | None) -> Measurements:
    if frozen_accuracy is None:
        return measured
    scalars = {**measured.scalars, FROZEN_ACCURACY: Reading(frozen_accuracy)}
    return dataclasses.replace(measured, scalars=dict(sorted(scalars.items())))


def _check(request: AdoptRequest) -> _Checked:
    problems: list[str] = []
    spec = weights = feedback = frozen = None
    try:
        spec = parse_spec(request.fields)
        problems += _unfit(spec)
    except InvalidFields as error:
        problems += error.problems
    try:
        weights = read_foreign(Path(request.weights))
    except ValueError as error:
        problems.append(f"weights: {error}")
    try:
        feedback = _read_feedback(request, *(str(request.fields.get(name, "")) for name in ("method", "seed")))
    except ValueError as error:
        problems.append(f"feedback: {error}")
    try:
        frozen = _fraction(request.frozen_accuracy)
    except ValueError as error:
        problems.append(f"frozen_accuracy: {error}")
    if problems or spec is None:
        raise InvalidFields("adopt", problems)
    spec = dataclasses.replace(spec, weights=jsonio.file_digest(Path(request.weights)))
    return _Checked(spec, weights, feedback, frozen, _origin(request, spec))


def _unfit(spec: RunSpec) -> list[str]:
    problems = []
    if spec.control != "none":
        problems.append(
            f"control: a control is trained here, not adopted; found {spec.control!r}: see --frozen-accuracy"
        )
    if spec.epochs > MOST_EPOCHS:
        problems.append(f"epochs: expected at most {MOST_EPOCHS:,}, found {spec.epochs:,}")
    return problems


def _read_feedback(request: AdoptRequest, method: str, seed: str) -> Any | None:
    """What the feedback file holds; IntegrityError when it is one of a registry and not the file its card tells of."""
    if not request.feedback:
        return None
    path = Path(request.feedback)
    held = read_foreign(path)
    card = path.with_name(Path(schema.FEEDBACK_CARD).name)
    if path.suffix != SAFETENSORS or not card.is_file():
        return held
    try:
        told = json.loads(card.read_text(encoding="utf-8"))
    except ValueError as error:
        raise IntegrityError(f"{card}: the card beside {path.name} cannot be read as JSON: {error}") from error
    if not isinstance(told, Mapping) or "sha256" not in told:
        return held  # somebody else's card.json
    found = jsonio.file_digest(path)
    if told["sha256"] != found:
        raise IntegrityError(
            f"{path.name}: {card.name} beside it tells of a file with SHA-256 {told['sha256']}, found {found}; "
            "the file was changed after it was recorded"
        )
    if told.get("method") != method:
        raise ValueError(f"its {card.name} says it is of method {told.get('method')!r}, not {method!r}")
    if str(told.get("seed")) != seed.strip():
        raise ValueError(f"its {card.name} says it is of the run with seed {told.get('seed')}, not {seed}")
    return held


def _fraction(text: str) -> float | None:
    if text == "":
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise ValueError(f"expected a fraction of the test set in 0..1, found {text}")
    return value


def _origin(request: AdoptRequest, spec: RunSpec) -> Origin:
    return Origin(
        name=request.name or run_name(spec),
        weights=Path(request.weights).name,
        weights_sha256=spec.weights,
        feedback=Path(request.feedback).name if request.feedback else "",
        feedback_sha256=jsonio.file_digest(Path(request.feedback)) if request.feedback else "",
    )


def _check_same(tracker: Tracker, present: StoredRun, checked: _Checked) -> None:
    """Raise where the run that is there was adopted with other evidence: saying "already" would drop what is given now."""
    record = read_record(tracker, present)
    frozen = record.measurements.scalars.get(FROZEN_ACCURACY)
    before = (record.provenance["origin"].get("feedback sha256", ""), frozen.value if frozen else None)
    if before != (checked.origin.feedback_sha256, checked.frozen_accuracy):
        raise UsageError(
            f"adopt: these weights are already adopted as run {present.run_id}, with other evidence: "
            f"feedback {record.provenance['origin']['feedback file']}, frozen accuracy "
            f"{'none given' if before[1] is None else before[1]}; --force adopts them again with what is given now"
        )
