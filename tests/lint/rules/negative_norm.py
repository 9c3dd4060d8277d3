"""Pitfall 1 fires on a −1 in p's place, and on nothing else that is called norm."""

from __future__ import annotations

FIRES = [
    "import torch\nx.norm(-1)",
    "import torch\nx.norm(-2)",
    "import torch\nx.norm(-1, keepdim=True)",
    "import torch\nx.y[0].z().norm(-1)",
    "import torch\nself.h.norm(-1)",
    "import torch\ntorch.randn(3).norm(-1)",
    "import torch\ntorch.norm(x, -1)",
    "import torch\ntorch.norm(input=x, p=2)\ntorch.norm(x, -1)",
    "import torch\ntorch.Tensor.norm(x, -1)",
    "import torch as t\nt.linalg.norm(x, -1)",
    "from torch.linalg import vector_norm as size\nsize(x, -2)",
    "from torch import norm as n\nn(x, -1)",
    "import torch\nfrom scipy import stats\nx.norm(-1)",
    "def f(x):\n    return x.norm(-1)",
    "import math\nimport numpy as np\nfrom .model import x\nx(3).norm(-1)",
]
SILENT = [
    "import torch\nx.norm(dim=-1)",
    "import torch\nx.norm()",
    "import torch\nx.norm(2, -1)",
    "import torch\nx.norm(p=-1)",
    "import torch\nx.norm(-1.0)",
    "import torch\nx.norm(-1, 0)",
    "import torch\nx.norm(-1, dim=0)",
    "import torch\nx.norm(1)\ny = -1",
    "import torch\nx.norm(*a, -1)\nx.norm(-1, **a)",
    "import torch\ntorch.norm(x, dim=-1)",
    "import torch\ntorch.norm(x, -1, 0)",
    "import torch\ntorch.linalg.norm(x, ord=-1)",
    "import torch\ntorch.linalg.norm(x, -2)",
    "import torch\ntorch.linalg.matrix_norm(x, -1)",
    "import torch\nself.norm(-1)",
    "import torch\nimport numpy as np\nnp.linalg.norm(x, -1)\nnp.linalg.norm(x, axis=-1)",
    "import torch\nfrom scipy import stats\nstats.norm(-1)\nstats.norm(-1).norm(-1)",
    "from sympy import Matrix\nMatrix([1]).norm(-1)\nx.norm(-1)",
    "import some_database\nsize.norm(-1)",
    "import torch\n# x.norm(-1)\ntext = 'x.norm(-1)'",
]
