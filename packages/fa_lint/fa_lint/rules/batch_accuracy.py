"""Pitfall 9: the accuracy is computed on a single batch instead of the test set."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import RuleCard
from fa_lint.rules._accuracy import accuracies
from fa_lint.rules._flow import assignments
from fa_lint.rules._selections import printed
from fa_lint.rules._test_data import TEST, TRAIN, VALIDATION, test_set_use
from fa_lint.rules._topic import CreditRule
from fa_lint.rules._values import Values, calls_in, operands_of
from fa_lint.syntax import argument, is_op, last_name, text_in

STATISTICS = ("mean", "std", "var", "min", "max", "quantile", "percentile", "median")
AUGMENTS = ("Random", "AutoAugment", "TrivialAugment", "AugMix", "ColorJitter")
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
        why="part of the samples has another accuracy, and samples that training or scaling has seen are no test",
        fix="use all samples of a test set that nothing else has used; say for each metric which samples were used",
    )
    clues = (("argmax", ".max(", "topk", "test", "train", "predict", "_te", "xte", "Xte"),)


def _single(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for node, label_node in accuracies(values.syntax):
        is_next = bool(calls_in(values.sources(label_node), ("next",)))
        if isinstance(label_node, ast.Name) and (is_next or NAMED.fullmatch(label_node.id)):
            yield node, f"is an accuracy on the single batch `{label_node.id}`, and not on the test set"


def _means(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield means of batch means."""
    syntax = values.syntax
    for node, _ in accuracies(syntax):
        parents = [*syntax.ancestors(node)]
        calls = [part for part in parents if isinstance(part, ast.Call)]
        names = [last_name(call.func) for call in calls]
        loop = next((part for part in parents if isinstance(part, ast.For)), None)
        appends = [call.func.value for call in calls if getattr(call.func, "attr", "") == "append"]
        lists = {part.id for part in appends if isinstance(part, ast.Name)}
        averaged = [call for call in values.calls("mean", "sum", "fmean") if lists & text_in(call)]
        if loop and averaged and "mean" in names and isinstance(loop.target, ast.Tuple):
            yield node, "is the mean of a batch, and a mean of these means is not that of the samples"


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
    wholes = [value for text, value in pairs if TRAIN.fullmatch(text)]
    training = {ast.unparse(part) for value in wholes for part in (value, *getattr(value, "elts", []))}
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
        results = {last_name(target) for target, value in assignments(syntax.parents[call]) if value is call}
        later = [(text, value) for text, value in pairs if value.lineno > call.lineno]
        taken = {data.id, *(results if fits else ())}
        later = {text for text, value in later if any(_takes_from(value, name) for name in taken)}
        if any(map(_both, (names, later))) and not isinstance(syntax.parents[call], ast.FormattedValue):
            yield call, "is a statistic of training and test samples together"


def _own(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield test samples that are scaled by themselves, distorted, or also in the training set."""
    syntax, data = values.syntax, test_set_use(values.syntax)
    for node in syntax.every(ast.BinOp):
        is_scaled = is_op(node, ast.Sub) and is_op(syntax.parents[node], ast.Div) and data.has(node.left)
        means = calls_in(ast.walk(node.right), ("mean",)) if is_scaled else []
        if any(ast.unparse(node.left) in map(ast.unparse, operands_of(syntax, call)) for call in means):
            yield node, "scales the test samples by their own mean, and not by that of the training set"
    for part in syntax.every(ast.keyword):
        call, changes = syntax.parents[part], values.near(part.value) if part.arg == "transform" else []
        if any(last_name(change).startswith(AUGMENTS) for change in changes) and data.has(call):
            yield call, "distorts the test samples at random"
    for call in values.calls("fit_transform"):
        if any(map(data.has, call.args[:1])):
            yield call, "is fitted on the test samples"
    for block in (*syntax.every(ast.Assign), *syntax.every(ast.Return)):
        slices = [part for part in syntax.parts(block) if isinstance(getattr(part, "slice", 0), ast.Slice)]
        starts = [part for part in slices if not part.slice.lower]
        ends = [(ast.unparse(part.value), syntax.number(part.slice.upper) or 0) for part in starts]
        for part in (part for part in slices if not part.slice.upper):
            first = syntax.number(part.slice.lower) or 0
            if any(name == ast.unparse(part.value) and 10 < first < last for name, last in ends):
                yield part, "overlaps the other part of the same samples"


def _leaks(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield predictions and scores whose inputs contain the labels or the samples of a fit."""
    syntax, data = values.syntax, test_set_use(values.syntax)
    for node, truth in accuracies(syntax):
        calls = [] if data.trains(syntax.function_of(node)) else calls_in(values.dependencies(node), values.functions)
        coded = [one for call in calls for part in call.args for one in calls_in(ast.walk(part), ("one_hot",))]
        if any(isinstance(truth, ast.Name) and truth.id in text_in(call) for call in coded):
            yield node, "compares labels with a prediction into which the labels themselves have gone"
    fits = {*map(ast.unparse, values.calls("fit"))}
    for call in (call for call in values.calls("score") if len(call.args) == 2 and data.has(call.args[0])):
        if ast.unparse(call).replace(".score(", ".fit(") in fits:
            yield call, "is the score of the test samples to which the model was fitted"
        labels = {part.id for part in ast.walk(call.args[1]) if isinstance(part, ast.Name)}
        for maker in calls_in(values.dependencies(call.args[0]), values.functions):
            if labels & {last_name(part) for part in maker.args[1:]}:
                yield maker, "puts the labels into the samples that are scored with these labels"


def _is_split(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in (TRAIN, TEST, VALIDATION))


def _both(names: set[str]) -> bool:
    return any(map(TRAIN.fullmatch, names)) and any(map(TEST.fullmatch, names))


def _takes_from(value: ast.expr, name: str) -> bool:
    """Return whether a value is a part of a variable: `x[index]`, or one of the parts of a split."""
    parts = [*getattr(value, "args", []), value]
    is_part = any(isinstance(part, ast.Subscript) for part in parts) or bool(calls_in([value], ("train_test_split",)))
    return is_part and name in text_in(value)


BatchAccuracy.patterns = (_single, _means, _loaders, _seen, _own, _leaks)
RULE = BatchAccuracy()
