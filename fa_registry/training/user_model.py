"""Measure a user-supplied model and credit rule on a batch.

The metrics are the same as for built-in runs. Model, credit rule and batch are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import BackwardHook

from fa_registry.architectures import AdaptedNetwork
from fa_registry.diagnostics import (
    ForwardBackward,
    Observation,
    ProbeContext,
    ReferenceCheck,
    Unavailable,
    run_forward_backward,
)
from fa_registry.diagnostics._probe import NO_BENCH
from fa_registry.diagnostics.base import Diagnostic
from fa_registry.diagnostics.h_norm import state_norms
from fa_registry.errors import InvalidFields
from fa_registry.field_types import Limits
from fa_registry.metrics import REFERENCE_CHECK
from fa_registry.network_mode import eval_mode, gradients_enabled, tensors_unchanged, usable_for_gradients
from fa_registry.records import Measurements, Reading
from fa_registry.seeding import derive, generators_unchanged
from fa_registry.tasks import Task
from fa_registry.token_axes import gradient_vectors
from fa_registry.training.input_validation import Checks
from fa_registry.training.measuring import attempt, in_order
from fa_registry.training.reference import WIDTHS, checked, unreferenced, without_reference

NO_FRESH = "the null distribution of Γ needs credits under newly drawn feedback, but `fresh` was not given"
NO_RULE = "no credit was given, so only the norms of the network are measured"
NOT_GIVEN = "no credit was given at this site"
NO_GRAPH = ("not have been used in the graph", "does not require grad")  # parts of torch's messages
OF_INFERENCE = "nference tensor"  # part of torch's messages
MADE_IN_INFERENCE = (
    "a tensor that was made inside torch.inference_mode(); use its copy tensor.clone(), made outside of this mode"
)
OF_A_NULL = "gamma_null"  # the one diagnostic that needs newly drawn feedback
SEED = 0
DRAWS = {"draws": Annotated[int, Limits(ge=2, le=1_000)]}  # draws of the feedback for the null distribution of Γ
TORCH = Path(torch.__file__).parent
Credits = Sequence[Tensor | None]
CreditRule = Callable[[nn.Module, Tensor, Tensor], Credits]
FreshRule = Callable[[nn.Module, Tensor, Tensor, torch.Generator], Credits]


def observed_look(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    subject: str,
    double: bool = True,
    directions: Any = None,
    task: Task | None = None,
) -> ForwardBackward:
    """Return the forward/backward pass of one batch.

    Args:
        network: network with observable sites.
        x: input, (N, …).
        y: labels, (N,).
        subject: name of the function in error messages.
        double: whether to run a float64 pass too. The metric fidelity needs this pass.
        directions: as for diagnostics.observe.
        task: task that defines the loss, or None for the built-in task of the labels' dtype.

    Raises:
        InvalidFields: if the loss has no gradient at a state.
    """
    try:
        return run_forward_backward(network, x, y, double, directions, task)
    except Exception as error:
        problem = _problem_of_pass(network, error)
        if not problem:
            raise
        raise InvalidFields(subject, [f"model: {problem}"]) from error


def _problem_of_pass(network: nn.Module, error: Exception) -> str:
    """Return why a forward/backward pass failed, or "" if the cause is unknown."""
    if isinstance(error, RuntimeError) and any(text in str(error) for text in NO_GRAPH):
        return (
            "expected that the loss depends on every state, found a detached or unused state; if the model detaches states or "
            "uses checkpoints with use_reentrant=True, pass gradient='forward' to compute the reference gradient from the "
            "forward pass"
        )
    if isinstance(error, RuntimeError) and OF_INFERENCE in str(error):
        return f"the forward pass uses {MADE_IN_INFERENCE}"
    if place := _backward_place(network, error):
        return (
            f"{place} raised {type(error).__name__} in the backward pass: {error}; pass gradient='forward', which does not run "
            "the backward code of a model"
        )
    return ""


def _backward_place(network: nn.Module, error: Exception) -> str:
    """Return which code of the model raised an error in the backward pass.

    Returns:
        The name of the module and of the function, or an empty string if torch or other code raised the error.
    """
    frames = list(_backward_frames(error))
    own_frames = [frame for frame in frames if TORCH not in Path(frame.f_code.co_filename).parents]
    if not own_frames:
        return ""
    model = network.model if isinstance(network, AdaptedNetwork) else network
    names = {id(module): name or type(module).__name__ for name, module in model.named_modules()}
    values = (value for frame in reversed(frames) for value in frame.f_locals.values())
    used = (value.module if isinstance(value, BackwardHook) else value for value in values)
    module = next((names[id(value)] for value in used if id(value) in names), "")
    function = own_frames[0].f_code.co_qualname
    return f"{function} of module {module}" if module else f"{function}, a hook or backward function of the model,"


def _backward_frames(error: Exception) -> Iterator[FrameType]:
    """Yield the frames of an error that are inside torch's backward pass, the outermost first."""
    trace, is_inside = error.__traceback__, False
    while trace:
        if is_inside:
            yield trace.tb_frame
        is_inside = is_inside or trace.tb_frame.f_code is torch.autograd.grad.__code__
        trace = trace.tb_next


