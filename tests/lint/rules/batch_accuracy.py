"""Pitfall 9 fires on an accuracy of the batch that diagnostics are measured on."""

from __future__ import annotations

HEAD = "import torch\n# feedback alignment\n"


def body(*lines: str, given: str = "model, loader") -> str:
    """A function of the lines."""
    return HEAD + f"def f({given}):\n" + "\n".join(f"    {line}" for line in lines) + "\n"


NEXT = "x, y = next(iter(loader))"
FIRES = [
    body(NEXT, "(model(x).argmax(1) == y).float().mean()"),
    body(NEXT, "x, y = x.cuda(), y.cuda()", "(y == model(x).argmax(dim=-1)).sum()"),
    body(NEXT, "pred = model(x).argmax(1)", "acc = (pred == y).float().mean()"),
    body(NEXT, "pred = model(x).softmax(-1).argmax(1).cpu()", "acc = pred.eq(y).sum()"),
    body(NEXT, "_, pred = model(x).max(1)", "acc = pred.eq(y).sum()"),
    body(NEXT, "_, pred = torch.max(model(x), 1)", "acc = (pred == y).sum()"),
    body(NEXT, "acc = (model(x).max(1)[1] == y).sum()"),
    body(NEXT, "acc = (model(x).max(1).indices == y).sum()"),
    body("(model(eval_x).argmax(1) == eval_y).float().mean()", given="model, eval_x, eval_y"),
    body("(model(images_probe).argmax(1) == labels_probe).float().mean()", given="model, images_probe, labels_probe"),
    HEAD + "x, y = next(iter(loader))\ndef f(model):\n    return (model(x).argmax(1) == y).float().mean()\n",
]
SILENT = [
    FIRES[0].replace("# feedback alignment", ""),
    body("for x, y in loader:", "    correct += (model(x).argmax(1) == y).sum()"),
    body("(model(x).argmax(1) == y).float().mean()", given="model, x, y"),
    body(NEXT, "for x, y in loader:", "    correct += (model(x).argmax(1) == y).sum()"),
    body(NEXT, "same = x == y"),
    body(NEXT, "largest = model(x).max(1) == y"),
    body(NEXT, "agree = (model(x).argmax(1) == other(x).argmax(1)).float().mean()"),
    HEAD + "x, y = next(iter(loader))\ndef f(model, x, y):\n    return (model(x).argmax(1) == y).float().mean()\n",
]
