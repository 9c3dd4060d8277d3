"""FA018: errors, tests and tables that count something else than independent runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import RuleCard
from fa_lint.rules._selections import POOLS, SPREADS
from fa_lint.rules._topic import CreditRule
from fa_lint.rules._values import Values, calls_in, mentions
from fa_lint.syntax import argument, number, text_in

Found = Iterator[tuple[ast.AST, str]]
TESTS = (
    "ttest_ind",
    "ttest_rel",
    "ttest_1samp",
    "mannwhitneyu",
    "wilcoxon",
    "ranksums",
    "ks_2samp",
    "f_oneway",
    "kruskal",
)
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
        why="epochs, layers and batches of one run depend on each other: with them as samples, errors are too small and tests "
        "find differences that no other seeds show; and a table of files or rows that nobody chose mixes other runs in",
        fix="compute one number per seed first, then the t-interval or test over seeds, corrected for the number of tests; sort "
        "files; merge by seed",
    )
    clues = (("numpy", "pandas", "torch", "scipy"),)


def _pooled(values: Values) -> Found:
    syntax = values.syntax
    for call in calls_in(syntax.every(ast.Call), TESTS):
        if any(calls_in(values.same(part), POOLS) for part in call.args):
            yield call, "tests batches, epochs or layers of a run as if they were independent runs"
        loops = [*map(_loop_text, syntax.ancestors(call))]
        if any("combinations" in text for text in loops) and not CORRECTIONS.search(syntax.text):
            yield call, "is one of many tests, and no limit is corrected for their number"
    for node in syntax.every(ast.BinOp):
        is_error = (
            isinstance(node.op, ast.Div)
            and calls_in(ast.walk(node.left), SPREADS)
            and calls_in(ast.walk(node.right), ("sqrt",))
        )
        if is_error and calls_in(ast.walk(node.left), POOLS) and text_in(node.right) & {"size", "numel"}:
            yield node, "counts every epoch or layer of a run as an independent sample"
        factors = {number(node.left), number(node.right)} & {1.96, 1.959964, 2.58, 2.576}
        spread = [node.left, node.right, syntax.parents[node]] if factors else []
        if calls_in([part for side in spread for part in values.near(side)], (*SPREADS, "sem")):
            yield node, "is an interval of the normal distribution, which is too narrow for a few runs: use Student's t"
    for call in calls_in(syntax.every(ast.Call), ("sem",)):
        parts = values.dependencies(call)
        groups = calls_in(parts, ("groupby",))
        is_late = any(
            isinstance(part, ast.Compare) and mentions(part, "epoch") and not isinstance(part.ops[0], ast.Eq)
            for source in parts
            for part in ast.walk(source)
        )
        if groups and is_late and not any(mentions(group, "seed") or mentions(group, "epoch") for group in groups):
            yield call, "counts every epoch of a run as an independent sample"


def _loop_text(node: ast.AST) -> str:
    sources = [node, *getattr(node, "generators", [])]
    return " ".join(ast.unparse(part.iter) for part in sources if hasattr(part, "iter"))


def _mixed(values: Values) -> Found:
    """Yield files and rows that enter a table by chance."""
    syntax = values.syntax
    for node in syntax.every(ast.Subscript):
        if isinstance(node.slice, ast.Slice) and calls_in(values.same(node.value), LISTINGS):
            yield node, "takes files in the order of the file system, so chance decides which runs enter"
    for call in calls_in(syntax.every(ast.Call), ("merge",)):
        keys = [part.value for part in call.keywords if part.arg == "on"]
        tables = (
            [call.args[0], *([call.func.value] if isinstance(call.func, ast.Attribute) else [])] if call.args else []
        )
        if (
            keys
            and not mentions(keys[0], "seed")
            and len(tables) == 2
            and all(any(mentions(part, "seed") for part in values.near(table)) for table in tables)
        ):
            yield call, "pairs every seed with every other seed, because the seed is no key"
    opened = [
        (call, getattr(argument(call, 1, "mode"), "value", "r")) for call in calls_in(syntax.every(ast.Call), ("open",))
    ]
    for call, mode in opened:
        same = {
            other
            for one, other in opened
            if one.args and call.args and ast.unparse(one.args[0]) == ast.unparse(call.args[0])
        }
        if (
            mode == "a"
            and "r" in same
            and "w" not in same
            and not re.search(r"unlink|\bremove\(|exists\(", syntax.text)
        ):
            yield call, "is never emptied, so the table that is read from this file also has the rows of earlier runs"


def _radians(values: Values) -> Found:
    for text in values.syntax.every(ast.JoinedStr):
        for value, after in zip(text.values, text.values[1:], strict=False):
            parts = values.sources(value.value) if isinstance(value, ast.FormattedValue) else set()
            is_scaled = calls_in(parts, ("degrees", "rad2deg")) or any(number(part) == 180 for part in parts)
            if (
                calls_in(parts, ("arccos", "acos"))
                and DEGREES.match(str(getattr(after, "value", "")))
                and not is_scaled
            ):
                yield value, "is an angle in radians that is printed as degrees"


WrongStatistics.patterns = (_pooled, _mixed, _radians)
RULE = WrongStatistics()
