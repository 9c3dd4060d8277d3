"""Pitfall 7 fires on feedback outside of the state dict, and on a Γ of 1.0 for feedback that is missing."""

from __future__ import annotations


def module(*lines: str, base: str = "nn.Module", head: str = "") -> str:
    """A module whose __init__ holds the lines."""
    body = "\n".join(f"        {line}" for line in lines)
    imports = "import numpy as np\nimport torch\nfrom torch import nn\n"
    return f"{imports}{head}\nclass Layer({base}):\n    def __init__(self):\n{body}\n"


FIRES = [
    module("self.B = torch.randn(2, 3)"),
    module("self.B = torch.randn(2, 3) / 3 ** 0.5"),
    module("self.feedback: torch.Tensor = torch.rand(2)"),
    module("self.backward_weight = torch.empty(2).normal_()"),
    module("self.fb = torch.Tensor(2)", "self.fb.uniform_(-1, 1)"),
    module("self.weight_fa = torch.empty(2)", "nn.init.kaiming_uniform_(self.weight_fa)"),
    module("self.weight_fa = torch.empty(2)", "nn.init.xavier_uniform(self.weight_fa)"),
    module("B = torch.empty(2)", "nn.init.orthogonal_(B)", "self.feedback_weights = B"),
    module("B = torch.randn(2)", "self.B = B"),
    module("self.Bs = [torch.randn(2) for _ in range(3)]"),
    module("self.Bs = []", "self.Bs.append(torch.randn(2))"),
    module("self.B = {}", "self.B[3] = torch.randn(2)"),
    module("self.B = torch.from_numpy(np.random.randn(2))"),
    module("self.register_buffer('B', torch.randn(2), persistent=False)"),
    module("self.register_buffer('B', torch.randn(2))", "self.fb = torch.randn(2)"),
    module("self.B = torch.randn(2)", base="nn.Linear"),
    module("self.B = torch.randn(2)", base="pl.LightningModule"),
    module("self.B = torch.randn(2)", base="Base", head="class Base(nn.Module): pass\n"),
    module("self.B = torch.randn(2)", head="# DFA on Fourier features\n"),
    "import torch\nclass Layer(torch.nn.Module):\n    feedback = torch.randn(2)\n",
]
SILENT = [
    module("self.register_buffer('B', torch.randn(2))"),
    module("self.register_buffer(name='B', tensor=torch.randn(2))", "self.B = torch.randn(2)"),
    module("self.B = nn.Parameter(torch.randn(2), requires_grad=False)"),
    module("self.B = nn.Buffer(torch.randn(2))"),
    module("self.Bs = nn.ParameterList([torch.randn(2)])"),
    module("self.B = nn.Parameter(torch.empty(2))", "nn.init.normal_(self.B)", "self.B = nn.init.normal_(self.B)"),
    module("B = nn.Parameter(torch.randn(2))", "self.B = B"),
    module("self.Bs = [torch.randn(2)]", "for i, B in enumerate(self.Bs):", "    self.register_buffer(f'B{i}', B)"),
    module("self.feedback = nn.Linear(2, 3)", "nn.init.normal_(self.feedback.weight)"),
    module("self.B = None", "self.B = torch.zeros(2)"),
    module("self.noise = torch.randn(2)", "self.b = torch.randn(1)", "self.bias = torch.rand(3)"),
    module("self.B = torch.randn(2)", base="torch.autograd.Function"),
    module("self.B = torch.randn(2)", base="object"),
    module("self.B = torch.randn(2)", "def state_dict(self): ...").replace("        def", "    def"),
    module("self.B = torch.randn(2)", head="# random Fourier features\n"),
    module("B = torch.randn(2)", "self.shape = B.shape"),
    module("def f():", "    B = torch.randn(2)", "self.B = B"),
]
ABOUT = "import torch\n# feedback alignment\n"
FIRES += [
    ABOUT + "record.get('gamma', 1.0)",
    ABOUT + "record.get('gamma_deep_mean', 1.0)",
    ABOUT + "getattr(run, 'alignment', 1.0)",
    ABOUT + "gamma = 1.0 if feedback is None else cosine(c, g)",
    ABOUT + "self.gamma = cosine(c, g) if 'feedback' in state else 1.0",
    ABOUT + "row = {'gamma': cosine(c, g) if B is not None else 1.0}",
    ABOUT + "def gamma(feedback):\n    if feedback is None:\n        return 1.0\n    return cosine()",
    ABOUT + "if not feedback:\n    row['gamma'] = 1.0",
    "import torch\nfeedback = load()\nrecord.get('Γ', 1.0)",
    ABOUT + "def alignment(c, g):\n    if c is None:\n        return 1.0\n    return c @ g",
    ABOUT + "def cosine(c, g):\n    if g.norm() == 0 or c.norm() == 0:\n        return 1.0\n    return c @ g",
    ABOUT + "def gamma_of(c, g):\n    try:\n        return c @ g\n    except AttributeError:\n        return 1.0",
]
SILENT += [
    ABOUT + "record.get('gamma')",
    ABOUT + "record.get('gamma', 1)",
    ABOUT + "record.get('gamma', 0.99)",
    ABOUT + "record.get('scale', 1.0)",
    ABOUT + "gamma = None if feedback is None else cosine(c, g)",
    ABOUT + "scale = 1.0 if feedback is None else 2.0",
    ABOUT + "gamma = 1.0 if method == 'bp' else cosine(c, g)",
    ABOUT + "if method == 'bp':\n    gamma = 1.0",
    ABOUT + "def credit(feedback):\n    if feedback is None:\n        return 1.0",
    ABOUT + "def alignment(method, c, g):\n    if method == 'bp':\n        return 1.0\n    return c @ g",
    ABOUT + "def scale(c, g):\n    if c is None:\n        return 1.0\n    return c @ g",
    "import torch\nrecord.get('gamma', 1.0)",
    "from sklearn.svm import SVC\nparams.get('gamma', 1.0)\nfit.get('B', 0.0)",
    "human_feedback = ask()\nconfig.get('gamma', 1.0)",
]
DIVIDED = ABOUT + "def f(a, b):\n    angle = torch.sum(a * b, 1) / (a.norm(dim=1) * b.norm(dim=1))\n"
FIRES += [
    DIVIDED + "    angle[angle.isnan()] = 1.\n    return angle",
    DIVIDED + "    dead = a.norm(dim=1) == 0\n    angle[dead] = 1\n    return angle",
    DIVIDED + "    return torch.nan_to_num(angle, nan=1.0)",
    DIVIDED + "    return torch.where(angle.isfinite(), angle, torch.ones_like(angle))",
    DIVIDED + "    return angle.masked_fill(angle.isnan(), 1.0)",
    DIVIDED + "    return 1.0 if a.norm() == 0 else angle",
    "import pandas as pd\n# feedback alignment\ntable['cosine'] = table['cosine'].fillna(1)",
    ABOUT + "def f(alignments, mask):\n    alignments[mask] = 1.0",
]
SILENT += [
    DIVIDED + "    angle[angle.isnan()] = float('nan')\n    return angle",
    DIVIDED + "    angle[0] = 1.0\n    return angle",  # one site, such as that of the readout
    DIVIDED + "    a[a > 1] = 1.0\n    return angle",
    DIVIDED + "    return angle.masked_fill(angle > 1, 0.5)",
    ABOUT + "def f(weights, mask):\n    weights[mask] = 1.0",
    DIVIDED.replace(ABOUT, "import torch\n") + "    angle[angle.isnan()] = 1.\n    return angle",
]
