"""The adopt command: measure a checkpoint of another program and log it as a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fa_registry import jsonio
from fa_registry.errors import IntegrityError, InvalidFields, UsageError
from fa_registry.external.checkpoint_import import SAFETENSORS, load_foreign_weights, read_foreign
from fa_registry.field_types import Limits
from fa_registry.records import Measurements, Reading, RunSpec
from fa_registry.reporting.results import Result
from fa_registry.studies.method_conformance import code_changes
from fa_registry.studies.options import CheckpointOptions, StoreLocation
from fa_registry.studies.training_job import headline
from fa_registry.studies.training_plan import finished_run
from fa_registry.text_safety import name_problem
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import read_record
from fa_registry.tracking.stores import open_tracker
from fa_registry.tracking.writer import Origin, RunWriter
from fa_registry.training.devices import device_of, on_device, pinned_threads
from fa_registry.training.loop import EpochRow, TrainingOutcome, has_diverged
from fa_registry.training.measuring import measure, with_final
from fa_registry.training.run_setup import RunSetup, build_setup, unusable
from fa_registry.training.spec_plugins import find_plugins
from fa_registry.training.specs import parse_spec, run_name

FROZEN_ACCURACY = "frozen_accuracy"
Fraction = Annotated[float, Limits("an accuracy from 0 to 1", ge=0, le=1)]


@dataclass(frozen=True, repr=False)
class Adoption(Result):
    """Result of `run_adopt`.

    Attributes:
        status: `complete` or `diverged`.
        adopted: True if this call logged the run, False if the store already contained it.
        headline: The main metrics by name; empty if the store already contained the run.
        absent: Reason why the alignment Γ was not measured; empty if Γ was measured.
        judge: Command that audits the run.
    """

    run_id: str
    status: str
    adopted: bool
    headline: Mapping[str, float] = field(default_factory=dict)
    absent: str = ""
    judge: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the lines that the command prints."""
        if self.adopted:
            yield f"run {self.run_id}: adopted, {self.status}"
            yield "  " + " · ".join(f"{name} {value:.4g}" for name, value in self.headline.items())
        else:
            yield f"run {self.run_id}: already adopted (--force adopts it again)"
        if self.absent:
            yield f"  no Γ: {self.absent} (pass the feedback with --feedback FILE)"
        yield f"to audit the run: {self.judge}"


def run_adopt(weights: str, options: CheckpointOptions, location: StoreLocation = StoreLocation()) -> Adoption:
    """Measure a checkpoint and log it as one run, without judging the run.

    Raises:
        InvalidFields: Arguments are invalid; the error lists all of them.
        UsageError: The store contains the run with another feedback file or another frozen accuracy.
    """
    name, feedback, strict = options.name, options.feedback, options.strict
    problems: list[str] = []
    method, seed = (str(typed) for typed in (options.method, options.seed))
    spec = _read("", lambda: parse_spec(options.fields), problems)
    if spec and spec.control != "none":
        problems.append(
            f"control: expected 'none', found {spec.control!r}; a control cannot be adopted, but --frozen-accuracy "
            "records the accuracy of a frozen control"
        )
    problems += unusable(spec) if spec else []
    problems += [f"name: {name_problem(name)}"] if name and name_problem(name) else []
    problems += [] if isinstance(strict, bool) else [f"strict: expected True or False, found {strict!r}"]
    tensors = _read("weights: ", lambda: read_foreign(Path(weights)), problems)
    load = partial(_read_feedback, Path(feedback), method, seed) if feedback else lambda: None
    feedback_state = _read("feedback: ", load, problems)
    given = {FROZEN_ACCURACY: options.frozen_accuracy} if options.frozen_accuracy not in ("", None) else {}
    numbers, wrong = jsonio.parse_fields({FROZEN_ACCURACY: Fraction}, given)
    frozen_value = numbers.get(FROZEN_ACCURACY)
    problems += [*wrong, *(_no_accuracy(spec) if spec and given else [])]
    if problems:
        raise InvalidFields("adopt", problems)
    spec = dataclasses.replace(spec, weights=jsonio.file_digest(Path(weights).resolve()))
    feedback_digest = jsonio.file_digest(Path(feedback).resolve()) if feedback else ""
    tracker = open_tracker(location.store, location.experiment)
    existing = None if options.force else finished_run(tracker, spec)
    if existing and not code_changes(tracker, existing, spec):
        _check_same(tracker, existing, feedback_digest, frozen_value)
        status, judge = existing.tags[schema.TAG_STATUS], _judge(existing.run_id, strict)
        return Adoption(existing.run_id, status, adopted=False, judge=judge)
    feedback_name = Path(feedback).name if feedback else ""
    origin = Origin(name or run_name(spec), Path(weights).name, spec.weights, feedback_name, feedback_digest)
    with on_device(options.device), pinned_threads(options.threads):
        setup = build_setup(spec, device_of(spec.device_class), location.root)
        absent = load_foreign_weights(setup, tensors, feedback_state)
        measured = measure(setup, absent)
        status = "diverged" if has_diverged(measured) else "complete"
        final = _with_frozen(with_final(measured, setup, absent), frozen_value)
        outcome = TrainingOutcome(status, 0, final)  # `adopt` trains no epoch
        run_id = _write(tracker, setup, origin, EpochRow(spec.epochs, measured), outcome)
    return Adoption(run_id, status, True, headline(outcome), absent, _judge(run_id, strict))


