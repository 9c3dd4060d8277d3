"""adapt: states and gradients at every site equal autograd through an untouched copy."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from torch import Tensor, nn

import fa_registry
from fa_registry.architectures import adapt
from fa_registry.diagnostics import observe, run_forward_backward
from fa_registry.errors import InvalidFields, UsageError
from tests.architectures.adapted_models import SEED, STEPS, WIDTH, Branch, Model, batch, build, plain_passes
from tests.architectures.drawing import CLASSES, normal
from tests.architectures.plain_models import DEPTH, PLAIN, SHAPE, autograd_figures, pair
from tests.helpers.nets import hooks_of


def assert_figures(model: Model, skip: str, x: Tensor, y: Tensor, readout: str = "norm") -> None:
    seen = observe(adapt(model, skip=skip, readout=readout), x, y, double=False)
    states, gradients = plain_passes(model, x, y)
    for site in range(len(model.blocks) + 1):
        for found, expected in ((seen.hidden, states), (seen.gradients, gradients)):
            torch.testing.assert_close(
                found[site], expected[site].detach(), rtol=1e-12, atol=1e-12, msg=lambda text, at=site: f"{at}: {text}"
            )


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_states_and_gradients_are_those_of_an_untouched_copy(skip, depth):
    assert_figures(build(skip, depth), skip, *batch(5, 4))


@pytest.mark.parametrize("depth", [1, 3])
def test_blocks_that_write_into_their_input_give_exact_figures(depth):
    assert_figures(build("inside", depth, in_place=True), "inside", *batch(5, 4))


def add_into_branch(block: nn.Module, h: Tensor) -> Tensor:
    out = block(h)
    out += h
    return out


@pytest.mark.parametrize("depth", [1, 3])
def test_a_skip_added_into_the_branch_gives_exact_figures(depth):
    assert_figures(build("outside", depth, step=add_into_branch), "outside", *batch(5, 4))


@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_an_activation_in_place_after_the_last_state_changes_no_figure(skip):
    model = build(skip, 2)
    model.norm = nn.ReLU(inplace=True)
    x, y = batch(5, 4)
    seen = observe(adapt(model, skip=skip, readout="norm"), x, y, double=False)
    model.norm = nn.ReLU()
    states, gradients = plain_passes(model, x, y)
    assert (states[-1] < 0).any()
    for site in range(3):
        torch.testing.assert_close(seen.hidden[site], states[site].detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(seen.gradients[site], gradients[site], rtol=1e-12, atol=1e-12)


def overwrite_after_use(block: nn.Module, h: Tensor) -> Tensor:
    out = block(h)
    h.zero_()
    return out


def test_a_stream_overwritten_behind_the_block_gives_exact_figures():
    assert_figures(build("inside", 2, step=overwrite_after_use), "inside", *batch(5, 4))


@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_a_model_that_writes_into_its_input_leaves_the_batch_alone(skip):
    """Without a copy torch would refuse: the input requires grad, and such a leaf cannot be written into."""
    model = build(skip, 2)
    model.embed = nn.ReLU(inplace=True)
    x, y = batch(5, WIDTH)
    before = x.clone()
    seen = observe(adapt(model, skip=skip, readout="norm"), x, y, double=False)
    assert torch.equal(x, before)
    assert torch.equal(seen.hidden[0], before.relu())


@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_dropout_and_batch_norm_keep_their_modes_and_statistics(skip):
    model = build(skip, 2)
    model.norm = nn.BatchNorm1d(WIDTH).double()
    model.train()
    model.blocks[0].drop.eval()
    modes = [module.training for module in model.modules()]
    x, y = batch(5, 4)
    wrapped = adapt(model, skip=skip, readout="norm")
    first, second = (observe(wrapped, x, y, double=False) for _ in range(2))
    assert torch.equal(first.gradients[0], second.gradients[0])
    assert [module.training for module in model.modules()] == modes
    assert model.norm.running_mean.eq(0).all()
    assert_figures(model, skip, x, y)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("readout", ["norm", "out_head"])
@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_token_states_are_seen_at_the_class_token(skip, readout, depth):
    model = build(skip, depth, norm=readout == "norm", finish=lambda tokens: tokens[:, 0])
    x, y = batch(5, 7, 4)
    seen = observe(adapt(model, skip=skip, readout=readout), x, y, double=False)
    states, gradients = plain_passes(model, x, y)
    for site in range(depth + 1):
        torch.testing.assert_close(seen.hidden[site], states[site][:, 0].detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(seen.gradients[site], gradients[site][:, 0], rtol=1e-12, atol=1e-12)


class Convolution(Branch):
    def __init__(self, add: bool):
        super().__init__(add)
        self.linear = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_map_states_are_seen_as_their_mean(skip, depth):
    torch.manual_seed(SEED)
    blocks = [Convolution(skip == "inside") for _ in range(depth)]
    model = Model(blocks, STEPS[skip], norm=False, finish=lambda maps: maps.mean(dim=(2, 3)))
    model.embed = nn.Conv2d(2, WIDTH, 1)
    x, y = batch(5, 2, 4, 3)
    seen = observe(adapt(model.double(), skip=skip), x, y, double=False)
    states, gradients = plain_passes(model, x, y)
    for site in range(depth + 1):
        torch.testing.assert_close(seen.hidden[site], states[site].mean((2, 3)).detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(seen.gradients[site], gradients[site].sum((2, 3)), rtol=1e-12, atol=1e-12)
    with pytest.raises(UsageError, match="declare skip"):
        adapt(model, skip={"outside": "inside", "inside": "outside"}[skip])(x, return_hidden=True)


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
    """h is lost next to f in float32; the float64 pass of the measurement still distinguishes them."""
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
def test_a_branch_that_overwrites_the_skip_next_to_it_is_refused(site):
    """The clone it is handed would save the stream that the model itself loses."""
    model = build("outside", 2)
    model.blocks[site] = Overwriting().double()
    with pytest.raises(UsageError, match=rf"blocks\.{site} changes its input in place"):
        adapt(model, readout="norm")(batch(5, 4)[0], return_hidden=True)


@pytest.mark.parametrize("step", [lambda block, h: h + 2 * block(h), lambda block, h: block(h) * h])
@pytest.mark.parametrize("depth", [1, 3])
def test_what_neither_skip_explains_suggests_neither(step, depth):
    for skip in ("outside", "inside"):
        with pytest.raises(UsageError, match="neither skip='outside' nor skip='inside' fits") as caught:
            adapt(build("outside", depth, step=step), skip=skip, readout="norm")(batch(5, 4)[0], return_hidden=True)
        assert "declare skip" not in str(caught.value)


def test_a_change_after_the_last_block_is_seen_at_the_readout():
    model = build("inside", 2, norm=False, finish=lambda h: 3 * h)
    with pytest.raises(UsageError, match="the input of out_head differs from the h_2"):
        adapt(model, skip="inside")(batch(5, 4)[0], return_hidden=True)


def test_one_site_without_a_witness_asks_for_the_readout():
    model = build("inside", 1)
    model.head, model.out_head = model.out_head, None
    model.forward = lambda x: model.head(model.norm(model.blocks[0](model.embed(x))))
    model.eval()
    x, _ = batch(5, 4)
    for readout in ("norm", ""):  # by default, the module that runs after the last site
        assert torch.equal(adapt(model, skip="inside", readout=readout)(x, return_hidden=True)[0], model(x))
    model.forward = lambda x: nn.functional.linear(model.blocks[0](model.embed(x)), model.head.weight)
    with pytest.raises(UsageError, match="expected `readout` to name the module that receives h_1"):
        adapt(model, skip="inside")(x, return_hidden=True)


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
    with pytest.raises(UsageError, match=rf"blocks\.1: expected one call in a forward pass, found {runs}"):
        adapt(model, skip="inside", readout="norm")(batch(5, 4)[0], return_hidden=True)


class Odd(nn.Module):
    def forward(self, h: Tensor) -> tuple[Tensor, None]:
        return h, None


@pytest.mark.parametrize("skip", ["outside", "inside"])
def test_a_block_that_is_called_by_keywords_gives_exact_figures(skip):
    x, y = batch(5, 4)
    steps = {"outside": lambda block, h: h + block(x=h), "inside": lambda block, h: block(x=h)}
    assert_figures(build(skip, 2, step=steps[skip]), skip, x, y)


def test_tuple_outputs_and_inputs_without_a_state_are_named():
    x, _ = batch(5, 4)
    model = build("inside", 2, step=lambda block, h: block(h.long()))
    with pytest.raises(
        UsageError, match=r"blocks\.0: expected a floating-point tensor among the inputs, found torch\.int64"
    ):
        adapt(model, skip="inside", readout="norm")(x, return_hidden=True)
    model = build("inside", 2, step=lambda block, h: block(h)[0] if isinstance(block, Odd) else block(h))
    model.blocks[1] = Odd()
    with pytest.raises(
        UsageError,
        match=r"blocks\.1: expected a tensor as output, found a tuple of Tensor, NoneType; .* state=lambda out: out\[0\]",
    ):
        adapt(model, skip="inside", readout="norm")(x, return_hidden=True)


class Answer(dict):
    """As transformers' outputs: fields by name and as attributes."""

    __getattr__ = dict.__getitem__


