"""Pitfall 8: per-sample norms of the gradient of a mean loss, which depend on the batch size."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._flow import CRITERION, GRADIENT, Flow, is_own
from fa_lint.syntax import FUNCTIONS, Syntax, argument, number

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
        why="the mean over N samples divides the gradient of each sample by N: the norm depends on the batch size, so limits and "
        "comparisons are not valid for another batch size",
        fix='compute the gradient of the sum (reduction="sum"), or multiply the gradient by the number of samples',
        cannot_see="a loss or norm that another function computes, hooks, gradients that are multiplied by N later, "
        "norms computed without a norm function",
    )
    clues = (
        ("norm",),
        ("autograd", ".grad"),
        ("entropy", "Entropy", "nll_loss", "NLLLoss", "mse_loss", "MSELoss", "BCE"),
    )

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield each per-sample norm of the gradient of a mean loss, in module code and in each function."""
        module = Flow(syntax, {})
        yield from _in(module, syntax.tree.body)
        shared = {name: kind for name, kind in module.kinds.items() if kind == CRITERION} | _criteria(syntax)
        for function in syntax.parents:
            if isinstance(function, FUNCTIONS) and not isinstance(function, ast.Lambda):
                parameter_names = {
                    argument_.arg for argument_ in ast.walk(function.args) if isinstance(argument_, ast.arg)
                }
                yield from _in(
                    Flow(syntax, {n: k for n, k in shared.items() if n not in parameter_names}), function.body
                )


def _in(flow: Flow, body: list[ast.stmt]) -> Iterator[Hit]:
    for node in flow.run(body):
        tensor = _per_sample_norm(flow.syntax, node) if isinstance(node, ast.Call) else None
        if tensor is not None and flow.kind(tensor) == GRADIENT:
            yield Hit(
                node, f"`{flow.syntax.snippet(node)}` is a norm per sample, but the loss is a mean over the batch"
            )


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


def _criteria(syntax: Syntax) -> dict[str, str]:
    """Return the attributes of all classes that contain a mean-reduced loss function.

    For example, `self.criterion = nn.CrossEntropyLoss()` gives the key "self.criterion". Each value is CRITERION.
    """
    flow = Flow(syntax, {})
    return {
        f"self.{target.attr}": CRITERION
        for node in syntax.every(ast.Assign)
        for target in node.targets
        if is_own(target) and flow.kind(node.value) == CRITERION
    }


RULE = MeanReduced()
