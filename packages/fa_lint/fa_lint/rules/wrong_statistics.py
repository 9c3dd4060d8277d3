"""FA018: errors, tests and tables that count something else than independent runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import RuleCard
from fa_lint.rules._selections import POOLS, SPREADS
from fa_lint.rules._topic import CreditRule
from fa_lint.rules._values import Values, calls_in, has_call, mentions, operands_of, orders
from fa_lint.syntax import argument, is_op, number, text_in

Found = Iterator[tuple[ast.AST, str]]
RANKS = ("mannwhitneyu", "wilcoxon", "ranksums", "ks_2samp", "kruskal")
TESTS = (*RANKS, "ttest_ind", "ttest_rel", "ttest_1samp", "f_oneway")
CORRECTIONS = re.compile(r"holm|bonferroni|multipletests|fdr|false_discovery|tukey|dunn|hochberg|sidak", re.I)
LISTINGS = ("glob", "iglob", "rglob", "listdir", "iterdir", "scandir")
DEGREES = re.compile(r"\s*(deg|°)")


class WrongStatistics(CreditRule):
    """Report tests and errors whose samples are no independent runs, and tables that mix other runs in."""

    card = RuleCard(
        code="FA018",
        pitfall=0,
        name="wrong-statistics",
        title="an error, test or table does not count independent runs",
        why="dependent samples make errors too small, and files or rows that no one chose mix other runs in",
        fix="compute one number per seed, then a t-interval or corrected test over seeds; sort files; merge by seed",
    )
    clues = (("numpy", "pandas", "torch", "scipy"),)


def _pooled(values: Values) -> Found:
    syntax = values.syntax
    for call in values.calls(*TESTS):
        if any(calls_in(values.same(part), POOLS) for part in call.args):
            yield call, "tests batches, epochs or layers of a run as if they were independent runs"
        loops = [one for part in syntax.ancestors(call) for one in (part, *getattr(part, "generators", []))]
        is_repeated = any(has_call(loop.iter, "combinations") for loop in loops if hasattr(loop, "iter"))
        if is_repeated and not CORRECTIONS.search(syntax.text):
            yield call, "is one of many tests, and no limit is corrected for their number"
    for node in syntax.every(ast.BinOp):
        is_error = is_op(node, ast.Div) and has_call(node.left, *SPREADS) and has_call(node.right, "sqrt")
        if is_error and has_call(node.left, *POOLS) and text_in(node.right) & {"size", "numel"}:
            yield node, "counts every epoch or layer of a run as an independent sample"
        is_normal = {number(node.left), number(node.right)} & {1.96, 2.58, 2.576}
        if is_normal and calls_in(values.near(syntax.parents[node]), (*SPREADS, "sem")):
            yield node, "is an interval of the normal distribution, which is too narrow for a few runs: use Student's t"
    for call in values.calls("sem"):
        parts = values.dependencies(call)
        groups = calls_in(parts, ("groupby",))
        is_tail = any(mentions(side, "epoch") for pair in orders(parts) for side in pair)
        if groups and is_tail and not any(mentions(group, "seed") or mentions(group, "epoch") for group in groups):
            yield call, "counts every epoch of a run as an independent sample"


def _mixed(values: Values) -> Found:
    """Yield files and rows that enter a table by chance."""
    for node in values.syntax.every(ast.Subscript):
        if isinstance(node.slice, ast.Slice) and calls_in(values.same(node.value), LISTINGS):
            yield node, "takes files in the order of the file system, so chance decides which runs enter"
    for call in values.calls("merge"):
        tables = operands_of(values.syntax, call)
        key = next((part.value for part in call.keywords if part.arg == "on"), None)
        have_seeds = [any(mentions(part, "seed") for part in values.near(table)) for table in tables]
        if key is not None and not mentions(key, "seed") and have_seeds == [True, True]:
            yield call, "pairs every seed with every other seed, because the seed is no key"
    modes = [(call, ast.unparse(call.args[0]), argument(call, 1, "mode")) for call in values.calls("open") if call.args]
    files = {(name, getattr(mode, "value", "r")[:1]) for _, name, mode in modes}
    for call, name, mode in modes if not re.search(r"unlink|\bremove\(|exists\(", values.syntax.text) else ():
        if getattr(mode, "value", "r") == "a" and (name, "r") in files and (name, "w") not in files:
            yield call, "is never emptied, so the table that is read from this file also has the rows of earlier runs"


def _radians(values: Values) -> Found:
    for text in values.syntax.every(ast.JoinedStr):
        for value, after in zip(text.values, text.values[1:], strict=False):
            parts = values.sources(value.value) if isinstance(value, ast.FormattedValue) else set()
            is_scaled = calls_in(parts, ("degrees", "rad2deg")) or any(number(part) == 180 for part in parts)
            is_degree = DEGREES.match(str(getattr(after, "value", "")))
            if is_degree and not is_scaled and calls_in(parts, ("arccos", "acos")):
                yield value, "is an angle in radians that is printed as degrees"


WrongStatistics.patterns = (_pooled, _mixed, _radians)
RULE = WrongStatistics()
