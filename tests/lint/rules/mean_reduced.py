"""Pitfall 8 fires on per-sample norms of gradients that the mean has divided by N."""

from __future__ import annotations

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


def body(*lines: str) -> str:
    """A function of the lines."""
    return HEAD + "def f(model, h, y, grads=None):\n" + "\n".join(f"    {line}" for line in lines) + "\n"


LOSS = "loss = F.cross_entropy(model(h), y)"
GRADIENT = "g = torch.autograd.grad(loss, h)[0]"
FIRES = [
    body(LOSS, GRADIENT, "g.norm(dim=1)"),
    body(LOSS, GRADIENT, "g.norm(2, -1)"),
    body(LOSS, GRADIENT, "g.norm(dim=(1, 2))"),
    body(LOSS, GRADIENT, "g.detach().flatten(1).norm(dim=1)"),
    body(LOSS, GRADIENT, "rows = g.reshape(len(g), -1)", "torch.linalg.vector_norm(rows, dim=1)"),
    body(LOSS, GRADIENT, "torch.norm(g, dim=-1)"),
    body(LOSS, "loss = loss + 0.1 * penalty", "loss += other", GRADIENT, "g.norm(dim=1)"),
    body("loss = F.cross_entropy(model(h), y, reduction='mean')", GRADIENT, "g.norm(dim=1)"),
    body("loss = F.mse_loss(model(h), y)", GRADIENT, "g.norm(dim=1)"),
    body("loss = nn.CrossEntropyLoss()(model(h), y)", GRADIENT, "g.norm(dim=1)"),
    body("criterion = nn.CrossEntropyLoss()", "loss = criterion(model(h), y)", GRADIENT, "g.norm(dim=1)"),
    body(LOSS, "(g,) = torch.autograd.grad(loss, h)", "g.norm(dim=1)"),
    body(LOSS, "for g in torch.autograd.grad(loss, h):", "    g.norm(dim=1)"),
    body(LOSS, "gs = torch.autograd.grad(loss, h)", "for i, (g, s) in enumerate(zip(gs, h)):", "    g.norm(dim=1)"),
    body(LOSS, "gs = torch.autograd.grad(loss, h)", "out = [g.norm(dim=1) for g in gs]"),
    body(LOSS, "gs = [g.flatten(1) for g in torch.autograd.grad(loss, h)]", "gs[0].norm(dim=1)"),
    body("torch.autograd.grad(F.cross_entropy(model(h), y), h)[0].norm(dim=1).mean()"),
    body(LOSS, "loss.backward()", "h.grad.norm(dim=1)"),
    body(LOSS, "if y.any():", "    " + GRADIENT, "    print(g.norm(dim=1))"),
    body(LOSS, "try:", "    " + GRADIENT, "finally:", "    g.norm(dim=1)"),
    HEAD + LOSS + "\n" + GRADIENT + "\ng.norm(dim=1)\n",
    HEAD
    + "loss_of = nn.CrossEntropyLoss()\ndef f(h):\n    loss = loss_of(h)\n    "
    + GRADIENT
    + "\n    g.norm(dim=1)\n",
    HEAD
    + "class C:\n    def a(self):\n        self.criterion = nn.CrossEntropyLoss()\n"
    + "    def f(self, h):\n        loss = self.criterion(h)\n        loss.backward()\n        h.grad.norm(dim=1)\n",
]
SILENT = [
    body("loss = F.cross_entropy(model(h), y, reduction='sum')", GRADIENT, "g.norm(dim=1)"),
    body("loss = F.cross_entropy(model(h), y, reduction='none').sum()", GRADIENT, "g.norm(dim=1)"),
    body("loss = F.cross_entropy(model(h), y, **options)", GRADIENT, "g.norm(dim=1)"),
    body("loss = F.cross_entropy(model(h), y, size_average=False)", GRADIENT, "g.norm(dim=1)"),
    body("loss = F.cross_entropy(model(h[None]), y[None])", GRADIENT, "g.norm(dim=1)"),
    body("loss = F.cross_entropy(model(h).unsqueeze(0), y)", GRADIENT, "g.norm(dim=1)"),
    body("loss = nn.CrossEntropyLoss(reduction='sum')(model(h), y)", GRADIENT, "g.norm(dim=1)"),
    body(LOSS, "loss = loss * len(h)", GRADIENT, "g.norm(dim=1)"),
    body(LOSS, "loss *= len(h)", GRADIENT, "g.norm(dim=1)"),
    body(LOSS, GRADIENT, "g = g * len(h)", "g.norm(dim=1)"),
    body(LOSS, GRADIENT, "(g * len(h)).norm(dim=1)"),
    body(LOSS, GRADIENT, "g.norm()", "g.norm(dim=0)", "g.norm(dim=axis)", "g.norm(dim=(0, 1))"),
    body(LOSS, GRADIENT, "g = other", "g.norm(dim=1)"),
    body(LOSS, GRADIENT, "h.norm(dim=1)"),
    body(LOSS, "gs = torch.autograd.grad(loss, h)", "print([h.sum() for h in gs])", "h.norm(dim=1)"),
    body(LOSS, "gs = torch.autograd.grad(loss, model.parameters())", "gs[0].norm(dim=1)"),
    body(
        LOSS,
        "loss.backward()",
        "model.weight.grad.norm(dim=1)",
        "for p in model.parameters():",
        "    p.grad.norm(dim=1)",
    ),
    body("loss = F.cross_entropy(model(h), y, reduction='sum')", "loss.backward()", "h.grad.norm(dim=1)"),
    body(LOSS, "grads[0].norm(dim=1)", "g = torch.autograd.grad(other, h)[0]", "g.norm(dim=1)"),
    body(LOSS) + "def g(h):\n    return torch.autograd.grad(loss, h)[0].norm(dim=1)\n",
    HEAD
    + "loss_of = nn.MSELoss()\ndef f(h, loss_of):\n    loss = loss_of(h)\n    "
    + GRADIENT
    + "\n    g.norm(dim=1)\n",
    "from mine import F\nimport torch\ndef f(h, y):\n    " + LOSS + "\n    " + GRADIENT + "\n    g.norm(dim=1)\n",
]
