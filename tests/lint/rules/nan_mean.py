"""FA006: which means without NaN are over layers or runs."""

from __future__ import annotations

from itertools import product

HEAD = "import numpy as np\nimport torch\nimport torch.nn.functional as F\n"
COSINE = "F.cosine_similarity(p.grad, p.q, dim=0, eps=1e-30)"


def loop(source: str, mean: str, fill: str = f"v.append({COSINE})", start: str = "[]") -> str:
    return f"{HEAD}def f(net, seeds):\n    v = {start}\n    for p in {source}:\n        {fill}\n    return {mean}\n"


SOURCES = ["net.parameters()", "net.layers", "list(net.children())", "reversed(net.blocks[1:])"]
MEANS = ["np.nanmean(v)", "torch.stack(v).nanmean()", "np.nanmedian(np.array(v))", "np.nanmean(v, axis=0)"]
FIRES = [
    *(loop(source, mean) for source, mean in product(SOURCES, MEANS)),
    loop("net.layers", "np.nanmean(list(v.values()))", f"v[p] = {COSINE}", "{}"),
    loop("net.layers", "np.nanmean(v)", f"c = {COSINE}\n        v.append(c.item())"),
    loop("seeds", "np.nanmean(v)"),
    loop("seeds", "np.nanmean(v, axis=0)", f"v.append([{COSINE} for p in net.parameters()])"),
    loop("seeds", "torch.stack(self.kept).nanmean(0)", f"self.kept.append({COSINE})"),
    f"{HEAD}def f(net):\n    return np.nanmean([{COSINE} for p in net.parameters()])\n",
]
SILENT = [
    loop("net.layers", "np.mean(v)"),
    loop("net.layers", "np.nanmean(v, axis=1)"),  # over the samples of each layer
    loop("net.layers", "[c.nanmean() for c in v]"),
    loop("seeds", "np.nanmean(v), np.isnan(v).sum()"),  # says how many are left out
    loop("seeds", "np.nanmean(v)", "v.append(p.loss)"),
    loop("net.layers", "np.nanmean(v)", "v.append(p.seconds)"),  # no cosine
    loop("net.layers", "np.nanmean(np.array(seeds))"),
    f"{HEAD}def f(net, h):\n    g = torch.autograd.grad(net, h)[0]\n    return F.cosine_similarity(g, h, 1, 0).nanmean()\n",
]
ABOUT = f"{HEAD}# feedback alignment\n"
PAIRED = "[F.cosine_similarity(a, b, dim=0, eps=1e-30) for a, b in zip(credits, slopes)]"
FIRES += [
    f"{HEAD}def f(credits, slopes):\n    per_layer = {PAIRED}\n    return np.nanmean(per_layer)\n",
    f"{HEAD}def f(credits, slopes):\n    return torch.tensor({PAIRED}).nanmean()\n",
    f"{ABOUT}def f(path):\n    return np.nanmean(np.load(path)['cosines'], axis=(0, 2))\n",
]
SILENT += [
    f"{HEAD}def f(credits, slopes):\n    return np.mean({PAIRED})\n",
    f"{ABOUT}def f(path):\n    return np.nanmean(np.load(path)['losses'], axis=(0, 2))\n",
    f"{HEAD}def f(runs):\n    return np.nanmean([run.cosine for run in runs])\n",
]
