"""Norm, its place, and the scale of branches: resmlp, vit_mini and causal_transformer against their equations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from fa_registry import architectures, methods
from fa_registry.architectures._block_form import OPTIONS, BlockForm
from fa_registry.architectures.base import stream_of
from fa_registry.conformance import contract_checks
from fa_registry.conformance.small_networks import CLASSES, Setting, batch, input_shape, supported_by
from fa_registry.conformance.suite import UNIVERSAL
from fa_registry.diagnostics import observe
from fa_registry.errors import InvalidFields
from fa_registry.records import RESIDUAL
from fa_registry.training.measuring import measure
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer
from tests.helpers.numpy_resmlp import EPS, Arrays, gelu, linear
from tests.helpers.tiny_tasks import RAW, supported, tiny_spec, tiny_task

ARCHITECTURES = ("resmlp", "vit_mini", "causal_transformer")
CHOSEN = {name: option.choices for name, option in OPTIONS.items() if option.choices}
FORMS = [dict(zip(CHOSEN, values, strict=True)) for values in product(*CHOSEN.values())]
POST = {"norm_place": "post"}
LEARNED = {"branch_scale": "learned"}
TOGETHER = {"norm": "rms", "norm_place": "post", "branch_scale": "depth"}
TOLERANCE = {"rtol": 1e-10, "atol": 1e-12}


def named(form: dict[str, str]) -> str:
    return "-".join(form.values())


def built(name: str, seed: int = 5, **options) -> nn.Module:
    """A small network in float64 whose norms and scales are not those of the start."""
    architecture = architectures.CATALOG.get(name)
    sizes = {"d_hidden": 8, "num_blocks": 2, "w2_std": 0.5}
    given = {key: value for key, value in {**sizes, **options}.items() if key in architecture.card.options}
    draw = torch.Generator().manual_seed(seed)
    network = architecture.build(architecture.resolve(given), input_shape(architecture), CLASSES, draw).double()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    return network


def inputs(name: str) -> torch.Tensor:
    return batch(3, 4, input_shape(architectures.CATALOG.get(name)))[0]


# the equations once more, in NumPy, for rows h (…, D) of the named block


def norm(w: Arrays, name: str, h: np.ndarray, kind: str) -> np.ndarray:
    if kind == "rms":  # Zhang & Sennrich 2019, equation 4
        return h / np.sqrt((h * h).mean(axis=-1, keepdims=True) + EPS) * w[f"{name}.weight"]
    centred = h - h.mean(axis=-1, keepdims=True)
    unit = centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + EPS)
    return unit * w[f"{name}.weight"] + w[f"{name}.bias"]


def factor(w: Arrays, block: str, scale: str, blocks: int) -> float:
    return {"one": 1.0, "depth": blocks**-0.5, "learned": float(w.get(f"{block}.scale", np.zeros(1))[0])}[scale]


def attention(w: Arrays, block: str, h: np.ndarray, heads: int, causal: bool) -> np.ndarray:
    q, k, v = np.split(linear_of(w[f"{block}.attn.in_proj_weight"], w[f"{block}.attn.in_proj_bias"], h), 3, axis=-1)
    mixed = []
    for one_q, one_k, one_v in zip(*(np.split(rows, heads, axis=-1) for rows in (q, k, v)), strict=True):
        scores = one_q @ one_k.swapaxes(-1, -2) / np.sqrt(one_q.shape[-1])
        if causal:
            scores = np.where(np.tril(np.ones(scores.shape[-2:])) > 0, scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed.append(shares / shares.sum(axis=-1, keepdims=True) @ one_v)
    return linear(w, f"{block}.attn.out_proj", np.concatenate(mixed, axis=-1))


def linear_of(weight: np.ndarray, bias: np.ndarray, h: np.ndarray) -> np.ndarray:
    return h @ weight.T + bias


def layers(w: Arrays, block: str, kind: str, h: np.ndarray) -> np.ndarray:
    """What a sublayer computes of its input: resmlp's layers, or attention or mlp of a transformer."""
    if kind == "resmlp":
        return linear(w, f"{block}.w2", gelu(linear(w, f"{block}.w1", h)))
    if kind == "mlp":
        return linear(w, f"{block}.mlp.3", gelu(linear(w, f"{block}.mlp.0", h)))
    return attention(w, block, h, heads=4, causal=kind == "causal attention")


