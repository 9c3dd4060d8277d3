"""FA017: code that runs without an error and computes something else than it says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import RuleCard
from fa_lint.rules._custom_backward import custom_functions, names_feedback
from fa_lint.rules._feedback import is_feedback
from fa_lint.rules._flow import assignments
from fa_lint.rules._origins import UNKNOWN
from fa_lint.rules._test_data import test_set_use
from fa_lint.rules._topic import CreditRule
from fa_lint.rules._values import Values, calls_in, mentions, returned
from fa_lint.syntax import FUNCTIONS, argument, last_name, number

Found = Iterator[tuple[ast.AST, str]]
PERMUTES = ("randperm", "permutation")
ROLE = re.compile(r"(x|inputs?|images?|data|samples)|(y|t|labels?|targets?)", re.I)  # what a name says before its set
ACTIVATIONS = ("tanh", "sigmoid")
LOOPS = (ast.For, ast.While)


class UnintendedCode(CreditRule):
    """Report code that is valid Python, raises no error, and computes something else than its author intends."""

    card = RuleCard(
        code="FA017",
        pitfall=0,
        name="unintended-code",
        title="code computes something else than it says",
        why="no error is raised: the network learns from wrong labels, signs or derivatives, or the measured tensors are not "
        "those of their names, and the results describe this mistake",
        fix="index inputs and labels by one permutation; clone what later steps overwrite; bind a loop variable as a default "
        "(`i=i`); pass logits to the loss; compare a written-out derivative with autograd",
    )
    clues = (("torch", "numpy", "jax"),)


def _permutations(values: Values) -> Found:
    shuffled = []
    for part in values.syntax.every(ast.Subscript):
        draws, role = {*calls_in(values.near(part.slice), PERMUTES)}, ROLE.match(last_name(part.value))
        if draws and role and isinstance(part.ctx, ast.Load):
            scope, rest = values.syntax.function_of(part), last_name(part.value)[role.end() :]
            shuffled.append((part, draws, role.lastindex, (scope, rest.lower())))
    for index, (node, draws, role, key) in enumerate(shuffled):
        if any(role != other and key == name and draws.isdisjoint(those) for _, those, other, name in shuffled[:index]):
            yield node, "is permuted otherwise than the inputs or labels that belong to it"


def _softmax(values: Values) -> Found:
    for call, name in values.syntax.calls():
        makers = [*values.near(call.func), *values.keyed.get(last_name(call.func), [])]
        losses = {name, *(values.syntax.resolve(part.func) for part in makers if isinstance(part, ast.Call))}
        is_loss = losses & {"torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss"} and call.args
        if is_loss and calls_in(values.same(call.args[0]), ("softmax",)):
            yield call, "applies softmax to probabilities, because `cross_entropy` expects logits"


def _late_binding(values: Values) -> Found:
    syntax = values.syntax
    for loop in syntax.every(ast.For):
        calls = [part for part in syntax.parts(loop) if isinstance(part, ast.Call) and part.args]
        calls = [call for call in calls if last_name(call.func).startswith("register_")]
        kept = {part for call in calls for part in values.same(call.args[-1])} | {
            last_name(call.args[-1]) for call in calls
        }
        targets = {last_name(part) for part in ast.walk(loop.target)} - {""}
        for function in (part for part in syntax.parts(loop) if isinstance(part, FUNCTIONS)):
            body = function.body if isinstance(function.body, list) else [function.body]
            names = [
                part for one in body for part in ast.walk(one) if isinstance(part, ast.Name) and part.id in targets
            ]
            is_late = any(values.scope(part) is not function for part in names)
            if is_late and (function in kept or getattr(function, "name", None) in kept):
                yield function, "reads the loop variable when it is called, so every hook uses the last one"


def _overwritten(values: Values) -> Found:
    """Yield gradients and states that are kept by reference while later steps overwrite them."""
    syntax, use = values.syntax, test_set_use(values.syntax)
    for node in syntax.every(ast.Return):
        scope = syntax.function_of(node)
        kept = getattr(node.value, "elt", node.value)
        calls = [part for part in syntax.parts(scope) if isinstance(part, ast.Call)]
        zeros = [call for call in calls if last_name(call.func) == "zero_grad"]
        in_place = not zeros or any(
            part.arg == "set_to_none" and not part.value.value for call in zeros for part in call.keywords
        )
        uses = calls_in(syntax.every(ast.Call), (getattr(scope, "name", ""),))
        if last_name(kept) == "grad" and calls_in(calls, ("backward",)) and in_place and len(uses) > 1:
            yield node, "returns the gradients themselves, and the next backward pass overwrites them"
    restored = {
        last_name(part) for call in calls_in(syntax.every(ast.Call), ("load_state_dict",)) for part in call.args
    }
    for node in syntax.every(ast.Assign):
        parents = [*syntax.ancestors(node)]
        loop = next((part for part in parents if isinstance(part, LOOPS)), None)
        is_state = bool(calls_in([node.value], ("state_dict",))) and last_name(node.targets[0]) in restored
        is_model = isinstance(node.value, ast.Name) and mentions(node.targets[0], "best") and loop is not None
        if is_model:
            callers = {
                last_name(getattr(call.func, "value", call.func))
                for call in calls_in(ast.walk(loop), ("train", "eval"))
            }
            is_model = node.value.id in callers and loop not in {one for _, one in values.entries(node.value)}
            bound = {last_name(target) for part in ast.walk(loop) for target, _ in assignments(part)}
            is_model = is_model and node.value.id not in bound
        if (
            (is_state or is_model)
            and loop is not None
            and isinstance(syntax.parents[node], ast.If)
            and use.trains(loop)
        ):
            yield node, "keeps a reference, and the next step overwrites the best weights"


def _derivatives(values: Values) -> Found:
    for call in calls_in(values.syntax.every(ast.Call), ACTIVATIONS):
        outer = [
            part
            for part in values.syntax.ancestors(call)
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub)
        ]
        again = calls_in(values.same(call.args[0]), (last_name(call.func),)) if call.args else []
        if again and any(number(part.left) == 1 for part in outer):
            yield call, "applies the activation to its own output, so the derivative is that of another value"


def _signs(values: Values) -> Found:
    syntax = values.syntax
    for call in calls_in(syntax.every(ast.Call), ("sign", "sgn")):
        inner = [*call.args, *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
        if calls_in(inner, ("abs", "absolute", "fabs")):
            yield call, "is the sign of an absolute value, which is never negative"
    for node in syntax.every(ast.Assign):
        name, is_inside = last_name(node.targets[0]), any(isinstance(part, LOOPS) for part in syntax.ancestors(node))
        minus = [
            part.operand
            for part in ast.walk(node.value)
            if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub)
        ]
        products = [part for part in minus if isinstance(part, ast.BinOp) and isinstance(part.op, ast.MatMult)]
        if is_inside and any(last_name(part.left) == name for part in products):
            yield node, "changes the sign from layer to layer"
        root, terms = _root(node.targets[0]), [part for part in ast.walk(node.value) if isinstance(part, ast.BinOp)]
        for part in terms:  # t = h − g(h) + g(t)
            is_call = isinstance(part.op, ast.Sub) and isinstance(part.right, ast.Call) and root in _names(part.right)
            added = [one for one in ast.walk(part.left) if isinstance(one, ast.Call)] if is_call else []
            if any(ast.unparse(one.func) == ast.unparse(part.right.func) and root not in _names(one) for one in added):
                yield node, "has the signs of the difference correction exchanged"


def _root(node: ast.AST) -> str:
    return last_name(node.value if isinstance(node, ast.Subscript) else node)


def _names(node: ast.AST) -> set[str]:
    return {last_name(part) for part in ast.walk(node)} - {""}


def _feedback(values: Values) -> Found:
    """Yield backward passes that ignore their feedback, and updates of feedback that cannot reach the weights."""
    syntax = values.syntax
    for function in custom_functions(syntax):
        given = {name for name in function.inputs if names_feedback(name)}
        used = function.origins(values).names(*returned(function.backward))
        if given and UNKNOWN not in used and not any(names_feedback(name) for name in used):
            product = next((part for part in ast.walk(function.backward) if isinstance(part, ast.MatMult)), None)
            yield syntax.parents.get(product, function.backward), "ignores the feedback that the forward pass receives"
    for scope in syntax.every(ast.FunctionDef) if re.search("kolen", syntax.text, re.I) else ():
        steps = [part for part in ast.walk(scope) if isinstance(part, ast.AugAssign)]
        decaying = [part for part in steps if _root(part.target) in _names(part.value)]
        for step in steps if any(not is_feedback(_root(part.target)) for part in decaying) else ():
            if is_feedback(_root(step.target)) and not any(
                _root(step.target) == _root(part.target) for part in decaying
            ):
                yield step, "lacks the decay of the forward weights, so feedback and weights do not converge"
    for product in (part for part in syntax.every(ast.BinOp) if isinstance(part.op, ast.MatMult)):
        noise = calls_in(values.same(product.left), ("rand", "random", "random_sample"))
        if noise and re.search("mirror", syntax.text, re.I) and mentions(product.left, "t"):
            replies = [
                part
                for part in values.near(product.right)
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.MatMult)
            ]
            if any(not noise[0:1] or noise[0] in values.same(part.left) for part in replies if part is not product):
                yield product, "correlates noise whose mean is not zero, so it does not estimate the weights"


def _scales(values: Values) -> Found:
    """Yield gradients that are divided twice by the number of samples."""
    syntax = values.syntax
    counts = [
        node
        for node in syntax.every(ast.BinOp)
        if isinstance(node.op, ast.Div) and calls_in([node.right], ("len", "numel", "size"))
    ]
    for node in counts:
        inner = (
            values.sources(node.left) if any(isinstance(part, ast.MatMult) for part in ast.walk(node.left)) else set()
        )
        same = [part for part in counts if part in inner and ast.unparse(part.right) == ast.unparse(node.right)]
        if any(syntax.function_of(part) is syntax.function_of(node) for part in same):
            yield node, "divides by the number of samples a second time"


def _layers(values: Values) -> Found:
    """Yield local losses whose gradients reach other blocks, and states that a checkpoint may lack."""
    syntax = values.syntax
    for call in calls_in(syntax.every(ast.Call), ("load_state_dict",)):
        is_loose = getattr(argument(call, 1, "strict"), "value", True) is False
        if is_loose and isinstance(syntax.parents[call], ast.Expr):
            yield call, "leaves every missing or renamed parameter at its random start, and nothing reads which"
    for node in syntax.every(ast.Assign) if re.search(r"\blocal\b", syntax.text) else ():
        target, scope = node.targets[0], syntax.function_of(node)
        first = node.value.args[0] if isinstance(node.value, ast.Call) and len(node.value.args) == 1 else None
        is_passed = (
            isinstance(target, ast.Tuple) and first is not None and ast.unparse(first) == ast.unparse(target.elts[0])
        )
        loop = syntax.parents[node]
        is_block = isinstance(loop, ast.For) and last_name(node.value.func if first is not None else loop) == last_name(
            loop.target
        )
        if (
            is_passed
            and is_block
            and calls_in(ast.walk(loop), ("append",))
            and not calls_in(ast.walk(scope), ("detach",))
        ):
            yield node, "passes a state on without detach, so each local loss also trains the blocks before it"


UnintendedCode.patterns = (
    _permutations,
    _softmax,
    _late_binding,
    _overwritten,
    _derivatives,
    _signs,
    _feedback,
    _scales,
    _layers,
)
RULE = UnintendedCode()