class UserCreditRule:
    """A user-supplied credit rule that is called on one batch.

    Args:
        subject: name of the function in error messages.
        rule: function rule(model, x, y) that returns the list [c_0 … c_L], or None if the user gave no credit. Each credit has
            the shape (N, D_l) or the state's shape. At a site without a credit, the entry of the list is None.
        fresh: function fresh(model, x, y, generator) that returns credits under newly drawn feedback, or None. The null
            distribution of the alignment Γ needs this function.
        draws: number of draws for the null distribution.
    """

    def __init__(self, subject: str, model: nn.Module, rule: CreditRule | None, fresh: FreshRule | None, draws: int):
        self.subject = subject
        self._model, self._rule, self._fresh, self._draws = model, rule, fresh, draws

    def __bool__(self) -> bool:
        """Return whether the user gave a credit rule."""
        return self._rule is not None

    @property
    def null_draws(self) -> int:
        """Number of draws for the null distribution of Γ, or 0 without a function that draws feedback."""
        return self._draws if self._fresh else 0

    def given(self, x: Tensor, y: Tensor, states: Sequence[Tensor]) -> list[Tensor | None]:
        """Return one detached credit per site, or None at a site without a credit.

        If the rule returns invalid credits, raise InvalidFields with all of them.
        """
        return self._checked(self._call(self._rule, x, y), states)

    def bench(
        self, x: Tensor, y: Tensor, states: Sequence[Tensor], rows: Callable[[Sequence[Tensor]], list[Tensor]]
    ) -> ProbeContext:
        """Return a probe context that contains only the credits under newly drawn feedback.

        The null distribution of Γ uses these credits. All other entries of the context are empty or unavailable.
        """

        def drawn(index: int) -> list[Tensor]:
            generator = torch.Generator().manual_seed(derive(SEED, f"evaluation/gamma_null/{index}"))
            credits = self._checked(self._call(self._fresh, x, y, generator), states)
            return rows(_filled(credits, states))

        unavailable = Unavailable(NO_BENCH)
        return ProbeContext(
            states=(),
            gradients=(),
            losses=torch.zeros(0),
            losses_from=lambda *arguments: torch.zeros(0),
            generator=lambda name: torch.Generator(),
            credits=unavailable,
            batch_gradients=unavailable,
            fresh_credits=drawn if self._fresh else Unavailable(NO_FRESH),
            weights=unavailable,
            initial_weights=unavailable,
            bridge_residuals=unavailable,
            costates=unavailable,
            null_draws=self._draws,
        )

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            with state_unchanged(self._model):
                return function(self._model, *arguments)
        except RuntimeError as error:
            if OF_INFERENCE not in str(error):
                raise
            raise InvalidFields(self.subject, [f"credit: the function uses {MADE_IN_INFERENCE}"]) from error

    def _checked(self, rule_output: Any, states: Sequence[Tensor]) -> list[Tensor | None]:
        checks = Checks(self.subject)
        credits = _credits(checks, rule_output, states)
        checks.finish()
        return credits


