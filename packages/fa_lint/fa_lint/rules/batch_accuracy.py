"""Pitfall 9: the accuracy is computed on a single batch instead of the test set."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import RuleCard
from fa_lint.rules._accuracy import accuracies
from fa_lint.rules._selections import printed
from fa_lint.rules._test_data import TEST, TRAIN, VALIDATION, test_set_use
from fa_lint.rules._topic import CreditRule
from fa_lint.rules._values import Values, calls_in
from fa_lint.syntax import argument, last_name, text_in

STATISTICS = ("mean", "std", "var", "min", "max", "quantile", "percentile", "median")
JOINS = ("cat", "concat", "concatenate", "vstack", "hstack", "append", "stack")

SAMPLES = r"(batch|x|xs|y|ys|images?|inputs?|labels?|targets?)"
MEASURED_ON = r"(eval|evaluation|probe|fixed|diag|diagnostic|align|alignment|ref|reference)"
NAMED = re.compile(rf"{MEASURED_ON}_{SAMPLES}|{SAMPLES}_{MEASURED_ON}", re.IGNORECASE)


class BatchAccuracy(CreditRule):
    """Report an accuracy that is not that of the complete, unseen test set.

    A single batch is recognised by `next(iter(…))`, or by a name such as `eval_batch` or `probe_labels`. The rule applies only to
    source code about feedback alignment. In other code, the accuracy on one batch usually only shows the progress of training.
    """

    card = RuleCard(
        code="FA009",
        pitfall=9,
        name="batch-accuracy",
        title="the accuracy is not that of the complete, unseen test set",
        why="a batch or a selection has another accuracy than the test set, by several percent; and samples that the training or "
        "its normalisation has seen are no test",
        fix="compute the accuracy over all samples of a test set that nothing else has used; use a fixed batch only for norms and "
        "Γ, and state for each metric which samples were used",
        cannot_see="a batch that is passed to a function with a general parameter name, a slice of the test set, a loader with a "
        "single batch",
    )
    clues = (("argmax", ".max(", "topk", "test", "train", "predict", "_te", "xte", "Xte"),)


def _single(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for node, label_node in accuracies(values.syntax):
        if isinstance(label_node, ast.Name) and (
            NAMED.fullmatch(label_node.id) or calls_in(values.sources(label_node), ("next",))
        ):
            yield node, f"is an accuracy on the single batch `{label_node.id}`, and not on the test set"


def _means(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield means of batch means."""
    syntax = values.syntax
    for node, _ in accuracies(syntax):
        parents = [*syntax.ancestors(node)]
        calls = [part for part in parents if isinstance(part, ast.Call)]
        names = [last_name(call.func) for call in calls]
        loop = next((part for part in parents if isinstance(part, ast.For)), None)
        lists = [
            call.func.value.id
            for call in calls
            if getattr(call.func, "attr", "") == "append" and isinstance(call.func.value, ast.Name)
        ]
        averaged = [
            call
            for call in syntax.every(ast.Call)
            if last_name(call.func) in ("mean", "sum", "fmean") and {*lists} & text_in(call)
        ]
        if loop and averaged and "mean" in names and isinstance(loop.target, ast.Tuple):
            yield (
                node,
                "is the mean of a batch, and the mean of these means is not that of the samples if the last batch is smaller",
            )


def _loaders(values: Values) -> Iterator[tuple[ast.AST, str]]:
    data = test_set_use(values.syntax)
    for call in values.syntax.every(ast.Call):
        options = {part.arg: getattr(part.value, "value", None) for part in call.keywords}
        if options.get("drop_last") is True and data.has(call):
            yield call, "leaves out the last samples of the test set"
        is_prediction = getattr(values.syntax.function_of(call), "name", "") == "predict_dataloader"
        if options.get("shuffle") is True and is_prediction:
            yield call, "shuffles the samples, so the predictions are not in the order of the stored labels"


def _seen(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield statistics over the test set, and test samples that are also in the training set."""
    syntax = values.syntax
    pairs = [(text, value) for text, value in printed(syntax) if _is_split(text)]
    training = {
        ast.unparse(part)
        for text, value in pairs
        if TRAIN.fullmatch(text)
        for part in (value, *getattr(value, "elts", []))
    }
    for text, value in pairs:
        parts = [part for part in (value, *getattr(value, "elts", [])) if not TRAIN.fullmatch(text)]
        for part in parts:
            is_subset = isinstance(part, ast.Call) and last_name(part.func) == "Subset" and part.args
            whole = part.args[0] if is_subset else part.value if isinstance(part, ast.Subscript) else None
            if whole is not None and ast.unparse(whole) in training:
                yield part, "contains samples of the training set"
    for call in syntax.every(ast.Call):
        is_method = isinstance(call.func, ast.Attribute) and not syntax.resolve(call.func)
        fits = last_name(call.func) in ("fit", "fit_transform")
        data = call.func.value if is_method and not fits else argument(call, 0)
        if last_name(call.func) not in (*STATISTICS, "fit_transform") or not isinstance(data, ast.Name):
            continue
        joined = [part for part in values.near(data) if isinstance(part, ast.Call) and last_name(part.func) in JOINS]
        names = {text for part in joined for text in text_in(part)}
        later = {text for text, value in pairs if value.lineno > call.lineno and _takes_from(value, data.id)}
        if any(map(_both, (names, later))) and not isinstance(syntax.parents[call], ast.FormattedValue):
            yield call, "is a statistic of training and test samples together"


def _is_split(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in (TRAIN, TEST, VALIDATION))


def _both(names: set[str]) -> bool:
    return any(map(TRAIN.fullmatch, names)) and any(map(TEST.fullmatch, names))


def _takes_from(value: ast.expr, name: str) -> bool:
    """Return whether a value is a part of a variable: `x[index]`, or one of the parts of a split."""
    is_part = isinstance(value, ast.Subscript) or (
        isinstance(value, ast.Call) and last_name(value.func) == "train_test_split"
    )
    return is_part and name in text_in(value)


BatchAccuracy.patterns = (_single, _means, _loaders, _seen)
RULE = BatchAccuracy()
