"""Pitfall 11: runs are selected by their result, or they have no common seeds, budgets or errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fa_lint.base import RuleCard
from fa_lint.rules._feedback import draws
from fa_lint.rules._flow import assignments, torch_modules
from fa_lint.rules._selections import MISSING, SPREADS, filters, printed, sorted_picks
from fa_lint.rules._test_data import test_set_use
from fa_lint.rules._topic import CreditRule
from fa_lint.rules._values import Values, calls_in, has_call, label, mentions, operands_of, orders, text_of
from fa_lint.syntax import argument, is_op, last_name, number, text_in

GENERATORS = ("default_rng", "RandomState", "PRNGKey")
SEEDS = (*GENERATORS, "manual_seed", "manual_seed_all", "seed", "seed_everything", "set_seed")
CLOCKS = ("hash", "time", "time_ns", "urandom", "getpid", "now", "perf_counter", "monotonic")
REMOVALS = ("delete", "remove", "pop", "drop")
UNEQUAL = (ast.IsNot, ast.NotEq)
RUNS = {"seed", "run", "repeat", "repetition", "rep", "trial", "replicate"}
WORST = ("min", "argmin", "idxmin", "amin", "max", "argmax", "idxmax", "amax")
TRIMS = ("trim_mean", "trimboth", "trim1", "nlargest", "nsmallest")
BACKPROP = {"bp", "backprop", "backpropagation"}
RANDOM_LAYERS = ("torch.nn.Linear", "torch.nn.Conv", "torch.nn.Dropout", "torch.nn.Embedding", "torch.nn.init.")
BUDGETS = {"epoch", "epochs", "step", "steps", "iterations", "iters", "grid", "lrs", "rates", "trials"}
SPREAD = re.compile(r"(.*[\W_])?(std|stdev|sd|standard[ _]deviation)\W*", re.I | re.S)


class ChosenRuns(CreditRule):
    """Report runs that are selected by their result, and runs that cannot be compared.

    Runs cannot be compared if their seed is missing, constant, set too late or taken from the clock, if the backpropagation
    control has another number of epochs, or if a standard error is called a standard deviation.
    """

    card = RuleCard(
        code="FA011",
        pitfall=11,
        name="chosen-runs",
        title="runs are selected by their result, or are not comparable",
        why="a mean over selected runs describes the selection; runs with other seeds or budgets are not comparable",
        fix="report all runs of seeds chosen before, with equal budgets and their deviation; seed before any draw",
    )
    clues = (("seed", "rand", "acc", "std", "sem", "bp", "backprop", "frozen"),)


def _removed(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for node, condition in filters(values):
        limits = [side for side, limit in orders(condition) if values.syntax.number(limit) is not None]
        limits = [side for side in limits if not isinstance(side, ast.BinOp)]  # a difference is no result of a run
        if any(map(values.is_result, limits)) and not any(map(values.is_cosine, limits)):
            yield node, "leaves out runs by their result"
        others = [part for part in condition if isinstance(part, ast.Compare) and isinstance(part.ops[0], UNEQUAL)]
        worst = [call for part in others for call in calls_in(values.near(part), WORST)]
        if any(values.is_result(part) for call in worst for part in ast.walk(call)):
            yield node, "leaves out a run by its result"
        tested = calls_in(condition, MISSING)
        if any("loss" in text_of(label(part)) for call in tested for part in call.args):
            yield node, "leaves out runs that diverged"
    for call in values.syntax.every(ast.Call):
        operands = [*call.args, *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
        inner = [part for operand in call.args for part in values.near(operand) if isinstance(part, ast.Call)]
        is_removal = last_name(call.func) in REMOVALS and any(last_name(part.func) in WORST for part in inner)
        if (is_removal or last_name(call.func) in TRIMS) and any(map(values.is_result, operands)):
            yield call, "leaves out a run by its result"
        is_table = last_name(call.func) == "dropna" and isinstance(getattr(call.func, "value", None), ast.Name)
        if is_table and not call.args and not any(part.arg in ("subset", "axis") for part in call.keywords):
            yield call, "leaves out every row with an undefined value, such as those of runs that diverged"
    for node in values.syntax.every(ast.BinOp):
        sides = [last_name(getattr(side, "func", side)) for side in (node.left, node.right)]
        if isinstance(node.op, ast.Sub) and sides[0] == "sum" and sides[1] in WORST and values.is_result(node.right):
            yield node, "leaves out a run by its result"
    for node, key in sorted_picks(values):
        if isinstance(node.slice, ast.Slice) and values.is_result(key):
            yield node, "leaves out runs by their result"


def _repeated(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for loop in values.syntax.every(ast.While):
        tested = [side for pair in orders(ast.walk(loop.test)) for side in pair]
        pairs = [pair for part in loop.body for node in ast.walk(part) for pair in assignments(node)]
        again = any(isinstance(value, ast.Call) and mentions(value, "seed") for _, value in pairs)
        if any(map(values.is_result, tested)) and (again or any(mentions(target, "seed") for target, _ in pairs)):
            yield loop.test, "repeats a run with another seed until its result is good enough"


def _seeds(values: Values) -> Iterator[tuple[ast.AST, str]]:
    syntax = values.syntax
    use = test_set_use(syntax)
    seeding = [call for call in calls_in(syntax.every(ast.Call), SEEDS) if call.args or call.keywords]
    for call in seeding:
        if calls_in(values.near(call), CLOCKS):
            yield call, "takes the seed from the clock or from hash(), so the run cannot be repeated"
    fields = [part for part in syntax.every(ast.AnnAssign) if label(part.target) == "seed"]
    if not any(mentions(part, "seed") for call in seeding for part in call.args):
        for call in (call for call in seeding if number(argument(call, 0)) is not None):
            scope = syntax.function_of(call)
            named = [part.arg for part in ast.walk(getattr(scope, "args", scope)) if isinstance(part, ast.arg)]
            if use.trains(scope) and (any(text_of(name) & RUNS for name in named) or (fields and scope is syntax.tree)):
                yield call, "is a constant, so the seed of a run has no effect"
    loops = [part for part in syntax.tree.body if isinstance(part, (ast.For, ast.While))]
    is_script = "__main__" in syntax.text or any(map(use.trains, loops))
    seeded = {syntax.resolve(call.func).partition(".")[0] for call in seeding}
    others = re.search(r"manual_seed|seed_everything|set_seed|seed_all|Generator|PRNGKey|manual", syntax.text)
    makes_layers = [call for call in syntax.every(ast.Call) if syntax.resolve(call.func).startswith(RANDOM_LAYERS)]
    if is_script and makes_layers and seeded and seeded <= {"numpy", "random"} and not others:
        yield seeding[0], "does not seed torch, so weights, feedback and dropout differ in every run"
    random_calls = [call for call in syntax.every(ast.Call) if draws(syntax, call)]
    if is_script and random_calls and not re.search("seed|rng|randomstate|generator|checkpoint", syntax.text, re.I):
        yield random_calls[0], "draws random numbers, and the script sets no seed"


def _late_seeds(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield each seed that a block sets after it has created a network or drawn its parameters."""
    syntax = values.syntax
    random_parts = {node.name for node in torch_modules(syntax)}
    drawing = {name: node for name, node in values.functions.items() if draws(syntax, node)}
    random_parts |= {name for name, node in drawing.items() if not mentions_generator(node)}
    seeders = {*SEEDS, *(name for name, node in values.functions.items() if has_call(node, *SEEDS))}
    bodies = [getattr(part, "body", None) for part in (syntax.tree, *syntax.parents)]
    for block in (body for body in bodies if isinstance(body, list)):
        created = None
        for statement in block:
            if has_call(statement, *seeders) or isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                later = any(map(test_set_use(syntax).trains, block[block.index(statement) :]))
                if created and later and isinstance(statement, ast.Expr) and not mentions_generator(statement):
                    yield statement, f"sets the seed after `{syntax.snippet(created)}` has drawn random numbers"
                if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                    break
            elif created is None and isinstance(statement, ast.Assign) and not mentions(statement.value, "seed"):
                makes = has_call(statement.value, *random_parts) or draws(syntax, statement.value)
                created = statement if makes and not mentions_generator(statement) else None


