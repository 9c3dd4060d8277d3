"""The function `track`: log a user-supplied training loop as a run, and measure the model every epoch."""

from __future__ import annotations

import dataclasses
import logging
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry import diagnostics, jsonio, provenance
from fa_registry.architectures import AdaptedNetwork, unwrapped
from fa_registry.datasets.base import tensors_digest
from fa_registry.diagnostics.base import MOMENTS
from fa_registry.errors import InvalidFields, UsageError, unknown_name_text
from fa_registry.evidence.user_loops import from_factory
from fa_registry.external.frozen_control import (
    blocks_to_freeze,
    check_frozen,
    frozen_blocks,
    frozen_control,
    tensors_digest_of,
    trained_names,
)
from fa_registry.jsonio import parse_fields
from fa_registry.metrics import ACCURACY, TOKEN_LOSS, Headline
from fa_registry.network_mode import gradients_enabled, tensors_unchanged
from fa_registry.output_streams import encodable
from fa_registry.records import Measurements, Reading, RunSpec, Scalar
from fa_registry.records.manifest_checks import EPOCH_WEIGHTS, never_changed
from fa_registry.records.runs import CHANCE, EVERY, STRUCTURE
from fa_registry.seeding import generators_unchanged
from fa_registry.studies.editions import DEFAULT_EDITION, edition_for
from fa_registry.studies.rule_monitor import Monitor, checked_watch
from fa_registry.tasks import Task, task_of
from fa_registry.tasks._user_loss import Loss, class_numbers, loss_name, user_task
from fa_registry.tasks.token_prediction import IGNORED
from fa_registry.text_safety import escape_to_one_line, name_problem
from fa_registry.tracking.base import RetentionOptions
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.store import command_on
from fa_registry.tracking.stores import in_browser, open_tracker, registry_folder, served
from fa_registry.tracking.writer import RunWriter
from fa_registry.training.input_validation import Checks
from fa_registry.training.loop import EpochRow, TrainingOutcome, has_diverged
from fa_registry.training.reference import SAMPLES
from fa_registry.training.specs import TYPES
from fa_registry.training.user_model import DRAWS, CreditRule, FreshRule, UserCreditRule, measured
from fa_registry.training.user_run_setup import DIGITS, LOSS, OWN, EpochJournal, UserRunSetup, structure

LOG = logging.getLogger(__name__)
FIGURES = ("loss_train", "accuracy_train", "penalty")  # metrics that a loop may report in addition to the test accuracy
NOT_GIVEN = "no {} was given"  # a main metric that the loop did not report
NO_ONE_CALLED = (
    "the loop ended without a call of run.epoch(), so nothing was measured after the start and the run is not complete"
)
STATED = (
    "the author of the loop reported method, seed, data set, test labels, accuracies and losses; the author's function returned "
    "the credit"
)
NOT_TRAINED = (
    "run.epoch: the weights of the tracked model did not change until epoch {}. If the loop trains another object, such as a copy, "
    "pass that object to fa_registry.track"
)
NUMBERS = {**{name: TYPES[name] for name in ("seed", "epochs")}, **DRAWS}  # argument of `track` → its type


