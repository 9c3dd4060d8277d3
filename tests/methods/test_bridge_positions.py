"""The two bridges on tokens, maps and sites of several widths: one row a sample in, one row a sample out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fa_registry import architectures, methods
from fa_registry.methods._bridge import all_sites, by_site, site_rows, site_scales
from fa_registry.positions import averaged, features, summed
from fa_registry.terminal_loss import sample_losses
from fa_registry.testing.cases import Case, Setting
from fa_registry.training.asking import credits_of
from tests.helpers.nets import TINY

BRIDGES = ("state_bridge", "credit_bridge")
WIDTHS = {"vit_mini": [8] * 3, "small_resnet": [4] * 3, "small_cnn": [2, 4, 8, 16], "mlp": [192, 8, 8]}


def case_of(bridge: str, architecture: str) -> Case:
    """Past the warm-up, where there is one."""
    case = Setting(methods.CATALOG.get(bridge), architectures.CATALOG.get(architecture), TINY[architecture], 0).case()
    if bridge == "credit_bridge":
        case.feedback.progress.fill_(1.0)
    return case


def asked(case: Case) -> list[Tensor]:
    """The method's own credits, before they are spread."""
    return credits_of(case.method, case.feedback, case.inputs())


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
        assert torch.equal(row[:, : features(state)], averaged(state)) and row[:, features(state) :].eq(0).all()
    rows = all_sites(inputs, inputs.error)[0]
    for row, state in zip(by_site(rows, inputs), inputs.hidden, strict=True):
        assert torch.equal(row, averaged(state))


def first_layer(case: Case, bridge: str) -> nn.Linear:
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
    """A net with 5 more columns, whatever they hold, asked with 5 more zeros."""
    case = case_of(bridge, "small_cnn")
    net = case.feedback if bridge == "state_bridge" else case.feedback.value.net
    inputs, layer = case.inputs(), first_layer(case, bridge)
    states, times, told = all_sites(inputs, case.feedback.told(inputs) if bridge == "state_bridge" else inputs.error)

    def slopes(rows: Tensor) -> Tensor:
        rows = rows.detach().requires_grad_()
        return torch.autograd.grad(net(rows, times, told).square().sum(), rows)[0]

    before = slopes(states)
    drawn = torch.randn(len(layer.weight), 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layer.weight = nn.Parameter(torch.cat([layer.weight[:, :16], drawn, layer.weight[:, 16:]], dim=1))
    after = slopes(nn.functional.pad(states, (0, 5)))
    for narrow, wide in zip(by_site(before, inputs), by_site(after, inputs), strict=True):
        torch.testing.assert_close(wide, narrow, rtol=1e-10, atol=1e-14)


class Unmoved(nn.Module):
    """G(h, t, s) = h: at site L, where the readout pools by the mean, that is a perfect prediction."""

    def told(self, inputs):
        return inputs.error

    def forward(self, states, times, told):
        return states


class LossOfTheAverage(nn.Module):
    """V(h, t, s) = the loss of h read as h_L."""

    def __init__(self, network, labels):
        super().__init__()
        self.network, self.labels = network, labels

    def told(self, inputs):
        return inputs.error

    def forward(self, states, times, told):
        logits = self.network.out_head(states)
        return sample_losses(logits, self.labels.repeat(len(states) // len(self.labels)))


def perfect_at_the_top(bridge: str) -> Case:
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
    torch.testing.assert_close(top, summed(exact), rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(case.network.spread(top, inputs.hidden[-1]), exact, rtol=1e-10, atol=1e-14)


def test_the_state_bridge_learns_what_the_readout_pools():
    """The class token of tokens, the mean of maps: a net that answers with it has no loss."""
    for architecture in ("vit_mini", "small_resnet"):
        case = case_of("state_bridge", architecture)
        inputs = case.inputs()
        pooled = case.network.pool(inputs.hidden[-1])

        class Knows(Unmoved):
            def forward(self, states, times, told, pooled=pooled):
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
    assert mismatch == pytest.approx(summed(inputs.output_gradient).square().sum(dim=1).mean().item(), rel=1e-9)


@pytest.mark.parametrize("architecture", ["vit_mini", "small_resnet", "small_cnn"])
def test_the_value_reads_states_in_units_of_their_averages(architecture):
    case = case_of("credit_bridge", architecture)
    inputs = case.inputs()
    case.feedback.value.scales.copy_(site_scales(inputs.hidden))
    expected = [averaged(state).square().mean().sqrt().item() for state in inputs.hidden]
    assert case.feedback.value.scales.tolist() == pytest.approx(expected, rel=1e-9)