def next_state(w: Arrays, block: str, h: np.ndarray, form: dict[str, str], name: str) -> np.ndarray:
    """h_l: h + s g(norm(h)) for each sublayer of a pre-norm block, norm(h + s g(h)) for each of a post-norm block."""
    sublayers = {
        "resmlp": {"ln": "resmlp"},
        "vit_mini": {"ln1": "attention", "ln2": "mlp"},
        "causal_transformer": {"ln1": "causal attention", "ln2": "mlp"},
    }[name]
    s = factor(w, block, form["branch_scale"], 2)
    for norm_name, kind in sublayers.items():
        if form["norm_place"] == "post":
            h = norm(w, f"{block}.{norm_name}", h + s * layers(w, block, kind, h), form["norm"])
        else:
            h = h + s * layers(w, block, kind, norm(w, f"{block}.{norm_name}", h, form["norm"]))
    return h


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("form", FORMS, ids=named)
def test_states_are_those_of_the_equations(name, form):
    network = built(name, **form)
    w = {key: value.detach().numpy() for key, value in network.state_dict().items()}
    logits, states = network(inputs(name), return_hidden=True)
    found = [state.detach().numpy() for state in states]
    for index, state in enumerate(found[:-1]):
        expected = next_state(w, f"blocks.{index}", state, form, name)
        np.testing.assert_allclose(found[index + 1], expected, **TOLERANCE)
    top = norm(w, "out_ln", found[-1][:, 0] if name == "vit_mini" else found[-1], form["norm"])
    np.testing.assert_allclose(logits.detach().numpy(), linear(w, "out_head", top), **TOLERANCE)


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("form", FORMS, ids=named)
def test_the_count_of_weights_is_that_of_the_network(name, form):
    architecture = architectures.CATALOG.get(name)
    for blocks in (0, 2):
        options = architecture.resolve({**form, "d_hidden": 8, "num_blocks": blocks})
        count = sum(weight.numel() for weight in built(name, **{**form, "num_blocks": blocks}).parameters())
        assert architecture.parameters(options, input_shape(architecture), CLASSES) == count


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_post_norm_block_names_its_stream_and_no_other_block_does(name):
    x = inputs(name)
    for form in FORMS:
        network = built(name, **form)
        names = {norm_name for *_, norm_name in network.site_calls()}
        assert names == ({"ln" if name == "resmlp" else "ln2"} if form["norm_place"] == "post" else {""})
        assert stream_of(network, x) == RESIDUAL


def test_growth_of_a_post_norm_block_is_that_before_its_norm():
    network, (x, y) = built("resmlp", **POST), batch(3, 4)
    observation = observe(network, x, y)
    w = {key: value.detach().numpy() for key, value in network.state_dict().items()}
    for index, (below, stream) in enumerate(zip(observation.hidden[:-1], observation.stream[1:], strict=True)):
        h = below.detach().numpy()
        np.testing.assert_allclose(stream.detach().numpy(), h + layers(w, f"blocks.{index}", "resmlp", h), **TOLERANCE)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_learned_scale_starts_at_zero_and_learns_from_the_blocks_credit(name):
    architecture = architectures.CATALOG.get(name)
    case = Setting(methods.CATALOG.get("dfa"), architecture, {"d_hidden": 8, "num_blocks": 3, **LEARNED}, 0).case()
    states, credits = case.inputs().hidden, case.credits(case.inputs())
    assert all(torch.equal(state, states[0]) for state in states)
    gradients = case.step()
    for index, block in enumerate(case.network.blocks):
        block.scale.data.fill_(1.0)
        with torch.no_grad():
            slope = (block(states[index]) * credits[index + 1]).sum() / len(case.labels)  # d f / d s at s = 0 is g
        if name == "resmlp":
            torch.testing.assert_close(gradients[f"blocks.{index}.scale"], slope.reshape(1), rtol=1e-10, atol=1e-15)
        own = {key: value for key, value in gradients.items() if key.startswith(f"blocks.{index}.")}
        assert own.pop(f"blocks.{index}.scale").any()
        assert not any(value.any() for value in own.values())


def setting(method: str, architecture: str, form: dict[str, str]) -> Setting:
    sizes = {"d_hidden": 16, "num_blocks": 3, **({"w2_std": 0.5} if architecture == "resmlp" else {})}
    return Setting(methods.CATALOG.get(method), architectures.CATALOG.get(architecture), {**sizes, **form}, 0)


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("form", [POST, LEARNED, TOGETHER], ids=named)
def test_with_the_gradient_as_credit_the_step_is_backpropagation(name, form):
    assert contract_checks.oracle_credit_is_bp(setting("dfa", name, form)).outcome == "pass"


@pytest.mark.parametrize("form", [POST, LEARNED, TOGETHER], ids=named)
@pytest.mark.parametrize("method", ["dfa", "weight_fa", "ep"])  # own credits, chained credits, own states
def test_methods_keep_the_contract(method, form):
    failed = [check.__name__ for check in UNIVERSAL if check(setting(method, "resmlp", form)).outcome == "fail"]
    assert failed == []


