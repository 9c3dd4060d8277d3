"""Pitfall 3: gradients in float16."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fa_lint.base import Hit, LintRule, RuleCard
from fa_lint.rules._flow import assignments
from fa_lint.rules._values import Values, calls_in, values_of
from fa_lint.syntax import FUNCTIONS, Syntax, argument, last_name, open_ended

HALF = ("torch.float16", "torch.half", "torch.HalfTensor", "torch.cuda.HalfTensor")
AUTOCASTS = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
CUDA_AUTOCASTS = ("torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast")  # float16 by default
DEFAULTS = ("torch.set_default_dtype", "torch.set_default_tensor_type")
GRADIENTS = ("torch.autograd.grad", "torch.autograd.backward", "torch.func.grad", "torch.func.vjp", "torch.func.jacrev")
BUFFERS = ("torch.nn.Buffer", "torch.nn.buffer.Buffer")
CONSTANTS = (*BUFFERS, "torch.tensor", "torch.as_tensor", "torch.full", "torch.finfo")
SCALES = ("scale", "scale_loss")  # methods of scalers and of apex
NO_GRADIENT = ("torch.no_grad", "torch.inference_mode", "torch.autograd.grad_mode.no_grad")


class HalfGradients(LintRule):
    """Report casts to float16 in a file that computes gradients without a GradScaler.

    Gradients of a loss that is scaled by scaler.scale(…) or by scale_loss of apex do not count, because scaling avoids the
    underflow of small gradients. If the file contains at least one gradient of an unscaled loss, every cast is reported. Casts
    under no_grad are not reported, and neither are casts of constants, such as the value of a mask.
    """

    card = RuleCard(
        code="FA003",
        pitfall=3,
        name="half-gradients",
        title="gradients are computed in float16",
        why="gradients below 6e-8 are exactly 0 in float16, so cosines with these gradients have no meaning",
        fix="use torch.bfloat16 or float32; in training, scale the loss with a GradScaler before every backward pass",
    )
    clues = (("half", "float16", "autocast", "HalfTensor"), ("backward", "grad", "vjp", "jacrev"))

    def hits(self, syntax: Syntax) -> Iterator[Hit]:
        """Yield the casts to float16 if the file also computes gradients of an unscaled loss."""
        casts = [(call, action) for call, name in syntax.calls() if (action := _cast(syntax, call, name))]
        casts = [(call, text) for call, text in casts if not _is_harmless(syntax, call)]
        gradient_call = _unscaled_gradient(syntax) if casts else None
        if gradient_call is not None:
            for call, action in casts:
                text = f"{action}, and `{syntax.snippet(gradient_call)}` computes gradients without scaling"
                yield Hit(call, f"`{syntax.snippet(call)}` {text}")


def _is_harmless(syntax: Syntax, call: ast.Call) -> bool:
    is_method = not syntax.resolve(call.func)
    return _without_gradient(syntax, call) or (is_method and _is_constant(values_of(syntax), call.func.value))


def _cast(syntax: Syntax, call: ast.Call, name: str) -> str:
    """Describe how a call uses float16, or return an empty string if it does not use float16."""
    if name in (*AUTOCASTS, *CUDA_AUTOCASTS):
        return _autocast(syntax, call, name)
    method = call.func.attr if isinstance(call.func, ast.Attribute) and not name else ""
    if method == "half" and not call.args and not call.keywords:
        return "casts to float16"
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    is_leaf = any(part.arg == "requires_grad" for part in call.keywords)
    is_half = any(syntax.resolve(value) in HALF for value in values)
    if is_half and (method in ("to", "type") or name in DEFAULTS or is_leaf):
        return "casts to float16"
    return ""


def _is_constant(values: Values, node: ast.expr) -> bool:
    """Return whether a value comes only from numbers, tensors of a number and limits of data types."""
    return all(_is_fixed(values, part) for part in values.sources(node))


def _is_fixed(values: Values, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return values.syntax.resolve(node.func) in CONSTANTS
    is_known = bool(values.operands(node)) or bool(values.syntax.resolve(node))
    return is_known or not isinstance(node, (ast.Name, ast.Attribute))


def _autocast(syntax: Syntax, call: ast.Call, name: str) -> str:
    cuda_only = name in CUDA_AUTOCASTS
    device = argument(call, 0, "device_type")
    dtype = argument(call, 1, "dtype", "fast_dtype")
    enabled = argument(call, 0 if cuda_only else 2, "enabled")
    if open_ended(call) or (isinstance(enabled, ast.Constant) and enabled.value is False):
        return ""
    if dtype is not None:
        return "computes in float16" if syntax.resolve(dtype) in HALF else ""
    on_cuda = cuda_only or (isinstance(device, ast.Constant) and str(device.value).startswith("cuda"))
    return "computes in float16, the default on CUDA" if on_cuda else ""


def _without_gradient(syntax: Syntax, node: ast.AST) -> bool:
    for ancestor in syntax.ancestors(node):
        guards: list[ast.expr] = []
        if isinstance(ancestor, (ast.With, ast.AsyncWith)):
            guards = [item.context_expr for item in ancestor.items]
        elif isinstance(ancestor, FUNCTIONS) and not isinstance(ancestor, ast.Lambda):
            guards = ancestor.decorator_list
        for guard in guards:
            if syntax.resolve(guard.func if isinstance(guard, ast.Call) else guard) in NO_GRADIENT:
                return True
    return False


def _unscaled_gradient(syntax: Syntax) -> ast.Call | None:
    """Return the first call that computes gradients of an unscaled loss, or None."""
    pairs = [pair for node in syntax.every(ast.Assign) for pair in assignments(node)]
    pairs += [(item.optional_vars, item.context_expr) for item in syntax.every(ast.withitem) if item.optional_vars]
    scaled = {last_name(target) for target, value in pairs if calls_in([value], SCALES)} - {""}
    gradient_calls = []
    for call, name in syntax.calls():
        if name in GRADIENTS:
            source = call.args[0] if call.args else None
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "backward" and not name:
            source = call.func.value
        else:
            continue
        if source is None or not (last_name(source) in scaled or calls_in([source], SCALES)):
            gradient_calls.append(call)
    return min(gradient_calls, key=lambda call: call.lineno, default=None)


RULE = HalfGradients()
