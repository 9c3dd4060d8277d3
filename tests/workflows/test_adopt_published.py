"""A checkpoint that a plain published module wrote is adopted as it is, and the figures are those of the plain module."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.architectures.plain_models import PLAIN, PlainModel, autograd_figures, moved_off_start
from tests.helpers.small import tiny_task
from tests.workflows.adoption import measured

SIZES = {
    "resmlp": {"d_hidden": 16, "num_blocks": 2},
    "vit_mini": {"d_hidden": 16, "num_blocks": 2, "heads": 4, "patch": 4},
    "small_resnet": {"width": 16, "num_blocks": 2},
}


def plain_model(name: str) -> PlainModel:
    """For digits, of SIZES, by torch's own constructors."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        plain = PLAIN[name](shape=(1, 12, 12), width=16, depth=2, classes=10)
    moved_off_start(plain)
    return plain.eval()


def norms(tensors: list[torch.Tensor], of_maps: str) -> list[float]:
    """Per site the median over samples of the L2 norm: of the class token's vector, of maps' mean or sum over positions."""
    rows = [one.detach().double() for one in tensors]
    rows = [one[:, 0] if one.dim() == 3 else getattr(one, of_maps)((2, 3)) if one.dim() == 4 else one for one in rows]
    return [float(np.median(one.norm(dim=1).numpy())) for one in rows]


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
@pytest.mark.parametrize("name", PLAIN)
def test_its_figures_are_the_plain_modules(registry, tmp_path, name, kind):
    plain, file = plain_model(name), tmp_path / f"published.{kind}"
    (torch.save if kind == "pt" else save_file)(plain.state_dict(), file)
    options = ",".join(f"architecture.{option}={value}" for option, value in SIZES[name].items())
    setting = (
        "--method",
        "bp",
        "--architecture",
        name,
        "--seed",
        "3",
        "--epochs",
        "1",
        "--set",
        options,
        "--device",
        "cpu",
    )
    result = registry("adopt", str(file), *setting, "--json")
    assert result.exit_code == 0, result.stdout
    found = measured(json.loads(result.stdout)["run_id"])

    task = tiny_task(method="bp", architecture=name, architecture_options=SIZES[name])
    images, labels = task.eval_batch
    _, states, gradients = autograd_figures(plain, images, labels)
    right = (plain(task.splits.test_images).argmax(dim=1) == task.splits.test_labels).double().mean().item()
    for quantity, expected in (("h_norm", norms(states, "mean")), ("g_norm", norms(gradients, "sum"))):
        assert [reading.value for reading in found.sites[quantity]] == pytest.approx(expected, rel=1e-4), quantity
    assert found.scalars["accuracy"].value == pytest.approx(right, abs=1e-9)
