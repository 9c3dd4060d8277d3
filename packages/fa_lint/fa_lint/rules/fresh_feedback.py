"""Pitfall 4: Γ is measured with a feedback matrix that is drawn for the measurement."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._cosine import compared_vectors
from fa_lint.rules._feedback import draws, filled_in_place, on_alignment
from fa_lint.rules._flow import assignments
from fa_lint.rules._provenance import RANDOM, Value, observe
from fa_lint.rules._test_data import test_set_use
from fa_lint.rules._values import Values, mentions, on_credit, values_of
from fa_lint.syntax import FUNCTIONS, Syntax, last_name

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
        why="Γ is specific to the feedback matrix of the training: with a new random matrix, Γ is about 0 for every "
        "method, also for a network that is aligned with its feedback",
        fix="measure with the matrix that the training used: save it as a buffer of the model, or draw it again from the "
        "recorded seed",
        cannot_see="a matrix that another function draws; random numbers of numpy; a gradient that another function computes",
    )
    clues = (
        ("torch",),
        ("grad", "eedback", "dfa", "DFA"),
        ("rand", "normal", "uniform", "bernoulli", "init."),
        ("osine", "norm", "cos", "align", "gamma", "angle"),
    )

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield the cosines with a matrix that is drawn only for these cosines."""
        by_scope: dict[ast.AST, list[tuple[ast.expr, Sides]]] = {}
        for node, sides in compared_vectors(syntax):
            by_scope.setdefault(syntax.function_of(node), []).append((node, sides))
        training = test_set_use(syntax) if by_scope else None
        for scope, pairs in by_scope.items():
            if any(draws(syntax, part) for part in _statements(scope)) and not training.trains(scope):
                yield from _in_scope(syntax, scope, pairs)
        for node in _drawn_again(values_of(syntax)) if on_credit(syntax) else ():
            yield Hit(node, f"`{syntax.snippet(node)}` draws feedback again, and not the feedback of the training")


def _drawn_again(values: Values) -> Iterator[ast.AST]:
    """Yield feedback that is drawn in each round of a training, or a second time for a measurement."""
    syntax, use = values.syntax, test_set_use(values.syntax)
    drawn = [call for call in syntax.every(ast.Call) if _draws_anew(values, call)]
    products = [node for node in syntax.every(ast.BinOp) if isinstance(node.op, ast.MatMult)]
    factors = {part for node in products for part in values.sources(node.right)} if drawn else set()
    measuring = {
        name for name, node in values.functions.items() if any(part in values.cosines for part in ast.walk(node))
    }
    for call in (call for call in drawn if call in factors):
        loop = next(
            (part for part in syntax.ancestors(call) if isinstance(part, (ast.For, ast.While, *FUNCTIONS))), None
        )
        used_here = [node for node in products if loop in syntax.ancestors(node) and call in values.sources(node.right)]
        is_noise = any(draws(syntax, part) for node in used_here for part in values.near(node.left))
        if isinstance(loop, (ast.For, ast.While)) and use.trains(loop) and used_here and not is_noise:
            yield call
        again = [other for other in drawn if other is not call and ast.unparse(other) == ast.unparse(call)]
        scope = syntax.function_of(call)
        is_only = (
            sum(part in values.cosines for part in syntax.parts(scope)) == 1
            and last_name(call.func) in values.functions
        )
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
    is_seeded = (
        any(part.arg == "generator" for part in call.keywords) or mentions(call, "seed") or mentions(call, "gen")
    )
    return not is_seeded and not is_mask and draws(values.syntax, function or call)


def _statements(scope: ast.AST) -> list[ast.AST]:
    return scope.body if isinstance(scope.body, list) else [scope.body]