class TrackedRun:
    """Context manager that `track` returns for a run of a user-supplied loop.

    Attributes:
        done: number of measured epochs. A resumed loop must continue with epoch `done + 1`.
        fired: rule code → first epoch at which the rule of the default edition fired.
    """

    def __init__(
        self,
        setup: UserRunSetup,
        network: nn.Module,
        rule: UserCreditRule,
        tracker: MlflowTracker,
        writer: Callable[[], RunWriter],
        rows: EpochJournal,
        freezing: AbstractContextManager[Any] | None = None,
    ):
        self._setup, self._network, self._rule, self._rows = setup, network, rule, rows
        self._tracker, self._begin, self._writer = tracker, writer, None
        self._objection: str | None = None  # result of the last check of the reference; None before the first check
        self._logged: list[str] = []
        self._source = ""
        self._freezing = freezing or nullcontext()
        self.done = 0

    @property
    def headline(self) -> Headline:
        """The main metric of the run's task: the accuracy, or the loss per token."""
        return self._setup.task.headline

    @property
    def run_id(self) -> str:
        return self._writer.run_id

    @property
    def fired(self) -> Mapping[str, int]:
        return dict(self._monitor.fired)

    def __repr__(self) -> str:
        return f"TrackedRun({self.run_id if self._writer else 'not started'}, measured epochs: {self.done})"

    @generators_unchanged()
    @gradients_enabled()
    def __enter__(self) -> TrackedRun:
        with ExitStack() as entered:
            entered.enter_context(self._freezing)
            self._trained = trained_names(self._network)
            self._start()
            entered.pop_all()  # the run began, so from here on __exit__ closes self._freezing and self._active
        return self

    def _start(self) -> None:
        earlier = self._rows.read()
        self._initial_norms = _norms(earlier[0]) if earlier else ()
        first = EpochRow(0, self._measured({}, 0)) if not earlier else None  # may raise, so no run exists before
        if first:
            self._initial_norms = _norms(first)
        for note in getattr(self._network, "notes", ()):
            print(f"note: {note}")
        self._writer = self._begin()
        try:
            self._writer.start(self._setup.network if first else None)
            self._writer.restore_rows(earlier)
            self._monitor = Monitor(checked_watch(DEFAULT_EDITION, "", []), self._writer.tag, earlier)
            self.done = earlier[-1].epoch if earlier else 0
            if first:
                self._receive(first)
            self._active = self._tracker.active(self.run_id)
            self._active.__enter__()
        except BaseException as error:
            self._writer.fail(error)
            raise

    @generators_unchanged()
    @gradients_enabled()
    def epoch(
        self, test_accuracy: float | Tensor | None = None, test_loss: float | Tensor | None = None, **figures: Any
    ) -> Measurements:
        """Measure the model, log the metrics as the next epoch, and return the metrics.

        The call does not change the model, its gradients and buffers, its training mode, or any random generator.

        Args:
            test_accuracy: accuracy on the whole test set, from 0 to 1, as the user's loop measured it.
            test_loss: loss per token on the whole test set, in nats, if y contains tokens.
            figures: additional metrics of the user's loop: loss_train, accuracy_train or penalty. All values may be tensors of one
                number.

        Raises:
            UsageError: the call is outside the `with` block.
            InvalidFields: lists all invalid arguments.
        """
        if self._writer is None:
            expected = "expected a call of run.epoch() inside `with fa_registry.track(…) as run:`"
            raise UsageError(f"track: {expected}, found a call outside")
        checks = Checks("run.epoch")
        figures = {name: _number(value) for name, value in figures.items()}
        given = {ACCURACY: _number(test_accuracy), TOKEN_LOSS: _number(test_loss)}
        checks.fractions(test_accuracy=given[ACCURACY])
        checks.problems += [
            f"{other.metric.label}: expected no value; the main metric of this run is the {self.headline.metric.label}"
            for other, value in given.items()
            if value is not None and other != self.headline
        ]
        checks.problems += [unknown_name_text("metric", name, FIGURES) for name in figures if name not in FIGURES]
        checks.limits(**{name: value for name, value in figures.items() if name in FIGURES and not _is_number(value)})
        checks.finish()
        reported = {name: Reading.of(value) for name, value in figures.items()}
        if given[self.headline] is not None:
            reported[self.headline.name] = Reading.of(float(given[self.headline]))
        row = EpochRow(self.done + 1, self._measured(reported, self.done + 1))
        was_reported = never_changed(self._rows.weights)
        self._receive(row)
        self.done = row.epoch
        if not was_reported and never_changed(self._rows.weights):
            LOG.warning("%s", NOT_TRAINED.format(row.epoch))
        if row.epoch == 1:  # a loop that trains frozen weights fails here instead of after its last epoch
            check_frozen(self._network)
        return row.measurements

    @generators_unchanged()
    @gradients_enabled()
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._active.__exit__(None, None, None)
        try:
            self._freezing.__exit__(kind, error, trace)
        except BaseException as refusal:  # frozen weights were trained, so the run is no control
            self._writer.fail(refusal)
            raise
        if isinstance(error, KeyboardInterrupt):
            text = f"interrupted after epoch {self.done}; track(…, resume=True) continues with the next epoch"
            self._writer.interrupt(text)
        elif error is not None:
            self._writer.fail(error)
        elif not self.done:
            refusal = UsageError(f"track: {NO_ONE_CALLED}")
            self._writer.fail(refusal)
            raise refusal
        else:
            self._complete()

    def _complete(self) -> None:
        try:
            last = self._writer.rows[-1].measurements
            status = "diverged" if has_diverged(last) else "complete"
            spec = self._setup.spec
            if not spec.epochs:
                spec = dataclasses.replace(spec, epochs=self.done)
                self._writer.log_params(spec)
            elif status == "complete" and self.done != spec.epochs:
                status = "stopped_early"
            names = (*FIGURES, self.headline.name)
            reported = {name: reading for name, reading in last.scalars.items() if name in names}
            measurements = self._measured(reported, None, MOMENTS)
            final = self._setup.with_conventions(measurements, self._source, self._rule.null_draws)
            self._writer.record_own_loop({EPOCH_WEIGHTS: self._rows.weights})
            self._writer.complete(TrainingOutcome(status, self.done, final, stepping="a loop of its author's own"))
            self._rows.remove()
        except BaseException as failure:
            self._writer.fail(failure)
            raise
        uri = self._tracker.uri
        page = served(uri, in_browser(uri, self._tracker.run_page(self.run_id)))
        label = f"{spec.method_label}, seed {spec.seed}: {status.replace('_', ' ')} after epoch {self.done}"
        edition = edition_for(self.headline)
        suffix = f" --edition {edition}" if edition not in ("", DEFAULT_EDITION) else ""
        audit = command_on(f"audit --experiment {shlex.quote(self._tracker.get(self.run_id).experiment)}{suffix}", uri)
        lines = (f"run {self.run_id}, {label}", f"run page: {page}", f"to judge the runs: {audit}")
        print(encodable("\n".join(map(escape_to_one_line, lines)), sys.stdout))

    def _receive(self, row: EpochRow) -> None:
        self._rows.add(row, tensors_digest_of(self._network, self._trained))
        self._monitor.receive(row)  # first, so the tags of fired rules are in the store before the points of the epoch
        self._writer.on_epoch(row)

    def _measured(
        self, reported: Mapping[str, Reading], epoch: int | None, moments: Sequence[str] = ("epoch",)
    ) -> Measurements:
        """Measure the model; at every EVERY-th epoch and at the end, also check the reference gradient."""
        members = diagnostics.CATALOG.members().values()
        selected = [diagnostic for diagnostic in members if diagnostic.card.when in moments]
        options = {
            "objection": None if epoch is None or epoch % EVERY == 0 else self._objection,
            "samples": None if epoch is None else SAMPLES,
            "initial_norms": self._initial_norms,
        }
        options["task"] = self._setup.task
        measurements, reference = measured(self._network, *self._setup.eval_batch, self._rule, selected, **options)
        self._source = reference.source
        if reference.check:
            self._objection = reference.check.objection
        for remark in filter(None, (self._objection, reference.zero)):
            if remark not in self._logged:
                self._logged.append(remark)
                LOG.warning("%s", remark)
        reported = {self.headline.name: Reading(None, NOT_GIVEN.format(self.headline.metric.label)), **reported}
        return dataclasses.replace(measurements, scalars=dict(sorted({**measurements.scalars, **reported}.items())))