@dataclass(frozen=True)
class ReferenceSource:
    """The source of the reference gradient, and the result of its check.

    `source` describes how the gradient was computed. It is empty for the model's backward pass. `check` is None if this
    measurement did not check the gradient. `zero` is the reason why the gradient at the last site is zero, or empty.
    """

    source: str = ""
    check: ReferenceCheck | None = None
    zero: str = ""


def measured(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    rule: UserCreditRule,
    diagnostics: Iterable[Diagnostic],
    objection: str | None = None,
    samples: int | None = None,
    initial_norms: Sequence[float] | None = None,
    task: Task | None = None,
) -> tuple[Measurements, ReferenceSource]:
    """Run diagnostics on one batch and check the reference gradient.

    At a site without a credit, the metrics that need a credit are N/A with the reason that no credit was given. If the check finds
    that the gradient is wrong, comparisons with the gradient are N/A. If a diagnostic raises an exception, the traceback is added
    to the failures, as in built-in training.

    Args:
        network, x, y: network with observable sites, input (N, …) and labels (N,).
        objection: the result of an earlier check, or None to check the gradient now.
        samples: as for reference.checked.
        initial_norms: h_norm of every site at initialisation, or None if it is unknown. An empty sequence means that the model is
            at initialisation now.
        task: task that defines the loss, or None for the built-in task of the labels' dtype.

    Returns:
        The measurements, and the source of the reference gradient.
    """
    forward_backward, rule_credits, check = _checked_pass(network, x, y, rule, objection is None, samples, task)
    states = forward_backward.single.hidden
    credits = None if rule_credits is None else _filled(rule_credits, states)
    base_observation = forward_backward.observation(credits, no_credits=NO_RULE, initial_norms=initial_norms)
    if initial_norms is not None and not initial_norms:
        base_observation = replace(
            base_observation, initial_norms=state_norms(base_observation.stream or base_observation.hidden)
        )
    bench = rule.bench(x, y, states, forward_backward.rows) if rule else None
    objection = objection or (check.objection if check else "")

    def found_in(observation: Observation) -> Measurements:
        return _found(diagnostics, observation, replace(observation, bench=bench), rule_credits)

    measurements = found_in(base_observation)
    if objection:
        measurements = without_reference(measurements, found_in(unreferenced(base_observation)), objection)
    sites = dict(measurements.sites)
    if check:
        sites[REFERENCE_CHECK] = check.deviations
    if forward_backward.widths:
        sites[WIDTHS] = tuple(map(Reading, forward_backward.widths))
    source = ReferenceSource(forward_backward.source, check, base_observation.zero_reason(-1))
    return in_order(sites, measurements.scalars, measurements.failures), source


def _checked_pass(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    rule: UserCreditRule,
    is_to_check: bool,
    samples: int | None,
    task: Task | None,
) -> tuple[ForwardBackward, Credits | None, ReferenceCheck | None]:
    """Return the forward/backward pass, the credits of the rule, and the check of the reference gradient.

    Args:
        is_to_check: whether to check the gradient now.
    """

    def directions(states: Sequence[Tensor]) -> list[Tensor]:
        credits = _filled(rule.given(x, y, states), states)  # missing and not finite values count as zeros
        return [gradient_vectors(torch.nan_to_num(credit, 0.0, 0.0, 0.0)) for credit in credits]

    along = directions if rule else None
    forward_backward = observed_look(network, x, y, rule.subject, directions=along, task=task)
    states = forward_backward.single.hidden
    rule_credits = rule.given(x, y, states) if rule else None
    if not is_to_check:
        return forward_backward, rule_credits, None
    vectors = None if rule_credits is None else _filled(rule_credits, states)
    if vectors is not None and not forward_backward.task.by_position:
        vectors = forward_backward.rows(vectors)
    forward_backward, check = checked(network, x, y, forward_backward, vectors, along, samples, task)
    return forward_backward, rule_credits, check


