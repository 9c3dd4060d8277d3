"""Pitfall 7: feedback that no checkpoint contains, and the default Γ = 1.0 for missing feedback."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._feedback import MEASURES, draws, is_feedback, is_gamma
from fa_lint.rules._flow import assignments, is_own, saved_names, torch_modules, transient, wrapped
from fa_lint.rules._selections import filled, is_empty_test, printed
from fa_lint.rules._topic import feedback_factors, on_alignment, on_credit, on_fourier_features
from fa_lint.rules._values import Values, calls_in, values_of
from fa_lint.syntax import Syntax, argument, last_name, text_in

LOOKUPS = ("get", "pop", "setdefault", "getattr")


class UnsavedFeedback(LintRule):
    """Report feedback in plain attributes of a module, and code that sets Γ to 1.0 without feedback.

    A class is not checked if it registers a tensor under a computed name, or if it defines a method that saves its state, such as
    state_dict.
    """

    card = RuleCard(
        code="FA007",
        pitfall=7,
        name="unsaved-feedback",
        title="feedback is not saved in the state dict",
        why="Γ is a cosine with the feedback matrix B of the training: without this B, Γ cannot be measured after training, and a "
        "default of 1.0 would report perfect alignment",
        fix='write self.register_buffer("B", torch.randn(…)), because a buffer is saved and moved with the model; without B, '
        "report Γ as N/A with a reason",
    )
    clues = (("torch", "eedback", "dfa", "DFA", "numpy"), ("rand", "normal", "uniform", "bernoulli", "init.", "1"))

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield feedback in plain attributes of modules, and then expressions that set a missing Γ to 1.0."""
        for owner in torch_modules(syntax):
            saved = saved_names(syntax, owner)
            if saved is not None and not on_fourier_features(syntax):
                yield from _plain_attributes(syntax, owner, saved)
        yield from _gamma_defaults(syntax)
        for node in filled(values_of(syntax), 1) if on_credit(syntax) else ():
            yield Hit(node, f"`{syntax.snippet(node)}` reports perfect alignment where a cosine is undefined")


def _plain_attributes(syntax: Syntax, owner: ast.ClassDef, saved: set[str]) -> Iterator[Hit]:
    """Yield random feedback matrices in attributes that the state dict of the class does not contain."""
    factors = feedback_factors(syntax)
    for name, targets in _attributes(owner).items():
        if (is_feedback(name) or name in factors) and name not in saved:
            target = _random_target(values_of(syntax), owner, name, targets)
            text = f"of {owner.name} is a plain attribute with random numbers and not in the state dict"
            if target is not None:
                yield Hit(target, f"`{syntax.snippet(target)}` {text}")
    for call in calls_in(ast.walk(owner), ("register_buffer",)):
        name = getattr(argument(call, 0, "name"), "value", None)
        if transient(call) and isinstance(name, str) and (is_feedback(name) or name in factors):
            yield Hit(call, f"`{syntax.snippet(call)}` of {owner.name} excludes the feedback from the state dict")


def _attributes(owner: ast.ClassDef) -> dict[str, list[tuple[ast.expr, ast.expr]]]:
    """Return the targets and values of attributes of a class, for each name of an attribute."""
    found: dict[str, list[tuple[ast.expr, ast.expr]]] = {}
    in_body = [target for node in owner.body for target, _ in assignments(node)]
    for target, value in (pair for node in ast.walk(owner) for pair in assignments(node)):
        root = target.value if isinstance(target, ast.Subscript) else target
        if is_own(root) or (target in in_body and isinstance(target, ast.Name)):
            found.setdefault(last_name(root), []).append((target, value))
    return found


def _random_target(
    values: Values, owner: ast.ClassDef, name: str, pairs: list[tuple[ast.expr, ast.expr]]
) -> ast.expr | None:
    """Return the first target with random numbers, or the first one if a call adds them later."""
    inside = {*ast.walk(owner)}
    later = [value for value in values.keyed.get(name, []) if value in inside]
    for target, value in (*pairs, *((pairs[0][0], value) for value in later)):
        sources = [part for part in values.sources(value) if isinstance(part, ast.expr)]
        if any(draws(values.syntax, part) for part in sources) and not any(map(wrapped, sources)):
            return target
    return None


def _gamma_defaults(syntax: Syntax) -> Iterator[Hit]:
    """Yield each expression that sets Γ to 1.0 if Γ or the feedback is missing.

    Only source code about feedback alignment yields hits, because `gamma` is also a name for a discount factor and for the
    exponents of the focal loss and of displays.
    """
    results = [part for part in syntax.every(ast.Return) if part.value is not None]
    named = [*printed(syntax), *((getattr(syntax.function_of(part), "name", ""), part.value) for part in results)]
    ones = [(name, value) for name, value in named if _is_one(value)]
    defaults = [value for name, value in ones if _is_default(syntax, name, value)]
    for value in defaults if defaults and on_alignment(syntax) else ():
        node = value if isinstance(value, ast.IfExp) else syntax.parents[value]
        yield Hit(node, f"`{syntax.snippet(node)}` reports perfect alignment if a value is missing")


def _is_default(syntax: Syntax, name: str, value: ast.expr) -> bool:
    """Return whether a number is Γ, or the result of a measurement, only if a value is missing."""
    parent = syntax.parents[value]
    if isinstance(value, ast.IfExp):
        return is_gamma(name) and _asks_for_feedback(value.test)
    if isinstance(parent, ast.Call):
        return is_gamma(name) and last_name(parent.func) in LOOKUPS
    statement = next((part for part in (parent, *syntax.ancestors(parent)) if isinstance(part, ast.stmt)), parent)
    block = syntax.parents.get(statement)
    measures = isinstance(parent, ast.Return) and any(word in MEASURES for word in name.lower().split("_"))
    if isinstance(block, ast.ExceptHandler):
        return is_gamma(name) or measures
    if not isinstance(block, ast.If) or statement not in block.body:
        return False
    return (is_gamma(name) and _asks_for_feedback(block.test)) or (measures and is_empty_test(block.test))


def _is_one(node: ast.AST) -> bool:
    """Return whether a value may be the float 1.0; the integer 1 is excluded, as it is usually a count."""
    if isinstance(node, ast.IfExp):
        return _is_one(node.body) or _is_one(node.orelse)
    return isinstance(node, ast.Constant) and type(node.value) is float and node.value == 1.0


def _asks_for_feedback(test: ast.expr) -> bool:
    """Return whether a condition is like `feedback is None`, `not feedback` or `"feedback" not in state`."""
    is_presence = isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn))
    is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    return (is_presence or is_negated or isinstance(test, ast.Name)) and any(map(is_feedback, text_in(test)))


RULE = UnsavedFeedback()
