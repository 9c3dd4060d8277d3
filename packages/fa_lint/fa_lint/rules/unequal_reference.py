"""Pitfall 5: the credit and the reference gradient differ in more than the feedback."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import RuleCard
from fa_lint.rules._feedback import draws
from fa_lint.rules._flow import assignments
from fa_lint.rules._topic import CreditRule
from fa_lint.rules._values import Values, calls_in, has_call, mentions
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
        fix="compute both from the same samples, weights, masks and precision, from zero, before step and clipping",
    )
    clues = (("grad", "feedback", "backward", ".B", "fb"),)


def _samples(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for left, right in _measured(values):
        earlier = {ast.unparse(part): part for part in left - right if isinstance(part, ast.Call)}
        for call in right - left:
            first = earlier.get(ast.unparse(call)) if isinstance(call, ast.Call) else None
            function = values.functions.get(last_name(getattr(call, "func", call)))
            name = last_name(getattr(call, "func", call))
            is_drawn = name in SAMPLERS or (function and draws(values.syntax, function))
            if first is not None and is_drawn and first.lineno < call.lineno:
                yield call, "is drawn once for the credit and again for the gradient"


def _precision(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for sides in _measured(values):
        parents = [[part for node in side for part in values.syntax.ancestors(node)] for side in sides]
        blocks = [set(filter(_is_autocast, side)) for side in parents]
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
            last = reference.lineno if reference else 0
            names = {last_name(call.func) for call in calls if read.lineno <= call.lineno < last}
            added = _added_gradient(values, reference, right) if reference and not names & {*ZEROS, "step"} else None
            if added is not None:
                yield added, "adds the gradient to the credit, because no gradient is set to zero before"


def _stepped(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield gradients after a step that follows the credit, and steps in place of a credit."""
    steps = {scope: calls_in(ast.walk(scope), ("step",)) for scope in values.syntax.every(ast.FunctionDef)}
    has_memory = re.search("momentum|weight_decay|Adam", values.syntax.text)
    for left, right in _measured(values):
        sides = (left - right, right - left)
        credits, references = ({part for part in side if _computes(values, part)} for side in sides)
        for node in references if credits else ():
            between = steps.get(values.syntax.function_of(node), [])
            if any(max(map(_line, credits)) < step.lineno < node.lineno for step in between):
                yield node, "is computed after the step of the optimizer, so at other weights than the credit"
        for part in (part for part in left if has_memory and is_op(part, ast.Sub)):
            is_copied = any(has_call(one, "clone", "copy") for one in values.dependencies(part.left))
            if is_copied and steps.get(values.syntax.function_of(part)):
                yield part, "is a step with momentum or decay, and not the credit"


def _line(node: ast.AST) -> int:
    return node.lineno


def _added_gradient(values: Values, call: ast.Call, reference: set[ast.AST]) -> ast.Call | None:
    """Return the backward pass that adds the reference to gradients of the credit, or None."""
    function = values.functions.get(last_name(call.func)) if last_name(call.func) != "backward" else None
    later = [part for part in reference if getattr(part, "lineno", 0) > call.lineno]
    parts = [*ast.walk(function)] if function else [call, *later]
    calls = {last_name(part.func): part for part in parts if isinstance(part, ast.Call)}
    reads = any(isinstance(part, ast.Attribute) and part.attr == "grad" for part in parts)
    return calls.get("backward") if reads and not calls.keys() & {*ZEROS, "deepcopy", "tensor"} else None


def _computes(values: Values, call: ast.AST) -> bool:
    """Return whether a call computes gradients, also in a function of the file."""
    if not isinstance(call, ast.Call):
        return False
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
        values_of_grad = [value for target, value in assignments(node) if last_name(target) == "grad"]
        pairs = calls_in(values_of_grad, ZEROS)
        if is_zeroed or pairs:
            yield node, "freezes a parameter that the optimizer still changes by weight decay"


UnequalReference.patterns = (_samples, _precision, _order, _stepped, _frozen)
RULE = UnequalReference()
