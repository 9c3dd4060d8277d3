"""Pitfall 7: a custom backward pass returns the feedback signal in place of the gradient."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._custom_backward import applies, feedback_functions, names_feedback
from fa_lint.rules._values import Values, values_of
from fa_lint.syntax import Syntax, last_name

# Names of a reference gradient, and of a second model whose backward pass computes the gradient.
REFERENCE = re.compile(
    r"(\w+_)?(g|gs|grads?|gradients?|bp|backprop|backpropagation|autograd|twin|true|exact|refs?|references?)\d*(_\w+)?",
    re.IGNORECASE,
)


class CustomBackward(LintRule):
    """Report custom autograd Functions whose backward pass does not use the weight.

    Alignments with the `.grad` of a model that contains such a Function are reported too. The Function itself is not reported if
    the code passes `gradient="forward"`. An alignment between two gradients is not reported, because one of the gradients
    may come from a second model with an exact backward pass.
    """

    card = RuleCard(
        code="FA013",
        pitfall=7,
        name="custom-backward",
        title="a custom backward pass does not return the gradient",
        why="autograd does not check a custom backward pass: `.grad` of all tensors below such a layer contains the feedback "
        "signal, so its cosine with the feedback is 1.0, and norms, gain and fidelity describe the feedback too",
        fix='compute the true gradient from the forward pass with `fa_registry.adapt(model, …, gradient="forward")`, '
        "and compare the feedback with this gradient",
    )
    clues = (("autograd",), ("Function", "import *"), ("backward", "vjp"))

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield the Functions first, and then the alignments that use their signal as the gradient."""
        functions = dict(feedback_functions(syntax))
        if not functions:
            return
        if not any(map(_asks_for_forward, syntax.every(ast.keyword))):
            yield from (hit for name, hit in functions.items() if not _is_optional(syntax, name))
        yield from _alignments(syntax)


def _asks_for_forward(keyword: ast.keyword) -> bool:
    return keyword.arg == "gradient" and isinstance(keyword.value, ast.Constant) and keyword.value.value == "forward"


def _is_optional(syntax: Syntax, name: str) -> bool:
    """Return whether every call of a Function has an alternative that computes the gradient."""
    calls = [call for call in syntax.every(ast.Call) if applies(syntax, call, name)]
    return bool(calls) and all(_has_alternative(syntax, call) for call in calls)


def _has_alternative(syntax: Syntax, call: ast.Call) -> bool:
    """Return whether a condition decides about a call, or another `return` ends the function before it."""
    parents, function = [*syntax.ancestors(call)], syntax.function_of(call)
    ends = [part for part in ast.walk(function) if isinstance(part, ast.Return) and part not in parents]
    conditions = [part for part in parents if isinstance(part, (ast.If, ast.IfExp))]
    is_conditional = any(syntax.function_of(part) is function for part in conditions)
    return is_conditional or any(part.lineno < call.lineno for part in ends)


def _alignments(syntax: Syntax) -> Iterator[Hit]:
    """Yield each cosine between the `.grad` of a model and a vector that is not a gradient."""
    values = values_of(syntax)
    for node, sides in values.pairs:
        for gradient, vector in (sides, sides[::-1]):
            owners = _owners(values, gradient)
            is_reference = any(REFERENCE.fullmatch(word) for owner in owners for word in owner.split("."))
            if owners and not is_reference and not _is_gradient(values, vector):
                expected = f"expects a gradient in `{syntax.snippet(gradient)}`, found `.grad` of a model"
                yield Hit(node, f"`{syntax.snippet(node)}` {expected} with a custom backward pass")


def _owners(values: Values, node: ast.expr) -> list[str]:
    """Return the objects whose `.grad` a vector contains; empty names for `torch.autograd.grad`."""
    reads = [part for part in values.dependencies(node) if isinstance(part, ast.Attribute) and part.attr == "grad"]
    return ["" if values.syntax.resolve(part) else ast.unparse(part.value) for part in reads]


def _is_gradient(values: Values, node: ast.expr) -> bool:
    """Return whether a vector is a gradient, according to its computation or its name.

    Names such as `fa_grad` mean feedback.
    """
    names = {*map(last_name, values.dependencies(node))} - {""}
    is_named = any(map(REFERENCE.fullmatch, names)) and not any(map(names_feedback, names))
    return is_named or any(last_name(part) == "grad" for part in values.sources(node)) or bool(_owners(values, node))


RULE = CustomBackward()
