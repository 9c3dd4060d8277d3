"""FA016: differences between credit and reference besides the feedback, and updates that are not the method's."""

from __future__ import annotations

HEAD = "import numpy as np\nimport torch\nimport torch.nn.functional as F\n# feedback alignment\n"
COSINE = "F.cosine_similarity(c.flatten(), g.flatten(), dim=0, eps=1e-30)"


def function(*lines: str, head: str = "") -> str:
    return f"{HEAD}{head}def f(net, optimizer, rng, data, x, y):\n" + "".join(f"    {line}\n" for line in lines)


CREDIT = ("net.feedback_loss(x, y).backward()", "c = net.weight.grad.clone()")
REFERENCE = ("net.loss(x, y).backward()", "g = net.weight.grad.clone()", f"return {COSINE}")
ZERO = ("optimizer.zero_grad()",)
NOISE = "def masks(n):\n    return torch.rand(n) > 0.5\n"
FIRES = [
    function(*CREDIT, *REFERENCE),
    function(*CREDIT, "optimizer.step()", *ZERO, *REFERENCE),
    function(CREDIT[0], "torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)", CREDIT[1], *ZERO, *REFERENCE),
    function(CREDIT[0], "net.weight.grad.clamp_(-1, 1)", CREDIT[1], *ZERO, *REFERENCE),
    function(
        "i = rng.choice(9, 3)", "j = rng.choice(9, 3)", "c, g = net.credit(x[i]), net.slope(x[j])", f"return {COSINE}"
    ),
    function("c = net.credit(next(data))", "g = net.slope(next(data))", f"return {COSINE}"),
    function("c = net.credit(x, masks(3))", "g = net.slope(x, masks(3))", f"return {COSINE}", head=NOISE),
    function(
        "c = net.credit(x)",
        "with torch.autocast('cuda', dtype=torch.bfloat16):",
        "    g = net.slope(x)",
        f"return {COSINE}",
    ),
    function("p = net.weight", "p.grad.zero_()", "return torch.optim.SGD([p], weight_decay=1e-3)"),
    function("p = net.weight", "p.grad = torch.zeros_like(p)", "return torch.optim.AdamW([p], 0.1, weight_decay=0.01)"),
]
MOVED = ("old = net.weight.clone()", "optimizer.step()", "c = old - net.weight", f"return {COSINE}")
FIRES += [
    function(
        "c = net.local_grad(x)",
        "optimizer.step()",
        "g = torch.autograd.grad(net.loss(x), net.weight)[0]",
        f"return {COSINE}",
    ).replace("net.local_grad(x)", "torch.autograd.grad(net.local(x), net.weight)[0]"),
    function("g = net.slope(x)", *MOVED, head="# SGD with momentum\n"),
]
SILENT = [
    function("g = net.slope(x)", *MOVED),  # a step of plain gradient descent is the gradient
    function(
        "c = torch.autograd.grad(net.local(x), net.weight)[0]",
        "g = torch.autograd.grad(net.loss(x), net.weight)[0]",
        "optimizer.step()",
        f"return {COSINE}",
    ),
    function(*CREDIT, *ZERO, *REFERENCE),
    function(*CREDIT, *ZERO, *REFERENCE[:2], "optimizer.step()", REFERENCE[2]),
    function(CREDIT[0], "torch.nn.utils.clip_grad_norm_(net.parameters(), 1)", CREDIT[1], *ZERO, *REFERENCE),
    function(*CREDIT, "torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)", *ZERO, *REFERENCE),
    function("i = rng.choice(9, 3)", "c, g = net.credit(x[i]), net.slope(x[i])", f"return {COSINE}"),
    function("x = next(data)", "c, g = net.credit(x), net.slope(x)", f"return {COSINE}"),
    function("m = masks(3)", "c, g = net.credit(x, m), net.slope(x, m)", f"return {COSINE}", head=NOISE),
    function(
        "with torch.autocast('cuda', dtype=torch.bfloat16):",
        "    c, g = net.credit(x), net.slope(x)",
        f"return {COSINE}",
    ),
    function("p = net.weight", "p.grad.zero_()", "return torch.optim.SGD([p], weight_decay=0.0)"),
    function("p = net.weight", "p.requires_grad_(False)", "return torch.optim.SGD([net.bias], weight_decay=1e-3)"),
]
