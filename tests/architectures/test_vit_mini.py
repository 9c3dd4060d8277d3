"""vit_mini: names, shapes, the block's equation, where a row of credit goes, and what cannot be built."""

from __future__ import annotations

import pytest
import torch

from fa_registry.architectures.vit_mini import PLUGIN, class_token
from fa_registry.errors import InvalidFields
from fa_registry.token_axes import sum_over_positions
from tests.architectures.drawing import (
    CLASSES,
    assert_drawn_from_its_generator_alone,
    assert_shallow,
    build,
    normal,
    shapes,
)
from tests.helpers.tiny_tasks import tiny_spec

SHAPE = (3, 8, 12)
SMALL = {"d_hidden": 16, "num_blocks": 2}


def test_names_and_shapes():
    block = {
        **{f"{ln}.{kind}": (16,) for ln in ("ln1", "ln2") for kind in ("weight", "bias")},
        **{"attn.in_proj_weight": (48, 16), "attn.in_proj_bias": (48,)},
        **{"attn.out_proj.weight": (16, 16), "attn.out_proj.bias": (16,)},
        **{"mlp.0.weight": (64, 16), "mlp.0.bias": (64,), "mlp.3.weight": (16, 64), "mlp.3.bias": (16,)},
    }
    expected = {
        **{"cls_token": (1, 1, 16), "pos_embed": (1, 7, 16)},
        **{"patch_embed.weight": (16, 3, 4, 4), "patch_embed.bias": (16,)},
        **{f"blocks.{index}.{name}": shape for index in range(2) for name, shape in block.items()},
        **{"out_ln.weight": (16,), "out_ln.bias": (16,), "out_head.weight": (CLASSES, 16), "out_head.bias": (CLASSES,)},
    }
    assert shapes(build(PLUGIN, SHAPE, **SMALL)) == expected


def test_the_default_is_the_papers():
    network = build(PLUGIN, (3, 32, 32))
    _, hidden = network(torch.zeros(2, 3, 32, 32), return_hidden=True)
    assert [tuple(state.shape) for state in hidden] == [(2, 65, 128)] * 5
    assert network.blocks[0].attn.heads == 4 and tuple(network.blocks[0].mlp[0].weight.shape) == (512, 128)


def test_no_blocks_is_embedding_and_readout():
    assert_shallow(PLUGIN, SHAPE, {"patch_embed", "cls_token", "pos_embed", "out_ln", "out_head"}, d_hidden=16)


def test_initialisation_neither_reads_nor_moves_the_global_generator():
    assert_drawn_from_its_generator_alone(PLUGIN, SHAPE, **SMALL)


def test_the_shallow_control_starts_with_the_same_embedding():
    deep, shallow = (build(PLUGIN, SHAPE, num_blocks=count, d_hidden=16) for count in (2, 0))
    assert torch.equal(deep.embed(torch.ones(1, *SHAPE)), shallow.embed(torch.ones(1, *SHAPE)))


def test_a_token_is_its_patch_row_by_row_behind_the_class_token():
    network = build(PLUGIN, SHAPE, **SMALL).double()
    x = normal(2, *SHAPE)
    tokens = network.embed(x) - network.pos_embed
    assert torch.allclose(tokens[:, 0], network.cls_token[0, 0].expand(2, -1), rtol=0, atol=1e-14)
    for row in range(2):
        for column in range(3):
            piece = x[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4].flatten(1)  # (N, C · patch²)
            expected = piece @ network.patch_embed.weight.flatten(1).T + network.patch_embed.bias
            torch.testing.assert_close(tokens[:, 1 + 3 * row + column], expected, rtol=1e-12, atol=1e-12)


def layer_norm(h: torch.Tensor, ln: torch.nn.LayerNorm) -> torch.Tensor:
    centred = h - h.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * ln.weight + ln.bias


def attention(h: torch.Tensor, attn: torch.nn.Module, heads: int) -> torch.Tensor:
    """softmax(q kᵀ/√(D/heads)) v, head by head and side by side."""
    width = h.shape[-1] // heads
    q, k, v = (h @ attn.in_proj_weight.T + attn.in_proj_bias).split(h.shape[-1], dim=-1)
    mixed = []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores = q[..., part] @ k[..., part].transpose(1, 2) / width**0.5  # (N, T, T)
        mixed.append(scores.softmax(dim=-1) @ v[..., part])
    return torch.cat(mixed, dim=-1) @ attn.out_proj.weight.T + attn.out_proj.bias


@pytest.mark.parametrize("heads", [1, 4])
def test_the_block_is_the_equation(heads):
    block = build(PLUGIN, SHAPE, heads=heads, **SMALL).double().blocks[1]
    with torch.no_grad():
        for seed, ln in enumerate((block.ln1, block.ln2)):
            ln.weight.add_(normal(16, seed=seed))
            ln.bias.add_(normal(16, seed=seed + 2))
    h = normal(2, 7, 16)
    a = attention(layer_norm(h, block.ln1), block.attn, heads)
    u = layer_norm(h + a, block.ln2) @ block.mlp[0].weight.T + block.mlp[0].bias
    m = (u * 0.5 * (1 + torch.erf(u / 2**0.5))) @ block.mlp[3].weight.T + block.mlp[3].bias
    torch.testing.assert_close(block(h), a + m, rtol=1e-12, atol=1e-12)


def test_the_readout_reads_the_class_token_alone():
    network, tokens = build(PLUGIN, SHAPE, **SMALL).double(), normal(2, 7, 16)
    moved = tokens.clone()
    moved[:, 1:] += 1
    assert torch.equal(network.readout(tokens), network.readout(moved))
    assert torch.equal(network.pool(tokens), class_token(tokens)) and torch.equal(class_token(tokens), tokens[:, 0])


def test_a_row_of_credit_goes_to_all_tokens_alike_or_to_the_class_token():
    state, row = normal(2, 7, 16), normal(2, 16, seed=3)
    everywhere, at_class = (
        build(PLUGIN, SHAPE, broadcast=where, **SMALL).spread(row, state) for where in ("all", "class")
    )
    torch.testing.assert_close(everywhere, (row / 7)[:, None].expand(2, 7, 16), rtol=1e-12, atol=0)
    assert torch.equal(at_class[:, 0], row) and at_class[:, 1:].eq(0).all()
    assert at_class.shape == state.shape
    torch.testing.assert_close(sum_over_positions(at_class), sum_over_positions(everywhere), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("broadcast", ["all", "class"])
def test_a_credit_with_tokens_enters_as_it_is(broadcast):
    credit = normal(2, 7, 16)
    assert build(PLUGIN, SHAPE, broadcast=broadcast, **SMALL).spread(credit, normal(2, 7, 16, seed=2)) is credit


def test_all_that_does_not_fit_is_named_at_once():
    options = PLUGIN.resolve({"d_hidden": 16, "heads": 3, "patch": 4})
    problems = PLUGIN.check(options, (3, 10, 12))
    assert [one.steps for one in problems] == [("patch",), ("heads",)] and "10×12" in problems[0]


@pytest.mark.parametrize("patch", [3, 5, 16])
def test_a_patch_that_does_not_tile_the_image_is_refused(patch):
    """Before any run is made, for every caller that asks for a specification."""
    expected = f"architecture_options.patch: expected a divisor of the image size 8×8, found {patch}"
    with pytest.raises(InvalidFields, match=expected):
        tiny_spec(architecture="vit_mini", dataset="digits_centred", architecture_options={"patch": patch})
