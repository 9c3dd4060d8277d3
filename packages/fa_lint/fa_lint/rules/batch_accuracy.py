"""Pitfall 9: the accuracy is computed on a single batch instead of the test set."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._accuracy import accuracies
from fa_lint.rules._feedback import on_alignment
from fa_lint.syntax import Syntax, text_in

SAMPLES = r"(batch|x|xs|y|ys|images?|inputs?|labels?|targets?)"
MEASURED_ON = r"(eval|evaluation|probe|fixed|diag|diagnostic|align|alignment|ref|reference)"
NAMED = re.compile(rf"{MEASURED_ON}_{SAMPLES}|{SAMPLES}_{MEASURED_ON}", re.IGNORECASE)


class BatchAccuracy(LintRule):
    """Report an accuracy that is computed on a single batch.

    A batch is recognised by `next(iter(…))`, or by a name such as `eval_batch` or `probe_labels`. The rule applies only to source
    code about feedback alignment. In other code, the accuracy on one batch usually only shows the progress of training.
    """

    card = RuleCard(
        code="FA009",
        pitfall=9,
        name="batch-accuracy",
        title="accuracy is computed on a single batch",
        why="one batch has only a few hundred samples, so its accuracy may differ by several percent from the accuracy on the "
        "test set; the batch may also contain training samples",
        fix="compute the accuracy on the complete test set; use the fixed batch only for norms and Γ, and state for each metric "
        "which samples were used",
        cannot_see="a batch that is passed to a function with a general parameter name, a slice of the test set, a loader with a "
        "single batch",
    )
    clues = (("argmax", ".max(", "topk"), ("next(", "eval", "probe", "fixed", "diag", "align", "ref"))

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield the accuracies whose labels come from a single batch."""
        if not on_alignment(syntax):
            return
        for node, label in accuracies(syntax):
            if not isinstance(label, ast.Name):
                continue
            if _is_one_batch(syntax, label):
                yield Hit(
                    node,
                    f"`{syntax.snippet(node)}` is an accuracy on the single batch `{label.id}`, and not on the test set",
                )


def _is_one_batch(syntax: Syntax, label: ast.Name) -> bool:
    """Return whether a variable contains a single batch, according to its name or its assignments."""
    if NAMED.fullmatch(label.id):
        return True
    scopes = dict.fromkeys((syntax.function_of(label), syntax.tree))
    for scope in scopes:
        assignment_nodes = [
            node for node in ast.walk(scope) if _stores(node, label.id) and syntax.function_of(node) is scope
        ]
        if assignment_nodes or _is_parameter(scope, label.id):
            source_nodes = [node for node in assignment_nodes if not _moves(node, label.id)]
            return bool(source_nodes) and all(map(_takes_next, source_nodes))
    return False


def _stores(node: ast.AST, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if hasattr(node, "target") else []
    return any(isinstance(part, ast.Name) and part.id == name for target in targets for part in ast.walk(target))


def _is_parameter(scope: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.arg) and part.arg == name for part in ast.walk(getattr(scope, "args", ast.Pass())))


def _moves(node: ast.AST, name: str) -> bool:
    """Return whether an assignment stores the same samples under the same name: `y = y.to(device)`."""
    return isinstance(node, ast.Assign) and name in text_in(node.value)


def _takes_next(node: ast.AST) -> bool:
    """Return whether an assignment calls next(), such as `x, y = next(iter(loader))`."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    return isinstance(node, ast.Assign) and any(getattr(call.func, "id", "") == "next" for call in calls)


RULE = BatchAccuracy()
