"""FA013 reports a custom backward without the forward's weight, and alignments with the `.grad` of such a model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fa_lint.runner import lint_paths
from tests.lint.samples import CUSTOM_BACKWARD, codes, found, notebook

HEAD = "import torch\nimport torch.nn.functional as F\n"


def function(
    forward: str, backward: str, arguments: str = "ctx, x, weight, B", base: str = "torch.autograd.Function"
) -> str:
    """A custom Function whose methods hold the statements, parted by semicolons; two spaces indent a statement."""
    bodies = ["\n".join(f"        {line}" for line in body.split("; ")) for body in (forward, backward)]
    context = arguments.partition(",")[0]
    return (
        f"{HEAD}class Layer({base}):\n"
        f"    @staticmethod\n    def forward({arguments}):\n{bodies[0]}\n"
        f"    @staticmethod\n    def backward({context}, g):\n{bodies[1]}\n"
    )


SAVES = "ctx.save_for_backward(x, weight, B); return x @ weight.t()"
UNPACKS = "x, weight, B = ctx.saved_tensors; "
RETURNS = "return g @ B, g.t() @ x, None"
FEEDBACK = function(SAVES, UNPACKS + RETURNS)
LEGACY = """\
import torch
from torch import autograd

class LinearFAFunction(autograd.Function):
    @staticmethod
    def forward(context, input, weight, weight_fa, bias=None):
        context.save_for_backward(input, weight, weight_fa, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(context, *grad_output):
        input, weight, weight_fa, bias = context.saved_variables
        grad_input = grad_weight = grad_weight_fa = grad_bias = None
        if context.needs_input_grad[0]:
            weight_fa = weight_fa.to("cpu")
            grad_input = grad_output[0].mm(weight_fa)
        if context.needs_input_grad[1]:
            grad_weight = grad_output[0].t().mm(input)
        if bias is not None and context.needs_input_grad[3]:
            grad_bias = grad_output[0].sum(0).squeeze(0)
        return grad_input, grad_weight, grad_weight_fa, grad_bias
"""
CONVOLUTION = function(
    "ctx.save_for_backward(x, weight, B); ctx.stride = stride; return F.conv2d(x, weight, bias=None, stride=stride)",
    "input, kernel, fixed = ctx.saved_tensors; dx = torch.nn.grad.conv2d_input(input.shape, fixed, g, stride=ctx.stride); "
    "dw = torch.nn.grad.conv2d_weight(input, kernel.shape, g, stride=ctx.stride); return dx, dw, None, None",
    arguments="ctx, x, weight, B, stride",
)
SIGN = function(
    "ctx.save_for_backward(x, weight); return F.linear(x, weight)",
    "x, weight = ctx.saved_tensors; return g @ weight.sign(), g.t() @ x",
    arguments="ctx, x, weight",
)
SETUP = """\
import torch

class Layer(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, B):
        return torch.nn.functional.linear(x, weight)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, B = inputs
        ctx.save_for_backward(x, weight, B)

    @staticmethod
    def backward(ctx, grad):
        x, _, B = ctx.saved_tensors
        return torch.einsum("bo,oi->bi", grad, B), grad.T @ x, None
"""
CLOSURE = """\
import torch

def make_layer(out_features, in_features):
    feedback = torch.randn(out_features, in_features)

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x.matmul(weight.t())

        @staticmethod
        def backward(ctx, grad_output):
            x, weight = ctx.saved_tensors
            return grad_output.matmul(feedback), grad_output.t().matmul(x)

    return Layer
"""
INHERITED = """\
import torch

class Exact(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, B):
        ctx.save_for_backward(x, weight, B)
        return x @ weight.T

    @staticmethod
    def backward(ctx, g):
        x, weight, B = ctx.saved_tensors
        return g @ weight, g.T @ x, None

class Feedback(Exact):
    @staticmethod
    def backward(ctx, g):
        x, weight, B = ctx.saved_tensors
        return g @ B, g.T @ x, None
"""
OBJECT = """\
import torch

class Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer = layer
        ctx.x = x
        return x @ layer.weight.T

    @staticmethod
    def backward(ctx, g):
        ctx.layer.weight.grad = g.T @ ctx.x
        return g @ ctx.layer.feedback, None
"""
OLD_STYLE = """\
import torch

class Layer(torch.autograd.Function):
    def __init__(self, B):
        self.B = B

    def forward(self, x, weight):
        self.save_for_backward(x, weight)
        return x.mm(weight)

    def backward(self, g):
        x, weight = self.saved_tensors
        return g.mm(self.B), x.t().mm(g)
"""
MODE = function(
    "ctx.mode = mode; ctx.save_for_backward(x, weight, B); return x @ weight.t()",
    UNPACKS + "if ctx.mode == 'bp':;   dx = g @ weight; else:;   dx = g @ B; return dx, g.t() @ x, None, None",
    arguments="ctx, x, weight, B, mode",
)
FIRES = {
    "names": FEEDBACK,
    "legacy": LEGACY,
    "index": function(SAVES, "return g @ ctx.saved_tensors[2], g.t() @ ctx.saved_tensors[0], None"),
    "attribute": function("ctx.x, ctx.B = x, B; return x @ weight.t()", "return g @ ctx.B, g.t() @ ctx.x, None"),
    "other names": function(
        "c.save_for_backward(a, W, R); return a.mm(W.t())",
        "act, _, fixed = c.saved_tensors; return g.mm(fixed), g.t().mm(act), None",
        arguments="c, a, W, R",
    ),
    "convolution": CONVOLUTION,
    "keywords": CONVOLUTION.replace("input.shape, fixed, g,", "input_size=input.shape, weight=fixed, grad_output=g,"),
    "sign": SIGN,
    "torch.sign": SIGN.replace("weight.sign()", "torch.sign(weight)"),
    "sign by comparison": SIGN.replace("weight.sign()", "(2 * (weight > 0).float() - 1)"),
    "sign with a scale": SIGN.replace("weight.sign()", "(weight.sign() * weight.abs().mean())"),
    "sign under the same name": SIGN.replace(
        "return g @ weight.sign()", "weight = weight.sign()\n        return g @ weight"
    ),
    "sign kept by the forward": function(
        "ctx.x = x; ctx.back = weight.sign(); return x @ weight.t()",
        "return g @ ctx.back, g.t() @ ctx.x",
        arguments="ctx, x, weight",
    ),
    "random magnitudes": SIGN.replace("weight.sign()", "(weight.sign() * torch.rand_like(weight))"),
    "fresh random numbers": SIGN.replace("weight.sign()", "torch.randn(weight.shape)"),
    "filled in place": SIGN.replace(
        "return g @ weight.sign()", "B = torch.empty_like(weight).normal_()\n        return g @ B"
    ),
    "setup_context": SETUP,
    "closure": CLOSURE,
    "inherited": INHERITED,
    "object": OBJECT,
    "old style": OLD_STYLE,
    "mode": MODE,
    "in place": function(SAVES, UNPACKS + "dx = torch.zeros_like(x); dx += g @ B; return dx, g.t() @ x, None"),
    "addmm": function(SAVES, UNPACKS + "dx = torch.addmm(torch.zeros_like(x), g, B); return dx, g.t() @ x, None"),
    "list": function(SAVES, UNPACKS + "grads = [g @ B, g.t() @ x]; return tuple(grads) + (None,)"),
    "swapped": function(SAVES, UNPACKS + "weight, B = B, weight; return g @ weight, g.t() @ x, None"),
    "direct": function(
        "ctx.save_for_backward(x, weight, B, error); return x @ weight.t()",
        "x, weight, B, error = ctx.saved_tensors; return error @ B, g.t() @ x, None, None",
        arguments="ctx, x, weight, B, error",
    ),
    "masked": function(
        "ctx.save_for_backward(x, B, mask); return x @ (weight * mask).t()",
        "x, B, mask = ctx.saved_tensors; return g @ (B * mask), g.t() @ x, None, None",
        arguments="ctx, x, weight, B, mask",
    ),
}
FIRES |= {
    "direct by an identity": function(
        "ctx.save_for_backward(B, error); return x.view_as(x)",
        "B, error = ctx.saved_tensors; return error @ B, None, None",
        arguments="ctx, x, B, error",
    ),
    "forward by an unknown function": function(
        "ctx.save_for_backward(x, B); return kernel(x, weight)", "x, B = ctx.saved_tensors; return g @ B, None, None"
    ),
    "forward and backward by letters": function(
        "ctx.save_for_backward(x, W_b); return x @ W_f.t()",
        "x, W_b = ctx.saved_tensors; return g @ W_b, g.t() @ x, None",
        "ctx, x, W_f, W_b",
    ),
    "feedback beside what a helper saves": function(
        "keep(ctx, x, weight); ctx.B = B; return x @ weight.t()", "return g @ ctx.B, None, None"
    ),
    "fitted norm": function(SAVES, UNPACKS + "B = B * weight.norm() / B.norm(); " + RETURNS),
    "aten": function(
        "ctx.save_for_backward(x, weight, B); return F.conv2d(x, weight)",
        UNPACKS + "dx, dw, _ = torch.ops.aten.convolution_backward(g, x, B, None, [1], [0]); return dx, dw, None",
    ),
    "two layers": function(
        "h = torch.relu(x @ w1); ctx.save_for_backward(x, h, w1, b2); return h @ w2",
        "x, h, w1, b2 = ctx.saved_tensors; d = (g @ b2.t()) * (h > 0); return d @ w1.t(), x.t() @ d, h.t() @ g, None",
        arguments="ctx, x, w1, w2, b2",
    ),
    "in a loop": function(
        SAVES, UNPACKS + "rows = []; for row in g:;   rows.append(row @ B); return torch.stack(rows), g.t() @ x, None"
    ),
}
IMPORTS = {
    "from torch.autograd import Function": "Function",
    "from torch.autograd import Function as Op": "Op",
    "from torch.autograd.function import Function, once_differentiable": "Function",
    "from torch import autograd": "autograd.Function",
    "import torch.autograd as ag": "ag.Function",
    "import torch as t": "t.autograd.Function",
    "from torch.autograd import *": "Function",
    "import torch\nBase = torch.autograd.Function": "Base",
}
LINEAR = "ctx.save_for_backward(x, weight); return x @ weight.t()"
EXACT = "x, weight = ctx.saved_tensors; return g @ weight, g.t() @ x"
TWO = "ctx, x, weight"
SILENT = {
    "exact": function(LINEAR, EXACT, TWO),
    "exact by attributes": function(
        "ctx.x, ctx.w = x, weight; return F.linear(x, weight)", "return g @ ctx.w, g.t() @ ctx.x", TWO
    ),
    "exact under conditions": LEGACY.replace("mm(weight_fa)", "mm(weight)"),
    "exact convolution": CONVOLUTION.replace("fixed, g", "kernel, g"),
    "exact by autograd": function(
        LINEAR,
        "x, weight = ctx.saved_tensors; y = x @ weight.t(); return torch.autograd.grad(y, (x, weight), g)",
        TWO,
    ),
    "transposed before it is saved": function(
        "back = weight.t().contiguous(); ctx.save_for_backward(x, back); return x @ back",
        "x, back = ctx.saved_tensors; return g.mm(back.t()), g.t() @ x",
        TWO,
    ),
    "copied into a buffer": function(
        LINEAR,
        "x, weight = ctx.saved_tensors; B = torch.empty_like(weight); B.copy_(weight); return g @ B, g.t() @ x",
        TWO,
    ),
    "copied into a view of a buffer": function(
        LINEAR,
        "x, weight = ctx.saved_tensors; B = torch.empty_like(weight); B.view(-1).copy_(weight.view(-1)); return g @ B, None",
        TWO,
    ),
    "transposed weight as an argument": function(
        "ctx.save_for_backward(x, weight_t); return x @ weight.t()",
        "x, weight_t = ctx.saved_tensors; return g @ weight_t.t(), g.t() @ x, None",
        "ctx, x, weight, weight_t",
    ),
    "weight itself as the other argument": function(SAVES, UNPACKS + RETURNS)
    + "def layer(x, weight):\n    back = weight.detach()\n    return Layer.apply(x, weight, back)\n",
    "saved by a helper": function(
        "keep(ctx, x, weight); return x @ weight.t()", "x, B = ctx.saved_tensors; return g @ B, None, None"
    ),
    "context handed on": function(LINEAR, "x, weight = ctx.saved_tensors; return g @ pick(ctx), g.t() @ x", TWO),
    "unknown method": function("ctx.op = op; return x @ op.weight", "return g @ ctx.op.adjoint(), None", "ctx, x, op"),
    "no gradient of the input": function(LINEAR, "x, weight = ctx.saved_tensors; return None, g.t() @ x", TWO),
    "two matrices": function(
        "ctx.save_for_backward(A, B); return A @ B",
        "A, B = ctx.saved_tensors; return g @ B.t(), A.t() @ g",
        "ctx, A, B",
    ),
    "low rank": function(
        "ctx.save_for_backward(x, weight, A, B); return x @ weight.t() + x @ A @ B",
        "x, weight, A, B = ctx.saved_tensors; h = g @ B.t(); return g @ weight + h @ A.t(), None, x.t() @ h, (x @ A).t() @ g",
        "ctx, x, weight, A, B",
    ),
    "binary weight": function(
        "ctx.save_for_backward(x, weight); return x @ weight.sign().t()",
        "x, weight = ctx.saved_tensors; return g @ weight.sign(), g.t() @ x",
        TWO,
    ),
    "rounded weight": function(
        "ctx.save_for_backward(x, weight); return x @ weight.round().t()",
        "x, weight = ctx.saved_tensors; return g @ weight, g.t() @ x",
        TWO,
    ),
    "straight through": function("return x.sign()", "return g.clamp(-1, 1)", "ctx, x"),
    "surrogate": function(
        "ctx.save_for_backward(x); return (x > 0).float()",
        "(x,) = ctx.saved_tensors; return g / (1 + x.abs()) ** 2",
        "ctx, x",
    ),
    "mask": function(
        "mask = torch.rand_like(x) > 0.5; ctx.save_for_backward(mask); return x * mask",
        "(mask,) = ctx.saved_tensors; return g * mask",
        "ctx, x",
    ),
    "codebook": function(
        "index = (x @ codes.t()).argmax(1); ctx.save_for_backward(index); return codes[index]",
        "(index,) = ctx.saved_tensors; return g.clone(), torch.zeros(8, 8).index_add(0, index, g)",
        "ctx, x, codes",
    ),
    "gradient reversal": function(
        "ctx.alpha = alpha; return x.view_as(x)", "return g.neg() * ctx.alpha, None", "ctx, x, alpha"
    ),
    "no backward": function(LINEAR, EXACT, TWO).replace("def backward", "def reversed"),
    "backward that raises": function(LINEAR, "raise NotImplementedError('no second derivative')", TWO),
    "no autograd Function": FEEDBACK.replace("torch.autograd.Function", "Function"),
    "another Function": FEEDBACK.replace("import torch\n", "import torch\nfrom ops import Function\n").replace(
        "torch.autograd.Function", "Function"
    ),
    "unnamed matrices": function(
        "ctx.save_for_backward(x, C); return A @ x",
        "x, C = ctx.saved_tensors; return C @ g, None, None",
        "ctx, x, A, C",
    ),
    "forward asked for": FEEDBACK + 'model = fa_registry.adapt(model, states, gradient="forward")\n',
}
SILENT |= {
    "stored weight of a quantised one": function(
        "ctx.save_for_backward(x, weight); return x @ weight_q.t()",
        "x, weight = ctx.saved_tensors; return g @ weight, g.t() @ x, None",
        "ctx, x, weight, weight_q",
    ),
    "newer weight": function(
        "ctx.save_for_backward(new_weight); return x @ weight.t()",
        "(w,) = ctx.saved_tensors; return g @ w, None, None",
        "ctx, x, weight, new_weight",
    ),
    "transposed weight under its own name": function(
        "ctx.save_for_backward(x, transposed); return F.linear(x, weight)",
        "x, transposed = ctx.saved_tensors; return g @ transposed.t(), g.t() @ x, None",
        "ctx, x, weight, transposed",
    ),
    "another form of the weight on one branch": function(
        "ctx.save_for_backward(x, weight, blocks); return x @ weight.t()",
        "x, weight, blocks = ctx.saved_tensors; dx = g @ weight; "
        "if blocks is not None:;   dx = g @ blocks; return dx, g.t() @ x, None",
        "ctx, x, weight, blocks",
    ),
    "corrected by a helper": function(
        "ctx.save_for_backward(x, B); keep(ctx, weight); return x @ weight.t()",
        "x, B = ctx.saved_tensors; return correct(ctx, g @ B), g.t() @ x, None",
    ),
    "low rank by an unknown function": function(
        "ctx.save_for_backward(weight, A, B); return kernel(x, weight, A, B)",
        "weight, A, B = ctx.saved_tensors; return g @ weight + g @ B.t() @ A.t(), None, None, None",
        "ctx, x, weight, A, B",
    ),
    "weak reference": function(
        "ctx.ref = weakref.ref(weight); return x @ weight.t()", "return g @ ctx.ref(), None", TWO
    ),
    "weight of a seed": function(
        "W = torch.randn(3, 3, generator=draw(seed)); ctx.seed = seed; return x @ W",
        "W = torch.randn(3, 3, generator=draw(ctx.seed)); return g @ W.t(), None",
        "ctx, x, seed",
    ),
    "attention": function(
        "p = torch.softmax(q @ k.t(), -1); ctx.save_for_backward(q, k, v, p); return p @ v",
        "q, k, v, p = ctx.saved_tensors; d = g @ v.t(); s = p * (d - (d * p).sum(-1, keepdim=True)); "
        "return s @ k, s.t() @ q, p.t() @ g",
        "ctx, q, k, v",
    ),
    "graph with its adjoint": function(
        "ctx.save_for_backward(adj_t); return adj @ x",
        "(a,) = ctx.saved_tensors; return a @ g, None, None",
        "ctx, x, adj, adj_t",
    ),
    "gradients of a loss in chunks": function(
        "dx = torch.zeros_like(x); for i in range(4):;   p = x[i] @ weight.t(); dx[i] = p @ weight; "
        "ctx.save_for_backward(dx); return p.sum()",
        "(dx,) = ctx.saved_tensors; return g @ dx, None",
        TWO,
    ),
}
HIDDEN = {
    "mixture": function(SAVES, UNPACKS + "return g @ (0.5 * B + 0.5 * weight), g.t() @ x, None"),
    "product elsewhere": function(SAVES, UNPACKS + "return carry_back(g, B), g.t() @ x, None"),
    "no product": function(SAVES, UNPACKS + "return g, g.t() @ x, None"),
    "dictionary": function(
        "ctx.kept = {'x': x, 'W': weight, 'B': B}; return x @ weight.t()", "return g @ ctx.kept['B'], None, None"
    ),
}
MEASURED = {
    "credit": "def gamma(h, e, B):\n    credit = e @ B\n    return F.cosine_similarity(credit, h.grad, dim=1, eps=1e-30)\n",
    "by a name": "def f(h, c):\n    bp = h.grad.detach().clone()\n    return torch.cosine_similarity(bp.flatten(), c, 0, 1e-30)\n",
    "by a layer": "cos = torch.nn.CosineSimilarity(dim=0, eps=1e-30)\nprint(cos(h.grad, delta))\n",
    "at once": "torch.nn.CosineSimilarity(0, 1e-30)(h.grad, delta)\n",
    "of one's own": "angle = compute_angle(layer.weight.grad, dfa_update)\n",
    "written out": "gamma = (c * h.grad).sum() / (c.norm() * h.grad.norm())\n",
    "written out as a product": "g = h.grad\ngamma = torch.dot(c, g) / (torch.norm(c) * torch.norm(g))\n",
    "autograd.grad": "(g,) = torch.autograd.grad(loss, h)\nalignment(signal, g)\n",
    "in a loop": "for p, c in zip(model.parameters(), credits):\n    out.append(cosine(p.grad.view(-1), c.view(-1)))\n",
    "in a comprehension": "row = [cosine(c, h.grad) for c, h in zip(credits, states)]\n",
    "called a gradient of feedback": "def f(h, fa_grad):\n    return alignment(fa_grad, h.grad)\n",
    "beside the option": 'adapt(model, gradient="forward")\ncosine(c, h.grad)\n',
}
TRUSTED = {
    "second model": "for p, q in zip(fa_model.parameters(), bp_model.parameters()):\n    cosine(p.grad, q.grad)\n",
    "model of feedback": "cosine(net.fc1.weight.grad, fa_net.fc1.weight.grad)\n",
    "handed in": "def gamma(h, true_grad):\n    return cosine(h.grad, true_grad)\n",
    "of a reference model": "cosine(credit, self.bp_net.fc1.weight.grad)\n",
    "no gradient": "cosine(layer.weight, layer.weight_fa)\n",
    "of an angle": "y = torch.cos(h.grad)\n",
}


@pytest.mark.parametrize("name", FIRES)
def test_a_backward_pass_without_its_weight_is_found_once(name):
    assert codes(FIRES[name]) == ["FA013"]


@pytest.mark.parametrize("head", IMPORTS)
def test_the_base_class_is_found_by_whatever_name(head):
    text = function(
        "ctx.save_for_backward(x, weight, B); return x.mm(weight.t())", UNPACKS + RETURNS, base=IMPORTS[head]
    )
    assert codes(f"{head}\n{text.removeprefix(HEAD)}") == ["FA013"]


@pytest.mark.parametrize("name", SILENT)
def test_an_honest_or_unclear_backward_pass_is_not_reported(name):
    assert codes(SILENT[name]) == []


@pytest.mark.parametrize("name", HIDDEN)
def test_the_card_admits_what_is_hidden(name):
    assert codes(HIDDEN[name]) == []


@pytest.mark.parametrize("name", MEASURED)
def test_an_alignment_with_the_gradient_of_such_a_model_is_found(name):
    text = f"{FEEDBACK}\n{MEASURED[name]}"
    functions, measured = (0, 1) if name == "beside the option" else (1, 1)
    findings = found(text)
    assert [finding.code for finding in findings] == ["FA013"] * (functions + measured)
    assert "custom backward pass" in findings[-1].what


@pytest.mark.parametrize("name", MEASURED)
def test_the_same_alignment_is_trusted_where_the_backward_pass_is_exact(name):
    assert codes(f"{function(LINEAR, EXACT, TWO)}\n{MEASURED[name]}") == []


@pytest.mark.parametrize("name", TRUSTED)
def test_an_alignment_with_another_gradient_is_trusted(name):
    assert codes(f"{FEEDBACK}\n{TRUSTED[name]}") == ["FA013"]


def test_the_message_says_what_was_expected_what_was_found_and_what_to_do():
    (finding,) = found(CUSTOM_BACKWARD)
    assert "product with `weight`" in finding.what and "found `B`" in finding.what
    assert 'gradient="forward"' in finding.fix
    assert "sign of `weight`" in found(SIGN)[0].what
    assert "fresh random numbers" in found(FIRES["fresh random numbers"])[0].what


def test_a_notebook_is_read_across_its_cells(tmp_path):
    path = tmp_path / "gamma.ipynb"
    path.write_bytes(notebook("%matplotlib inline\n" + FEEDBACK, "!nvidia-smi", MEASURED["credit"]))
    findings = lint_paths([str(path)]).findings
    assert [(finding.code, finding.place.cell) for finding in findings] == [("FA013", 2), ("FA013", 4)]


class Feedback(torch.autograd.Function):
    """The pitfall itself, run."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(x, back)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor, Tensor, None]:
        x, back = ctx.saved_tensors
        return g @ back, g.t() @ x, None  # fa: ok FA013 the pitfall is what is tested


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("        return Linear.apply(x, self.weight, self.B)\n", ["FA013"]),
        ("        return Linear.apply(x, self.weight, self.B) if self.uses_feedback else x @ self.weight.t()\n", []),
        (
            "        if plain:\n            return x @ self.weight.t()\n        return Linear.apply(x, self.weight, self.B)\n",
            [],
        ),
    ],
)
def test_a_function_with_an_exact_alternative_is_none(lines, expected):
    layer = f"class Layer(torch.nn.Module):\n    def forward(self, x, plain=False):\n{lines}"
    assert codes(f"{CUSTOM_BACKWARD}\n{layer}") == expected