class Spoken(nn.Module):
    """A model that takes keywords, whose blocks return more than their state, and that answers with `.logits`."""

    def __init__(self, inner: nn.Module, returns):
        super().__init__()
        self.inner, self.returns = inner, returns
        self.blocks = nn.ModuleList(Returning(block, returns) for block in inner.blocks)

    def forward(self, values: Tensor, labels: None = None) -> Answer:
        h = self.inner.embed(values)
        for block in self.blocks:
            out = block(h)
            h = out["state"] if isinstance(out, dict) else out[0]
        return Answer(loss=None, logits=self.inner.out_head(self.inner.norm(h)))


class Returning(nn.Module):
    def __init__(self, block: nn.Module, returns):
        super().__init__()
        self.block, self.returns = block, returns

    def forward(self, h: Tensor):
        return self.returns(self.block(h))


Pair = namedtuple("Pair", ["state", "weights"])


@pytest.mark.parametrize(
    ("returns", "state"),
    [
        (lambda h: (h, None), lambda out: out[0]),
        (lambda h: Pair(h, None), lambda out: out.state),
        (lambda h: Answer(other=h * 2, state=h), lambda out: out["state"]),
    ],
    ids=["tuple", "named tuple", "mapping"],
)
def test_a_model_that_speaks_otherwise_shows_the_same(returns, state):
    """The very figures of the plain model inside, gradients included."""
    x, y = batch(5, 4)
    plain = build("inside", 2)
    spoken = Spoken(plain, returns)
    reads = {"inputs": lambda x: {"values": x}, "output": lambda out: out.logits, "state": state}
    ours = run_forward_backward(adapt(plain, skip="inside", readout="norm"), x, y)
    other = run_forward_backward(adapt(spoken, skip="inside", readout="inner.norm", **reads), x, y)
    for left, right in zip(
        other.single.gradients + other.single.hidden, ours.single.gradients + ours.single.hidden, strict=True
    ):
        assert torch.equal(left, right)


