"""FA017: code that runs without an error and computes something else than it says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import RuleCard
from fa_lint.rules._custom_backward import custom_functions, names_feedback
from fa_lint.rules._feedback import is_feedback
from fa_lint.rules._origins import UNKNOWN
from fa_lint.rules._test_data import test_set_use
from fa_lint.rules._topic import CreditRule
from fa_lint.rules._values import Values, calls_in, has_call, operands_of, returned
from fa_lint.syntax import FUNCTIONS, is_op, last_name, number, option

Found = Iterator[tuple[ast.AST, str]]
PERMUTES = ("randperm", "permutation")
ROLE = re.compile(r"(x|inputs?|images?|data|samples)|(y|t|labels?|targets?)", re.I)  # what a name says before its set
LOOPS = (ast.For, ast.While)
IGNORES = "ignores the feedback that the forward pass receives"


class UnintendedCode(CreditRule):
    """Report code that raises no error and computes something else than its author intends."""

    card = RuleCard(
        code="FA017",
        pitfall=0,
        name="unintended-code",
        title="code computes something else than it says",
        why="no error is raised, and the network learns, or the metric measures, something else than its name",
        fix="index inputs and labels by one permutation; clone what later steps overwrite; bind a loop variable as a default "
        "(`i=i`); pass logits to the loss; compare a written-out derivative with autograd",
    )
    clues = (("torch", "numpy", "jax"),)


def _permutations(values: Values) -> Found:
    shuffled = []
    for part in values.syntax.every(ast.Subscript):
        name, drawn = last_name(part.value).lower(), {*calls_in(values.near(part.slice), PERMUTES)}
        role = ROLE.match(name)
        if drawn and role and isinstance(part.ctx, ast.Load):
            key = (values.syntax.function_of(part), name[role.end() :])
            others = [those for other, kind, those in shuffled if key == other and role.lastindex != kind]
            if any(map(drawn.isdisjoint, others)):
                yield part, "is permuted otherwise than the inputs or labels that belong to it"
            shuffled.append((key, role.lastindex, drawn))


def _softmax(values: Values) -> Found:
    for call, name in values.syntax.calls():
        makers = [*values.near(call.func), *values.keyed.get(last_name(call.func), [])]
        losses = {name, *(values.syntax.resolve(part.func) for part in makers if isinstance(part, ast.Call))}
        is_loss = losses & {"torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss"} and call.args
        if is_loss and calls_in(values.same(call.args[0]), ("softmax",)):
            yield call, "applies softmax to probabilities, because `cross_entropy` expects logits"


def _late_binding(values: Values) -> Found:
    for loop in values.syntax.every(ast.For):
        parts, targets = values.syntax.parts(loop), _names(loop.target)
        calls = [part for part in parts if isinstance(part, ast.Call) and part.args]
        hooks = [call.args[-1] for call in calls if last_name(call.func).startswith("register_")]
        kept = {part for hook in hooks for part in (*values.same(hook), last_name(hook))}
        for function in (part for part in parts if isinstance(part, FUNCTIONS)):
            names = [part for part in values.syntax.parts(function) if getattr(part, "id", "") in targets]
            is_late = any(values.scope(part) is not function and part not in function.args.defaults for part in names)
            if is_late and {function, getattr(function, "name", function)} & kept:
                yield function, "reads the loop variable when it is called, so every hook uses the last one"


def _overwritten(values: Values) -> Found:
    """Yield gradients and states that are kept by reference while later steps overwrite them."""
    syntax, use = values.syntax, test_set_use(values.syntax)
    for node in syntax.every(ast.Return):
        scope, kept = syntax.function_of(node), getattr(node.value, "elt", node.value)
        zeros = calls_in(syntax.parts(scope), ("zero_grad",))
        in_place = not zeros or any(option(call, "set_to_none", True) is False for call in zeros)
        uses = values.calls(getattr(scope, "name", ""))
        if in_place and len(uses) > 1 and last_name(kept) == "grad" and has_call(scope, "backward"):
            yield node, "returns the gradients themselves, and the next backward pass overwrites them"
    restored = {last_name(part) for call in values.calls("load_state_dict") for part in call.args}
    for node in (node for node in syntax.every(ast.Assign) if isinstance(syntax.parents[node], ast.If)):
        loops = [part for part in syntax.ancestors(node) if isinstance(part, LOOPS) and use.trains(part)]
        if loops and last_name(node.targets[0]) in restored and calls_in([node.value], ("state_dict",)):
            yield node, "keeps a reference, and the next step overwrites the best weights"


def _derivatives(values: Values) -> Found:
    for call in values.calls("tanh", "sigmoid"):
        again = [part for operand in call.args for part in calls_in(values.same(operand), (last_name(call.func),))]
        if again and any(is_op(part, ast.Sub) and number(part.left) == 1 for part in values.syntax.ancestors(call)):
            yield call, "applies the activation to its own output, so the derivative is that of another value"


def _signs(values: Values) -> Found:
    for call in values.calls("sign", "sgn"):
        if calls_in(operands_of(values.syntax, call), ("abs", "absolute", "fabs")):
            yield call, "is the sign of an absolute value, which is never negative"
    for node in values.syntax.every(ast.Assign):
        root, parts = _root(node.targets[0]), [*ast.walk(node.value)]
        negative = [part.operand for part in parts if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub)]
        is_inside = any(isinstance(part, LOOPS) for part in values.syntax.ancestors(node))
        if is_inside and any(is_op(part, ast.MatMult) and last_name(part.left) == root for part in negative):
            yield node, "changes the sign from layer to layer"
        for part in parts:  # the difference correction is t = h − g(h) + g(t)
            last = part.right if is_op(part, ast.Sub) and isinstance(part.right, ast.Call) else None
            first = calls_in(ast.walk(part.left), (last_name(last.func),)) if last and root in _names(last) else []
            if any(root not in _names(call) for call in first):
                yield node, "has the signs of the difference correction exchanged"


def _root(node: ast.AST) -> str:
    return last_name(node.value if isinstance(node, ast.Subscript) else node)


def _names(node: ast.AST) -> set[str]:
    return {last_name(part) for part in ast.walk(node)} - {""}


def _feedback(values: Values) -> Found:
    """Yield backward passes without their feedback, and feedback that cannot reach the weights."""
    syntax = values.syntax
    for function in custom_functions(syntax):
        origins, results = function.origins(values), returned(function.backward)
        used, products = origins.names(*results), origins.products(*results)
        if any(map(names_feedback, function.inputs)) and UNKNOWN not in used and not any(map(names_feedback, used)):
            yield from ((part.node, IGNORES) for part in products[:1])
    for scope in syntax.every(ast.FunctionDef) if re.search("kolen", syntax.text, re.I) else ():
        steps = [(_root(part.target), part) for part in ast.walk(scope) if isinstance(part, ast.AugAssign)]
        decaying = {root for root, part in steps if root in _names(part.value)}
        for root, step in steps if not all(map(is_feedback, decaying)) else ():
            if is_feedback(root) and root not in decaying:
                yield step, "lacks the decay of the forward weights, so feedback and weights do not converge"
    is_mirror = "mirror" in syntax.text.lower()
    products = [part for part in syntax.every(ast.BinOp) if is_mirror and is_op(part, ast.MatMult)]
    for product in products:
        noise = {*calls_in(values.same(product.left), ("rand", "random"))}
        replies = [part for part in values.near(product.right) if part in products]
        if any(noise & values.same(part.left) for part in replies):
            yield product, "correlates noise whose mean is not zero, so it does not estimate the weights"


def _scales(values: Values) -> Found:
    """Yield gradients that are divided twice by the number of samples."""
    divisions = [part for part in values.syntax.every(ast.BinOp) if is_op(part, ast.Div)]
    divisions = [part for part in divisions if has_call(part.right, "len", "size")]
    for node in divisions:
        inner = values.sources(node.left) if any(is_op(part, ast.MatMult) for part in ast.walk(node.left)) else set()
        same = [part for part in divisions if part in inner and ast.unparse(part.right) == ast.unparse(node.right)]
        if any(values.syntax.function_of(part) is values.syntax.function_of(node) for part in same):
            yield node, "divides by the number of samples a second time"


def _layers(values: Values) -> Found:
    """Yield local losses whose gradients reach other blocks, and states that a checkpoint may lack."""
    syntax = values.syntax
    for call in values.calls("load_state_dict"):
        is_loose = option(call, "strict", True) is False and isinstance(syntax.parents[call], ast.Expr)
        if is_loose and any("load" in last_name(getattr(part, "func", call)) for part in values.near(call.args[0])):
            yield call, "leaves every missing or renamed parameter at its random start, and nothing reads which"
    for loop in syntax.every(ast.For) if re.search(r"\blocal\b", syntax.text) else ():
        is_local = has_call(loop, "append") and not has_call(syntax.function_of(loop), "detach")
        for node in (node for node in loop.body if isinstance(node, ast.Assign) and is_local):
            call, states = node.value, [ast.unparse(part) for part in getattr(node.targets[0], "elts", [])]
            if calls_in([call], (last_name(loop.target),)) and [*map(ast.unparse, call.args)] == states[:1]:
                yield node, "passes a state on without detach, so each local loss also trains the blocks before it"


FORMULAS = (_derivatives, _signs, _feedback, _scales, _layers)
UnintendedCode.patterns = (_permutations, _softmax, _late_binding, _overwritten, *FORMULAS)
RULE = UnintendedCode()
