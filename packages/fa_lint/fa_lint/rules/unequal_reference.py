"""Pitfall 5: the credit and the reference gradient differ in more than the feedback."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import RuleCard
from fa_lint.rules._feedback import draws
from fa_lint.rules._flow import assignments
from fa_lint.rules._topic import CreditRule
from fa_lint.rules._values import Values, has_call, mentions
from fa_lint.syntax import is_op, last_name, number

GRADIENTS = ("backward", "grad", "vjp")
ZEROS = ("zero_grad", "zeros_like", "zero_")
CLIPS = ("clip_grad_value_", "clamp_", "clip_", "sign_")
SAMPLERS = ("next", "choice", "sample", "permutation", "randint", "randperm")


class UnequalReference(CreditRule):
    """Report differences between credit and gradient, and frozen parameters that weight decay changes."""

    card = RuleCard(
        code="FA016",
        pitfall=8,
        name="unequal-reference",
        title="credit and gradient differ in more than the feedback",
        why="the cosine then also measures the other samples, masks, weights, limits or decay, and not only the feedback",
        fix="compute credit and gradient of the same samples with the same weights, masks and precision, before the step and "
        "before any clipping, each from zero",
    )
    clues = (("grad", "feedback", "backward", ".B", "fb"),)


def _samples(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for left, right in _measured(values):
        earlier = {ast.unparse(part): part for part in left - right if isinstance(part, ast.Call)}
        for call in right - left:
            first = earlier.get(ast.unparse(call)) if isinstance(call, ast.Call) else None
            function = values.functions.get(last_name(getattr(call, "func", call)))
            is_drawn = last_name(getattr(call, "func", call)) in SAMPLERS or (
                function and draws(values.syntax, function)
            )
            if first is not None and is_drawn and first.lineno < call.lineno:
                yield call, "is drawn once for the credit and again for the gradient"


def _precision(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for sides in _measured(values):
        blocks = [
            {part for node in side for part in values.syntax.ancestors(node) if _is_autocast(part)} for side in sides
        ]
        for block in blocks[0] ^ blocks[1] if not all(blocks) else ():
            yield block.items[0].context_expr, "computes only one of the two gradients, in another precision"


def _is_autocast(node: ast.AST) -> bool:
    return isinstance(node, ast.With) and mentions(node.items[0].context_expr, "autocast")


def _order(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield clipping, steps and missing zeros between the computation of the credit and of the gradient."""
    for left, right in _measured(values):
        reads = [part for part in left if isinstance(part, ast.Attribute) and part.attr == "grad"]
        scopes = {values.syntax.function_of(read) for read in reads}
        calls = [part for scope in scopes for part in ast.walk(scope) if isinstance(part, ast.Call)]
        computing = [call for call in calls if _computes(values, call)]
        for read in reads:
            credit = max((call for call in computing if call.lineno < read.lineno), key=_line, default=None)
            later = [call for call in computing if call.lineno > read.lineno]
            for call in calls if credit else ():
                is_clip = last_name(call.func) in CLIPS and (mentions(call, "grad") or "grad_" in last_name(call.func))
                if is_clip and credit.lineno < call.lineno < read.lineno:
                    yield call, "limits the entries of the credit before its cosine is computed"
                is_step = last_name(call.func) == "step" and credit.lineno < call.lineno
                read_later = [part.lineno for part in right if getattr(part, "attr", "") == "grad"]
                used = [part for part in later if part in right or part.lineno <= max(read_later, default=0)]
                if is_step and any(part.lineno > call.lineno for part in used):
                    yield call, "changes the weights between the credit and the gradient"
            reference = min(later, key=_line, default=None)
            names = {
                last_name(call.func) for call in calls if reference and read.lineno <= call.lineno < reference.lineno
            }
            added = _added_gradient(values, reference, right) if reference and not names & {*ZEROS, "step"} else None
            if added is not None:
                yield added, "adds the gradient to the credit, because no gradient is set to zero before"


def _stepped(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield gradients after a step that changes the weights of the credit, and steps that are compared as a credit."""
    syntax = values.syntax
    for left, right in _measured(values):
        first, second = (
            [part for part in side if isinstance(part, ast.Call) and _computes(values, part)]
            for side in (left - right, right - left)
        )
        steps = [call for call in values.calls("step") if isinstance(call.func, ast.Attribute)]
        for reference in second:
            scope = syntax.function_of(reference)
            credit = [
                call.lineno for call in first if syntax.function_of(call) is scope and call.lineno < reference.lineno
            ]
            between = [
                call
                for call in steps
                if syntax.function_of(call) is scope and credit and max(credit) < call.lineno < reference.lineno
            ]
            if between and len(credit) == len(first):
                yield (
                    reference,
                    f"is computed after `{syntax.snippet(between[0])}`, so at other weights than the credit",
                )
        moved = [
            part
            for part in left
            if is_op(part, ast.Sub) and any(has_call(one, "clone", "copy") for one in values.dependencies(part.left))
        ]
        for part in moved if re.search("momentum|weight_decay|Adam", syntax.text) else ():
            if any(syntax.function_of(call) is syntax.function_of(part) for call in steps):
                yield part, "is a step with momentum and decay, and not the credit"


def _line(node: ast.AST) -> int:
    return node.lineno


def _added_gradient(values: Values, call: ast.Call, reference: set[ast.AST]) -> ast.Call | None:
    """Return the backward pass that adds the reference to gradients of the credit, or None."""
    function = values.functions.get(last_name(call.func)) if last_name(call.func) != "backward" else None
    parts = (
        [*ast.walk(function)]
        if function
        else [call, *(part for part in reference if getattr(part, "lineno", 0) > call.lineno)]
    )
    calls = {last_name(part.func): part for part in parts if isinstance(part, ast.Call)}
    reads = any(isinstance(part, ast.Attribute) and part.attr == "grad" for part in parts)
    return calls.get("backward") if reads and not calls.keys() & {*ZEROS, "deepcopy", "tensor"} else None


def _computes(values: Values, call: ast.Call) -> bool:
    """Return whether a call computes gradients, also in a function of the file."""
    function = values.functions.get(last_name(call.func)) if last_name(call.func) not in GRADIENTS else None
    names = [last_name(part.func) for part in ast.walk(function or call) if isinstance(part, ast.Call)]
    return any(name in GRADIENTS for name in names)


def _measured(values: Values) -> Iterator[tuple[set[ast.AST], set[ast.AST]]]:
    """Yield for each cosine everything in its function on which its two vectors depend."""
    for node, sides in values.pairs:
        if isinstance(node, ast.Call) and last_name(node.func) in values.functions and len(node.args) != 2:
            continue  # such a function of the file measures a network
        first, second = (values.dependencies(side) for side in sides)
        yield first, second
        yield second, first


def _frozen(values: Values) -> Iterator[tuple[ast.AST, str]]:
    decays = [part.value for part in values.syntax.every(ast.keyword) if part.arg == "weight_decay"]
    if not any((number(value) or 0) > 0 for value in [*decays, *values.keyed.get("weight_decay", [])]):
        return
    for node in values.syntax.parents:
        is_zeroed = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("grad.zero_")
        pairs = [
            pair
            for pair in assignments(node)
            if last_name(pair[0]) == "grad" and last_name(getattr(pair[1], "func", node)) in ZEROS
        ]
        if is_zeroed or pairs:
            yield node, "freezes a parameter that the optimizer still changes by weight decay"


UnequalReference.patterns = (_samples, _precision, _order, _stepped, _frozen)
RULE = UnequalReference()
