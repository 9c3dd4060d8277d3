"""Pitfall 12: dropout and BatchNorm are in training mode during a measurement."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._accuracy import accuracies
from fa_lint.rules._topic import on_alignment, on_credit
from fa_lint.rules._values import has_call, mentions, values_of
from fa_lint.syntax import Syntax, argument

NORMS = ("torch.nn.BatchNorm", "torch.nn.LazyBatchNorm", "torch.nn.SyncBatchNorm")
LAYERS = (*NORMS, "torch.nn.Dropout", "torch.nn.AlphaDropout", "torch.nn.Transformer")
MODELS = "torchvision.models."
TRAINS = ("backward", "step")


class TrainingMode(LintRule):
    """Report a file that measures a model with dropout or BatchNorm and never calls eval().

    Each file is reported at most once. A measurement is an accuracy in a function that does not train. In source code about
    feedback alignment, every cosine is a measurement too.
    """

    card = RuleCard(
        code="FA012",
        pitfall=12,
        name="training-mode",
        title="a model is measured in training mode",
        why="dropout removes other units in each pass, and BatchNorm uses and remembers the batch that is measured",
        fix="call model.eval() before the measurement and model.train() after it",
    )
    clues = (
        ("BatchNorm", "Dropout", "torchvision", "Transformer"),
        ("argmax", ".max(", "topk", "osine", "norm(", "requires_grad_("),
    )

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield the first measurement, if a layer depends on the mode and the file never sets the mode."""
        if on_credit(syntax):
            yield from (Hit(call, f"`{syntax.snippet(call)}` {text}") for call, text in _train_calls(syntax))
        layer = next((call for call, name in syntax.calls() if _minds(name)), None)
        if layer is None or any(map(_switches, syntax.parents)):
            return
        measured = next(_measurements(syntax), None)
        if measured is not None:
            built = f"`{syntax.snippet(layer)}` ({syntax.line_text(layer)})"
            text = f"is computed while {built} is in training mode, because the code never calls eval()"
            yield Hit(measured, f"`{syntax.snippet(measured)}` {text}")


def _train_calls(syntax: Syntax) -> Iterator[tuple[ast.Call, str]]:
    """Yield each `model.train()` before a measurement, or with a BatchNorm of frozen blocks."""
    values, layers = values_of(syntax), {name for _, name in syntax.calls() if _minds(name)}
    measuring = {syntax.function_of(node) for node in values.cosines} if layers else set()
    freezes = values.calls("requires_grad_") if any("BatchNorm" in name for name in layers) else []
    loops = [part for call in freezes for part in syntax.ancestors(call) if isinstance(part, ast.For)]
    is_frozen = any(mentions(loop, "bn") or mentions(loop, "norm") for loop in loops)
    switched = [call for call in values.calls("eval") if mentions(call, "bn") or mentions(call, "norm")]
    for call in values.calls("train"):
        scope = syntax.function_of(call)
        is_statement = isinstance(syntax.parents[call], ast.Expr)
        is_switch = is_statement and isinstance(call.func, ast.Attribute) and not call.args
        if is_switch and scope in measuring and not _trains(scope) and not has_call(scope, "eval"):
            yield call, "sets training mode for a measurement, so each gradient has other masks or statistics"
        if is_switch and is_frozen and not switched and _trains(scope):
            yield call, "also updates the running statistics of the BatchNorm layers whose parameters are frozen"


def _minds(name: str) -> bool:
    return name.startswith((*LAYERS, MODELS))


def _measurements(syntax: Syntax) -> Iterator[ast.AST]:
    for node, _ in accuracies(syntax):
        if not _trains(syntax.function_of(node)):
            yield node
    if on_alignment(syntax):
        yield from values_of(syntax).cosines


def _trains(function: ast.AST) -> bool:
    calls = (part.func for part in ast.walk(function) if isinstance(part, ast.Call))
    return any(isinstance(callee, ast.Attribute) and callee.attr in TRAINS for callee in calls)


def _switches(node: ast.AST) -> bool:
    """Return whether a node is `model.eval()`, `model.train(False)` or `layer.training = …`."""
    if isinstance(node, ast.Attribute) and node.attr == "training" and isinstance(node.ctx, ast.Store):
        return True
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    mode = argument(node, 0, "mode")
    is_off = mode is not None and getattr(mode, "value", None) is not True
    return (node.func.attr == "eval" and not node.args) or (node.func.attr == "train" and is_off)


RULE = TrainingMode()