def _norms(row: EpochRow) -> tuple[float, ...] | None:
    """Return ‖h_l‖ for each site l, or None if a value is not finite."""
    values = tuple(reading.value for reading in row.measurements.sites["h_norm"])
    return None if None in values else values


@generators_unchanged()
@gradients_enabled()
def track(
    model: nn.Module,
    sites: Sequence[str] = (),
    eval: tuple[Tensor, Tensor] | None = None,
    method: str = "",
    seed: int = 0,
    credit: CreditRule | None = None,
    *,
    fresh: FreshRule | None = None,
    draws: int = 20,
    control: bool | Sequence[str] = False,
    skip: str = "",
    readout: str = "",
    gradient: str = "",
    loss: Loss = "",
    dataset: str = "",
    test_labels: Tensor | Sequence[int] | None = None,
    factory: str = "",
    feedback: Mapping[str, Tensor] | nn.Module | None = None,
    epochs: int = 0,
    checkpoint_every: int = 0,
    study: str = "",
    experiment: str = "",
    store: str = "",
    resume: bool = False,
) -> TrackedRun:
    """Return a context manager that logs a user-supplied training loop as a run.

    The user's loop calls `run.epoch(test_accuracy=…)` once per epoch. At the end, the run and its address are printed. The default
    of an argument is in brackets.

    Args:
        model, sites, skip, readout, gradient: as for `adapt`.
        loss: loss that trains the model, as for `adapt`; recorded with the run. The default is the loss that `adapt` received, or
            the cross entropy of logits.
        eval: the batch on which all metrics are measured: x (N, …) and y (N,) int64, or tokens y (N, T). With `loss`, y may also
            be values in the shape of the outputs. The paper uses 128 test samples. The run keeps a copy and records its digest,
            so later changes of the tensors have no effect.
        method: name of the method. Inside `frozen_control`, the run is the control of this method.
        seed: seed of the run, recorded in its specification.
        control: True makes the run a frozen control: all parameters that the forward pass reads between the first and the last
            site are frozen inside the `with` block. A list of names freezes these blocks or parameters instead.
        credit: function credit(model, x, y) → [c_0 … c_L], as for `alignment`. Without this function, Γ is not measured.
        fresh, draws: function that returns the credit with new random feedback, for the null distribution of Γ, and how often it
            is called; as for `alignment`.
        dataset: name of the data set [`own-` and the first digits of the digest of `eval`].
        test_labels: labels of the whole test set, (N,) or (N, T). The run records their number and chance, as stated by you.
            Rule D3 needs both.
        factory: function that builds the model, as `package.module:function`. The function takes no arguments. An audit with
            --factory calls this function. If the loss is a function, the factory returns the result of `adapt` with this loss.
        feedback: the feedback matrices (name → tensor), or the module that contains the matrices; stored with the run.
        epochs: planned number of epochs [the number of calls of run.epoch].
        checkpoint_every: as for `train`.
        study, experiment, store: study tag, experiment and MLflow tracking URI of the run.
        resume: continue the same loop after an interruption. `run.done` is the number of finished epochs.

    Raises:
        InvalidFields: lists all invalid arguments. Nothing was trained or written.

    >>> with fa_registry.track(model, eval=(x, y), method="mine", seed=7, credit=rule) as run:
    ...     for epoch in range(100):
    ...         train_one_epoch()
    ...         run.epoch(test_accuracy=accuracy())
    """
    checks = Checks("track")
    network = checks.network(model, sites, skip, readout, gradient)
    loss = checks.loss(network, loss)
    model, wrappers = unwrapped(model)
    batch, classes = _checked_batch(checks, network, eval, loss)
    numbers, wrong = parse_fields(NUMBERS, {"seed": seed, "epochs": epochs, "draws": draws})
    checks.problems += [*_problems(method, dataset, study, credit, fresh), *wrong]
    checks.problems += [*_wrong_control(model, control, wrappers), *_misfit(factory, network)]
    checks.finish()
    draws, test_set = numbers.pop("draws"), _test_set(test_labels, user_task(batch[1], loss))
    frozen = _frozen(network, control, batch[0])
    dataset = dataset or f"{OWN}-{tensors_digest(*batch)[:DIGITS]}"
    spec = _spec(_inner(network), "bp" if frozen else method, dataset, bool(frozen), **numbers)
    story = _story(network, credit, frozen, loss, {"factory": factory, **dataclasses.asdict(checks.traits)}, wrappers)
    setup = UserRunSetup(spec, _inner(network), batch, classes, _tensors(feedback), story, loss, test_set)
    rule = UserCreditRule("track", model, None if frozen else credit, fresh, draws)
    tracker = open_tracker(store, experiment)
    keep = RetentionOptions(checkpoint_every, keep_states=0)
    writer = partial(RunWriter, tracker, setup, study, keep=keep, open_end=not spec.epochs)
    rows = EpochJournal(registry_folder(tracker.uri) / "own_loops", spec, resume, tensors_digest(*batch))
    return TrackedRun(setup, network, rule, tracker, writer, rows, frozen_control(network, frozen) if control else None)


