"""Pitfall 4: Γ is measured with a feedback matrix that is drawn for the measurement."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._feedback import PRODUCTS, draws, filled_in_place
from fa_lint.rules._test_data import test_set_use
from fa_lint.rules._topic import on_alignment, on_credit
from fa_lint.rules._values import Values, calls_in, mentions, values_of
from fa_lint.syntax import FUNCTIONS, Syntax, is_op, last_name

SEEDS = ("manual_seed", "seed", "seed_everything", "set_seed", "fork_rng", "default_rng", "set_rng_state", "Generator")
BASELINE = re.compile(r"null|baseline|chance|control|fresh|random|shuffle|permut|expected", re.IGNORECASE)
LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)
Sides = tuple[ast.expr, ast.expr]


class FreshFeedback(LintRule):
    """Report a cosine of a gradient with a product that contains new random numbers.

    The rule does not need certain variable names, because it recognises a measurement by the gradient and by the product with a
    random matrix. A function that trains, that sets a seed, or that passes the random matrix to other code is not reported. A
    function with a second cosine without random numbers is not reported either, because the first cosine then shows which value
    chance alone gives.
    """

    card = RuleCard(
        code="FA004",
        pitfall=4,
        name="fresh-feedback",
        title="Γ is measured with a new random feedback matrix",
        why="Γ belongs to the feedback of the training: with a new matrix it is about 0, also if a network is aligned",
        fix="measure with the feedback of the training: save it as a buffer, or draw it from the recorded seed",
    )
    clues = (
        ("torch",),
        ("grad", "eedback", "dfa", "DFA"),
        ("rand", "normal", "uniform", "bernoulli", "init."),
        ("osine", "norm", "cos", "align", "gamma", "angle"),
    )

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield the cosines with a matrix that is drawn only for these cosines."""
        values = values_of(syntax)
        by_scope: dict[ast.AST, list[tuple[ast.expr, Sides]]] = {}
        for node, sides in values.pairs:
            by_scope.setdefault(syntax.function_of(node), []).append((node, sides))
        for scope, pairs in by_scope.items():
            is_fresh = all(any(_is_fresh(values, *order) for order in (sides, sides[::-1])) for _, sides in pairs)
            if is_fresh and not _is_baseline(scope) and not _escapes(values, scope, pairs):
                for node, _ in pairs if not test_set_use(syntax).trains(scope) else ():
                    text = "compares a gradient with a product with random numbers of this measurement"
                    yield Hit(node, f"`{syntax.snippet(node)}` {text}")
        for node in _drawn_again(values) if on_credit(syntax) else ():
            yield Hit(node, f"`{syntax.snippet(node)}` draws feedback again, and not the feedback of the training")


def _is_fresh(values: Values, credit: ast.expr, gradient: ast.expr) -> bool:
    """Return whether the first side is a product with a random matrix and the second side is a gradient."""
    inputs = values.dependencies(gradient)
    is_gradient = any(last_name(part) == "grad" for part in inputs) or on_alignment(values.syntax)
    if not is_gradient or _is_random(values, inputs):
        return False
    products = [[node.left, node.right] for node in values.dependencies(credit) if is_op(node, ast.MatMult)]
    products += [[*call.args, call.func] for call in calls_in(values.dependencies(credit), PRODUCTS)]
    factors = [values.dependencies(factor) for product in products for factor in product]
    return any(_is_random(values, factor) and not _adds_noise(values, factor) for factor in factors)


def _is_random(values: Values, parts: Iterable[ast.AST]) -> bool:
    return any(isinstance(part, ast.Call) and draws(values.syntax, part) for part in parts)


def _adds_noise(values: Values, parts: Iterable[ast.AST]) -> bool:
    sums = [part for part in parts if is_op(part, ast.Add, ast.Sub)]
    return any(_is_random(values, values.dependencies(part)) for part in sums)


def _is_baseline(scope: ast.AST) -> bool:
    """Return whether a function sets a seed, or has the name of a value to expect by chance."""
    calls = [part for part in ast.walk(scope) if isinstance(part, ast.Call)]
    is_seeded = any(part.arg == "generator" for call in calls for part in call.keywords)
    return is_seeded or bool(calls_in(calls, SEEDS)) or BASELINE.search(getattr(scope, "name", "")) is not None


