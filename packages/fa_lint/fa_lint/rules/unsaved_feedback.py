"""Pitfall 7: feedback that no checkpoint contains, and the default Γ = 1.0 for missing feedback."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._feedback import (
    draws,
    feedback_factors,
    filled_in_place,
    gamma_defaults,
    is_empty_test,
    is_feedback,
    on_fourier_features,
)
from fa_lint.rules._flow import assignments, is_own, saved_names, torch_modules, transient, wrapped
from fa_lint.rules._values import Values, label, on_credit, values_of
from fa_lint.syntax import Syntax, argument, last_name, number

FILLS = (
    "fillna",
    "nan_to_num",
    "where",
    "masked_fill",
    "masked_fill_",
    "putmask",
    "copyto",
    "index_fill",
    "index_fill_",
)


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
        cannot_see="feedback outside of an nn.Module, or with an unusual name and used by another file (not found); feedback "
        "that other code saves or re-initialises from a stored seed (reported nevertheless)",
    )
    clues = (
        ("torch", "eedback", "dfa", "DFA", "numpy"),
        ("rand", "normal", "uniform", "bernoulli", "init.", "1"),
    )

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield feedback in plain attributes of modules, and then expressions that set a missing Γ to 1.0."""
        for owner in torch_modules(syntax):
            saved = saved_names(syntax, owner)
            if saved is not None and not on_fourier_features(syntax):
                yield from _plain_attributes(syntax, owner, saved)
        yield from gamma_defaults(syntax)
        for node in filled_with_one(values_of(syntax)) if on_credit(syntax) else ():
            yield Hit(node, f"`{syntax.snippet(node)}` reports perfect alignment where a cosine is undefined")


def _plain_attributes(syntax: Syntax, owner: ast.ClassDef, saved: set[str]) -> Iterator[Hit]:
    """Yield random feedback matrices in attributes that the state dict of the class does not contain."""
    factors = feedback_factors(syntax)
    random_locals = _drawn_locals(syntax, owner)
    filled = {filled_target.attr for filled_target in _filled(syntax, owner) if is_own(filled_target)}
    for target, value in _set(owner):
        name = _attribute(owner, target)
        is_random_local = isinstance(value, ast.Name) and (syntax.function_of(target), value.id) in random_locals
        is_random = draws(syntax, value) or is_random_local or name in filled
        if name and (is_feedback(name) or name in factors) and name not in saved and is_random and not wrapped(value):
            yield Hit(
                target,
                f"`{syntax.snippet(target)}` of {owner.name} is a plain attribute with random numbers and not in the state dict",
            )
    for call in ast.walk(owner):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            yield from _calls(syntax, owner, call, saved, factors)


def _calls(syntax: Syntax, owner: ast.ClassDef, call: ast.Call, saved: set[str], factors: set[str]) -> Iterator[Hit]:
    """Yield calls that store random feedback in a plain list or in a buffer with persistent=False."""
    target, method = call.func.value, call.func.attr
    if method == "append" and is_own(target) and target.attr not in saved and call.args:
        is_fed_back = is_feedback(target.attr) or target.attr in factors
        if is_fed_back and draws(syntax, call.args[0]) and not wrapped(call.args[0]):
            yield Hit(
                call,
                f"`{syntax.snippet(call)}` of {owner.name} appends a random matrix to a plain list, which is not in the state dict",
            )
    elif method == "register_buffer" and transient(call):
        name = argument(call, 0, "name")
        if isinstance(name, ast.Constant) and (is_feedback(str(name.value)) or name.value in factors):
            yield Hit(call, f"`{syntax.snippet(call)}` of {owner.name} excludes the feedback from the state dict")


def filled_with_one(values: Values) -> Iterator[ast.AST]:
    """Yield each expression that sets a part of an array of cosines to 1."""
    syntax = values.syntax
    for node in syntax.parents:
        for target, value in assignments(node):
            index = target.slice if isinstance(target, ast.Subscript) else None
            is_part = isinstance(index, ast.Tuple) or (
                index is not None and number(index) is None and not label(target)
            )
            if is_part and number(value) == 1 and values.is_cosine(target if label(target) else target.value):
                yield node
        if (
            isinstance(node, ast.IfExp)
            and number(node.body) == 1
            and is_empty_test(node.test)
            and values.is_cosine(node)
        ):
            yield node
        name = last_name(node.func) if isinstance(node, ast.Call) else ""
        filling = [part for part in _operands_of(node) if number(part) == 1 or _is_ones(part)] if name in FILLS else []
        if filling and any(map(values.is_cosine, _operands_of(node))):
            yield node


def _operands_of(call: ast.Call) -> list[ast.expr]:
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return [*owner, *call.args, *(keyword.value for keyword in call.keywords)]


def _is_ones(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in ("ones", "ones_like", "tensor") and bool(node.args)


def _set(owner: ast.ClassDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(owner):
        yield from assignments(node)


def _drawn_locals(syntax: Syntax, owner: ast.ClassDef) -> set[tuple[ast.AST, str]]:
    """Return the function and the name of each local variable that contains random numbers."""
    random_targets = [target for target, value in _set(owner) if draws(syntax, value) and not wrapped(value)]
    names = [target for target in (*random_targets, *_filled(syntax, owner)) if isinstance(target, ast.Name)]
    return {(syntax.function_of(name), name.id) for name in names}


def _attribute(owner: ast.ClassDef, target: ast.expr) -> str:
    """Return NAME for `self.NAME`, `self.NAME[…]` or a class attribute NAME, else an empty string."""
    target = target.value if isinstance(target, ast.Subscript) else target
    if is_own(target):
        return target.attr
    in_body = any(target is assigned for node in owner.body for assigned, _ in assignments(node))
    return target.id if in_body and isinstance(target, ast.Name) else ""


def _filled(syntax: Syntax, owner: ast.ClassDef) -> list[ast.AST]:
    """Return the targets that the class fills with random numbers in place."""
    calls = (node for node in ast.walk(owner) if isinstance(node, ast.Call))
    return [target for target in (filled_in_place(syntax, call) for call in calls) if target is not None]


RULE = UnsavedFeedback()
