"""Which function a name means: aliases, scopes, star imports, re-assignments."""

from __future__ import annotations

import ast

import pytest

from fa_registry.lint.syntax import Syntax

COSINE = "torch.nn.functional.cosine_similarity"


def last_call(text: str) -> str:
    """What the last call of a text resolves to."""
    syntax = Syntax(text)
    return syntax.resolve(max(syntax.every(ast.Call), key=lambda call: (call.lineno, call.col_offset)).func)


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.nn.functional.cosine_similarity()",
        "import torch as t\nt.nn.functional.cosine_similarity()",
        "import torch.nn.functional\ntorch.nn.functional.cosine_similarity()",
        "import torch.nn.functional as F\nF.cosine_similarity()",
        "from torch import nn\nnn.functional.cosine_similarity()",
        "from torch.nn import functional as f\nf.cosine_similarity()",
        "from torch.nn.functional import cosine_similarity\ncosine_similarity()",
        "from torch.nn.functional import cosine_similarity as cs\ncs()",
        "from torch.nn.functional import *\ncosine_similarity()",
        "import torch.nn.functional as F\nk = F.cosine_similarity\nk()",
        "import torch.nn.functional as F\nk = F\nj = k.cosine_similarity\nj()",
        "def f():\n    import torch.nn.functional as F\n    return F.cosine_similarity()",
        "import torch.nn.functional as F\ndef f():\n    def g():\n        return F.cosine_similarity()",
        "import torch.nn.functional as F\nclass C:\n    F = None\n    def g(self):\n        return F.cosine_similarity()",
        "try:\n    import torch.nn.functional as F\nexcept ImportError:\n    F = None\nF.cosine_similarity()",
        "from torch.nn.functional import cosine_similarity as cs\n[cs() for cs in ()]",
    ],
)
def test_found_by_whatever_name(text):
    assert last_call(text) == COSINE


@pytest.mark.parametrize(
    "text",
    [
        "cosine_similarity()",
        "F.cosine_similarity()",
        "from sklearn.metrics.pairwise import cosine_similarity\ncosine_similarity()",
        "from torch.nn.functional import cosine_similarity as cs\ndef f(cs):\n    return cs()",
        "from torch.nn.functional import cosine_similarity as cs\ndef f(*, cs=None):\n    return cs()",
        "from torch.nn.functional import cosine_similarity as cs\ndef f():\n    cs = 1\n    return cs()",
        "from torch.nn.functional import cosine_similarity as cs\nlambda cs: cs()",
        "def g():\n    import torch.nn.functional as F\ndef f():\n    return F.cosine_similarity()",
        "from .functional import cosine_similarity\ncosine_similarity()",
        "import torch.nn.functional as F\nk = F.cosine_similarity\nk = len\nk()",
        "import torch.nn.functional as F\nk = len\nk = F.cosine_similarity\nk()",
        "a = b\nb = a\na()",
    ],
)
def test_not_taken_for_it(text):
    assert last_call(text) != COSINE


def test_packages_are_those_imported_at_any_depth():
    syntax = Syntax("import os.path\nfrom . import x\ndef f():\n    from torch.nn import *\n")
    assert syntax.names.packages == {"os", "", "torch"}