def test_what_a_model_needs_is_suggested():
    x, y = batch(5, 4)
    spoken = adapt(Spoken(build("inside", 2), lambda h: (h, None)), skip="inside", readout="inner.norm")
    with pytest.raises(UsageError, match=r"inputs=lambda x|output=lambda out: out\.logits|state=lambda out: out\[0\]"):
        fa_registry.FAProtocol(spoken, x, y)


def test_all_that_is_wrong_with_a_call_is_named_at_once():
    with pytest.raises(InvalidFields) as refused:
        adapt(build("outside", 2), sites=["nowhere"], skip="outer", readout="missing", output="logits")
    assert [problem.split(":")[0] for problem in refused.value.problems] == ["sites", "skip", "readout", "output"]


def test_no_hook_stays_behind_even_after_an_error():
    model = build("outside", 2)
    x, _ = batch(5, 4)
    adapt(model, readout="norm")(x, return_hidden=True)
    with pytest.raises(UsageError):
        adapt(model, skip="inside", readout="norm")(x, return_hidden=True)
    assert not any(hooks_of(model))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sites": ["blocks.7"]}, r'found blocks.7; pass sites=\["blocks.0", "blocks.1"\]'),
        ({"readout": "nowhere"}, "unknown module 'nowhere'.*known: blocks"),
        ({"sites": ["blocks.0", "blocks.0"]}, "each site only once"),
        ({"skip": "beside"}, "expected one of outside, inside, none, found 'beside'"),
    ],
    ids=str,
)
def test_names_that_do_not_exist_are_refused_at_once(options, text):
    with pytest.raises(UsageError, match=text):
        adapt(build("outside", 2), **options)


