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

MEANS = ("for x, y in loader:", "    parts.append((model(x).argmax(1) == y).float().mean())")
FIRES += [
    body("parts = []", *MEANS, "return sum(parts) / len(parts)"),
    body("return DataLoader(MNIST('d', train=False), 64, drop_last=True)"),
    HEAD + "def predict_dataloader():\n    return DataLoader(d, shuffle=True)\n",
    body("every = torch.cat([x_train, x_test])", "return every.std()"),
    body("m = x.mean(0)", "x_tr, x_te = x[:90], x[90:]"),
    body("x = scaler.fit_transform(x)", "x_train, x_test = train_test_split(x)"),
    body("train_set = full", "val_set = Subset(full, index)"),
    body("return dict(train=x, val=x[90:])"),
]
CODED = "F.one_hot(y, 10)"
INFER = "import torch.nn.functional as F\ndef infer(x, t):\n    return x + t\n"
FIRES += [
    body("return (x_test - x_test.mean(0)) / x_test.std(0)"),
    body("x_te = x[90:]", "return (x_te - x_te.mean(0)) / x_te.std(0)"),
    body("return scaler.fit_transform(x_test)"),
    body("return MNIST('d', train=False, transform=T.Compose([T.RandomCrop(4)]))"),
    body("x_train, x_test = x[:1300], x[1100:]"),
    body("codes = pca.fit_transform(x)", "x_train, x_test = codes[~held], codes[held]"),
    body("probe.fit(x_test, y_test)", "return probe.score(x_test, y_test)"),
    INFER + body(f"return (infer(x, {CODED}).argmax(1) == y).sum()", given="x, y"),
    INFER + body("return probe.score(infer(x_test, y_test), y_test)"),
]
SILENT += [
    body("return (x_test - x_train.mean(0)) / x_train.std(0)"),
    body("return (x_train - x_train.mean(0)) / x_train.std(0)"),
    body("return scaler.transform(x_test)"),
    body("return MNIST('d', train=True, transform=T.Compose([T.RandomCrop(4)]))"),
    body("return MNIST('d', train=False, transform=T.Compose([T.ToTensor()]))"),
    body("x_train, x_test = x[:1300], x[1300:]"),
    body("pca.fit(x[~held])", "x_train, x_test = pca.transform(x[~held]), pca.transform(x[held])"),
    body("probe.fit(x_train, y_train)", "return probe.score(x_test, y_test)"),
    INFER + body("return (infer(x, 0).argmax(1) == y).sum()", given="x, y"),
    INFER + body("return probe.score(infer(x_test, 0), y_test)"),
    body("parts = []", MEANS[0], "    parts.append((model(x).argmax(1) == y).sum())", "return sum(parts) / n"),
    body("return DataLoader(MNIST('d', train=True), 64, drop_last=True)"),
    body("m = x_train.mean(0)", "x_train, x_test = x_train - m, x_test - m"),
    body("x_tr, x_te = x[:90], x[90:]", "m = x_tr.mean(0)"),
    body("train_set, val_set = Subset(full, first), Subset(full, last)"),
    body("return dict(train=x[:90], val=x[90:])"),
]
