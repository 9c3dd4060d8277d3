"""Pitfall 2 fires on torch's cosine with an eps that matters."""

from __future__ import annotations

FIRES = [
    "import torch\ntorch.cosine_similarity(a, b)",
    "import torch\ntorch.nn.functional.cosine_similarity(a, b, dim=-1)",
    "import torch.nn.functional as F\nF.cosine_similarity(a, b, -1, 1e-8)",
    "import torch.nn.functional as F\nF.cosine_similarity(a, b, eps=1e-10)",
    "import torch.nn.functional as F\nEPS = 1e-6\nF.cosine_similarity(a, b, eps=EPS)",
    "import torch.nn.functional as F\nk = F.cosine_similarity\nk(a, b)",
    "from torch.nn.functional import cosine_similarity\ncosine_similarity(a, b)",
    "from torch import nn\nnn.CosineSimilarity()",
    "from torch.nn import CosineSimilarity as C\nC(dim=1)",
    "from torch import nn\nnn.CosineSimilarity(1, 1e-6)",
    "import functools\nimport torch.nn.functional as F\nfunctools.partial(F.cosine_similarity, dim=-1)",
]
SILENT = [
    "import torch.nn.functional as F\nF.cosine_similarity(a, b, eps=1e-30)",
    "import torch.nn.functional as F\nF.cosine_similarity(a, b, -1, 0)",
    "import torch.nn.functional as F\nTINY = 1e-30\nF.cosine_similarity(a, b, eps=TINY)",
    "import torch\nimport torch.nn.functional as F\nF.cosine_similarity(a, b, eps=torch.finfo(a.dtype).tiny)",
    "import torch.nn.functional as F\nF.cosine_similarity(a, b, **options)",
    "from torch import nn\nnn.CosineSimilarity(eps=1e-30)",
    "from functools import partial\nimport torch.nn.functional as F\npartial(F.cosine_similarity, eps=1e-30)",
    "from functools import partial\nimport torch.nn.functional as F\npartial(F.cosine_similarity, a, b, 1, 1e-30)",
    "from sklearn.metrics.pairwise import cosine_similarity\ncosine_similarity(a, b)",
    "import torch\nsklearn.metrics.cosine_similarity(a, b)",
    "import torch.nn.functional as F\ndef f(F):\n    return F.cosine_similarity(a, b)",
    "import torch.nn.functional as F\nF.cosine_embedding_loss(a, b, c)",
]


FIRES += [
    "import torch\ndef f(a, b):\n    low = a.norm(dim=1) * b.norm(dim=1) + 0.05\n    return (a * b).sum(1) / low",
    "import torch\n(a * b).sum() / (a.norm() * b.norm() + 1e-8)",
    "import torch\n(a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1)).clamp_min(1e-8)",
    "import torch\n(a * b).sum(-1) / (a.norm(dim=-1).clamp(min=1e-8) * b.norm(dim=-1).clamp(min=1e-8))",
    "import torch\ntorch.dot(a, b) / (torch.norm(a) * torch.norm(b) + 1e-6)",
    "import torch\nEPS = 1e-8\na @ b / (EPS + torch.linalg.vector_norm(a) * torch.linalg.vector_norm(b))",
    "import numpy as np\nnp.dot(a, b) / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-8)",
    "import torch\nden = a.norm() * b.norm()\ncos = (a * b).sum() / (den + 1e-8)",
    "import torch\ntorch.einsum('nd,nd->n', a, b) / (norm_a * norm_b).clamp_min(1e-8)",
]
SILENT += [
    "import torch\n(a * b).sum() / (a.norm() * b.norm())",
    "import torch\n(a * b).sum() / (a.norm() * b.norm() + 1e-30)",
    "import torch\n(a * b).sum() / (a.norm() * b.norm()).clamp_min(torch.finfo(a.dtype).tiny)",
    "import torch\na / (a.norm() + 1e-8)",
    "import torch\n(a * b).sum() / (b.norm() + 1e-8)",
    "import torch\n(a * b).sum() / (count + 1e-8)",
    "import torch\n(p * q).sum() / (p.sum() + q.sum() + 1e-8)",
    "import torch\n(a * b).sum() / (a.norm() * b.norm() + 1)",
    "(a * b).sum() / (a.norm() * b.norm() + 1e-8)",
    "import torch\n(a - b).norm() / (a.norm() + b.norm() + 1e-8)",
]
