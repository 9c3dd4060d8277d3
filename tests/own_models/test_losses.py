"""The measured gradient belongs to the loss that the user names: every value is compared with equations in NumPy float64."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fa_registry
from fa_registry.architectures import CATALOG as ARCHITECTURES
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.seeding import generator
from fa_registry.tasks._user_loss import FUNCTION, LOSSES
from tests.helpers.covering import rest_long

SITES, SAMPLES, INPUTS, WIDTH, CLASSES = ["0", "2"], 24, 6, 7, 4
LABELS = torch.arange(SAMPLES) % CLASSES
ONE_HOT = nn.functional.one_hot(LABELS, CLASSES).float()


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def softmax(z):
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Case:
    """A net of the field.

    `delta` is ∂ℓ/∂a for the input a of the last layer, and `error` is ∂ℓ/∂z for its output z.
    """

    last: type[nn.Module] | None
    loss: object
    targets: Tensor
    delta: object
    error: object

    def model(self):
        torch.manual_seed(3)
        layers = [nn.Linear(INPUTS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES)]
        last = [] if self.last is None else [self.last(1) if "oftmax" in self.last.__name__ else self.last()]
        return nn.Sequential(*layers, *last)

    def inputs(self):
        return torch.randn(SAMPLES, INPUTS, generator=torch.Generator().manual_seed(4))

    def true(self):
        """Gradients g_0, g_1, g_2, and the norms of the output error, by the chain rule."""
        w = [parameter.detach().double().numpy() for parameter in self.model().parameters()]
        x = self.inputs().double().numpy()
        h1 = x @ w[0].T + w[1]
        h2 = np.tanh(h1) @ w[2].T + w[3]
        a = np.tanh(h2) @ w[4].T + w[5]
        y = (ONE_HOT if self.targets is LABELS else self.targets).double().numpy()
        g2 = (self.delta(a, y) @ w[4]) * (1 - np.tanh(h2) ** 2)
        g1 = (g2 @ w[2]) * (1 - np.tanh(h1) ** 2)
        return [g1 @ w[0], g1, g2], np.linalg.norm(self.error(a, y), axis=1)


def both(function):
    return {"delta": function, "error": function}


def squared(z):
    """∂/∂a and ∂/∂z of Σ (tanh(a) − y)², without ½."""
    return {
        "delta": lambda a, y: 2 * (np.tanh(a) - y) * (1 - np.tanh(a) ** 2),
        "error": lambda a, y: 2 * (np.tanh(a) - y),
    }


def cubic(outputs, targets):
    return (outputs - targets).abs().pow(3).mean(1)


NLL = {"delta": lambda a, y: softmax(a) - y, "error": lambda a, y: -y / softmax(a)}
LOG_NLL = {"delta": lambda a, y: softmax(a) - y, "error": lambda a, y: -y}
BCE = {
    "delta": lambda a, y: sigmoid(a) - y,
    "error": lambda a, y: (sigmoid(a) - y) / (sigmoid(a) * (1 - sigmoid(a))),
}
MSE = both(lambda a, y: 2 * (a - y))
VALUES = torch.randn(SAMPLES, CLASSES, generator=torch.Generator().manual_seed(5))
SMOOTH = 0.9 * ONE_HOT + 0.1 / CLASSES
CASES = {
    "softmax, nll, classes": Case(nn.Softmax, "nll", LABELS, **NLL),
    "softmax, nll, one-hot": Case(nn.Softmax, "nll", ONE_HOT, **NLL),
    "softmax, nll, smooth": Case(nn.Softmax, "nll", SMOOTH, **NLL),
    "log-softmax, nll, classes": Case(nn.LogSoftmax, "nll", LABELS, **LOG_NLL),
    "log-softmax, nll, smooth": Case(nn.LogSoftmax, "nll", SMOOTH, **LOG_NLL),
    "sigmoid, bce, classes": Case(nn.Sigmoid, "bce", LABELS, **BCE),
    "sigmoid, bce, several labels": Case(nn.Sigmoid, "bce", (VALUES > 0).float(), **BCE),
    "logits, bce": Case(None, "bce_with_logits", ONE_HOT, **both(lambda a, y: sigmoid(a) - y)),
    "tanh, mse, values": Case(nn.Tanh, "mse", 2 * ONE_HOT - 1, **squared(1)),
    "linear, mse, values": Case(None, "mse", VALUES, **MSE),
    "linear, mse, classes": Case(None, "mse", LABELS, **MSE),
    "logits, cross entropy": Case(None, "cross_entropy", LABELS, **both(lambda a, y: softmax(a) - y)),
    "logits, cross entropy, smooth": Case(None, "cross_entropy", SMOOTH, **both(lambda a, y: softmax(a) - y)),
    "function": Case(None, cubic, VALUES, **both(lambda a, y: 3 * (a - y) * np.abs(a - y) / CLASSES)),
}


SHORT = {"softmax, nll, classes", "sigmoid, bce, several labels", "linear, mse, values", "function"}


def values(row):
    return [reading.value for reading in row]


def cosines(left, right):
    return (left * right).sum(1) / (np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1))


@pytest.fixture(params=rest_long(CASES, SHORT))
def case(request):
    return CASES[request.param]


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("gradient", ["backward", "forward"])
@pytest.mark.parametrize("is_declared", [True, False])
def test_alignment_measures_the_gradient_of_the_named_loss(case, gradient, is_declared):
    gradients, error = case.true()
    exact = [torch.from_numpy(rows).float() for rows in gradients]
    feedback = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(6))
    dfa = (ONE_HOT - 0.3) @ feedback
    model, options = case.model(), {"sites": SITES, "gradient": gradient, "loss": case.loss}
    if is_declared:
        model, options = fa_registry.adapt(model, **options), {}
    batch = (case.inputs(), case.targets)
    found = fa_registry.alignment(model, batch, lambda *_: exact, **options).measured
    assert values(found.sites["g_norm"]) == pytest.approx(
        [np.median(np.linalg.norm(rows, axis=1)) for rows in gradients], rel=1e-5
    )
    assert values(found.sites["gain"]) == pytest.approx(
        [np.median(np.linalg.norm(rows, axis=1) / error) for rows in gradients], rel=1e-5
    )
    assert values(found.sites["gamma"]) == pytest.approx([1, 1, 1], abs=1e-10)
    assert min(values(found.sites["fidelity"])) > 0.999999
    assert max(values(found.sites["reference_check"])) < 1e-5
    other = fa_registry.alignment(model, batch, lambda *_: [None, dfa, dfa], **options)
    expected = [cosines(dfa.double().numpy(), rows).mean() for rows in gradients[1:]]
    assert values(other.gamma[1:]) == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert other.loss == (case.loss if isinstance(case.loss, str) else FUNCTION)


def test_the_published_functions_measure_the_mean_of_that_loss(case):
    gradients, _ = case.true()
    expected = [torch.from_numpy(np.linalg.norm(rows, axis=1)).median().item() / SAMPLES for rows in gradients]
    batch = (case.inputs(), case.targets)
    network = fa_registry.adapt(case.model(), SITES)
    report = fa_registry.FAProtocol(network, *batch, loss=case.loss).run(0.3, 0.6)
    assert report["diagnostics"]["D2_ref_validity"]["bp_grad_norms"] == pytest.approx(expected, rel=1e-5)
    batches = [batch, (batch[0].flip(0), batch[1])]
    diagnosis = fa_registry.diagnose(network, batches, 0.6, 0.3, loss=case.loss)
    assert diagnosis.bp_grad_norms == pytest.approx(expected, rel=1e-5)
    assert report["loss"] == diagnosis.loss == (case.loss if isinstance(case.loss, str) else FUNCTION)
    assert report["verdict"] == "PASS"


def test_a_tracked_run_measures_and_records_that_loss(case, workplace):
    gradients, error = case.true()
    exact = [torch.from_numpy(rows).float() for rows in gradients]
    options = {"eval": (case.inputs(), case.targets), "method": "mine", "credit": lambda *_: exact}
    with fa_registry.track(case.model(), SITES, loss=case.loss, **options) as run:
        sites = run.epoch(test_accuracy=0.5).sites
    norms = [np.linalg.norm(rows, axis=1) for rows in gradients]
    assert values(sites["g_norm"]) == pytest.approx([np.median(norm) for norm in norms], rel=1e-5)
    assert values(sites["g_norm_mean_ce"]) == pytest.approx([np.median(norm) / 128 for norm in norms], rel=1e-5)
    assert values(sites["gain"]) == pytest.approx([np.median(norm / error) for norm in norms], rel=1e-5)
    assert values(sites["gamma"]) == pytest.approx([1, 1, 1], abs=1e-10)


@pytest.mark.parametrize(
    "last",
    [
        lambda z: z.softmax(1),
        lambda z: z.log_softmax(1).exp(),
        lambda z: z.exp() / z.exp().sum(1, keepdim=True),
        torch.sigmoid,
        lambda z: 1 / (1 + torch.exp(-z)),
        torch.tanh,
        lambda z: (z.tanh() + 1) / 2,
        nn.functional.hardtanh,
        nn.functional.hardsigmoid,
        nn.functional.softsign,
        lambda z: z.clamp(0, 1),
    ],
)
@pytest.mark.parametrize("call", ["protocol", "diagnose", "alignment", "track"])
def test_outputs_that_cannot_be_logits_are_refused_without_a_loss(last, call):
    with pytest.raises(InvalidFields, match="`loss`") as refused:
        ask(call, Ending(last), LABELS)
    assert len(refused.value.problems) == 1


@pytest.mark.parametrize(
    "last",
    [
        lambda z: z / 1000,  # a linear layer with small weights
        lambda z: 30 * (z / 30).tanh() / 10,
        lambda z: z.log_softmax(1),
        lambda z: z.relu() / 100,
        lambda z: nn.functional.normalize(z, dim=1) @ torch.eye(CLASSES, dtype=z.dtype),  # cosines as logits
    ],
)
def test_small_outputs_are_logits(last):
    assert ask("protocol", Ending(last), LABELS)["loss"] == "cross_entropy"


class Ending(nn.Module):
    def __init__(self, last):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(INPUTS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head, self.last = nn.Linear(WIDTH, CLASSES), last

    def forward(self, x):
        return self.last(self.head(self.second(self.first(x).tanh()).tanh()))


def ask(call, model, y, **options):
    x, sites = CASES["logits, bce"].inputs(), ["first", "second"]
    if call == "protocol":
        return fa_registry.FAProtocol(fa_registry.adapt(model, sites), x, y, **options).run(0.3, 0.6)
    if call == "diagnose":
        return fa_registry.diagnose(fa_registry.adapt(model, sites), [(x, y), (x.flip(0), y)], 0.6, 0.3, **options)
    if call == "alignment":
        return fa_registry.alignment(model, (x, y), lambda *_: [None, None, None], sites, **options)
    return fa_registry.track(model, sites, eval=(x, y), method="mine", **options)


def one_column(z):
    return z[:, :1].sigmoid()


@pytest.mark.parametrize(
    ("last", "loss", "targets", "text"),
    [
        (nn.Identity(), "crossentropy", LABELS, "did you mean 'cross_entropy'"),
        (nn.Identity(), 3, LABELS, "a function"),
        (nn.LogSoftmax(1), "nll", LABELS.float(), "int64 class numbers"),
        (nn.LogSoftmax(1), "nll", LABELS + 1, "labels 0..3"),
        (nn.Identity(), "mse", LABELS + 1, "labels 0..3"),
        (nn.Identity(), "mse", ONE_HOT[:, :3], "one value per output"),
        (nn.Sigmoid(), "bce", 2 * ONE_HOT - 1, "from 0 to 1"),
        (nn.Identity(), "bce", ONE_HOT, "'bce_with_logits'"),
        (nn.Identity(), "nll", LABELS, "'cross_entropy'"),
        (nn.LogSoftmax(1), "nll", ONE_HOT / 2, "add up to 1"),
        (nn.Identity(), "mse", ONE_HOT / 0, "finite"),
        (nn.Identity(), lambda z, y: (z - y).square().mean(), ONE_HOT, r"one loss per sample"),
        (nn.Identity(), lambda z, y: (z - y).square(), ONE_HOT, r"one loss per sample"),
        (nn.Identity(), lambda z, y: [0.0] * len(z), ONE_HOT, r"one loss per sample"),
        (nn.Identity(), lambda z, y: (z - y).square().sum(1).detach(), ONE_HOT, "without a graph"),
        (nn.Identity(), lambda z, y: z @ torch.ones(CLASSES), ONE_HOT, "float64"),
        (one_column, "cross_entropy", LABELS.clamp(max=1), "at least 2 classes"),
    ],
)
def test_what_does_not_fit_the_loss_is_named(last, loss, targets, text):
    for call in ("protocol", "diagnose", "alignment", "track"):
        with pytest.raises(InvalidFields, match=text):
            ask(call, Ending(last), targets, loss=loss)


def test_adapt_knows_the_names():
    with pytest.raises(InvalidFields, match="did you mean 'mse'"):
        fa_registry.adapt(Ending(nn.Identity()), ["first"], loss="mes")
    network = fa_registry.adapt(Ending(nn.Identity()), ["first"], loss="mse")
    with pytest.raises(InvalidFields, match="another loss"):
        fa_registry.FAProtocol(network, CASES["logits, bce"].inputs(), ONE_HOT, loss="bce_with_logits")


@pytest.mark.parametrize("loss", LOSSES)
def test_an_architecture_of_the_registry_has_the_loss_of_its_task(loss):
    resmlp = ARCHITECTURES.get("resmlp")
    network = resmlp.build(resmlp.resolve({"d_hidden": 8, "num_blocks": 2}), (INPUTS,), CLASSES, generator(0, "init"))
    with pytest.raises(InvalidFields, match="the task of its data set"):
        fa_registry.FAProtocol(network, CASES["logits, bce"].inputs(), LABELS, loss=loss)


@pytest.mark.parametrize("shape", [(SAMPLES,), (SAMPLES, 1)])
@pytest.mark.parametrize("kind", [torch.int64, torch.float32, torch.bool])
def test_one_output_takes_integers_as_values(shape, kind):
    """A binary classifier: (N,) beside (N, 1) is one value per sample, not a table (N, N)."""
    targets = (LABELS % 2).reshape(shape).to(kind)
    model = Ending(one_column)
    found = ask("alignment", model, targets, loss="bce").measured.sites["g_norm"][2].value
    double = Ending(one_column).double()
    state = double.second(double.first(CASES["logits, bce"].inputs().double()).tanh()).detach().requires_grad_()
    p = double.last(double.head(state.tanh()))[:, 0]
    y = (LABELS % 2).double()
    (gradient,) = torch.autograd.grad(-(y * p.log() + (1 - y) * (1 - p).log()).sum(), state)
    assert found == pytest.approx(np.median(gradient.norm(dim=1).numpy()), rel=1e-5)


def test_the_accuracy_of_one_hot_rows_is_measured_and_of_values_is_not():
    model, x = fa_registry.adapt(Ending(torch.tanh), ["first", "second"], loss="mse"), CASES["logits, bce"].inputs()
    with pytest.warns(fa_registry.errors.EvidenceWarning):
        report = fa_registry.FAProtocol(model, x, 2 * ONE_HOT - 1).run(0.3)
    right = (model(x).argmax(1) == LABELS).double().mean().item()
    assert report["provisional"] and report["test_acc"] == pytest.approx(right)
    report = fa_registry.FAProtocol(model, x, VALUES).run(0.3)
    assert report["test_acc"] is None and report["verdict"] == "INCOMPLETE"


def test_a_function_that_breaks_later_is_named():
    calls = []

    def loss(outputs, targets):
        calls.append(outputs)
        return (outputs - targets).square().sum(1) if len(calls) < 2 else outputs

    with pytest.raises(UsageError, match="one loss per sample"):
        ask("alignment", Ending(nn.Identity()), ONE_HOT, loss=loss)


def token_nll(outputs, tokens):
    losses = nn.functional.nll_loss(outputs.log().flatten(0, 1), tokens.flatten(), reduction="none")
    return losses.view(tokens.shape).sum(1)


@pytest.mark.parametrize("loss", ["nll", token_nll])
def test_tokens_may_have_another_loss(loss):
    """A decoder that ends in a softmax has the gradient of its logits' cross entropy."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(9, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 9))
    x, y = torch.randint(9, (8, 5)), torch.randint(9, (8, 5))

    def measured(model, **options):
        return fa_registry.alignment(model, (x, y), lambda *_: [None, None], ["1"], **options).measured.sites["g_norm"]

    expected = values(measured(model))
    softened = nn.Sequential(*model, nn.Softmax(2))
    assert values(measured(softened, loss=loss)) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(InvalidFields, match="`loss`"):
        measured(softened)
    with pytest.raises(InvalidFields, match="one value per output"):
        measured(softened, loss="mse")
    y[2, 3] = 9
    with pytest.raises(InvalidFields, match=r"labels 0\.\.8"):
        measured(softened, loss="nll")


@pytest.mark.parametrize(
    ("last", "loss"), [(torch.sigmoid, "bce"), (lambda z: z.softmax(1), "nll"), (torch.tanh, "mse")]
)
def test_a_diverged_model_is_measured(last, loss, workplace):
    model = Ending(last)
    with ask("track", model, LABELS, loss=loss) as run:
        with torch.no_grad():
            model.second.weight.fill_(torch.nan)
        found = run.epoch(test_accuracy=0.1)
    assert found.sites["h_norm"][1].value is not None and found.sites["g_norm"][1].value is None