def _in_scope(syntax: Syntax, scope: ast.AST, pairs: list[tuple[ast.expr, Sides]]) -> Iterator[Hit]:
    values = observe(syntax, [side for _, sides in pairs for side in sides])
    fresh = [
        (node, sides)
        for node, sides in pairs
        if any(_is_fresh(syntax, values, *order) for order in (sides, sides[::-1]))
    ]
    is_baseline = len(fresh) < len(pairs) or BASELINE.search(getattr(scope, "name", ""))
    if not fresh or is_baseline or _is_seeded(scope) or _escapes(syntax, scope, [node for node, _ in fresh]):
        return
    for node, _ in fresh:
        yield Hit(
            node, f"`{syntax.snippet(node)}` compares a gradient with a product with random numbers of this measurement"
        )


def _is_fresh(syntax: Syntax, values: dict[ast.expr, Value], credit: ast.expr, gradient: ast.expr) -> bool:
    """Return whether the first side is a product with a random matrix and the second side is a gradient."""
    if any(name.startswith(RANDOM) for name in values[gradient].origins):
        return False
    is_gradient = any(name.endswith(".grad") for name in values[gradient].names) or on_alignment(syntax)
    factors = [factor for product in values[credit].products for factor in product.factors]
    return is_gradient and any(RANDOM in factor.origins for factor in factors)


def _is_seeded(scope: ast.AST) -> bool:
    calls = [part for part in ast.walk(scope) if isinstance(part, ast.Call)]
    return any(last_name(call.func) in SEEDS or any(one.arg == "generator" for one in call.keywords) for call in calls)


def _escapes(syntax: Syntax, scope: ast.AST, cosines: list[ast.expr]) -> bool:
    """Return whether code uses the random numbers outside of the cosines, or adds them to values."""
    inside = {part for node in cosines for part in ast.walk(node)}
    names = _random_names(syntax, scope, inside)
    for part in ast.walk(scope):
        is_draw = isinstance(part, ast.Call) and draws(syntax, part)
        is_loaded = isinstance(part, ast.Name) and part.id in names and isinstance(part.ctx, ast.Load)
        if (is_draw or is_loaded) and _is_added(syntax, part):
            return True
        if is_loaded and part not in inside and not _stays(syntax, scope, part, names):
            return True
    return False


def _random_names(syntax: Syntax, scope: ast.AST, inside: set[ast.AST]) -> set[str]:
    """Return the variables that contain random numbers or are computed from them outside of the cosines."""
    pairs = [pair for node in ast.walk(scope) for pair in assignments(node)]
    pairs += [(node.target, node.iter) for node in ast.walk(scope) if isinstance(node, LOOPS)]
    targets = [target for target, value in pairs if draws(syntax, value)]
    targets += [
        target for call in ast.walk(scope) if isinstance(call, ast.Call) and (target := filled_in_place(syntax, call))
    ]
    names = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    while True:
        further = {
            part.id
            for target, value in pairs
            if any(isinstance(one, ast.Name) and one.id in names and one not in inside for one in ast.walk(value))
            for part in ast.walk(target)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        }
        if further <= names:
            return names
        names |= further


def _stays(syntax: Syntax, scope: ast.AST, name: ast.Name, names: set[str]) -> bool:
    """Return whether a use of a random variable only sets another random variable or starts a loop."""
    if syntax.function_of(name) is not scope:
        return False
    for ancestor in syntax.ancestors(name):
        if isinstance(ancestor, LOOPS):
            return True
        if isinstance(ancestor, ast.stmt):
            targets = [target for target, _ in assignments(ancestor)]
            filled = isinstance(ancestor, ast.Expr) and isinstance(ancestor.value, ast.Call)
            if filled and (target := filled_in_place(syntax, ancestor.value)) is not None:
                return target is name
            return isinstance(ancestor, ast.Assign) and all(
                isinstance(one, ast.Name) and one.id in names for one in targets
            )
    return False


def _is_added(syntax: Syntax, node: ast.AST) -> bool:
    """Return whether an expression is added to another value; arguments of calls do not count."""
    for ancestor in syntax.ancestors(node):
        if isinstance(ancestor, (ast.Call, ast.stmt)):
            return False
        if isinstance(ancestor, ast.BinOp) and isinstance(ancestor.op, (ast.Add, ast.Sub)):
            return True
    return False


RULE = FreshFeedback()