def _checked_batch(checks: Checks, network: nn.Module | None, batch: Any, loss: Loss) -> tuple[Any, int]:
    """Return a copy of the batch (x, y) and the number of classes; add problems to `checks`."""
    is_pair = isinstance(batch, (tuple, list)) and len(batch) == 2
    x, y = map(_copied, batch) if is_pair else (None, None)
    outputs = checks.batch(network, x, y, ("eval[0]", "eval[1]"), loss=loss)
    if checks.problems or y.dim() > 1 or y.is_floating_point():
        return (x, y), outputs  # for tokens, rows and values, the classes are the model's outputs
    return (x, y), int(y.max()) + 1


def _test_set(labels: Any, task: Task) -> dict[str, Scalar]:
    """Return the size of the test set with these labels and its chance, as conventions of a run.

    Raises:
        InvalidFields: the labels are not those of this task.
    """
    if labels is None:
        return {}
    try:
        given = torch.as_tensor(labels).cpu()
    except (TypeError, ValueError, RuntimeError):  # torch has no one error for values that are no numbers
        given = torch.zeros(0)
    numbers = given if given.is_floating_point() else given.long()
    tested = numbers if task.by_position else class_numbers(numbers)
    counted = torch.zeros(0) if tested is None else tested[tested != IGNORED] if task.by_position else tested
    if not len(counted) or tested.dim() != 1 + task.by_position or tested.is_floating_point() or counted.min() < 0:
        expected = "tokens (N, T)" if task.by_position else "class numbers (N,)"
        found = f"{given.dtype} of shape {tuple(given.shape)}" if len(given) else f"a {type(labels).__name__}"
        raise InvalidFields("track", [f"test_labels: expected {expected} of the whole test set, found {found}"])
    return {"test_samples": len(tested), CHANCE: task_of(tested).chance(tested, tested)}


