"""The imports of trainers with a CPU torch, in a process of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long  # each import takes ten seconds


@pytest.mark.parametrize(
    ("package", "code"),
    [
        (
            "transformers",
            "import transformers, fa_registry; fa_registry.torchvision(); from transformers import GPT2LMHeadModel",
        ),
        ("lightning", "import fa_registry.external.callbacks.lightning, lightning"),
        (
            "transformers",
            "import fa_registry.external.callbacks.transformers; from transformers import ViTForImageClassification",
        ),
    ],
)
def test_after_the_repair_a_trainer_can_be_imported(package, code):
    pytest.importorskip(package)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
