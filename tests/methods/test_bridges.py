"""What the two bridges share: the embedding of time, and the units a value net reads a state in."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fa_registry import architectures, methods
from fa_registry.conformance.small_networks import NetworkCase, Setting
from fa_registry.methods._bridge import ValueNet, all_sites, by_site, embedded, site_rows, site_scales
from fa_registry.methods.base import NetworkShape
from fa_registry.methods.state_bridge import PLUGIN
from fa_registry.tasks import sample_losses
from fa_registry.token_axes import features, mean_over_positions, sum_over_positions
from fa_registry.training.method_calls import compute_credits
from tests.helpers import numpy_checks
from tests.helpers.bridges import seen, slopes
from tests.helpers.nets import TINY
from tests.helpers.numpy_mlp import pulled_back, rows, value
from tests.helpers.numpy_resmlp import Arrays, forward, head_back, layer_norm, linear, local_gradients
from tests.helpers.tiny_tasks import trained


def test_time_is_embedded_at_two_frequencies():
    zero, one = embedded(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist()
    assert zero == [0.0, 0.0, 1.0, 1.0]
    assert one == pytest.approx([math.sin(1), math.sin(0.01), math.cos(1), math.cos(0.01)], rel=1e-12)


class Echo(torch.nn.Module):
    def forward(self, states, times, conditioning):
        return states[:, :1]


@pytest.mark.parametrize("blocks", range(1, 14))
def test_every_time_finds_the_scale_of_its_site(blocks):
    """l/L and (l−1)/L + 1/L round differently in float32, and neither may fall to the site below."""
    net = ValueNet(NetworkShape((4,) * (blocks + 1), 3), "error", 1.0, 3, torch.Generator().manual_seed(0))
    net.net, net.scales = Echo(), torch.arange(1.0, blocks + 2)
    times, conditioning = torch.linspace(0, 1, blocks + 1), torch.zeros(blocks + 1, 3)
    assert torch.equal(net(torch.ones(blocks + 1, 4), times, conditioning), 1 / net.scales)
    assert torch.equal(net(torch.ones(blocks, 4), times[:-1] + 1 / blocks, conditioning[:-1]), 1 / net.scales[1:])


BRIDGES = ("state_bridge", "credit_bridge")
WIDTHS = {"vit_mini": [8] * 3, "small_resnet": [4] * 3, "small_cnn": [2, 4, 8, 16], "mlp": [192, 8, 8]}


def case_of(bridge: str, architecture: str) -> NetworkCase:
    """Past the warm-up, where there is one."""
    case = Setting(methods.CATALOG.get(bridge), architectures.CATALOG.get(architecture), TINY[architecture], 0).case()
    if bridge == "credit_bridge":
        case.feedback.progress.fill_(1.0)
    return case


def asked(case: NetworkCase) -> list[Tensor]:
    """The method's own credits, before they are spread."""
    return compute_credits(case.method, case.feedback, case.inputs())


@pytest.mark.parametrize("architecture", WIDTHS)
@pytest.mark.parametrize("bridge", BRIDGES)
def test_a_credit_is_one_row_a_sample_as_wide_as_its_site(bridge, architecture):
    case = case_of(bridge, architecture)
    credits, count = asked(case), len(case.labels)
    assert [tuple(credit.shape) for credit in credits] == [(count, width) for width in WIDTHS[architecture]]
    assert all(credit.abs().max() > 0 for credit in credits)


def test_states_enter_by_their_average_padded_to_the_widest():
    case = case_of("state_bridge", "small_cnn")
    inputs = case.inputs()
    for row, state in zip(site_rows(inputs), inputs.hidden, strict=True):
        assert row.shape == (len(case.labels), 16)
        assert (
            torch.equal(row[:, : features(state)], mean_over_positions(state)) and row[:, features(state) :].eq(0).all()
        )
    rows = all_sites(inputs, inputs.error)[0]
    for row, state in zip(by_site(rows, inputs), inputs.hidden, strict=True):
        assert torch.equal(row, mean_over_positions(state))


def first_layer(case: NetworkCase, bridge: str) -> nn.Linear:
    net = case.feedback if bridge == "state_bridge" else case.feedback.value.net
    return next(layer for layer in net.modules() if isinstance(layer, nn.Linear))


@pytest.mark.parametrize("bridge", BRIDGES)
def test_what_is_padded_does_not_leak(bridge):
    """Other weights on columns that only wider sites fill leave a narrow site's credit bit-equal."""
    case = case_of(bridge, "small_cnn")
    before = asked(case)
    with torch.no_grad():
        first_layer(case, bridge).weight[:, 4:16] += 1
    after = asked(case)
    assert [torch.equal(*pair) for pair in zip(before, after, strict=True)] == [True, True, False, False]


