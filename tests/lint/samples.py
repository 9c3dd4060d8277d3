"""One text a pitfall, and how the tests lint a text."""

from __future__ import annotations

import json

from fa_lint.base import LintFinding
from fa_lint.python_files import Source
from fa_lint.rules import all_rules
from fa_lint.runner import lint_source
from fa_lint.syntax import Syntax

NEGATIVE_NORM = """\
import torch

def lengths(x):
    return x.norm(-1)
"""
CLAMPED_COSINE = """\
from torch.nn.functional import cosine_similarity as cs

def alignment(credit, gradient):
    return cs(credit, gradient, dim=1)
"""
HALF_GRADIENTS = """\
import torch

def step(model, x, y):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).sub(y).square().sum()
    loss.backward()
"""
UNSAVED_FEEDBACK = """\
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.B = torch.randn(10, 128)
"""
MEAN_REDUCED = """\
import torch
import torch.nn.functional as F

def g_norms(model, h, y):
    loss = F.cross_entropy(model(h), y)
    (gradient,) = torch.autograd.grad(loss, h)
    return gradient.norm(dim=1)
"""
BATCH_ACCURACY = """\
import torch

def report(model, loader):  # feedback alignment
    x, y = next(iter(loader))
    return (model(x).argmax(1) == y).float().mean()
"""
TRAINING_MODE = """\
from torch import nn

model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 2))

def accuracy(x, y):
    return (model(x).argmax(1) == y).float().mean()
"""
CUSTOM_BACKWARD = """\
import torch

class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, B):
        ctx.save_for_backward(x, weight, B)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight, B = ctx.saved_tensors
        grad_x = grad_output @ B
        return grad_x, grad_output.t() @ x, None
"""
FRESH_FEEDBACK = """\
import torch
import torch.nn.functional as F

def measured(net, x, y):
    z = net.body(x).requires_grad_()
    u = torch.autograd.grad(F.cross_entropy(net.head(z), y, reduction="sum"), z)[0]
    q = torch.randn(10, 64) / 8
    return F.cosine_similarity(net.error(z, y) @ q, u, dim=1, eps=1e-30)
"""
NAN_MEAN = """\
import numpy as np
import torch
import torch.nn.functional as F

def summary(signals, states, loss):
    u = torch.autograd.grad(loss, states)
    values = [F.cosine_similarity(s, v, dim=1, eps=1e-30).mean().item() for s, v in zip(signals, u)]
    return np.nanmean(values)
"""
FROZEN_CONSTANT = """\
import torch

FLOOR = 34.2  # accuracy with frozen blocks
print("gain", accuracy - FLOOR)
"""
CHOSEN_RUNS = """\
import numpy as np

def report(runs):  # feedback alignment
    kept = [run for run in runs if run.accuracy > 0.8]
    return np.mean([run.accuracy for run in kept])
"""
ALTERED_COSINE = """\
import torch

def angle(credit, gradient):  # feedback alignment
    c = torch.dot(credit, gradient) / (credit.norm() * gradient.norm())
    return c.abs()
"""
UNEQUAL_REFERENCE = """\
import torch
import torch.nn.functional as F

def measured(net, batches):  # feedback alignment
    x, y = next(batches)
    p, q = next(batches)
    return F.cosine_similarity(net.credit(x, y), net.gradient(p, q), dim=0, eps=1e-30)
"""
UNINTENDED_CODE = """\
import torch

def epoch(x, y):  # feedback alignment
    x, y = x[torch.randperm(9)], y[torch.randperm(9)]
    return x, y
"""
WRONG_STATISTICS = """\
import numpy as np

def interval(values):  # feedback alignment
    return 1.96 * np.std(values) / np.sqrt(len(values))
"""
BEST_EPOCH = """\
from torchvision import datasets

split = datasets.MNIST("data", train=False)
top = 0.0
for number in range(100):
    train_one_pass(net)
    optimizer.step()
    value = score(net, split)
    if value > top:
        top = value
"""
PITFALLS = {
    "FA001": NEGATIVE_NORM,
    "FA002": CLAMPED_COSINE,
    "FA003": HALF_GRADIENTS,
    "FA004": FRESH_FEEDBACK,
    "FA006": NAN_MEAN,
    "FA007": UNSAVED_FEEDBACK,
    "FA008": MEAN_REDUCED,
    "FA009": BATCH_ACCURACY,
    "FA010": FROZEN_CONSTANT,
    "FA011": CHOSEN_RUNS,
    "FA012": TRAINING_MODE,
    "FA013": CUSTOM_BACKWARD,
    "FA014": BEST_EPOCH,
    "FA015": ALTERED_COSINE,
    "FA016": UNEQUAL_REFERENCE,
    "FA017": UNINTENDED_CODE,
    "FA018": WRONG_STATISTICS,
}


def found(text: str) -> list[LintFinding]:
    """Everything the rules find in a text, silenced or not."""
    return lint_source(Source("sample.py", Syntax(text)), all_rules())


def codes(text: str) -> list[str]:
    return [one.code for one in found(text)]


def notebook(*cells: str, language: str = "python") -> bytes:
    """A notebook that starts with a Markdown cell, so that its first code cell is cell 2."""
    written = [{"cell_type": "markdown", "source": ["# x.norm(-1)"]}]
    written += [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    metadata = {"kernelspec": {"language": language}}
    return json.dumps({"cells": written, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}).encode()
