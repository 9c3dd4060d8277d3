"""A user's own loop and own decoder on tokens: alignment, track, and an audit of the tracked runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fa_registry
from fa_registry.diagnostics.base import OTHER_POSITION
from fa_registry.errors import InvalidFields
from fa_registry.tracking.mlflow_tracker import MlflowTracker

VOCABULARY, LENGTH, WIDTH = 11, 6, 16
DRAW = torch.Generator().manual_seed(3)
X, Y = (torch.randint(0, VOCABULARY, (24, LENGTH), generator=DRAW) for _ in range(2))


class CausalBlock(nn.Module):
    """f(h) = tanh(W m + b), where m averages a position with all earlier positions."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, state):
        mean = state.cumsum(dim=1) / torch.arange(1, state.shape[1] + 1)[:, None]
        return self.linear(mean).tanh()


class Decoder(nn.Module):
    """Two causal blocks around a residual stream; logits (N, T, V)."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([CausalBlock() for _ in range(2)])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x, return_hidden=False):
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(states[-1] + block(states[-1]))
        logits = self.head(states[-1])
        return (logits, states) if return_hidden else logits


def loss_per_token(model) -> float:
    return nn.functional.cross_entropy(model(X).flatten(0, 1), Y.flatten()).item()


def exact(model, x, y):
    """Return the gradient of the summed loss at every site: an oracle."""
    with torch.enable_grad():
        logits, states, *roots = model(x, return_hidden=True)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum")
        return list(torch.autograd.grad(loss, roots[0] if roots else states))


def test_the_oracle_is_aligned_at_every_position():
    torch.manual_seed(0)
    found = fa_registry.alignment(Decoder(), (X, Y), exact)
    assert [reading.value for reading in found.gamma] == pytest.approx([1.0, 1.0, 1.0], abs=1e-6)
    minus = fa_registry.alignment(Decoder(), (X, Y), lambda *batch: [-each for each in exact(*batch)])
    assert [reading.value for reading in minus.gamma] == pytest.approx([-1.0, -1.0, -1.0], abs=1e-6)


@pytest.mark.long
def test_a_tracked_loop_has_the_loss_per_token_as_its_main_metric(tmp_path):
    torch.manual_seed(0)
    model = Decoder()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    store = f"sqlite:///{tmp_path}/store.db"
    with fa_registry.track(model, method="mine", eval=(X, Y), seed=1, credit=exact, store=store) as run:
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X).flatten(0, 1), Y.flatten()).backward()
            optimizer.step()
            measured = run.epoch(test_loss=loss_per_token(model))
    assert measured.scalars["token_loss"].value == pytest.approx(loss_per_token(model))
    assert "accuracy" not in measured.scalars
    stored = MlflowTracker(store).search({})[0]
    assert stored.metrics["loss/test_per_token"] == pytest.approx(loss_per_token(model), rel=1e-3)


@pytest.mark.long
def test_a_loop_on_tokens_reports_no_accuracy(tmp_path):
    torch.manual_seed(0)
    with (
        pytest.raises(InvalidFields, match="expected no value; the main metric of this run is the test loss per token"),
        fa_registry.track(Decoder(), method="mine", eval=(X, Y), store=f"sqlite:///{tmp_path}/store.db") as run,
    ):
        run.epoch(test_accuracy=0.5)


def norms_of_the_mean_loss(model) -> list[float]:
    """Return the median ‖∂(mean loss per token)/∂h_l‖ over positions, by autograd."""
    gradients = exact(model, X, Y)
    return [(each.flatten(0, 1).norm(dim=1).median() / Y.numel()).item() for each in gradients]


def test_labels_per_token_are_a_token_task_in_the_protocol_and_the_diagnosis():
    torch.manual_seed(0)
    model = Decoder()
    stated = {"test_acc": 0.3, "frozen_baseline_acc": 0.2}  # fa: ok FA010 made up
    report = fa_registry.FAProtocol(model, X, Y).run(**stated)
    assert report["verdict"] == "PASS"
    assert report["diagnostics"]["D2_ref_validity"]["bp_grad_norms"] == pytest.approx(norms_of_the_mean_loss(model))
    found = fa_registry.diagnose(model, [(X, Y), (X.flip(0), Y)], headline_acc=0.3)
    assert found.bp_grad_norms == pytest.approx(norms_of_the_mean_loss(model))


@pytest.mark.parametrize(("output", "is_named"), [(lambda z: z[:, -1], True), (lambda z: z.mean(1), False)])
def test_a_loss_that_reads_only_later_positions_is_named_as_the_cause(output, is_named):
    torch.manual_seed(0)
    y = torch.arange(len(X)) % VOCABULARY
    network = fa_registry.adapt(Decoder(), output=output)
    cause = OTHER_POSITION.format(LENGTH, LENGTH)
    report = fa_registry.FAProtocol(network, X, y).run(test_acc=0.3)
    assert (report["diagnostics"]["D2_ref_validity"]["g_L"] == 0) == is_named
    assert any(cause in remark for remark in report["remarks"]) == is_named
    found = fa_registry.alignment(network, (X, y), lambda *_: [torch.ones(len(X), WIDTH)] * 3)
    assert any(cause in remark for remark in found.remarks) == (cause in found.gamma[-1].reason) == is_named
    assert any(cause in remark for remark in fa_registry.diagnose(network, [(X, y)]).remarks) == is_named


@pytest.mark.parametrize(
    ("y", "problem"),
    [
        (Y[:, :3], "model:"),
        (Y + 5, "expected labels 0..10"),
        (torch.full_like(Y, -100), "at least one label that counts"),
        (Y.double(), r"expected int64 labels of shape \(N,\), or \(N, T\) for tokens"),
    ],
)
def test_targets_that_do_not_fit_the_model_are_refused(y, problem):
    with pytest.raises(InvalidFields, match=problem):
        fa_registry.alignment(Decoder(), (X, y), exact)


@pytest.mark.long  # transformers is loaded in ten seconds
def test_a_decoder_of_another_library_is_measured_by_position():
    """A GPT-2-shaped model, made from a config without a download."""
    fa_registry.torchvision()  # transformers imports it
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    shape = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": LENGTH, "vocab_size": VOCABULARY}
    config = transformers.GPT2Config(**shape, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    adapted = fa_registry.adapt(
        transformers.GPT2LMHeadModel(config),
        sites=[f"transformer.h.{block}" for block in range(2)],
        skip="inside",
        readout="transformer.ln_f",
        inputs=lambda x: {"input_ids": x},
        output=lambda out: out.logits,
        state=lambda out: out[0] if isinstance(out, tuple) else out,
    )
    found = fa_registry.alignment(adapted, (X, Y), exact)
    assert [reading.value for reading in found.gamma] == pytest.approx([1.0] * 3, abs=1e-5)


@pytest.mark.parametrize(("output", "y"), [(lambda out: out[:, -1], Y), (lambda out: out, Y[:, -1])])
def test_a_loss_at_the_last_token_only_is_advised_to_ignore_the_others(output, y):
    network = fa_registry.adapt(Decoder(), output=output)
    with pytest.raises(InvalidFields, match="with −100 at all but the last token"):
        fa_registry.FAProtocol(network, X, y)
