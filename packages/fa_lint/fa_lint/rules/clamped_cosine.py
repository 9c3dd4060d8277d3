"""Pitfall 2: a cosine that replaces small norms by a lower bound."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._cosine import floor
from fa_lint.rules._values import values_of
from fa_lint.syntax import Syntax, argument, open_ended

# Dotted name → position of eps among the arguments.
COSINES = {
    "torch.nn.functional.cosine_similarity": 3,
    "torch.cosine_similarity": 3,
    "torch.nn.CosineSimilarity": 1,
    "torch.nn.modules.CosineSimilarity": 1,
    "torch.nn.modules.distance.CosineSimilarity": 1,
}
PARTIALS = ("functools.partial",)
DEFAULT = 1e-8
HARMLESS_BELOW = 1e-10  # deep networks do have gradients of 1e-10


class ClampedCosine(LintRule):
    """Report a cosine whose norms have a lower bound `eps` of at least 1e-10.

    The cosine functions of torch have the default 1e-8. Handwritten cosines are reported too. An `eps` is not reported if its value
    is neither a number nor a constant of the module.
    """

    card = RuleCard(
        code="FA002",
        pitfall=2,
        name="clamped-cosine",
        title="a cosine replaces small norms by eps",
        why="norms below eps are replaced by eps: for gradients of 1e-10, the cosine is up to 10⁴ times too small",
        fix="divide by the norms in float64 (and report N/A if a norm is 0), or pass an eps below 1e-10, such as eps=1e-30",
    )
    clues = (("cosine_similarity", "CosineSimilarity", "norm"),)

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield each cosine whose eps is a number of at least 1e-10.

        A cosine is a call of a torch function, a functools.partial of such a function, or a handwritten quotient.
        """
        for call, name in syntax.calls():
            target, shift = name, 0
            if name in PARTIALS and call.args:
                target, shift = syntax.resolve(call.args[0]), 1
            if target not in COSINES or open_ended(call):
                continue
            eps_node = argument(call, COSINES[target] + shift, "eps")
            eps = DEFAULT if eps_node is None else syntax.number(eps_node)
            if eps is not None and eps >= HARMLESS_BELOW:
                yield Hit(call, _what(syntax, call, eps_node, eps))
        values = values_of(syntax)
        is_numeric = not syntax.names.packages.isdisjoint(("torch", "numpy", "jax"))
        for node in (node for node in values.cosines if isinstance(node, ast.BinOp) and is_numeric):
            eps = next((eps for part in values.near(node.right) if (eps := floor(syntax, part)) is not None), None)
            if eps is not None:
                yield Hit(node, f"`{syntax.snippet(node)}` is a cosine whose norms have the lower bound {eps:g}")


def _what(syntax: Syntax, call: ast.Call, eps_node: ast.AST | None, eps: float) -> str:
    origin = "its default" if eps_node is None else "its"
    return f"`{syntax.snippet(call)}` replaces norms below {origin} eps = {eps:g}"


RULE = ClampedCosine()