def mentions_generator(node: ast.AST) -> bool:
    keywords = [part.arg for part in ast.walk(node) if isinstance(part, ast.keyword)]
    return "generator" in keywords or mentions(node, "rng")


def _spreads(values: Values) -> Iterator[tuple[ast.AST, str]]:
    for text, value in printed(values.syntax):
        if SPREAD.fullmatch(text) and any(map(_is_standard_error, values.near(value))):
            yield value, "is a standard error that is called a standard deviation"
    for call in values.calls("add_suffix", "rename"):
        if "sem" in text_in(call) and any(map(SPREAD.fullmatch, text_in(call))):
            yield call, "is a standard error that is called a standard deviation"


def _is_standard_error(node: ast.AST) -> bool:
    is_quotient = is_op(node, ast.Div) and has_call(node.left, *SPREADS)
    is_root = is_quotient and (has_call(node.right, "sqrt") or ast.unparse(node.right).endswith("** 0.5"))
    return is_root or bool(calls_in([node], ("sem",)))


def _best_seed(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield each printed maximum over runs, unless the minimum is printed too."""
    lowest = {ast.unparse(part) for call in values.calls("min", "amin") for part in operands_of(values.syntax, call)}
    shown = [part for _, value in printed(values.syntax) for part in ast.walk(value)]
    for call in calls_in(shown, ("max", "amax", "nanmax")):
        runs = operands_of(values.syntax, call)[:1]
        loops = [loop for part in runs for one in values.same(part) for loop in values.syntax.ancestors(one)]
        over_seeds = any(isinstance(loop, ast.For) and text_of(ast.unparse(loop.target)) & RUNS for loop in loops)
        if over_seeds and values.is_result(call) and ast.unparse(runs[0]) not in lowest:
            yield call, "is the result of the best run, and not of all runs"


def _budgets(values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Yield each table or condition with other epochs or settings for backpropagation or a control."""
    tables = [(label(target), value) for node in values.syntax.parents for target, value in assignments(node)]
    for name, choice in tables:
        controls = {word for text in text_in(getattr(choice, "test", ast.Pass())) for word in text_of(text)}
        if text_of(name) & BUDGETS and controls & {*BACKPROP, "frozen", "control", "baseline"}:
            yield choice, "gives the control another budget than the method"
    tables += [(ast.unparse(node.target), node.iter) for node in values.syntax.every(ast.For)]
    for name, table in tables:
        rows = [part.elts for part in getattr(table, "elts", []) if len(getattr(part, "elts", [])) == 2]
        rows += zip(getattr(table, "keys", []), getattr(table, "values", []), strict=False)
        counts = [(key, len(getattr(value, "elts", [])) or number(value)) for key, value in rows]
        sizes = {str(getattr(key, "value", "")): count for key, count in counts}
        has_backprop = any(text_of(key) & BACKPROP for key in sizes)
        if text_of(name) & BUDGETS and has_backprop and len({*sizes.values()}) > 1 and None not in sizes.values():
            yield table, "gives backpropagation another number of epochs or trials than the other methods"


ChosenRuns.patterns = (_removed, _repeated, _seeds, _late_seeds, _spreads, _best_seed, _budgets)
RULE = ChosenRuns()
