"""Pitfall 5: the credit and the reference gradient differ in more than the feedback."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.base import RuleCard
from fa_lint.rules._feedback import draws, is_feedback
from fa_lint.rules._flow import assignments
from fa_lint.rules._values import CreditRule, Values, mentions
from fa_lint.syntax import last_name, number

GRADIENTS = ("backward", "grad", "vjp")
ZEROS = ("zero_grad", "zeros_like", "zero_")
CLIPS = ("clip_grad_value_", "clamp_", "clip_", "sign_")
SAMPLERS = ("next", "choice", "sample", "permutation", "randint", "randperm")


class UnequalReference(CreditRule):
    """Report differences between credit and gradient, and updates with a wrong term."""

    card = RuleCard(
        code="FA016",
        pitfall=5,
        name="unequal-reference",
        title="credit and gradient differ in more than the feedback",
        why="the cosine then also measures the other samples, masks, weights, limits or decay, and not only the feedback",
        fix="compute credit and gradient of the same samples with the same weights, masks and precision, before the step and "
        "before any clipping, each from zero",
        cannot_see="differences between functions that the measuring function does not call; derivatives written out manually",
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


def _decay(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for groups in values.syntax.every(ast.List):
        tables = [
            {getattr(key, "value", None): value for key, value in zip(part.keys, part.values, strict=True)}
            for part in groups.elts
            if isinstance(part, ast.Dict)
        ]
        decays = {number(table.get("weight_decay")) for table in tables}
        if len(decays) > 1 and any(
            "feedback" in str(getattr(part, "value", ""))
            for table in tables
            for part in values.near(table.get("params", groups))
        ):
            yield groups, "decays forward weights and feedback at different rates"


def _updates(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield updates with another sign than in other layers, and feedback transposed once."""
    for function in values.functions.values():
        parts = list(ast.walk(function))
        steps = [part for part in parts if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Subscript)]
        added = [part for part in steps if isinstance(part.op, ast.Add) and isinstance(part.value, ast.BinOp)]
        for step in added:
            if any(isinstance(part.op, ast.Sub) and _pattern(part) == _pattern(step) for part in steps):
                yield step, "adds the gradient in one layer, and other layers subtract it"
        factors = [part.right for part in parts if isinstance(part, ast.BinOp) and isinstance(part.op, ast.MatMult)]
        plain = {
            ast.unparse(part.value): part
            for part in factors
            if isinstance(part, ast.Subscript) and is_feedback(last_name(part.value))
        }
        turned = [
            part.value
            for part in factors
            if getattr(part, "attr", "") in ("T", "mT") and isinstance(part.value, ast.Subscript)
        ]
        for part in turned:
            if ast.unparse(part.value) in plain:
                yield plain[ast.unparse(part.value)], "is not transposed, and the feedback of the other layers is"


def _pattern(step: ast.AugAssign) -> tuple[str, ...]:
    parts = [part for part in ast.walk(step) if isinstance(part, (ast.Name, ast.Attribute))]
    return tuple(ast.unparse(part) for part in parts)


def _attached(values: Values) -> Iterator[tuple[ast.AST, str]]:
    starts = [call for call in values.syntax.every(ast.Call) if last_name(call.func) == "backward" and call.args]
    states = {
        call.func.value.id: call
        for call in starts
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    }
    for state, call in states.items():
        given = [part for value in values.of(call.func.value) if isinstance(value, ast.Call) for part in value.args]
        for part in given:
            if isinstance(part, ast.Name) and part.id in {*states} - {state}:
                yield part, "is not detached, so the exact gradient of the block above reaches the block below"


def _overwritten(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for cosine in values.cosines:
        for node in ast.walk(values.syntax.function_of(cosine)):
            for target, _ in assignments(node):
                owner = target.value if isinstance(target, ast.Subscript) else target
                if (
                    isinstance(owner, ast.Attribute)
                    and is_feedback(owner.attr)
                    and values.syntax.function_of(cosine) is not values.syntax.tree
                ):
                    yield node, "replaces the feedback of the training before the alignment is measured"


UnequalReference.patterns = (_samples, _precision, _order, _frozen, _decay, _updates, _attached, _overwritten)
RULE = UnequalReference()
