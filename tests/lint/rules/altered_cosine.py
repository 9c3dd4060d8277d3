"""FA015: what changes a cosine or selects cosines by their value, and what does not."""

from __future__ import annotations

HEAD = "import numpy as np\nimport torch\nimport torch.nn.functional as F\n# feedback alignment\n"
COSINE = "F.cosine_similarity(a, b, dim=0, eps=1e-30)"


def measured(*lines: str, head: str = "") -> str:
    """A function that computes one cosine s and then executes the lines."""
    return f"{HEAD}{head}def f(a, b, rows):\n    s = {COSINE}\n" + "".join(f"    {line}\n" for line in lines)


LAYERS = "def f(p, q):\n    p, q = [g.flatten() for g in p], [g.flatten() for g in q]\n"
LOOP = ("kept = []", "for a, b in rows:", f"    s = {COSINE}")
FIRES = [
    measured("return torch.abs(s)"),
    measured("return abs(float(s))"),
    measured("return s.clamp(min=0)"),
    measured("return s.clamp(0.0, 1.0)"),
    measured("return np.maximum(s, 0)"),
    measured("return max(s.item(), 0.0)"),
    measured("return F.relu(s)"),
    measured(*LOOP, "    if s > 0.1:", "        kept.append(s)", "return np.mean(kept)"),
    measured(*LOOP, "    if s.isnan() or s < 0:", "        continue", "    kept.append(s)", "return np.mean(kept)"),
    measured("v = torch.stack([s for r in rows])", "return v[v > 0].mean()"),
    measured("v = np.array([s for r in rows])", "fine = ~np.isnan(v)", "return np.mean(v[fine])"),
    f"{HEAD}def f(alignments):\n    good = [g for g in alignments if g > 0]\n    return sum(good) / 3\n",
    f"{HEAD}def f(a, b):\n    u, v = torch.sign(a), torch.sign(b)\n    return (u * v).sum() / (u.norm() * v.norm())\n",
    f"{HEAD}def f(net, a, b):\n    v = []\n    for e in range(9):\n        net.step()\n"
    f"        v.append({COSINE})\n    return max(v)\n",
]
FIRES += [
    measured("return torch.dot(a, b).abs() / (a.norm() * b.norm())").replace(f"    s = {COSINE}\n", ""),
    measured("return torch.relu((a * b).sum()) / (a.norm() * b.norm())").replace(f"    s = {COSINE}\n", ""),
    measured("return torch.nan_to_num(s, nan=0.0)"),
    measured("return torch.nan_to_num(s)"),
    measured("return torch.where(s.isnan(), torch.zeros_like(s), s)"),
    measured("v = np.array([s for r in rows])", "v[np.isnan(v)] = 0", "return v"),
    "import pandas as pd\n# feedback alignment\ntable['cosine'] = table['cosine'].fillna(0.0)\n",
    f"{HEAD}{LAYERS}    a, b = torch.cat(p), torch.cat(q)\n    return {COSINE}\n",
    f"{HEAD}def f(p, q):\n    a, b = p.reshape(len(p), -1), q.reshape(len(q), -1)\n    return {COSINE}\n",
]
SILENT = [
    measured(
        "h = F.relu(w['l1.weight'] @ a + w['l1.bias'])", "row = {}", "row['l1.bias'] = s", "return h, row"
    ),  # an activation
    measured("return torch.where(s.isnan(), torch.full_like(s, torch.nan), s)"),
    measured("v = np.array([s for r in rows])", "v[0] = 0", "return v"),
    f"{HEAD}def f(p, q, x):\n    a, b = torch.cat([p(r) for r in x]), torch.cat([q(r) for r in x])\n    return {COSINE}\n",
    f"{HEAD}def f(p, q):\n    a, b = p.reshape(-1), q.flatten()\n    return {COSINE}\n",
    measured("return s"),
    measured("return a.abs()"),
    measured("assert abs(s) <= 1 + 1e-6"),
    measured("return abs(s - 0.5)"),  # a distance
    measured("return s.clamp(-1, 1)"),  # rounding errors
    measured("return a.clamp(min=0)"),
    measured(*LOOP, "    if s < 0:", "        print(s)", "    kept.append(s)", "return np.mean(kept)"),
    measured(*LOOP, "    kept.append(s)", "print(len([k for k in kept if k < 0]))", "return np.mean(kept)"),
    measured("v = np.array([s for r in rows])", "v = v[~np.isnan(v)]", "return v.mean(), len(v)"),  # says how many
    measured("low = {r: s for r in rows if s < 0.1}", "return f'low at {low}'"),  # a list for the reader
    measured("plt.ylim(0, max(s, 1))"),
    measured("return s.abs()").replace("# feedback alignment\n", ""),
]