def _escapes(values: Values, scope: ast.AST, pairs: list[tuple[ast.expr, Sides]]) -> bool:
    """Return whether code uses the random numbers outside of the cosines."""
    cosines = {node for node, _ in pairs}
    inside = {part for node, sides in pairs for side in sides for part in (*ast.walk(node), *values.dependencies(side))}
    filled = {filled_in_place(values.syntax, part) for part in ast.walk(scope) if isinstance(part, ast.Call)}
    loads = [part for part in ast.walk(scope) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)]
    inputs = [values.dependencies(name) for name in loads if name not in inside | filled]
    return any(_is_random(values, parts) and cosines.isdisjoint(parts) for parts in inputs)


def _drawn_again(values: Values) -> Iterator[ast.AST]:
    """Yield feedback that is drawn in each round of a training, or a second time for a measurement."""
    syntax, use = values.syntax, test_set_use(values.syntax)
    drawn = [call for call in syntax.every(ast.Call) if _draws_anew(values, call)]
    products = [node for node in syntax.every(ast.BinOp) if isinstance(node.op, ast.MatMult)]
    factors = {part for node in products for part in values.sources(node.right)} if drawn else set()
    functions = values.functions.items()
    measuring = {name for name, node in functions if not values.cosines.isdisjoint(ast.walk(node))}
    for call in (call for call in drawn if call in factors):
        loops = (ast.For, ast.While, *FUNCTIONS)
        loop = next((part for part in syntax.ancestors(call) if isinstance(part, loops)), None)
        used_here = [node for node in products if loop in syntax.ancestors(node) and call in values.sources(node.right)]
        is_noise = any(draws(syntax, part) for node in used_here for part in values.near(node.left))
        if isinstance(loop, (ast.For, ast.While)) and use.trains(loop) and used_here and not is_noise:
            yield call
        owner = syntax.function_of(call)
        stepped = [one for one in syntax.every(ast.For) if use.trains(one) and owner in use.called(one)]
        is_named = getattr(syntax.function_of(call), "name", "")
        if stepped and used_here and not is_noise and not BASELINE.search(is_named) and is_named not in measuring:
            yield call
        again = [other for other in drawn if other is not call and ast.unparse(other) == ast.unparse(call)]
        scope = syntax.function_of(call)
        count = sum(part in values.cosines for part in syntax.parts(scope))
        is_only = count == 1 and last_name(call.func) in values.functions
        is_inside = is_only and not use.trains(scope) and not BASELINE.search(getattr(scope, "name", ""))
        if (again and _is_only_measured(values, call, measuring)) or is_inside:
            yield call


def _is_only_measured(values: Values, call: ast.Call, measuring: set[str]) -> bool:
    """Return whether only functions that measure receive a value, directly or in a variable."""
    scope = values.syntax.parts(values.syntax.function_of(call))
    loads = [part for part in scope if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)]
    names = [name for name in loads if values.of(name) == [call]]
    receivers = [
        next((one for one in values.syntax.ancestors(use) if isinstance(one, ast.Call)), None)
        for use in names or [call]
    ]
    return all(receiver is not None and last_name(receiver.func) in measuring for receiver in receivers)


def _draws_anew(values: Values, call: ast.Call) -> bool:
    """Return whether a call draws random numbers without a seed, also in a function of the file.

    Random numbers that are compared with a number are masks.
    """
    function = values.functions.get(last_name(call.func))
    compared = [part for node in ast.walk(function or call) if isinstance(node, ast.Compare) for part in ast.walk(node)]
    is_mask = any(isinstance(part, ast.Call) and draws(values.syntax, part) for part in compared)
    has_generator = any(part.arg == "generator" for part in call.keywords)
    is_seeded = has_generator or mentions(call, "seed") or mentions(call, "gen")
    return not is_seeded and not is_mask and draws(values.syntax, function or call)


RULE = FreshFeedback()
