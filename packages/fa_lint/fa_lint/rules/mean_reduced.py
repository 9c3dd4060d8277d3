"""Pitfall 8: per-sample norms of the gradient of a mean loss, which depend on the batch size."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._values import SAME_VALUES, Values, calls_in, values_of
from fa_lint.syntax import Syntax, argument, last_name, number, open_ended, text_in

LOSS, GRADIENT, CRITERION = "mean loss", "gradient of a mean loss", "mean-reduced criterion"
LOSSES = ("cross_entropy", "nll_loss", "mse_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits")
CRITERIA = ("CrossEntropyLoss", "NLLLoss", "MSELoss", "BCELoss", "BCEWithLogitsLoss")
PARAMETERS = {"parameters", "named_parameters", "weight", "bias", "weights", "params", "param", "p", "W", "w", "b"}
NORMS = ("torch.norm", "torch.functional.norm", "torch.linalg.norm", "torch.linalg.vector_norm")


class MeanReduced(LintRule):
    """Report per-sample norms of the gradient of a mean-reduced loss.

    The loss and the norm must be in one function. Gradients of parameters are not reported, because they have no sample axis. Norms
    along axis 0 and batches of one sample are not reported either. If a gradient is multiplied by anything but a number, the
    product is not followed further, because the factor may be the number of samples N.
    """

    card = RuleCard(
        code="FA008",
        pitfall=8,
        name="mean-reduced",
        title="norms per sample of a mean-reduced gradient",
        why="the mean over N samples divides each gradient by N, so norms and limits depend on the batch size",
        fix='compute the gradient of the sum (reduction="sum"), or multiply the gradient by the number of samples',
    )
    clues = (("norm",), ("autograd", ".grad"), ("ntropy", "nll_loss", "NLLLoss", "mse_loss", "MSELoss", "BCE"))

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield each per-sample norm of the gradient of a mean loss."""
        kinds = _Kinds(values_of(syntax))
        for call in syntax.every(ast.Call):
            tensor = _per_sample_norm(syntax, call)
            if tensor is not None and kinds.of(tensor) == GRADIENT:
                yield Hit(call, f"`{syntax.snippet(call)}` is a norm per sample, but the loss is a mean over the batch")


class _Kinds:
    """Search for mean-reduced losses, their gradients and their loss functions."""

    def __init__(self, values: Values):
        self.values = values
        self.syntax = values.syntax
        self.active: set[ast.AST] = set()

    def of(self, node: ast.AST | None) -> str:
        """Return the kind of an expression: LOSS, GRADIENT, CRITERION or an empty string.

        The kind of a product or quotient is an empty string if neither side is a number.
        """
        if node is None or node in self.active:
            return ""
        self.active.add(node)
        kind = self._kind(node)
        self.active.remove(node)
        return kind

    def _kind(self, node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            kinds = {self._assigned(value, statement) for value, statement in self.values.entries(node)}
            return kinds.pop() if len(kinds) == 1 else ""
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self.of(node.value) if self.of(node.value) == GRADIENT else ""
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node.op, node.left, node.right)
        return self.of(node.elt) if isinstance(node, (ast.GeneratorExp, ast.ListComp)) else ""

    def _assigned(self, value: ast.expr, statement: ast.AST | None) -> str:
        if isinstance(statement, ast.AugAssign):
            return self._arithmetic(statement.op, statement.target, value)
        return self.of(value)

    def _call(self, call: ast.Call) -> str:
        name = self.syntax.resolve(call.func)
        package, _, last = name.rpartition(".")
        if package == "torch.nn.functional" and last in LOSSES:
            return LOSS if _mean_reduced(call) and not _one_sample(call) else ""
        if package in ("torch.nn", "torch.nn.modules.loss") and last in CRITERIA:
            return CRITERION if _mean_reduced(call) else ""
        if self.of(call.func) == CRITERION:
            return "" if _one_sample(call) else LOSS
        if name == "torch.autograd.grad":
            source, inputs = argument(call, 0, "outputs"), argument(call, 1, "inputs")
            return GRADIENT if self.of(source) == LOSS and inputs is not None and not _parameters(inputs) else ""
        if isinstance(call.func, ast.Attribute) and call.func.attr in SAME_VALUES:
            return self.of(call.func.value)
        if isinstance(call.func, ast.Name) and call.func.id in ("list", "tuple", "reversed") and call.args:
            return self.of(call.args[0])
        return ""

    def _attribute(self, node: ast.Attribute) -> str:
        if node.attr == "grad":
            scope = self.syntax.parts(self.syntax.function_of(node))
            starts = [part for part in scope if isinstance(part, ast.Call) and last_name(part.func) == "backward"]
            starts = [part for part in starts if part.lineno < node.lineno and isinstance(part.func, ast.Attribute)]
            is_mean = bool(starts) and self.of(starts[-1].func.value) == LOSS
            return GRADIENT if is_mean and not _parameters(node.value) else ""
        if node.attr in self.values.keyed:
            kinds = set(map(self.of, self.values.keyed[node.attr]))
            return kinds.pop() if len(kinds) == 1 else ""
        return self.of(node.value) if node.attr in SAME_VALUES else ""

    def _arithmetic(self, operation: ast.operator, *sides: ast.expr) -> str:
        is_scaled = isinstance(operation, (ast.Mult, ast.Div)) and any(isinstance(side, ast.Constant) for side in sides)
        is_followed = is_scaled or isinstance(operation, (ast.Add, ast.Sub))
        return next(filter(None, map(self.of, sides)), "") if is_followed else ""


def _per_sample_norm(syntax: Syntax, call: ast.Call) -> ast.expr | None:
    """Return the tensor whose norm a call computes along axes other than 0, or None."""
    name = syntax.resolve(call.func)
    if name in NORMS:
        tensor, axes = argument(call, 0, "input", "A", "x"), argument(call, 2, "dim", "axis")
    elif not name and isinstance(call.func, ast.Attribute) and call.func.attr == "norm":
        tensor, axes = call.func.value, argument(call, 1, "dim", "axis")
    else:
        return None
    axis_nodes = axes.elts if isinstance(axes, (ast.Tuple, ast.List)) else [axes]
    numbers = [number(axis) for axis in axis_nodes]
    return tensor if numbers and None not in numbers and 0 not in numbers else None


def _mean_reduced(call: ast.Call) -> bool:
    """Return whether a loss has the reduction "mean", which is also the default.

    The result is False if the call contains one of the old arguments size_average and reduce, or if the call unpacks arguments.
    """
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if open_ended(call) or keywords.keys() & {"size_average", "reduce"}:
        return False
    reduction = keywords.get("reduction")
    return reduction is None or (isinstance(reduction, ast.Constant) and reduction.value == "mean")


def _one_sample(call: ast.Call) -> bool:
    """Return whether an argument is a batch of one sample, such as `x[None]` or `x.unsqueeze(0)`."""
    indices = [part for index in call.args if isinstance(index, ast.Subscript) for part in ast.walk(index.slice)]
    adds_axis = any(isinstance(part, ast.Constant) and part.value is None for part in indices)
    return adds_axis or bool(calls_in(call.args, ("unsqueeze",)))


def _parameters(node: ast.AST) -> bool:
    """Return whether an expression names parameters, whose gradients have no sample axis."""
    return bool(text_in(node) & PARAMETERS)


RULE = MeanReduced()
