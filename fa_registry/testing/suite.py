"""check_method and assert_method: all properties over all cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from fa_registry import methods
from fa_registry.architectures.base import Architecture
from fa_registry.errors import UsageError, unknown_name_text
from fa_registry.methods.base import Method
from fa_registry.records import Scalar
from fa_registry.testing import universal
from fa_registry.testing.cases import Setting, forms, supported_by, variants
from fa_registry.testing.declared import DECLARED
from fa_registry.testing.objective import objective_gradient
from fa_registry.testing.outcomes import Outcome, PropertyResult, failed

Check = Callable[[Setting], Outcome]

UNIVERSAL: tuple[Check, ...] = (
    universal.credit_fits_state,
    universal.rows_keep_their_sum,
    universal.credit_is_pure,
    universal.credit_ignores_reference,
    universal.feedback_is_drawn_from_the_seed,
    universal.oracle_credit_is_bp,
    universal.not_secretly_bp,
    universal.head_learns_from_the_loss,
    universal.exact_sites_are_exact,
    objective_gradient,
    universal.post_hoc_equals_in_training,
    universal.batch_size_invariance,
)


def check_method(
    method: str | Method,
    architectures: Sequence[str | Architecture] | None = None,
    seed: int = 0,
    options: Mapping[str, Scalar] | None = None,
) -> list[PropertyResult]:
    """Measure every property of a method: first those all methods have, then those of credit.md §5 that a card may declare.

    method: a name of the catalog, or any Method object. architectures: names or Architecture objects; if none are given, all of
    the catalog that the card supports. options: of the method, by name; the rest are its defaults, and where one of those is a
    choice of words, each of them is measured on each architecture. Every network is small, in float64, and drawn from `seed`,
    which a failure prints.
    Returns one PropertyResult a property: pass, fail or not_applicable, with the figure. Raises UnknownName for an unknown name.
    """
    subject, given = methods.CATALOG.get(method) if isinstance(method, str) else method, dict(options or {})
    settings = []
    for architecture in supported_by(subject, architectures):
        own = [Setting(subject, architecture, sizes, seed, given) for sizes in variants(architecture)]
        others = [form for form in forms(subject) if not form.keys() & given.keys()]
        settings += [*own, *(dataclasses.replace(own[0], method_options={**given, **form}) for form in others)]
    if not settings:
        raise UsageError(
            f"method {subject.card.name!r}: no architecture to check it on; its card supports "
            f"{', '.join(subject.card.architectures) or 'none'}"
        )
    results = [_over_cases(check.__name__, check, settings) for check in UNIVERSAL]
    for name, check in DECLARED.items():
        declared = name in subject.card.properties
        results.append(
            _over_cases(name, check, settings)
            if declared
            else PropertyResult(name, "not_applicable", "its card does not declare it")
        )
    unknown = [name for name in subject.card.properties if name not in DECLARED]
    return results + [PropertyResult(name, "fail", unknown_name_text("property", name, DECLARED)) for name in unknown]


def assert_method(
    method: str | Method, architectures: Sequence[str | Architecture] | None = None, seed: int = 0
) -> None:
    """check_method, raising AssertionError that names every failed property with its figures, case and seed."""
    failures = [result for result in check_method(method, architectures, seed) if result.outcome == "fail"]
    if failures:
        name = method if isinstance(method, str) else method.card.name
        lines = [f"  {result.property}: {result.detail}" for result in failures]
        raise AssertionError("\n".join([f"method {name!r} fails {len(failures)} of its properties:", *lines]))


def _over_cases(name: str, check: Check, settings: Sequence[Setting]) -> PropertyResult:
    """The first failure, else the last pass, else why it does not apply."""
    result = PropertyResult(name, "not_applicable", "")
    for setting in settings:
        outcome = _measure(check, setting)
        if outcome.outcome == "fail":
            return PropertyResult(name, "fail", f"{setting.label}: {outcome.detail}")
        if outcome.outcome == "pass" or result.outcome != "pass":
            result = PropertyResult(name, outcome.outcome, outcome.detail)
    detail = f"{result.detail} ({len(settings)} cases)" if result.outcome == "pass" else result.detail
    return PropertyResult(name, result.outcome, detail)


def _measure(check: Check, setting: Setting) -> Outcome:
    """The check's outcome; an exception of somebody else's method is a failure of that property, not of the suite."""
    try:
        return check(setting)
    except Exception as error:
        return failed(f"raised {type(error).__name__}: {error}")
