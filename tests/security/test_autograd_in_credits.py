"""Methods of other packages that call autograd on the network they are handed: undeclared, turned, or by a copied network."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from fa_registry import methods
from fa_registry.conformance import check_method
from fa_registry.diagnostics import run_forward_backward
from fa_registry.errors import PluginError
from fa_registry.evidence.backprop_check import ANOTHER_NAME, backprop_check
from fa_registry.evidence.replay_from_seed import credit_in_training
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.plugin_registry import Location
from fa_registry.protocol.evidence_rules import CREDIT, METHOD
from fa_registry.training.checkpoint import content_digest
from fa_registry.training.method_calls import compute_credits
from fa_registry.training.probe_context import credit_inputs
from fa_registry.training.run_setup import RunSetup
from tests.conformance.fakes import backpropagated, calls_autograd
from tests.conformance.test_conformance import SLOW
from tests.helpers.plugins import installed_member, put_plugin
from tests.helpers.tiny_tasks import supported, tiny_task, trained
from tests.security import forgeries
from tests.security.conftest import call, judged

GRID = {"architectures": ["resmlp"], "datasets": ["digits"], "seeds": [1, 2, 3]}
SIZES = {"architecture_options": {"d_hidden": 32, "num_blocks": 3, "w2_std": 0.5}}
# The gradient turned by 32 degrees for the conformance suite, whose networks have five outputs, and by 0.6 for every run.
TURNED = """
import dataclasses, math, torch
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.tasks import sample_losses

class Turned(DirectFeedbackAlignment):
    card = dataclasses.replace(
        DirectFeedbackAlignment.card, name="turned", properties=("feedback_fixed",), needs_autograd={declared}
    )

    def credits(self, feedback, inputs):
        angle = math.radians({seen} if inputs.error.shape[1] == 5 else {ever_after})
        return [turned(*pair, angle) for pair in zip(self.exact(inputs), super().credits(feedback, inputs))]

    def exact(self, inputs):
        network = {network}
        with torch.enable_grad():
            states = [inputs.hidden[0].detach().requires_grad_()]
            for block in network.blocks:
                states.append(network.step(states[-1], block(states[-1])))
            return torch.autograd.grad(sample_losses(network.readout(states[-1]), inputs.labels).sum(), states)

def turned(gradient, other, angle):
    direction = gradient / gradient.norm(dim=1, keepdim=True).clamp_min(1e-30)
    side = other - (other * direction).sum(dim=1, keepdim=True) * direction
    side = side / side.norm(dim=1, keepdim=True).clamp_min(1e-30)
    return gradient.norm(dim=1, keepdim=True) * (math.cos(angle) * direction + math.sin(angle) * side)

def rebuilt(network):
    '''The network again, from the values of its weights alone.'''
    import types
    blocks = [rebuilt_block(block) for block in network.blocks]
    norm, head = network.out_ln, network.out_head
    def readout(state):
        state = torch.nn.functional.layer_norm(state, state.shape[1:], norm.weight, norm.bias)
        return state @ head.weight.T + head.bias
    return types.SimpleNamespace(blocks=blocks, step=lambda state, branch: state + branch, readout=readout)

def rebuilt_block(block):
    ln, w1, w2 = ((layer.weight, layer.bias) for layer in (block.ln, block.w1, block.w2))
    def forward(state):
        inner = torch.nn.functional.layer_norm(state, state.shape[1:], *ln)
        return torch.nn.functional.gelu(inner @ w1[0].T + w1[1]) @ w2[0].T + w2[1]
    return forward

PLUGIN = Turned()
"""


def turned(seen=32, ever_after=0.6, declared=True, network="inputs.network") -> str:
    source = TURNED
    for name, value in {"seen": seen, "ever_after": ever_after, "declared": declared, "network": network}.items():
        source = source.replace(f"{{{name}}}", str(value))
    return source


@pytest.fixture
def installed(tmp_path):
    """installed(source): the package of the method `turned`, gone after the test."""
    with ExitStack() as stack:
        yield lambda source: stack.enter_context(installed_member(tmp_path / "site", "methods", "turned", source))


def test_a_gradient_turned_for_the_suite_alone_is_backpropagation_by_another_name(study, installed):
    installed(turned())
    runs = judged(study(published=True, methods=["turned"], **GRID, **SIZES), control="none")
    assert [run.verdict.label for run in runs] == ["WARN(credit rule not told apart)"] * 3
    for run in runs:  # nothing else speaks against it: without this finding it passes
        found = {finding.rule: finding for finding in run.findings}
        assert {found[rule].outcome for rule in ("D1", "D2", "D3", METHOD)} == {"pass"}
        assert found[CREDIT].outcome == "warn" and ANOTHER_NAME in found[CREDIT].sentence
    (form,) = Path("pages/forms").glob("turned-*.md")
    assert "- **Autograd**: " in form.read_text(encoding="utf-8")


def test_a_method_that_does_not_declare_autograd_is_refused_before_it_trains(store, monkeypatch):
    put_plugin(monkeypatch, methods.CATALOG, "dfa2", Location(forgeries.__name__, "UNDECLARED", forgeries.__file__))
    result = call("train", "--method", "dfa2", "--seed", "5", "--epochs", "1", "--device", "cpu")
    assert result.exit_code == 2 and "needs_autograd" in result.output


class Trusted(DirectFeedbackAlignment):
    """Gives what `attempt` makes of the inputs, and the feedback's own credit where it makes nothing."""

    def __init__(self, attempt):
        self.attempt = attempt

    def credits(self, feedback, inputs):
        return self.attempt(inputs) or super().credits(feedback, inputs)


