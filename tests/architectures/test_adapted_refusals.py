"""adapt: what it refuses, wherever the mistake is, and what it says then."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fa_registry.architectures import adapt
from fa_registry.diagnostics import observe
from fa_registry.errors import UsageError
from tests.architectures.adapted_models import Branch, batch, build


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("readout", ["norm", ""])
@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_the_wrong_declaration_is_caught_at_every_depth(skip, readout, depth):
    """Without `readout` it is out_head that receives h_L here."""
    wrong = {"outside": "inside", "inside": "outside"}[skip]
    x, _ = batch(5, 4)
    model = build(skip, depth, norm=bool(readout))
    adapt(model, skip=skip, readout=readout)(x, return_hidden=True)
    with pytest.raises(UsageError, match=f"{wrong}.* was declared.*declare skip='{skip}'"):
        adapt(model, skip=wrong, readout=readout)(x, return_hidden=True)


def test_an_exploded_branch_does_not_hide_the_skip():
    """h is lost beside f in float32; the float64 pass of the measurement still tells them apart."""
    model = build("outside", 2)
    for block in model.blocks:
        block.branch = lambda x, block=block: 1e9 * block.linear(x)
    x, y = batch(5, 4)
    model, x = model.float(), x.float()
    observe(adapt(model, readout="norm"), x, y)
    with pytest.raises(UsageError, match="declare skip='outside'"):
        observe(adapt(model, skip="inside", readout="norm"), x, y)


def add_into_stream(block: nn.Module, h: Tensor) -> Tensor:
    h += block(h)
    return h


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_stream_added_to_in_place_is_refused(depth):
    model = adapt(build("outside", depth, step=add_into_stream), readout="norm")
    with pytest.raises(UsageError, match=r"blocks\.0 was changed in place.*write h = h \+ block\(h\)"):
        model(batch(5, 4)[0], return_hidden=True)


class Overwriting(Branch):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x.mul_(2.0)))


@pytest.mark.parametrize("site", [0, 1])
def test_a_branch_that_overwrites_the_skip_beside_it_is_refused(site):
    """The clone it is handed would save the stream that the model itself loses."""
    model = build("outside", 2)
    model.blocks[site] = Overwriting().double()
    with pytest.raises(UsageError, match=rf"blocks\.{site} changes its input in place"):
        adapt(model, readout="norm")(batch(5, 4)[0], return_hidden=True)


@pytest.mark.parametrize("step", [lambda block, h: h + 2 * block(h), lambda block, h: block(h) * h])
@pytest.mark.parametrize("depth", [1, 3])
def test_what_neither_skip_explains_suggests_neither(step, depth):
    for skip in ("outside", "inside"):
        with pytest.raises(UsageError, match="not one stream") as caught:
            adapt(build("outside", depth, step=step), skip=skip, readout="norm")(batch(5, 4)[0], return_hidden=True)
        assert "declare skip" not in str(caught.value)


def test_a_change_after_the_last_block_is_seen_at_the_readout():
    model = build("inside", 2, norm=False, finish=lambda h: 3 * h)
    with pytest.raises(UsageError, match="what enters out_head is not h_2"):
        adapt(model, skip="inside")(batch(5, 4)[0], return_hidden=True)


def test_one_site_without_a_witness_asks_for_the_readout():
    model = build("inside", 1)
    model.head, model.out_head = model.out_head, None
    model.forward = lambda x: model.head(model.norm(model.blocks[0](model.embed(x))))
    model.eval()
    x, _ = batch(5, 4)
    with pytest.raises(UsageError, match="expected `readout` to name"):
        adapt(model, skip="inside")(x, return_hidden=True)
    assert torch.equal(adapt(model, skip="inside", readout="norm")(x, return_hidden=True)[0], model(x))


def test_out_ln_comes_before_out_head_as_readout_unless_it_is_none():
    model = build("inside", 1)
    assert adapt(model).readout == "out_head"
    model.out_ln = None
    assert adapt(model).readout == "out_head"
    model.out_ln = nn.Identity()
    assert adapt(model).readout == "out_ln"


@pytest.mark.parametrize("runs", [0, 2])
def test_a_site_that_does_not_run_once_is_named(runs):
    model = build("inside", 2)

    def step(block: nn.Module, h: Tensor) -> Tensor:
        for _ in range(runs if block is model.blocks[1] else 1):
            h = block(h)
        return h

    model.step = step
    with pytest.raises(UsageError, match=rf"blocks\.1: expected one run in a forward pass, found {runs}"):
        adapt(model, skip="inside", readout="norm")(batch(5, 4)[0], return_hidden=True)


class Odd(nn.Module):
    def forward(self, h: Tensor) -> tuple[Tensor, None]:
        return h, None


def test_tuple_outputs_and_keyword_inputs_are_named():
    x, _ = batch(5, 4)
    model = build("inside", 2, step=lambda block, h: block(x=h))
    with pytest.raises(UsageError, match=r"blocks\.0: .*positional input, found only keywords \(x\)"):
        adapt(model, skip="inside", readout="norm")(x, return_hidden=True)
    model = build("inside", 2, step=lambda block, h: block(h)[0] if isinstance(block, Odd) else block(h))
    model.blocks[1] = Odd()
    with pytest.raises(UsageError, match=r"blocks\.1: expected a tensor as output, found tuple"):
        adapt(model, skip="inside", readout="norm")(x, return_hidden=True)


def test_no_hook_stays_behind_even_after_an_error():
    model = build("outside", 2)
    x, _ = batch(5, 4)
    adapt(model, readout="norm")(x, return_hidden=True)
    with pytest.raises(UsageError):
        adapt(model, skip="inside", readout="norm")(x, return_hidden=True)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sites": ["blocks.7"]}, "found blocks.7; known: embed"),
        ({"readout": "nowhere"}, "found nowhere; known: embed"),
        ({"sites": ["blocks.0", "blocks.0"]}, "every site once"),
        ({"skip": "beside"}, "expected one of outside, inside, found 'beside'"),
    ],
    ids=str,
)
def test_names_that_do_not_exist_are_refused_at_once(options, words):
    with pytest.raises(UsageError, match=words):
        adapt(build("outside", 2), **options)
