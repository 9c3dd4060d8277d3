"""A machine that only trains needs neither MLflow nor pydantic."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
for missing in ("mlflow", "pydantic", "pydantic_core"):
    sys.modules[missing] = None
import torch
from fa_registry.records import RunSpec
from fa_registry.training.loop import run_to_completion
from fa_registry.training.measuring import measure
from fa_registry.training.run_setup import build_setup
from fa_registry.training.spec_plugins import with_defaults
from fa_registry.training.trainer import Trainer
options = {"d_hidden": 8, "num_blocks": 2}
spec = RunSpec("dfa", "resmlp", "digits", seed=1, epochs=1, architecture_options=options)
setup = build_setup(with_defaults(spec), torch.device("cpu"))
Trainer(setup)
print(measure(setup).scalars["growth_max"].value)
"""


def test_a_run_is_set_up_and_measured_without_mlflow_and_pydantic():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0