def _frozen(network: nn.Module, control: bool | Sequence[str], x: Tensor) -> tuple[str, ...]:
    """Return the names of the blocks or parameters that are frozen in this run."""
    if isinstance(network, AdaptedNetwork) and network.is_skip_open:
        with torch.no_grad(), tensors_unchanged(network), diagnostics.eval_mode(network):
            network(x, return_hidden=True)  # detects whether the sites return residual branches
    if not control:
        return frozen_blocks(network)
    return blocks_to_freeze(network, () if control is True else control, x=x)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _inner(network: nn.Module) -> nn.Module:
    return network.model if isinstance(network, AdaptedNetwork) else network


def _spec(inner: nn.Module, method: str, dataset: str, is_frozen: bool, **numbers: int) -> RunSpec:
    # a control belongs to the runs whose specification differs from the control's only in the method (protocol.grouping)
    parameter = next(inner.parameters(), None)
    return RunSpec(
        method=method,
        architecture=type(inner).__name__,
        dataset=dataset,
        **numbers,
        architecture_options={STRUCTURE: structure(inner)},
        control="frozen" if is_frozen else "none",
        device_class="cuda" if parameter is not None and parameter.device.type == "cuda" else "cpu",
    )


def _problems(method: str, dataset: str, study: str, credit: Any, fresh: Any) -> list[str]:
    texts = {"method": method, "dataset": dataset, "study": study}
    problems = [] if method else ["method: expected the name of the method, found none"]
    problems += [f"{name}: {name_problem(text)}" for name, text in texts.items() if text and name_problem(text)]
    rules = {"credit": credit, "fresh": fresh}
    return problems + [
        f"{name}: expected a function, found a {type(rule).__name__}"
        for name, rule in rules.items()
        if rule is not None and not callable(rule)
    ]