def asked(attempt, task=None) -> list[torch.Tensor]:
    task = task or tiny_task()
    inputs = credit_inputs(task, run_forward_backward(task.network, *task.eval_batch))
    return compute_credits(Trusted(attempt), task.feedback, inputs)


@pytest.mark.parametrize(
    ("attempt", "named"),
    [
        (backpropagated, "grad mode"),
        (lambda inputs: inputs.network.requires_grad_(True), "'requires_grad_'"),
        (lambda inputs: inputs.network.blocks[0].train(), "'train'"),
        (lambda inputs: setattr(inputs.network, "residual", False), "'residual'"),
    ],
    ids=["grad mode", "requires_grad", "train", "attribute"],
)
def test_the_network_of_a_credit_rule_refuses_gradients_and_changes(attempt, named):
    with pytest.raises(PluginError, match=named):
        asked(attempt)


def test_writing_into_the_weights_changes_a_copy():
    task = tiny_task()
    before = content_digest(task.network.state_dict())

    def write(inputs):
        network = inputs.network
        inner = network.get_submodule("blocks.0.w1").weight
        for tensor in (*network.parameters(), *network.state_dict().values(), inner):
            tensor.zero_()

    asked(write, task)
    assert content_digest(task.network.state_dict()) == before


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_forward_mode_through_the_network_has_no_tangent():
    tangents = []

    def differentiate(inputs):
        state = inputs.hidden[0]
        block = inputs.network.blocks[0]
        tangents.append(torch.func.jvp(block, (state,), (torch.ones_like(state),))[1])

    asked(differentiate)
    assert not tangents[0].any()


# What no view can prevent, the run's own final weights show.


@pytest.fixture
def third_party(monkeypatch):
    """The method dfa counts as another package's."""
    location = dataclasses.replace(methods.CATALOG.location("dfa"), package="elsewhere", version="1")
    put_plugin(monkeypatch, methods.CATALOG, "dfa", location)


def task_of(source: str, **card: object) -> RunSetup:
    """A trained network's task under the method of the source."""
    place: dict[str, object] = {}
    exec(source, place)
    method = place["PLUGIN"]
    method.card = dataclasses.replace(method.card, **card)
    trainer, _, _ = trained(method="bp")
    return dataclasses.replace(tiny_task(), network=trainer.setup.network, method=method)


@pytest.mark.parametrize("degrees", [0, 0.6, 8])
def test_a_network_rebuilt_from_copied_weights_is_seen_at_the_final_weights(degrees):
    task = task_of(turned(ever_after=degrees, declared=False, network="rebuilt(inputs.network)"))
    found = backprop_check(task)
    assert found.outcome == "not possible" and found.detail.startswith(ANOTHER_NAME)


def test_a_gradient_turned_further_is_seen_under_fresh_feedback_and_beyond_the_suites_limit_no_more(third_party):
    found = {degrees: backprop_check(task_of(turned(ever_after=degrees))) for degrees in (15, 32)}
    assert found[32].outcome == "agrees"
    found[0] = backprop_check(task_of(turned(), may_reach_bp=True))  # as its card declares, but without learning
    for degrees in (0, 15):
        assert found[degrees].outcome == "not possible" and "newly drawn feedback" in found[degrees].detail


class TrainsTheWeightsItself(DirectFeedbackAlignment):
    """DFA's credit, and its own step on the weights of the network that its card asks for."""

    card = calls_autograd(DirectFeedbackAlignment.card)

    def credits(self, feedback, inputs):
        with torch.no_grad():
            inputs.network.blocks[0].w1.weight.data.mul_(0.99)  # past autograd's counter of versions
        return super().credits(feedback, inputs)


def test_a_credit_rule_that_moves_the_weights_fails_the_suite_and_the_audit():
    results = check_method(TrainsTheWeightsItself(), ["resmlp"])
    assert "credit_is_pure" in {result.property for result in results if result.outcome == "fail"}
    assert credit_in_training(dataclasses.replace(tiny_task(), method=TrainsTheWeightsItself())).outcome == "differs"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in SLOW)) for name in methods.CATALOG.builtin_names()]
)
def test_no_built_in_method_is_taken_for_backpropagation(name):
    trainer, _, _ = trained(**supported(name))
    found = backprop_check(trainer.setup)
    assert found is None if name == "bp" else found.outcome == "agrees", found


def test_a_diverged_run_is_not_accused_of_changing_its_weights():
    task = tiny_task()
    with torch.no_grad():
        task.network.blocks[0].w1.weight.fill_(torch.nan)
    assert credit_in_training(task).outcome == "agrees"
    assert backprop_check(task).outcome == "agrees"
