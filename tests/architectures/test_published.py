"""What is published of resmlp, vit_mini and small_resnet: a plain module, torch's own layers and their own initialisation, has our
names, our gradients and our initial distributions."""

from __future__ import annotations

import math
import re

import pytest
import torch
from scipy import stats
from torch import nn

from fa_registry.training.step import backprop_step
from tests.architectures.drawing import CLASSES, normal
from tests.architectures.plain_models import PATCH, PLAIN, SHAPE, WIDTH, ours, pair

DRAWS = 40
ALIKE = 1e-3  # least p-value of a test that should not reject; the seeds are fixed, so it does so always or never
LABELS = torch.arange(6) % CLASSES


@pytest.mark.parametrize("name", PLAIN)
def test_a_checkpoint_of_either_loads_into_the_other(name):
    network, plain = ours(name), PLAIN[name]()
    assert set(network.state_dict()) == set(plain.state_dict())
    plain.load_state_dict(network.state_dict(), strict=True)
    network.load_state_dict(plain.state_dict(), strict=True)


@pytest.mark.parametrize("name", PLAIN)
def test_every_parameters_gradient_is_the_plain_models(name):
    """In training mode, where a BatchNorm follows its batch."""
    both, images = pair(name), normal(6, *SHAPE)
    backprop_step(both.ours.train(), images, LABELS, penalty=0.0)
    nn.functional.cross_entropy(both.plain.train()(images), LABELS).backward()
    expected = {parameter: one.grad for parameter, one in both.plain.named_parameters()}
    for parameter, one in both.ours.named_parameters():
        scale = max(expected[parameter].abs().max().item(), 1e-3)  # exact zeros but for rounding: a key's bias
        torch.testing.assert_close(one.grad, expected[parameter], rtol=1e-10, atol=1e-10 * scale, msg=parameter)


def pooled(draw) -> dict[str, torch.Tensor]:
    """Parameter name, of any block → its entries in DRAWS networks."""
    found: dict[str, list[torch.Tensor]] = {}
    for seed in range(DRAWS):
        for name, value in draw(seed).named_parameters():
            kind = re.sub(r"^blocks\.\d+", "blocks", name)
            found.setdefault(kind, []).append(value.detach().flatten())
    return {name: torch.cat(values) for name, values in found.items()}


def plainly(name: str, seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1000 + seed)
        return PLAIN[name]()


@pytest.mark.parametrize("name", PLAIN)
def test_initial_distributions_are_the_published_ones(name):
    own, published = pooled(lambda seed: ours(name, seed)), pooled(lambda seed: plainly(name, seed))
    assert own.keys() == published.keys()
    for parameter, values in own.items():
        if published[parameter].unique().numel() == 1:
            assert values.eq(published[parameter][0]).all(), parameter
            continue
        assert stats.kstest(values.numpy(), published[parameter].numpy()).pvalue > ALIKE, parameter


UNIFORM = {
    "small_resnet": {
        "stem_conv.weight": 1 / math.sqrt(9 * SHAPE[0]),
        **dict.fromkeys(("blocks.conv1.weight", "blocks.conv2.weight"), 1 / math.sqrt(9 * WIDTH)),
        **dict.fromkeys(("out_head.weight", "out_head.bias"), 1 / math.sqrt(WIDTH)),
    },
    "vit_mini": {
        **dict.fromkeys(("patch_embed.weight", "patch_embed.bias"), 1 / math.sqrt(SHAPE[0] * PATCH**2)),
        "blocks.attn.in_proj_weight": math.sqrt(6 / (3 * WIDTH + WIDTH)),  # Xavier, of all three as one matrix
        "blocks.attn.out_proj.weight": 1 / math.sqrt(WIDTH),
        **dict.fromkeys(("blocks.mlp.0.weight", "blocks.mlp.0.bias"), 1 / math.sqrt(WIDTH)),
        **dict.fromkeys(("blocks.mlp.3.weight", "blocks.mlp.3.bias"), 1 / math.sqrt(4 * WIDTH)),
        **dict.fromkeys(("out_head.weight", "out_head.bias"), 1 / math.sqrt(WIDTH)),
    },
    "resmlp": {
        **dict.fromkeys(("embed.weight", "embed.bias"), 1 / math.sqrt(math.prod(SHAPE))),
        **dict.fromkeys(("blocks.w1.weight", "blocks.w1.bias"), 1 / math.sqrt(WIDTH)),
        **dict.fromkeys(("out_head.weight", "out_head.bias"), 1 / math.sqrt(WIDTH)),
    },
}
NORMAL = {
    "small_resnet": {},
    "vit_mini": {"cls_token": 0.02, "pos_embed": 0.02},  # torch's bounds are ±2: a hundred deviations, nothing is cut
    "resmlp": {"blocks.w2.weight": 0.01},
}
ZERO = {
    "small_resnet": {"stem_bn.bias", "blocks.bn1.bias", "blocks.bn2.bias"},
    "vit_mini": {
        *("blocks.ln1.bias", "blocks.ln2.bias", "out_ln.bias"),
        *("blocks.attn.in_proj_bias", "blocks.attn.out_proj.bias"),
    },
    "resmlp": {"blocks.ln.bias", "out_ln.bias", "blocks.w2.bias"},
}


@pytest.mark.parametrize("name", PLAIN)
def test_each_distribution_is_the_one_in_the_table(name):
    """By its formula, so that a change of torch's own defaults shows as well."""
    own = pooled(lambda seed: ours(name, seed))
    for parameter, bound in UNIFORM[name].items():
        values = own.pop(parameter)
        assert values.abs().max().item() == pytest.approx(bound, rel=20 / len(values)), parameter
        assert values.abs().max().item() <= bound * (1 + 1e-6), parameter
        assert stats.kstest(values.numpy(), stats.uniform(-bound, 2 * bound).cdf).pvalue > ALIKE, parameter
    for parameter, std in NORMAL[name].items():
        values = own.pop(parameter)
        assert stats.kstest(values.numpy(), stats.norm(0, std).cdf).pvalue > ALIKE, parameter
        assert values.std().item() == pytest.approx(std, rel=0.05), parameter
        assert values.abs().max().item() > 2.5 * std, parameter  # nothing is cut at two deviations
    assert {parameter for parameter, values in own.items() if values.eq(0).all()} == ZERO[name]
    assert all(values.eq(1).all() for parameter, values in own.items() if parameter not in ZERO[name])  # norms' weights