SAMPLES = 6
LABELS = torch.arange(SAMPLES) % CLASSES
INSIDE = ("small_resnet", "vit_mini")


def images() -> torch.Tensor:
    return normal(SAMPLES, *SHAPE)


def agree(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-10, atol=1e-10 * expected.abs().max().item())


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("looked_at", ["ours", "adapted"])
def test_logits_states_and_gradients_are_autograds(name, looked_at):
    both = pair(name)
    network = both.ours if looked_at == "ours" else adapt(both.plain, skip=both.plain.skip)
    seen = run_forward_backward(network, images(), LABELS, double=False).single
    logits, states, gradients = autograd_figures(both.plain, images(), LABELS)
    assert agree(both.plain(images()), logits)  # run block by block it is still the untouched model
    assert agree(seen.logits, logits)
    assert len(seen.hidden) == len(states) == DEPTH + 1
    for site in range(DEPTH + 1):
        assert agree(seen.hidden[site], states[site]), f"state {site}"
        assert agree(seen.gradients[site], gradients[site]), f"gradient {site}"


@pytest.mark.parametrize("name", INSIDE)
def test_the_published_heuristic_measures_another_network(name):
    """It always answers "no internal skip" and adds h to a block's output, which has it already: other states, other gradients."""
    plain = pair(name).plain
    _, states, true = autograd_figures(plain, images(), LABELS)
    _, twice, wrong = autograd_figures(plain, images(), LABELS, skip="outside")
    assert agree(twice[0], states[0]) and not agree(twice[1], states[1])
    for site in range(DEPTH + 1):
        assert (wrong[site] - true[site]).norm() > 0.2 * true[site].norm(), f"gradient {site}"


@pytest.mark.parametrize("name", INSIDE)
def test_a_skip_inside_that_is_declared_outside_is_refused(name):
    with pytest.raises(UsageError, match="declare skip='inside'"):
        run_forward_backward(adapt(pair(name).plain, skip="outside"), images(), LABELS, double=False)


def test_a_skip_outside_that_is_declared_inside_is_refused():
    with pytest.raises(UsageError, match="declare skip='outside'"):
        run_forward_backward(adapt(pair("resmlp").plain, skip="inside"), images(), LABELS, double=False)


def test_a_function_between_the_last_block_and_an_undeclared_readout_is_no_misfit():
    model = build("outside", 2)
    model.head, model.out_head = model.out_head, None
    model.eval()

    def last(x):
        h = model.embed(x)
        for block in model.blocks:
            h = h + block(h)
        return h

    x, _ = batch(5, 4)
    model.forward = lambda x: model.head(model.norm(nn.functional.relu(last(x))))
    logits, hidden, *_ = adapt(model, ["blocks.0", "blocks.1"], skip="outside")(x, return_hidden=True)
    assert torch.equal(hidden[-1], last(x)) and torch.equal(logits, model(x))
    with pytest.raises(UsageError, match="the input of norm differs from the h_2"):
        adapt(model, ["blocks.0", "blocks.1"], skip="outside", readout="norm")(x, return_hidden=True)


def test_a_wrong_skip_of_the_last_block_is_seen_at_an_undeclared_readout():
    model = build("inside", 2)
    model.head, model.out_head = model.out_head, None
    model.eval()

    def forward(x):
        h = model.blocks[0](model.embed(x))
        return model.head(
            model.norm(h + model.blocks[1](h))
        )  # the first block adds its input, the model that of the last block

    model.forward = forward
    x, _ = batch(5, 4)
    with pytest.raises(UsageError, match="the input of norm differs from the h_2"):
        adapt(model, ["blocks.0", "blocks.1"], skip="inside")(x, return_hidden=True)


def test_one_block_before_a_function_and_an_undeclared_readout_cannot_be_checked():
    model = build("inside", 1)
    model.head, model.out_head = model.out_head, None
    model.eval()
    model.forward = lambda x: model.head(model.norm(nn.functional.relu(model.blocks[0](model.embed(x)))))
    x, _ = batch(5, 4)
    with pytest.raises(UsageError, match="the input of norm differs from the h_1 of this skip; neither"):
        adapt(model, skip="inside")(x, return_hidden=True)
