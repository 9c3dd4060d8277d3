"""Functions check_method and assert_method, which check all properties of a method."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fa_registry import methods
from fa_registry.architectures.base import Architecture
from fa_registry.conformance import contract_checks
from fa_registry.conformance.contract_checks import compare
from fa_registry.conformance.declared_checks import DECLARED
from fa_registry.conformance.outcomes import SIGN, CheckOutcome, PropertyResult, failed
from fa_registry.conformance.small_networks import (
    Gradients,
    NetworkCase,
    Setting,
    cross_entropies,
    forms,
    supported_by,
    variants,
)
from fa_registry.errors import UsageError, unknown_name_text
from fa_registry.methods._backward_weights import backward_through
from fa_registry.methods._card import SIGN_PROPERTIES
from fa_registry.methods.base import CreditInputs, HasOwnPrediction, Method, UsesBackwardWeights
from fa_registry.records import Scalar
from fa_registry.training.method_calls import credits_and_states_of
from fa_registry.training.prediction import scores_of

PENALTIES = ((0.0, 0.0), (0.01, 0.02))  # λ of the branches and λ_0 of the embedding
CREDIT_NORMS = ("none", "rms")


def objective_gradient(setting: Setting) -> CheckOutcome:
    """Check that the gradients of one step equal autograd's gradients of the objective.

    The check runs with and without penalties, for both values of credit_norm.
    """
    case = setting.case()
    outcome = CheckOutcome("pass", "")
    for penalty, penalty_embedding in PENALTIES:
        for credit_norm in CREDIT_NORMS:
            literal = literal_gradients(case, penalty, credit_norm, penalty_embedding)
            outcome = compare(case.step(penalty, credit_norm, penalty_embedding), literal)
            if outcome.outcome != "pass":
                found = f"penalties {penalty:g} and {penalty_embedding:g}, credit_norm {credit_norm}: {outcome.detail}"
                return CheckOutcome(outcome.outcome, found)
    return outcome


def literal_gradients(case: NetworkCase, penalty: float, credit_norm: str, penalty_embedding: float = 0.0) -> Gradients:
    """Return the gradient of the objective by parameter name, computed by autograd."""
    if case.method.end_to_end:  # mean CE + λ Σ_l mean_i ||f_l||² + λ_0 mean_i ||h_0||², in which no state is detached
        state, total = case.network.embed(case.images), torch.zeros((), dtype=torch.float64)
        for block in case.network.blocks:
            branch = block(state)
            total = total + penalty * _mean_square(branch)
            state = case.network.step(state, branch)
        loss = total + cross_entropies(case.network.readout(state), case.labels).mean()
    else:
        loss = _local_objective(case, penalty, credit_norm)
    loss = loss + penalty_embedding * _mean_square(case.network.embed(case.images))
    parameters = dict(case.network.named_parameters())
    return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))


def _local_objective(case: NetworkCase, penalty: float, credit_norm: str) -> Tensor:
    """Return Σ_l J_l + mean CE(head(sg h_L)), computed with the method's credits.

    J_l is the local objective of block l, and sg means that the state is detached.
    """
    replaces = isinstance(case.method, UsesBackwardWeights)
    matrices = case.method.backward_weights(case.feedback, case.network) if replaces else {}
    states, branches = [case.network.embed(case.images)], []
    with backward_through(case.network, matrices):
        for block in case.network.blocks:
            branches.append(block(states[-1].detach()))
            states.append(case.network.step(states[-1].detach(), branches[-1]))
    top = states[-1].detach().requires_grad_()
    logits = case.network.readout(top)
    losses = cross_entropies(logits, case.labels)
    loss_sum, onehot = losses.sum(), nn.functional.one_hot(case.labels, logits.shape[-1]).double()
    inputs = CreditInputs(
        hidden=[state.detach() for state in states],
        error=logits.detach().softmax(dim=-1) - onehot,
        onehot=onehot,
        output_gradient=torch.autograd.grad(loss_sum, top, retain_graph=True)[0],
        images=case.images,
        labels=case.labels,
        losses=losses.detach(),
        network=case.network,
        scores=scores_of(case.method, case.feedback, case.network, case.images, logits.shape),
    )
    # if the source normalises the credit of the mean loss, this credit is c divided by the number of samples
    divisor = len(case.labels) if case.method.card.credit_scale == "mean" else 1
    by_position = case.labels.dim() > 1
    credited = credits_and_states_of(case.method, case.feedback, inputs)
    outputs = [states[0], *branches]  # that the credits train; the penalty always uses `branches`
    if credited.images is not None:
        outputs[0] = case.network.embed(credited.images)
    if credited.states is not None:
        outputs[1:] = [
            block(state.detach()) for block, state in zip(case.network.blocks, credited.states[:-1], strict=True)
        ]
    normed = (_norm(credit, credit_norm, divisor, by_position) for credit in credited.credits)
    # Σ_i <value_i, credit_i> over passes, samples, features and positions
    local = sum(
        (value * case.network.spread(credit, value)).sum() for value, credit in zip(outputs, normed, strict=True)
    )
    local = local / len(case.labels)
    return local + penalty * sum(map(_mean_square, branches)) + loss_sum / len(case.labels)


def _norm(credit: Tensor, kind: str, divisor: int, by_position: bool) -> Tensor:
    """Return c if `kind` is "none", otherwise c/divisor divided by its root mean square per sample.

    If every position has a target, the root mean square is computed per position.
    """
    if kind == "none":
        return credit
    published, features = credit / divisor, -1 if by_position else tuple(range(1, credit.dim()))
    return published / (published.pow(2).mean(dim=features, keepdim=True).sqrt() + 1e-6)


def _mean_square(branch: Tensor) -> Tensor:
    return branch.pow(2).flatten(1).sum(dim=1).mean()


Check = Callable[[Setting], CheckOutcome]

UNIVERSAL: tuple[Check, ...] = (
    contract_checks.credit_fits_state,
    contract_checks.credit_is_equal_in_float32,
    contract_checks.rows_keep_their_sum,
    contract_checks.credit_is_pure,
    contract_checks.credit_ignores_reference,
    contract_checks.feedback_is_drawn_from_the_seed,
    contract_checks.oracle_credit_is_bp,
    contract_checks.not_secretly_bp,
    contract_checks.head_learns_from_the_loss,
    contract_checks.exact_sites_are_exact,
    objective_gradient,
    contract_checks.post_hoc_equals_in_training,
    contract_checks.batch_size_invariance,
)
PREDICTION: Check = contract_checks.prediction_depends_on_the_sample_only  # of a method that predicts by itself


def check_method(
    method: str | Method,
    architectures: Sequence[str | Architecture] | None = None,
    seed: int = 0,
    options: Mapping[str, Scalar] | None = None,
    task: str = "",
) -> list[PropertyResult]:
    """Check every property of a method on small networks in float64, and its credit in float32 too.

    Args:
        method: Name in the catalog, or any Method object.
        architectures: Names or Architecture objects. By default, all architectures that the method's card supports.
        seed: Seed of all networks. The message of a failure contains the seed.
        options: Options of the method, by name. Each option that is not given and has choices is checked with every choice, on
            each architecture. All other options have their defaults.
        task: Name of a task. The check then uses only architectures that support this task. By default, all tasks that the card
            lists.

    Returns:
        One PropertyResult per property, with the outcome "pass", "fail" or "not_applicable" and the measured value. The properties
        of all methods come first, then the properties of credit.md §5 that a card may declare. The last result reports whether a
        property that passed determines the sign of the credit: "pass" or "not_tested".

    Raises:
        UnknownName: If a name is not in the catalog.
        UsageError: If the card lists no architecture that supports the task.
    """
    subject, overrides = methods.CATALOG.get(method) if isinstance(method, str) else method, dict(options or {})
    settings = []
    for architecture in supported_by(subject, architectures, task):
        by_size = [Setting(subject, architecture, sizes, seed, overrides) for sizes in variants(architecture)]
        other_forms = [form for form in forms(subject) if not form.keys() & overrides.keys()]
        settings += [
            *by_size,
            *(dataclasses.replace(by_size[0], method_options={**overrides, **form}) for form in other_forms),
        ]
    if not settings:
        raise UsageError(
            f"method {subject.card.name!r}: expected an architecture that the card supports, found none; supported: "
            f"{', '.join(subject.card.architectures) or 'none'}, for the tasks {', '.join(subject.card.tasks)}"
        )
    checks = [*UNIVERSAL, *([PREDICTION] if isinstance(subject, HasOwnPrediction) else [])]
    results = [_over_cases(check.__name__, check, settings) for check in checks]
    for name, check in DECLARED.items():
        declared = name in subject.card.properties
        results.append(
            _over_cases(name, check, settings)
            if declared
            else PropertyResult(name, "not_applicable", "the card does not declare this property")
        )
    unknown = [name for name in subject.card.properties if name not in DECLARED]
    results += [PropertyResult(name, "fail", unknown_name_text("property", name, DECLARED)) for name in unknown]
    return [*results, _sign(results)]


def _sign(results: Sequence[PropertyResult]) -> PropertyResult:
    """Return whether a property that passed determines the sign of the credit."""
    passed_names = {result.property for result in results if result.outcome == "pass"}
    if fixing := [name for name in SIGN_PROPERTIES if name in passed_names]:
        return PropertyResult(SIGN, "pass", f"determined by {', '.join(fixing)}")
    detail = f"sign not tested: no property that passed determines it; such properties are {', '.join(SIGN_PROPERTIES)}"
    return PropertyResult(SIGN, "not_tested", detail)


def assert_method(
    method: str | Method, architectures: Sequence[str | Architecture] | None = None, seed: int = 0
) -> None:
    """Check every property of a method, and raise AssertionError if a property fails.

    The message lists each failed property with its values, network and seed.
    """
    failures = [result for result in check_method(method, architectures, seed) if result.outcome == "fail"]
    if failures:
        name = method if isinstance(method, str) else method.card.name
        lines = [f"  {result.property}: {result.detail}" for result in failures]
        noun = "property" if len(failures) == 1 else "properties"
        raise AssertionError("\n".join([f"method {name!r} fails {len(failures)} {noun}:", *lines]))


def _over_cases(name: str, check: Check, settings: Sequence[Setting]) -> PropertyResult:
    """Check a property in all settings, and stop at the first failure.

    If no setting fails, return the result of the last setting that passes.
    """
    result = PropertyResult(name, "not_applicable", "")
    for setting in settings:
        outcome = _measure(check, setting)
        if outcome.outcome == "fail":
            return PropertyResult(name, "fail", f"{setting.label}: {outcome.detail}")
        if outcome.outcome == "pass" or result.outcome != "pass":
            result = PropertyResult(name, outcome.outcome, outcome.detail)
    detail = f"{result.detail} ({len(settings)} cases)" if result.outcome == "pass" else result.detail
    return PropertyResult(name, result.outcome, detail)


def _measure(check: Check, setting: Setting) -> CheckOutcome:
    """Run a check. If the method's code raises an exception, only this check fails."""
    try:
        return check(setting)
    except Exception as error:
        return failed(f"raised {type(error).__name__}: {error}")