def _found(
    diagnostics: Iterable[Diagnostic], observation: Observation, with_bench: Observation, rule_credits: Credits | None
) -> Measurements:
    sites: dict[str, tuple[Reading, ...]] = {}
    scalars: dict[str, Reading] = {}
    failures: dict[str, str] = {}
    for diagnostic in diagnostics:
        card = diagnostic.card
        metrics, failure = attempt(diagnostic, with_bench if card.name == OF_A_NULL else observation)
        credit_metrics = set(card.needs_credit) if rule_credits else set()
        sites |= {
            name: _without(row, rule_credits) if name in credit_metrics else row for name, row in metrics.sites.items()
        }
        scalars |= metrics.scalars
        failures |= {card.name: failure} if failure else {}
    return Measurements(sites, scalars, failures=failures)


def _without(row: Sequence[Reading], rule_credits: Credits) -> tuple[Reading, ...]:
    not_given = Reading(None, NOT_GIVEN)
    return tuple(not_given if credit is None else reading for reading, credit in zip(row, rule_credits, strict=True))


def _filled(credits: Credits, states: Sequence[Tensor]) -> list[Tensor]:
    """Return the credits. Missing credits are replaced by tensors of nan."""
    return [
        torch.full_like(state, torch.nan) if credit is None else credit
        for credit, state in zip(credits, states, strict=True)
    ]


def _credits(checks: Checks, rule_output: Any, states: Sequence[Tensor]) -> list[Tensor | None]:
    """Return one detached credit per site, and add invalid credits to the problems."""
    credit_list = list(rule_output) if isinstance(rule_output, (list, tuple)) else None
    if credit_list is None or len(credit_list) != len(states):
        found_text = f"{len(credit_list)} credits" if credit_list is not None else f"a {type(rule_output).__name__}"
        checks.problems.append(
            f"credit: expected a list of {len(states)} credits, c_0 to c_{len(states) - 1}, found {found_text}; "
            "c_0 belongs to what enters the first site, and c_1, c_2, … to what the sites return; if the rule gives no credit at "
            "the entry, return [None, c_1, …]"
        )
        return [None] * len(states)
    for site, (credit, state) in enumerate(zip(credit_list, states, strict=True)):
        if credit is None:
            continue
        if not isinstance(credit, Tensor):
            checks.problems.append(f"credit: c_{site}: expected a tensor or None, found a {type(credit).__name__}")
        elif credit.shape not in (state.shape, _row_shape(state)):
            expected = " or ".join(map(str, dict.fromkeys((tuple(state.shape), tuple(_row_shape(state))))))
            checks.problems.append(f"credit: c_{site}: expected the shape {expected}, found {tuple(credit.shape)}")
        elif credit.device != state.device:
            checks.problems.append(
                f"credit: c_{site}: expected the device of the model ({state.device}), found {credit.device}"
            )
    return [usable_for_gradients(credit.detach()) if isinstance(credit, Tensor) else None for credit in credit_list]


def _row_shape(state: Tensor) -> torch.Size:
    """Return the shape (N, D_l) of a state's gradient vectors."""
    return torch.Size((len(state), state.shape[1] if state.dim() == 4 else state.shape[-1]))


@contextmanager
def state_unchanged(model: nn.Module) -> Iterator[None]:
    """Context manager: use eval mode, and restore gradients, modes, tensors and random generators on exit."""
    gradients = [(weight, weight.grad) for weight in model.parameters()]
    for weight, _ in gradients:
        weight.grad = None
    try:
        with tensors_unchanged(model), eval_mode(model), generators_unchanged(), gradients_enabled():
            yield
    finally:
        for weight, gradient in gradients:
            weight.grad = gradient
