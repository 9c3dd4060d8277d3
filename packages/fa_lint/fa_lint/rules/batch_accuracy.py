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
from fa_lint.syntax import argument, is_op, last_name, option, text_in

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
        why="a batch or a selection has another accuracy than the test set, by several percent; and samples that the training or "
        "its normalisation has seen are no test",
        fix="compute the accuracy over all samples of a test set that nothing else has used; use a fixed batch only for norms and "
        "Γ, and state for each metric which samples were used",
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
        results = {last_name(target) for target, value in assignments(syntax.parents[call]) if value is call}
        later = [(text, value) for text, value in pairs if value.lineno > call.lineno]
        later = {
            text
            for text, value in later
            if any(_takes_from(value, name) for name in {data.id, *(results if fits else ())})
        }
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
    for call in syntax.every(ast.Call):
        options = {part.arg: part.value for part in call.keywords}
        changes = calls_in(values.near(options["transform"]), AUGMENTS) if "transform" in options else []
        is_random = [
            part for part in values.near(options.get("transform", call)) if last_name(part).startswith(AUGMENTS)
        ]
        if "transform" in options and (changes or is_random) and data.has(call):
            yield call, "distorts the test samples at random"
        if last_name(call.func) == "fit_transform" and call.args and data.has(call.args[0]):
            yield call, "is fitted on the test samples"
    slices = [(part, part.slice) for part in syntax.every(ast.Subscript) if isinstance(part.slice, ast.Slice)]
    ends = [(part, syntax.number(index.upper)) for part, index in slices if index.lower is None]
    for part, first in ((part, syntax.number(index.lower)) for part, index in slices if index.upper is None):
        block = next(one for one in syntax.ancestors(part) if isinstance(one, ast.stmt))
        same = [
            last
            for one, last in ends
            if ast.unparse(one.value) == ast.unparse(part.value) and block in syntax.ancestors(one)
        ]
        if first and any(last and 10 < first < last for last in same):
            yield part, "overlaps the other part of the same samples"


def _leaks(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield predictions and scores whose inputs contain the labels or the samples of a fit."""
    syntax, data = values.syntax, test_set_use(values.syntax)
    measured = [(node, truth) for node, truth in accuracies(syntax) if not data.trains(syntax.function_of(node))]
    for node, truth in measured:
        inputs = [part for call in calls_in(values.dependencies(node), values.functions) for part in call.args]
        coded = [call for part in inputs for call in calls_in(ast.walk(part), ("one_hot",)) if call.args]
        if any(isinstance(truth, ast.Name) and truth.id in text_in(call.args[0]) for call in coded):
            yield node, "compares labels with a prediction into which the labels themselves have gone"
    methods = [call for call in values.calls("fit", "score") if isinstance(call.func, ast.Attribute) and call.args]
    fits = [call for call in methods if call.func.attr == "fit"]
    for call in (call for call in methods if call.func.attr == "score" and data.has(call.args[0])):
        if ast.unparse(call).replace(".score(", ".fit(") in map(ast.unparse, fits):
            yield call, "is the score of the test samples to which the model was fitted"
        labels = (
            text_in(call.args[1]) & {part.id for part in ast.walk(call.args[1]) if isinstance(part, ast.Name)}
            if call.args[1:]
            else set()
        )
        makers = [part for part in values.dependencies(call.args[0]) if isinstance(part, ast.Call) and part.args[1:]]
        for maker in makers:
            if labels & {last_name(part) for part in maker.args[1:]}:
                yield maker, "puts the labels into the samples that are scored with these labels"
    splits = [(text, value) for text, value in printed(syntax) if _is_split(text)]
    for call in (call for call in values.calls("choice", "resample") if option(call, "replace")):
        parts = [(TRAIN.fullmatch(text), value) for text, value in splits if call in values.dependencies(value)]
        if any(is_train for is_train, _ in parts):
            yield from (
                (value, "has copies of training samples, drawn before the split")
                for is_train, value in parts
                if not is_train
            )


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
