"""Pitfall 2 fires on torch's cosine with an eps that matters."""

from __future__ import annotations

import pytest
import torch

from tests.lint.samples import codes

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


@pytest.mark.parametrize("text", FIRES)
def test_fires(text):
    assert codes(text) == ["FA002"]


@pytest.mark.parametrize("text", SILENT)
def test_does_not_fire(text):
    assert codes(text) == []


def test_what_the_card_says_is_so():
    small = torch.tensor([1e-10, 0.0])
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(small, small, dim=0).item() == pytest.approx(1e-4)  # fa: ok FA002 shows the clamp
    assert cosine(small, small, dim=0, eps=1e-30).item() == pytest.approx(1)
