"""RunWriter: writes metrics and files of one training run to a store."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from fa_registry import diagnostics, jsonio, process_ownership, provenance
from fa_registry.errors import RegistryError
from fa_registry.interrupts import deferred_interrupts
from fa_registry.records import RunSpec
from fa_registry.records.manifest_checks import OWN_LOOP
from fa_registry.schema_number import KEY, SCHEMA
from fa_registry.tracking import lease, schema
from fa_registry.tracking.base import DatasetReference, Point, RetentionOptions, Tracker
from fa_registry.tracking.models import add_final_weights
from fa_registry.tracking.series_parquet import write_series
from fa_registry.tracking.store_errors import AWAY, WAITED_FOR, StoreRefusal
from fa_registry.training.checkpoint import content_digest, save_tensors
from fa_registry.training.devices import gpu_name
from fa_registry.training.loop import EpochRow, TrainingOutcome
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.specs import run_name, setting_label
from fa_registry.training.state_sizes import chosen_epochs
from fa_registry.training.trainer import Trainer
from fa_registry.training.trainer_state import full_state

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Origin:
    """File names and SHA-256 of an adopted run, i.e. a run that another program trained.

    `feedback` is empty if the user gave no feedback.
    """

    name: str
    weights: str
    weights_sha256: str
    feedback: str = ""
    feedback_sha256: str = ""

    @property
    def provenance(self) -> Mapping[str, str]:
        """Fields of provenance.json that describe the origin and what the user stated."""
        return {
            "trained": "not trained here: the weights were adopted from a file",
            "file": self.weights,
            "sha256": self.weights_sha256,
            "feedback file": self.feedback or "none given",
            **({"feedback sha256": self.feedback_sha256} if self.feedback else {}),
            "stated": "method, seed, epochs and recipe are as stated at adoption",
        }

    @property
    def feedback_card(self) -> Mapping[str, str]:
        """Fields of the feedback card that replace distribution and seed, which are unknown for a file."""
        return {"distribution": f"given in {self.feedback}, not drawn here", "source_sha256": self.feedback_sha256}


FLUSH_POINTS = 1000  # MLflow's limit for one call
FLUSH_SECONDS = 20.0
AWAY_SECONDS = 20.0  # seconds between two attempts to reach an unreachable server during a run


class RunWriter:
    """Writer of one run.

    Call `start`, then `on_epoch` for each epoch, then `complete`. Call `fail` or `interrupt` if the training ended early.

    Args:
        study_run: id of the study's own run.
        adopt: id of a run that `mlflow run` started; empty means that a new run is created.
        origin: files of an adopted run, which has no initial weights; None for a run that is trained here.
        conformance: results of the conformance suite for a method that is not built-in.
        lease_seconds: duration of the lease; another worker may train the specification if there is no heartbeat for this time. 0
            means no lease. The parameters of a run with a lease are logged when it acquires the lease.
        open_end: whether the number of epochs is set later by `log_params`. Until then the run has no parameters. `keep.points`
            must be 0, because points can be spread evenly only over a known number of epochs.
    """

    def __init__(
        self,
        tracker: Tracker,
        setup: RunSetup,
        study: str = "",
        study_run: str = "",
        adopt: str = "",
        keep: RetentionOptions = RetentionOptions(),
        origin: Origin | None = None,
        conformance: Mapping[str, Any] | None = None,
        lease_seconds: int = 0,
        open_end: bool = False,
    ):
        self._tracker = tracker
        self._setup = setup
        self._keep = keep
        # an audit expects the points of every epoch of a run with an open end
        self._shown = range(sys.maxsize) if open_end else schema.shown_epochs(setup.spec.epochs, keep.points)
        may_keep = not (origin or open_end)
        self._kept_after = chosen_epochs(setup, keep.keep_states, keep.checkpoint_every) if may_keep else ()
        self._origin = origin
        cards = (diagnostic.card for diagnostic in diagnostics.CATALOG.members().values())
        own = setup.task.card.own_headline
        charts = schema.charts(metric for card in cards for metric in card.described)
        self._charts = (*([own.name] if own else []), *charts)[: schema.MOST_CHARTS]
        self._recorded_fields = {**setup.recorded_fields, **({"conformance": dict(conformance)} if conformance else {})}
        self._recorded_fields |= {schema.CHARTS: list(self._charts)} if self._charts else {}
        self._folder = process_ownership.create_temp_dir("fa_registry-run-")
        self._study = study
        self._stop_on = ""
        self._points: list[Point] = []
        self._shown_at: dict[int, int] = {}  # epoch → time of its points in ms since 1970
        self._tags: dict[str, str] = {}
        self._tried = -AWAY_SECONDS
        self._away = False
        self._not_finite: dict[str, str] = {}
        self._flushed = time.monotonic()
        self._resumed_from = 0
        self.rows: list[EpochRow] = []
        spec = setup.spec
        tags = {**schema.tags(spec, setting_label(spec), study), schema.TAG_PROCESS: process_ownership.process_tag()}
        tags |= {schema.TAG_CODE: jsonio.digest_of(self._recorded_fields["code"])}
        tags |= {schema.TAG_ADOPTED: "true"} if origin else {}
        tags |= schema.headline_tag(setup.task.headline) | {schema.TAG_NOTE: schema.NOT_AUDITED}
        tags |= {schema.TAG_STUDY_RUN: study_run} if study_run else {}
        tags |= lease.initial_tags(lease_seconds) if lease_seconds else {}
        self._adopted = adopt
        params = {} if open_end or lease_seconds else schema.params(spec)
        name = origin.name if origin else run_name(spec)
        self.run_id, self.holder = "", None
        self._is_ending = self._has_ended = False
        try:
            with deferred_interrupts():  # an interrupt here could leave a run in the store whose id is not known
                self.run_id = tracker.adopt(adopt, name, tags, params) if adopt else tracker.create(name, tags, params)
        except BaseException as error:
            if self.run_id:
                self.fail(error)
            process_ownership.remove_quietly(self._folder)
            raise
        self.holder = lease.LeaseHolder(tracker, self.run_id, lease_seconds) if lease_seconds else None

    def discard_run(self) -> None:
        """Delete this empty run because another worker trains the specification."""
        if self._adopted:  # `mlflow run` ends the run that it started
            self._tracker.adopt(self.run_id, "mlflow run: trained elsewhere", {schema.TAG_KIND: schema.LAUNCH}, {})
        else:
            self._tracker.finish(self.run_id, "KILLED")
            self._tracker.discard(self.run_id)
        self.abandon()

    def abandon(self) -> None:
        """Close the writer and leave the run unchanged."""
        self._has_ended = True
        process_ownership.remove_quietly(self._folder)

    def start(self, initial: nn.Module | None) -> None:
        """Write specification, feedback and initial weights (None if adopted) before the first step."""
        setup = self._setup
        sizes = {"train_samples": len(setup.splits.train_labels), "test_samples": len(setup.splits.test_labels)}
        profile = {**sizes, "classes": setup.card.classes, "shape": "x".join(map(str, setup.card.image_shape))}
        source, use = setup.card.source, "training and evaluation"  # both splits are one entry
        self._tracker.log_dataset(
            self.run_id, DatasetReference(setup.card.name, setup.splits.digest, source, use, profile)
        )
        (self._folder / schema.SPEC).write_text(jsonio.pretty(setup.spec), encoding="utf-8")
        if initial is not None:
            self._recorded_fields["initial_weights"] = content_digest(initial.state_dict())
        if initial is not None and self._keep.checkpoint_every:
            save_tensors(self._folder / schema.INITIAL, initial.state_dict())
        self._write_feedback()
        if setup.evaluation:
            save_tensors(self._folder / schema.EVALUATION, setup.evaluation)

    def on_epoch(self, row: EpochRow, trainer: Trainer | None = None) -> None:
        """Write the metrics of an epoch, and a checkpoint if one is due.

        Args:
            row: epoch and its measurements.
            trainer: the trainer, needed to keep training states.

        Raises:
            LeaseLost: another worker has taken over the specification.
        """
        self.write_series(row)
        if self.holder:
            self.holder.check_if_late()
        checkpoint_every = self._keep.checkpoint_every
        if checkpoint_every and row.epoch and row.epoch % checkpoint_every == 0:
            save_tensors(self._folder / schema.epoch_checkpoint(row.epoch), self._setup.network.state_dict())
        if trainer and row.epoch in self._kept_after:
            save_tensors(self._folder / schema.kept_state(row.epoch), full_state(trainer))
        if trainer and (self._folder / schema.kept_state(row.epoch - 1)).exists():
            save_tensors(self._folder / schema.after_kept_state(row.epoch - 1), trainer.state())

    def record_own_loop(self, fields: Mapping[str, Any]) -> None:
        """Add fields to the entry of a user-supplied loop in provenance.json."""
        self._recorded_fields[OWN_LOOP] = {**self._recorded_fields[OWN_LOOP], **fields}

    def log_params(self, spec: RunSpec) -> None:
        """Set the final specification of a run that was created with `open_end`, and log its parameters."""
        self._setup = replace(self._setup, spec=spec)
        (self._folder / schema.SPEC).write_text(jsonio.pretty(spec), encoding="utf-8")
        self._tracker.adopt(
            self.run_id, run_name(spec), schema.tags(spec, setting_label(spec), self._study), schema.params(spec)
        )

    def record_training(self, trainer: Trainer) -> None:
        """Record the state after the first steps and the chained digests of the epochs."""
        if early := trainer.early:
            save_tensors(self._folder / schema.step_checkpoint(early.step), early.tensors)
        self._recorded_fields[schema.EPOCH_CHAIN] = trainer.chain.digests
        if self._kept_after:
            written_epochs = [
                epoch for epoch in self._kept_after if (self._folder / schema.after_kept_state(epoch)).exists()
            ]
            self._recorded_fields[schema.KEPT_STATES] = written_epochs

    def restore_rows(self, rows: list[EpochRow]) -> None:
        """Write the epochs that an interrupted run has measured. Their checkpoints stay in that run."""
        for row in rows:
            self.write_series(row)
        self._resumed_from = rows[-1].epoch if rows else 0
        self._tags |= {schema.TAG_RESUMED: str(self._resumed_from)} if rows else {}

    def write_series(self, row: EpochRow) -> None:
        """Record the measurements of an epoch, and keep its metric points in a buffer."""
        self.rows.append(row)
        for key, reading in schema.metrics(row.measurements, self._charts):
            if reading.not_finite:  # SQL stores replace inf by a number, so the series and a tag contain such a value
                self._not_finite.setdefault(key, f"epoch {row.epoch}")
        if row.epoch in self._shown:
            self._show(row)
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def _show(self, row: EpochRow) -> None:
        self._shown_at[row.epoch] = int(time.time() * 1000)
        points = self._shown_points(row)
        if len(self._points) + len(points) > FLUSH_POINTS:
            self.flush()
        self._points += points

    def _shown_points(self, row: EpochRow) -> list[Point]:
        """Return the points of an epoch that the store has; empty if the store shows only other epochs."""
        readings = schema.metrics(row.measurements, self._charts) if row.epoch in self._shown_at else ()
        values = ((key, reading.value) for key, reading in readings if reading.value is not None)
        return [Point(key, schema.shown(value), row.epoch, self._shown_at[row.epoch]) for key, value in values]

    def tag(self, tags: Mapping[str, str]) -> None:
        """Keep tags in a buffer, and set them together with the next points."""
        self._stop_on = tags.get(schema.TAG_STOP_ON, self._stop_on)
        self._tags |= tags

    def flush(self) -> None:
        """Send the points and tags in the buffer to the store.

        If the server is unreachable, keep the buffer, and send the points and tags in a later call.
        """
        if self._away and time.monotonic() - self._tried < AWAY_SECONDS:
            return
        try:
            self._send(self._tracker.without_retry())
        except StoreRefusal as refusal:
            if refusal.kind not in WAITED_FOR:
                raise
            if not self._away:
                LOG.warning(
                    "%s. Training continues; the metrics will be sent when the server is reachable again", refusal
                )
            self._away, self._tried = True, time.monotonic()
            return
        if self._away:
            LOG.warning("store %s is reachable again: all metrics have been sent", self._tracker.uri)
        self._away = False

    def _send(self, tracker: Tracker) -> None:
        tags = {**self._tags, **(self.holder.next_heartbeat() if self.holder else {})}
        if self.rows and (self._points or tags):
            tags[schema.TAG_EPOCH] = f"{self.rows[-1].epoch} of {self._setup.spec.epochs or '?'}"
        if self._points or tags:
            tracker.log(self.run_id, self._points, tags)
        if self.holder:
            self.holder.mark_heartbeat_sent()
        self._points, self._tags = [], {}
        self._flushed = time.monotonic()

    def complete(self, outcome: TrainingOutcome) -> None:
        """Write final weights, series, measurements and provenance. End the run with the outcome's status."""
        setup, folder = self._setup, self._folder
        if self.holder:
            self.holder.check()
        save_tensors(folder / schema.FINAL, setup.network.state_dict())
        if setup.has_feedback:
            self._write_feedback()  # the run may have changed a learned feedback state
        write_series(folder / schema.SERIES, [(row.epoch, row.measurements) for row in self.rows])
        (folder / schema.MEASUREMENTS).write_text(jsonio.pretty(outcome.final), encoding="utf-8")
        digests = folder_digests(folder)
        provenance = {**self._provenance(outcome, digests), **self._ending(outcome)}
        (folder / schema.PROVENANCE).write_text(jsonio.pretty(provenance), encoding="utf-8")
        all_digests = {**digests, schema.PROVENANCE: jsonio.file_digest(folder / schema.PROVENANCE)}
        tags = {schema.TAG_STATUS: outcome.status, schema.TAG_ARTIFACTS: jsonio.digest_of(all_digests)}
        tags |= schema.sites_tag(outcome.final, self._charts)
        tags |= {tag: provenance[name] for tag, name in schema.REPEATED_TAGS.items() if provenance[name]}
        if self._not_finite:
            tags[schema.TAG_NOT_FINITE] = "; ".join(
                f"{key} from {first_epoch}" for key, first_epoch in self._not_finite.items()
            )[:4000]
        self._tracker.upload(self.run_id, folder)
        if self.rows[-1].epoch not in self._shown:  # the last epoch of a run that ended early
            self._show(self.rows[-1])
        self._tags |= tags
        self._is_ending = True
        self._send(self._tracker)
        self._tracker.finish(self.run_id, "FINISHED")
        final_epoch = self.rows[-1].epoch if outcome.selected is None else outcome.selected
        final_row = next(row for row in reversed(self.rows) if row.epoch == final_epoch)
        add_final_weights(self._tracker, self.run_id, setup.spec, setup.task.headline, self._shown_points(final_row))
        self.abandon()

    def fail(self, error: BaseException) -> None:
        """End the run as failed and store the traceback, or end it as interrupted after a KeyboardInterrupt."""
        if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            self.interrupt("interrupted")
            return
        self._end("".join(traceback.format_exception(error)), "failed", "FAILED")

    def interrupt(self, reason: str) -> None:
        """End the run as interrupted. Log an error of the store instead of raising it."""
        try:
            self._end(reason, schema.INTERRUPTED, "KILLED")
        except (RegistryError, OSError) as error:  # this error must not replace the interrupt
            LOG.warning("run %s was interrupted, and its final status could not be written: %s", self.run_id, error)

    def _end(self, text: str, status: str, state: str) -> None:
        """Write the final status of the run, unless it is already written.

        A second Ctrl-C has no effect until the tags are written. If the server is unreachable, the next command closes the run.
        """
        if self._has_ended:
            return
        self._has_ended = True
        tracker = self._tracker.without_retry()
        try:
            if self._is_ending and schema.TAG_ARTIFACTS in tracker.get(self.run_id).tags:
                tracker.finish(self.run_id, "FINISHED")  # the run is complete in the store, its tags included
                return
            self._tags |= {schema.TAG_STATUS: status}
            (self._folder / schema.FAILURE).write_text(text, encoding="utf-8")
            with deferred_interrupts():
                self._send(tracker)
                tracker.upload(self.run_id, self._folder)
                tracker.finish(self.run_id, state)
        except BaseException as error:
            if not isinstance(error, StoreRefusal) or error.kind not in WAITED_FOR:
                tracker.finish(self.run_id, state)  # the run must not stay RUNNING, even if nothing else can be written
                raise
            LOG.warning("%s. %s", error, self._left(tracker, state, error.kind))
        finally:
            process_ownership.remove_quietly(self._folder)

    def _left(self, tracker: Tracker, state: str, kind: str) -> str:
        """Try to end a run whose last files could not be written. Return a sentence about the run's state."""
        with suppress(RegistryError):
            if kind != AWAY:
                tracker.finish(self.run_id, state)
                return f"Run {self.run_id} has ended, but its last files could not be written"
        return f"Run {self.run_id} stays RUNNING until the next command closes this run"

    def _write_feedback(self) -> None:
        setup = self._setup
        state = setup.feedback.state_dict()
        if not state or (self._origin and not self._origin.feedback):
            return
        digest = save_tensors(self._folder / schema.FEEDBACK, state)
        card = {
            "method": setup.spec.method,
            **(self._origin.feedback_card if self._origin else setup.drawn),
            "sha256": digest,
            "tensors": {name: list(value.shape) for name, value in state.items()},
        }
        (self._folder / schema.FEEDBACK_CARD).write_text(jsonio.pretty(card), encoding="utf-8")

    def _ending(self, outcome: TrainingOutcome) -> dict[str, str]:
        """Return the fields of provenance.json that are also tags."""
        spec = self._setup.spec
        return {
            "status": outcome.status,
            "ended_by": outcome.ended_by,
            "stop_on": self._stop_on,
            "study": self._study,
            "method": spec.method_label,
            "setting": setting_label(spec),
            "final_weights": content_digest(self._setup.network.state_dict()),
        }

    def _provenance(self, outcome: TrainingOutcome, digests: dict[str, str]) -> dict[str, Any]:
        setup = self._setup
        return {
            KEY: SCHEMA,
            **provenance.collect(threads=int(outcome.final.conventions["threads"]), gpu=gpu_name(setup.device)),
            "dataset_digest": setup.splits.digest,
            "parameters": parameter_count(setup.network),
            "epochs_run": outcome.epochs,
            **({} if outcome.selected is None else {schema.SELECTED: outcome.selected}),
            "resumed_from": self._resumed_from,
            "stepping": outcome.stepping,
            "eval_indices": list(range(len(setup.eval_batch[1]))),
            "points": self._keep.points,
            **self._recorded_fields,
            "digests": digests,
            **({"origin": self._origin.provenance} if self._origin else {}),
        }


def parameter_count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def folder_digests(folder: Path) -> dict[str, str]:
    """Return relative path → SHA-256 of every file in `folder` and its subfolders."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): jsonio.file_digest(path) for path in files}