def _wrong_control(model: Any, control: Any, wrappers: Sequence[str]) -> list[str]:
    """Return the reasons why the argument `control` is invalid for this model."""
    if control is False:
        return []
    is_listed = isinstance(control, (list, tuple)) and control and all(isinstance(name, str) for name in control)
    if control is not True and not is_listed:
        return [f"control: expected True, False or a list of names, found {control!r}"]
    if isinstance(model, nn.Module) and frozen_blocks(model):
        return [
            "control: expected a model that is not frozen, found a model that frozen_control has frozen; "
            "use only one of control and frozen_control"
        ]
    distributed = torch.distributed
    is_one_of_many = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    if is_one_of_many or "DistributedDataParallel" in wrappers:
        advice = "use frozen_control in every process, before the model is wrapped for distributed training"
        return [
            f"control: expected a model that one process trains, found a model that several processes train; {advice}"
        ]
    return []


def _misfit(factory: str, network: nn.Module | None) -> list[str]:
    """Return an error if the factory fails, or builds weights with other names or shapes than the model."""
    if not factory or network is None:
        return []
    try:
        built = structure(_inner(from_factory(factory)))
    except UsageError as error:
        return [str(error)]
    expected = "expected the weight names and shapes of the trained model, found other names or shapes"
    return [] if built == structure(_inner(network)) else [f"factory {factory!r}: {expected}"]


def _number(value: Any) -> Any:
    """Return the number in a tensor of one number, or any other value unchanged."""
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _tensors(feedback: Mapping[str, Tensor] | nn.Module | None) -> dict[str, Tensor]:
    state = feedback.state_dict() if isinstance(feedback, nn.Module) else feedback or {}
    problems = [
        f"feedback: {name}: expected a tensor, found a {type(value).__name__}"
        for name, value in state.items()
        if not isinstance(value, Tensor)
    ]
    if problems:
        raise InvalidFields("track", problems)
    return dict(state)


def _story(
    network: nn.Module,
    credit: CreditRule | None,
    frozen: Sequence[str],
    loss: Loss,
    details: Mapping[str, Any],
    wrappers: Sequence[str],
) -> dict[str, Any]:
    """Return the entry `own_loop` of provenance.json, with those `details` that are not empty."""
    script = Path(getattr(sys.modules.get("__main__"), "__file__", "") or "")
    story: dict[str, Any] = {"script": "no file (interactive session)"}
    if script.is_file():
        story = {"script": script.name, "sha256": jsonio.file_digest(script)}
    story["commit"], story["dirty"] = provenance.commit_of(script.resolve() if script.is_file() else Path.cwd())
    if isinstance(network, AdaptedNetwork):
        story |= {"sites": list(network.sites), "skip": network.skip}
        story |= {"readout": network.readout, "gradient": network.gradient}
    return {
        **story,
        "credit": "" if credit is None else _name_of(credit),
        "frozen": list(frozen),
        "stated": STATED,
        **{name: text for name, text in details.items() if text},
        **({"unwrapped from": ", ".join(wrappers)} if wrappers else {}),
        LOSS: loss_name(loss),
        **({} if isinstance(loss, str) else {"loss_function": _name_of(loss)}),
    }


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