@pytest.mark.parametrize("bridge", BRIDGES)
def test_a_wider_padding_gives_the_same_credit(bridge):
    """A net with 5 more columns, with any values, called with 5 more zeros."""
    case = case_of(bridge, "small_cnn")
    net = case.feedback if bridge == "state_bridge" else case.feedback.value.net
    inputs, layer = case.inputs(), first_layer(case, bridge)
    states, times, conditioning = all_sites(
        inputs, case.feedback.conditioning_signal(inputs) if bridge == "state_bridge" else inputs.error
    )

    def slopes(rows: Tensor) -> Tensor:
        rows = rows.detach().requires_grad_()
        return torch.autograd.grad(net(rows, times, conditioning).square().sum(), rows)[0]

    before = slopes(states)
    drawn = torch.randn(len(layer.weight), 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layer.weight = nn.Parameter(torch.cat([layer.weight[:, :16], drawn, layer.weight[:, 16:]], dim=1))
    after = slopes(nn.functional.pad(states, (0, 5)))
    for narrow, wide in zip(by_site(before, inputs), by_site(after, inputs), strict=True):
        torch.testing.assert_close(wide, narrow, rtol=1e-10, atol=1e-14)


class Unmoved(nn.Module):
    """G(h, t, s) = h: at site L, where the readout pools by the mean, that is a perfect prediction."""

    def conditioning_signal(self, inputs):
        return inputs.error

    def forward(self, states, times, conditioning):
        return states


class LossOfTheAverage(nn.Module):
    """V(h, t, s) = the loss of h read as h_L."""

    def __init__(self, network, labels):
        super().__init__()
        self.network, self.labels = network, labels

    def conditioning_signal(self, inputs):
        return inputs.error

    def forward(self, states, times, conditioning):
        logits = self.network.out_head(states)
        return sample_losses(logits, self.labels.repeat(len(states) // len(self.labels)))


def perfect_at_the_top(bridge: str) -> NetworkCase:
    case = case_of(bridge, "small_resnet")
    if bridge == "state_bridge":
        return replace(case, feedback=Unmoved())
    case.feedback.value = LossOfTheAverage(case.network, case.labels)
    return case


@pytest.mark.parametrize("bridge", BRIDGES)
def test_a_perfect_answer_at_the_top_is_the_exact_gradient_summed_and_spread_again(bridge):
    case = perfect_at_the_top(bridge)
    inputs, top = case.inputs(), asked(case)[-1]
    exact = inputs.gradients[-1]
    torch.testing.assert_close(top, sum_over_positions(exact), rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(case.network.spread(top, inputs.hidden[-1]), exact, rtol=1e-10, atol=1e-14)


def test_the_state_bridge_learns_what_the_readout_pools():
    """The class token of tokens, the mean of maps: a net that answers with it has no loss."""
    for architecture in ("vit_mini", "small_resnet"):
        case = case_of("state_bridge", architecture)
        inputs = case.inputs()
        pooled = case.network.pool(inputs.hidden[-1])

        class Knows(Unmoved):
            def forward(self, states, times, conditioning, pooled=pooled):
                return pooled.repeat(len(states) // len(pooled), 1)

        assert case.method.feedback_loss(Knows(), inputs).item() == 0.0
        assert case.method.feedback_loss(case.feedback, inputs).item() > 0.1


@pytest.mark.parametrize("architecture", ["vit_mini", "small_resnet", "small_cnn"])
def test_the_credit_bridge_matches_the_summed_gradient(architecture):
    """With a value of no slope, and that loss alone weighed, the mismatch is the summed gradient itself."""
    case = case_of("credit_bridge", architecture)
    with torch.no_grad():
        for net in (case.feedback.value, case.feedback.average):
            for parameter in net.parameters():
                parameter.zero_()
    inputs = replace(case.inputs(), generator=torch.Generator().manual_seed(0))
    case.feedback.options = {**case.feedback.options, "gradient_weight": 0.0}
    without = case.method.feedback_loss(case.feedback, inputs).item()
    case.feedback.options["gradient_weight"] = 1.0
    mismatch = case.method.feedback_loss(case.feedback, inputs).item() - without
    assert mismatch == pytest.approx(
        sum_over_positions(inputs.output_gradient).square().sum(dim=1).mean().item(), rel=1e-9
    )


@pytest.mark.parametrize("architecture", ["vit_mini", "small_resnet", "small_cnn"])
def test_the_value_reads_states_in_units_of_their_averages(architecture):
    case = case_of("credit_bridge", architecture)
    inputs = case.inputs()
    case.feedback.value.scales.copy_(site_scales(inputs.hidden))
    expected = [mean_over_positions(state).square().mean().sqrt().item() for state in inputs.hidden]
    assert case.feedback.value.scales.tolist() == pytest.approx(expected, rel=1e-9)


def state_bridge_reference(
    w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str
) -> Arrays:
    """c_l = ∂CE(head(G(h_l, l/L, e)), y)/∂h_l with e held."""

    def credit(states, error, top_gradient):
        credits = []
        for site, h in enumerate(states):
            inputs = rows(h, site / (len(states) - 1), error)
            predicted = value(feedback, "layers", inputs)
            z = linear(w, "out_head", layer_norm(w, "out_ln", predicted))
            p = np.exp(z - z.max(axis=1, keepdims=True))
            believed = p / p.sum(axis=1, keepdims=True) - np.eye(z.shape[1])[y]
            credits.append(
                pulled_back(feedback, "layers", inputs, head_back(w, {}, predicted, believed))[:, : h.shape[1]]
            )
        return credits

    return local_gradients(w, x, y, credit, penalty, kind)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
@pytest.mark.parametrize("credit_norm", ["none", "rms"])
def test_step_equals_the_reference(penalty, credit_norm):
    numpy_checks.check_step("state_bridge", state_bridge_reference, penalty, credit_norm)


def loss_reference(w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray) -> float:
    """mean over samples and sites of ‖G − h_L‖² / (‖h_L‖² + 1e-6)."""
    states, _, error = forward(w, x, y)
    top, depth = states[-1], len(states) - 1
    errors = [value(feedback, "layers", rows(h, site / depth, error)) - top for site, h in enumerate(states)]
    return float(np.mean([(miss**2).sum(axis=1) / ((top**2).sum(axis=1) + 1e-6) for miss in errors]))


def test_the_loss_and_its_gradient_equal_the_reference():
    task, images, labels = numpy_checks.reference_task("state_bridge", 0.0, "none")
    weights, feedback = numpy_checks.arrays(task.network), numpy_checks.arrays(task.feedback)

    def reference(moved: Arrays) -> float:
        return loss_reference(weights, moved, images.numpy(), labels.numpy())

    loss = PLUGIN.feedback_loss(task.feedback, seen(task, images, labels))
    assert loss.item() == pytest.approx(reference(feedback), rel=1e-12)
    loss.backward()
    found, expected = slopes(reference, feedback, task.feedback)
    assert found == pytest.approx(expected, rel=1e-7)


class Tail(torch.nn.Module):
    """A perfect predictor: chunk l of the rows goes through blocks l+1..L."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def conditioning_signal(self, inputs):
        return inputs.error

    def forward(self, states, times, conditioning):
        sites = len(self.network.blocks) + 1
        predicted = []
        for site, (state, time) in enumerate(zip(states.chunk(sites), times.chunk(sites), strict=True)):
            assert torch.allclose(time, torch.full_like(time, site / (sites - 1)))
            for block in self.network.blocks[site:]:
                state = self.network.step(state, block(state))
            predicted.append(state)
        return torch.cat(predicted)


@pytest.mark.parametrize("architecture", ["resmlp", "linear_lq", "student_net"])
def test_a_perfect_predictor_is_backpropagation(architecture):
    setting = Setting(PLUGIN, architectures.CATALOG.get(architecture), {"num_blocks": 3, "learn": True}, 0)
    drawn = setting.case()
    case = NetworkCase(PLUGIN, drawn.network, Tail(drawn.network), drawn.images, drawn.labels)
    inputs = case.inputs()
    for credit, gradient in zip(case.credits(inputs), inputs.gradients, strict=True):
        assert torch.allclose(credit, gradient, rtol=1e-10, atol=1e-12)
    assert PLUGIN.feedback_loss(case.feedback, inputs).item() == pytest.approx(0.0, abs=1e-25)


@pytest.mark.parametrize(("conditioning", "size"), [("error", 10), ("target", 10), ("none", 0)])
def test_two_hidden_layers_of_256_on_state_time_and_conditioning(conditioning, size):
    shape = NetworkShape((7, 7, 7), 10)
    state = PLUGIN.feedback(shape, {"conditioning": conditioning}, torch.Generator().manual_seed(0)).state_dict()
    shapes = {name: tuple(value.shape) for name, value in state.items() if name.endswith("weight")}
    assert list(shapes.values()) == [(256, 7 + 4 + size), (256, 256), (7, 256)]
    for weight in (state[name] for name in shapes):
        assert weight.abs().max().item() <= weight.shape[1] ** -0.5
        assert weight.var().item() == pytest.approx(1 / (3 * weight.shape[1]), rel=0.06)  # of U(±1/√inputs)


@pytest.mark.parametrize("conditioning", ["error", "target", "none"])
def test_the_conditioning_is_what_the_option_says(conditioning):
    task, images, labels = numpy_checks.reference_task("state_bridge", 0.0, "none")
    inputs = seen(task, images, labels)
    task.feedback.conditioning = conditioning
    expected = {"error": inputs.error, "target": torch.eye(10)[labels].double(), "none": torch.empty(len(labels), 0)}
    assert torch.equal(task.feedback.conditioning_signal(inputs), expected[conditioning])


@pytest.mark.long
def test_it_finds_the_costate_of_the_toy_task():
    """Published: .945 after 8,000 steps of 12 blocks; here 200 of 4 blocks, so that the test takes seconds."""
    raw = {"architecture": "linear_lq", "dataset": "lq", "batch_size": 256, "architecture_options": {"num_blocks": 4}}
    cosines = {}
    for method in ("state_bridge", "dfa"):
        row = trained(**raw, method=method, epochs=2)[2].final.sites["costate_cosine"]
        cosines[method] = [reading.value for reading in row]
    assert min(cosines["state_bridge"]) > 0.85
    assert np.mean(cosines["state_bridge"]) > 0.9
    assert abs(np.mean(cosines["dfa"])) < 0.05