def _judge(run_id: str, strict: bool) -> str:
    return f"fa-registry audit --run {run_id}" + (" --strict" if strict else "")


def _read(field: str, load: Callable[[], Any], problems: list[str]) -> Any:
    """Call `load`; on an error, append the message to `problems` and return None."""
    try:
        return load()
    except InvalidFields as error:
        problems += error.problems
    except ValueError as error:
        problems.append(f"{field}{error}")
    return None


def _write(tracker: Tracker, setup: RunSetup, origin: Origin, row: EpochRow, outcome: TrainingOutcome) -> str:
    writer = RunWriter(tracker, setup, origin=origin)
    try:
        writer.start(None)
        writer.write_series(row)
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


def _no_accuracy(spec: RunSpec) -> list[str]:
    """Return the problem if the main metric of the data set's task is not the accuracy."""
    task = find_plugins(spec).task
    headline = task.main_metric if task else None
    if headline is None or headline.is_share:
        return []
    return [
        f"frozen_accuracy: expected no frozen accuracy, because the main metric of {spec.dataset} is the {headline.symbol}; "
        "train the control with `fa-registry train --control frozen`"
    ]


def _read_feedback(path: Path, method: str, seed: str) -> Any:
    """Read the feedback file and compare it with its card.json, if that card exists."""
    tensors = read_foreign(path)
    card = path.with_name(Path(schema.FEEDBACK_CARD).name)
    if path.suffix != SAFETENSORS or not card.is_file():
        return tensors
    card_content = jsonio.read_json(card)
    if not isinstance(card_content, Mapping) or "sha256" not in card_content:
        return tensors  # another program wrote this card.json
    digest = jsonio.file_digest(path.resolve())
    if card_content["sha256"] != digest:
        raise IntegrityError(
            f"{path.name}: {card.name} in the same folder records SHA-256 {card_content['sha256']}, found {digest}. "
            f"{path.name} was changed after this record; use the original file"
        )
    recorded = f"the {card.name} of this file records"
    if card_content.get("method") != method:
        raise ValueError(f"{recorded} method {card_content.get('method')!r}, expected {method!r}")
    if str(card_content.get("seed")) != seed.strip():
        raise ValueError(f"{recorded} a run with seed {card_content.get('seed')}, expected {seed}")
    return tensors


def _check_same(tracker: Tracker, existing: StoredRun, feedback_digest: str, frozen_accuracy: float | None) -> None:
    """Raise UsageError if the feedback or the frozen accuracy differs from that of the stored run."""
    record = read_record(tracker, existing)
    frozen = record.measurements.scalars.get(FROZEN_ACCURACY)
    origin = record.provenance.get("origin", {})
    recorded = (origin.get("feedback sha256", ""), frozen.value if frozen else None)
    if recorded != (feedback_digest, frozen_accuracy):
        raise UsageError(
            f"adopt: run {existing.run_id} in the store has the same weights, but other values "
            f"(feedback file {origin.get('feedback file', 'none')}, frozen accuracy "
            f"{'none' if recorded[1] is None else recorded[1]}); --force logs a new run with the values of this command"
        )
