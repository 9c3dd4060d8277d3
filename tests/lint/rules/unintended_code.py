"""FA017: code that computes something else than it says."""

from __future__ import annotations

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n# feedback alignment\n"


def function(*lines: str, head: str = "") -> str:
    return f"{HEAD}{head}def f(net, x, y, n):\n" + "".join(f"    {line}\n" for line in lines)


PERMUTED = "x, y = x[torch.randperm(n)], y[torch.randperm(n)]"
HOOKS = (
    "for i, layer in enumerate(net.layers):",
    "    layer.register_full_backward_hook(lambda m, a, b: (b[0] @ net.B[i],))",
)
DEF = (HOOKS[0], "    def hook(m, a, b):", "        return net.B[i]", "    layer.register_forward_hook(hook)")
GRADIENTS = "def g(net, loss):\n    net.zero_grad(set_to_none=False)\n    loss.backward()\n    return [w.grad for w in net.ws]\n"
TWICE = ("a = g(net, x)", "b = g(net, y)", "return a, b")
BEST = ("for e in range(n):", "    optimizer.step()", "    if net.val > best:", "        kept = net.state_dict()")
BACKWARD = "class Op(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, weight, feedback):\n"
BACKWARD += "        ctx.save_for_backward(x, weight, feedback)\n        return x @ weight\n"
BACKWARD += "    @staticmethod\n    def backward(ctx, g):\n        x, weight, feedback = ctx.saved_tensors\n"
KOLEN = ("# Kolen-Pollack", "net.W -= 0.1 * x + 0.01 * net.W")
NOISE = ("# weight mirror", "z = torch.rand(n, 3)", "r = z @ net.W", "return z.t() @ r")
LOCAL = ("# local losses", "for block in net.blocks:", "    x, out = block(x)", "    outs.append(out)")
LOOSE = "net.load_state_dict(torch.load(x), strict=False)"
FIRES = [
    function(PERMUTED),
    function("a = torch.randperm(n)", "b = torch.randperm(n)", "return net.images[a], net.labels[b]"),
    function("p = F.softmax(net(x), dim=1)", "return F.cross_entropy(p, y)"),
    function("return loss(net(x).softmax(1), y)", head="loss = nn.CrossEntropyLoss()\n"),
    function(*HOOKS),
    function(*DEF),
    function(*TWICE, head=GRADIENTS),
    function(*TWICE, head=GRADIENTS.replace("    net.zero_grad(set_to_none=False)\n", "")),
    function(*BEST, "net.load_state_dict(kept)"),
    function("h = torch.tanh(x)", "return (1 - torch.tanh(h) ** 2) * y"),
    function("return torch.sign(x.abs())"),
    function("for B in net.Bs:", "    y = -(y @ B) * x"),
    function("for i in range(n):", "    t[i] = h[i] + net.g(h[i + 1]) - net.g(t[i + 1])"),
    f"{HEAD}{BACKWARD}        return g @ weight.t(), x.t() @ g, None\n",
    function(*KOLEN, "net.B -= 0.1 * x"),
    function(*NOISE),
    function("e = (x - y) / len(y)", "return x.t() @ e / len(y)"),
    function(LOOSE),
    function(*LOCAL),
]
SILENT = [
    function("order = torch.randperm(n)", "return x[order], y[order]"),
    function("return x[torch.randperm(n)], y_held[torch.randperm(n)]"),  # labels of another set
    function("return F.cross_entropy(net(x), y)"),
    function("p = F.softmax(net(x), dim=1)", "return F.nll_loss(p.log(), y)"),
    function(HOOKS[0], HOOKS[1].replace("a, b:", "a, b, i=i:")),
    function(HOOKS[0], "    print(sorted(x, key=lambda v: v[i]))"),
    function(DEF[0], DEF[1].replace("b)", "b, i=i)"), *DEF[2:]),
    function(*TWICE, head=GRADIENTS.replace("w.grad", "w.grad.clone()")),
    function(*TWICE, head=GRADIENTS.replace("set_to_none=False", "")),  # the next pass makes new tensors
    function(*BEST[:3], "        kept = copy.deepcopy(net.state_dict())", "net.load_state_dict(kept)"),
    function("h = torch.tanh(x)", "return (1 - h ** 2) * y"),
    function("h = x @ y", "return (1 - torch.tanh(h) ** 2) * y"),
    function("return torch.sign(x)"),
    function("for B in net.Bs:", "    y = (y @ B) * x", "    net.grad = -(y.t() @ x)"),
    function("for i in range(n):", "    t[i] = h[i] - net.g(h[i + 1]) + net.g(t[i + 1])"),
    function(*KOLEN, "net.B -= 0.1 * x + 0.01 * net.B"),
    function(*KOLEN[1:], "net.B -= 0.1 * x"),
    function(*NOISE[:1], "z = torch.rand(n, 3) - 0.5", *NOISE[2:]),
    function("e = x - y", "return x.t() @ e / len(y)"),
    function("missing, other = " + LOOSE),
    function('net.load_state_dict({"weight": x}, strict=False)'),
    function(*LOCAL, "    x = x.detach()"),
    function(*LOCAL[1:]),
    function(PERMUTED).replace("# feedback alignment\n", ""),
]
