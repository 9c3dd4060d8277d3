"""FA006: which means without NaN are over layers."""

from __future__ import annotations

import pytest

from tests.lint.samples import codes

HEAD = "import numpy as np\nimport torch\nimport torch.nn.functional as F\n"
COSINE = "F.cosine_similarity(p.grad, p.q, dim=0, eps=1e-30)"


def loop(source: str, mean: str, fill: str = f"v.append({COSINE})", start: str = "[]") -> str:
    return f"{HEAD}def f(net, seeds):\n    v = {start}\n    for p in {source}:\n        {fill}\n    return {mean}\n"


@pytest.mark.parametrize(
    "source", ["net.parameters()", "net.layers", "list(net.children())", "reversed(net.blocks[1:])"]
)
@pytest.mark.parametrize(
    "mean", ["np.nanmean(v)", "torch.stack(v).nanmean()", "np.nanmedian(np.array(v))", "np.nanmean(v, axis=0)"]
)
def test_a_mean_over_modules_or_parameters_is_found(source, mean):
    assert codes(loop(source, mean)) == ["FA006"]


@pytest.mark.parametrize(
    "text",
    [
        loop("net.layers", "np.nanmean(list(v.values()))", f"v[p] = {COSINE}", "{}"),
        loop("net.layers", "np.nanmean(v)", f"c = {COSINE}\n        v.append(c.item())"),
        f"{HEAD}def f(net):\n    return np.nanmean([{COSINE} for p in net.parameters()])\n",
    ],
)
def test_other_ways_to_collect_the_values_are_found(text):
    assert codes(text) == ["FA006"]


@pytest.mark.parametrize(
    "text",
    [
        loop("net.layers", "np.mean(v)"),
        loop("net.layers", "np.nanmean(v, axis=1)"),  # over the samples of each layer
        loop("net.layers", "[c.nanmean() for c in v]"),
        loop("seeds", "np.nanmean(v)"),
        loop("seeds", "np.nanmean(v, axis=0)", f"v.append([{COSINE} for p in net.parameters()])"),
        loop("net.layers", "np.nanmean(v)", "v.append(p.seconds)"),  # no cosine
        loop("net.layers", "np.nanmean(np.array(seeds))"),
        f"{HEAD}def f(net, h):\n    g = torch.autograd.grad(net, h)[0]\n    return F.cosine_similarity(g, h, 1, 0).nanmean()\n",
    ],
)
def test_other_means_are_none(text):
    assert codes(text) == []