@pytest.mark.long
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("method", methods.CATALOG.names())
def test_every_method_keeps_the_contract(method, name):
    subject = methods.CATALOG.get(method)
    is_supported = subject.card.supports(name) and supported_by(subject, [name])
    for form in (POST, LEARNED, TOGETHER) if is_supported else ():
        failed = [check.__name__ for check in UNIVERSAL if check(setting(method, name, form)).outcome == "fail"]
        assert (form, failed) == (form, [])


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"residual": False, **POST, **LEARNED}, ["norm_place", "branch_scale"]),
        ({"norm": "batch"}, ["norm"]),
    ],
)
def test_forms_that_a_network_cannot_have(options, fields):
    with pytest.raises(InvalidFields) as caught:
        tiny_spec(architecture_options=options)
    assert [problem.steps[1] for problem in caught.value.problems] == fields


def test_a_method_refuses_an_option_that_its_card_does_not_support():
    options = {"architecture_options": {**RAW["architecture_options"], **POST}}
    with pytest.raises(InvalidFields) as caught:
        parse_spec({**RAW, "method": "forward_forward", **options})
    (problem,) = caught.value.problems
    assert "norm_place=post" in problem and parse_spec({**RAW, **options}).architecture_options["norm_place"] == "post"


def test_a_specification_omits_the_form_that_a_network_has_always_had():
    default = BlockForm()
    given = {"norm": default.norm, "norm_place": default.place, "branch_scale": default.scale}
    plain = tiny_spec()
    spec = tiny_spec(architecture_options={**RAW["architecture_options"], **given})
    assert spec == plain and not given.keys() & plain.architecture_options.keys()
    # recorded before the options existed
    assert plain.identity == "d289f2ffece354b10dd3651267283ed5252796557e88cf6f37faf9ae692ad2db"


DROPPED = {"dropout": 0.25}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_dropout_sets_a_share_of_a_branch_to_zero_and_keeps_its_mean(name):
    network, plain = (built(name, num_blocks=1, norm_place="post", **form) for form in (DROPPED, {}))
    assert network.state_dict().keys() == plain.state_dict().keys()
    layer = network.blocks[0].dropout
    layer.noise = torch.Generator().manual_seed(1)
    ones = torch.ones(400, 300)
    dropped = layer(ones)
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(4 / 3).item()}
    assert abs((dropped == 0).double().mean() - 0.25) < 0.01
    layer.noise = torch.Generator().manual_seed(1)
    assert torch.equal(layer(ones), dropped)  # the same generator, the same masks
    layer.noise = None
    h = network.embed(inputs(name))
    assert torch.equal(network.blocks[0](h), plain.blocks[0](h))  # measurements have no dropout


def test_a_block_multiplies_the_outputs_of_its_layers_by_the_mask():
    """f(h) = m g(h)/(1 − p) for resmlp; with p near 1, a transformer's block returns 0 almost everywhere."""
    network, plain = (built("resmlp", num_blocks=1, **form) for form in (DROPPED, {}))
    h = network.embed(inputs("resmlp"))
    block = network.blocks[0]
    block.dropout.noise = torch.Generator().manual_seed(1)
    mask = torch.rand(h.shape, generator=torch.Generator().manual_seed(1)) >= 0.25
    assert torch.allclose(block(h), plain.blocks[0](h) * mask / 0.75, rtol=1e-6)
    for name in ("vit_mini", "causal_transformer"):
        network = built(name, num_blocks=1, dropout=1 - 1e-9)
        network.blocks[0].dropout.noise = torch.Generator().manual_seed(1)
        assert not network.blocks[0](network.embed(inputs(name))).any()


def test_a_training_with_dropout_is_repeated_by_its_seed_and_measured_without_it():
    def trained(seed_of_torch: int, **options):
        torch.manual_seed(seed_of_torch)
        setup = tiny_task(architecture_options={"d_hidden": 16, "num_blocks": 2, **options}, epochs=1)
        trainer = Trainer(setup)
        trainer.run_epoch()
        return torch.cat([weight.flatten() for weight in setup.network.parameters()]), measure(setup)

    (first, measured), (second, again) = trained(1, **DROPPED), trained(2, **DROPPED)
    assert torch.equal(first, second) and measured == again
    assert not torch.equal(first, trained(1)[0])


@pytest.mark.parametrize("method", methods.CATALOG.names())
def test_every_method_trains_with_dropout(method):
    options = {"d_hidden": 16, "num_blocks": 2, **DROPPED}
    given = {**supported(method), "epochs": 1}
    if given.get("architecture") == "mlp":
        pytest.skip("this method has no network with branches")
    setup = tiny_task(**given, architecture_options=options)
    losses = Trainer(setup).run_epoch()
    assert losses["loss_train"].value is not None


@pytest.mark.parametrize("share", [-0.1, 1.0, 2, "half", True])
def test_a_share_outside_zero_to_one_is_refused(share):
    with pytest.raises(InvalidFields, match="dropout"):
        parse_spec({**RAW, "architecture": "resmlp", "architecture_options": {"dropout": share}})
