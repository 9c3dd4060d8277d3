"""What is measured is what is trained: modes, gradient modes, hooks, random numbers, written tensors, the batch, the weights."""

from __future__ import annotations

import copy
import warnings

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional

import fa_registry
from fa_registry.datasets.base import tensors_digest
from fa_registry.errors import EvidenceWarning, InvalidFields
from fa_registry.network_mode import eval_mode
from fa_registry.protocol.evidence_rules import WEIGHTS, evidence
from fa_registry.records.manifest_checks import EPOCH_WEIGHTS, OWN_LOOP, never_changed
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record

SITES = ["a", "b"]


def batch():
    return torch.randn(16, 6, generator=torch.Generator().manual_seed(5)), torch.arange(16) % 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros(1))

    def between(self, h):
        return h

    def forward(self, x):
        return self.c(torch.tanh(self.b(self.between(torch.tanh(self.a(x))))))


def credit(model, x, y):
    error = model(x).softmax(1) - functional.one_hot(y, 3)
    (gradient,) = torch.autograd.grad((error.detach() * model(x)).sum(), model.b.weight)
    return [None, error @ torch.ones(3, 8) + gradient.sum(), error @ torch.eye(3, 8)]


def numbers(measure, model, x, y):
    """All values of one measurement, for comparison bit by bit."""
    network = fa_registry.adapt(model, SITES)
    if measure == "FAProtocol":
        return fa_registry.FAProtocol(network, x, y).run(0.3, 0.6)
    if measure == "diagnose":
        return fa_registry.diagnose(network, [(x, y), (x + 1, y)], 0.6, 0.3).to_dict()
    if measure == "alignment":
        return fa_registry.alignment(model, (x, y), credit, SITES).to_dict()
    with fa_registry.track(model, SITES, (x, y), "mine", credit=credit) as run:
        measured = run.epoch(test_accuracy=0.5)
    return measured.sites | measured.scalars


MEASURES = ["FAProtocol", "diagnose", "alignment", "track"]


@pytest.mark.filterwarnings("ignore:.*one class:fa_registry.errors.EvidenceWarning")
@pytest.mark.parametrize("measure", MEASURES)
def test_no_grad_and_inference_mode_change_no_value(workplace, measure):
    expected = numbers(measure, Net(), *batch())
    with torch.no_grad():
        assert numbers(measure, Net(), *batch()) == expected
    with torch.inference_mode():  # the batch, the weights and the buffers are inference tensors too
        model, pair = Net(), batch()
        assert numbers(measure, model, *pair) == expected
    assert model.a.weight.is_inference() and numbers(measure, model, *pair) == expected


def test_a_credit_that_uses_an_inference_tensor_is_told_to_clone_it():
    with torch.inference_mode():
        matrix = torch.eye(8, 3)

    def differentiated(model, x, y):
        return [None, None, torch.autograd.grad((model.b(torch.tanh(model.a(x))) @ matrix).sum(), model.b.weight)]

    with pytest.raises(InvalidFields, match=r"^alignment.*\n.*credit: .*inference_mode"):
        fa_registry.alignment(Net(), batch(), differentiated, SITES)


class Trains(nn.Linear):
    """A layer of forward-forward code: `train` takes a batch."""

    def train(self, good, bad):
        raise AssertionError("this trains")


class TrainsOnOne(nn.Linear):
    def train(self, x, epochs=10):
        raise AssertionError("this trains")


class KeepsNorm(Net):
    """A network whose train(mode) keeps its BatchNorm frozen, and switches something off for eval mode."""

    def __init__(self, layer=nn.Linear):
        super().__init__()
        self.b, self.norm, self.merged = layer(8, 8), nn.BatchNorm1d(8), False

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        self.merged = not mode
        return self


@pytest.mark.parametrize("layer", [Trains, TrainsOnOne])
@pytest.mark.parametrize("measure", MEASURES)
def test_a_train_that_takes_a_batch_is_not_called(workplace, measure, layer):
    def net(kind):
        model = Net()
        b = kind(8, 8)
        b.load_state_dict(model.b.state_dict())
        model.b = b
        return model

    trained = net(layer)
    assert numbers(measure, trained, *batch()) == numbers(measure, net(nn.Linear), *batch())
    assert trained.b.training and "train" not in vars(trained.b)


@pytest.mark.parametrize("layer", [nn.Linear, Trains])
def test_a_train_that_takes_a_mode_is_honoured(layer):
    model = KeepsNorm(layer)
    model.norm.eval()
    with eval_mode(model):
        assert model.merged and not any(module.training for module in model.modules())
    assert not model.merged and model.training and model.b.training and not model.norm.training


@pytest.mark.parametrize("attribute", [lambda loader: 1, True])
def test_an_attribute_called_train_is_not_called(attribute):
    model = Net()
    model.a.train = attribute
    with eval_mode(model):
        assert not model.a.training
    assert model.a.training and model.a.train is attribute


class Hooked(Net):
    """Backward code that fails for a gradient of states, as in old layers of feedback alignment."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        if kind == "legacy":
            self.b.register_backward_hook(self.fails)
        if kind == "full":
            self.b.register_full_backward_hook(self.fails)
        if kind == "pre":
            self.b.register_full_backward_pre_hook(self.fails)

    @staticmethod
    def fails(*arguments):
        raise IndexError("tuple index out of range")

    def between(self, h):
        if self.kind == "tensor" and h.requires_grad:
            h.register_hook(self.fails)
        return Fails.apply(h) if self.kind == "function" else h


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise KeyError("shape")


@pytest.mark.filterwarnings("ignore:.*non-full backward hook:FutureWarning", "ignore:.*register_backward_hook")
@pytest.mark.parametrize(
    ("kind", "named"),
    [("legacy", "module b"), ("full", "module b"), ("pre", "module b"), ("tensor", "fails"), ("function", "backward")],
)
def test_an_error_of_the_models_backward_code_names_it(kind, named):
    model = Hooked(kind)
    for measure in ("FAProtocol", "diagnose", "alignment"):
        with pytest.raises(InvalidFields) as caught:
            numbers(measure, model, *batch())
        (problem,) = caught.value.problems
        assert named in problem and "gradient='forward'" in problem
        assert isinstance(caught.value.__cause__, IndexError | KeyError)
    forward = fa_registry.adapt(model, SITES, gradient="forward")
    assert fa_registry.FAProtocol(forward, *batch()).run(0.3, 0.6)["verdict"] in ("PASS", "WARN(D2)")


class Dropped(Net):
    def between(self, h):
        return functional.dropout(h, 0.5, training=True)


class DrawsFromNumpy(Net):
    def between(self, h):
        return h * float(numpy.random.rand())


class Remembers(Net):
    """The output depends on the number of earlier passes."""

    passes = 0

    def between(self, h):
        self.passes += 1
        return h * self.passes


class Shrinks(Net):
    """The pass writes a weight, as a norm constraint does."""

    def between(self, h):
        with torch.no_grad():
            self.b.weight.mul_(0.9)
        return h


class Replaces(Net):
    """The pass replaces a buffer and the data of a weight."""

    def between(self, h):
        self.calls = self.calls + 1
        self.b.weight.data = self.b.weight.data / 2
        return h


@pytest.mark.filterwarnings("ignore::fa_registry.errors.EvidenceWarning")
@pytest.mark.parametrize(
    ("net", "is_random", "written"),
    [
        (Net, False, set()),
        (Dropped, True, set()),
        (DrawsFromNumpy, True, set()),
        (Remembers, True, set()),
        (Shrinks, False, {"b.weight"}),
        (Replaces, False, {"b.weight", "calls"}),
    ],
)
def test_a_random_or_writing_pass_is_noted_once_and_changes_nothing(workplace, net, is_random, written):
    model = net()
    before = copy.deepcopy(model.state_dict())
    notes = is_random + bool(written)
    found = fa_registry.alignment(model, batch(), credit, SITES)
    network = fa_registry.adapt(model, SITES)
    protocol = fa_registry.FAProtocol(network, *batch())
    assert len(found.remarks) == notes and set(found.remarks) <= set(protocol.run(0.3)["remarks"])
    assert (protocol.traits.is_random, set(protocol.traits.written)) == (is_random, written)
    assert set(found.remarks) <= set(fa_registry.diagnose(network, [batch()]).remarks)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with fa_registry.track(model, SITES, batch(), "mine") as run:
            run.epoch()
            run.epoch()
    assert sum(issubclass(warning.category, EvidenceWarning) for warning in caught) == notes
    story = record_of(run).provenance[OWN_LOOP]
    assert (story.get("is_random", False), set(story.get("written", ()))) == (is_random, written)
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def record_of(run):
    tracker = MlflowTracker()
    return read_record(tracker, tracker.get(run.run_id))


def findings(run):
    return [finding for finding in evidence(record_of(run)) if finding.rule == WEIGHTS]


@pytest.mark.parametrize("changed", ["between", "before", "numpy"])
def test_the_run_keeps_a_copy_of_the_batch(workplace, changed):
    array = batch()[0].numpy().copy()
    x, y = torch.from_numpy(array), batch()[1]
    digest = tensors_digest(x, y)
    run = fa_registry.track(Net(), SITES, (x, y), "mine", dataset="named")
    if changed == "before":
        x.mul_(3)
    with run:
        run.epoch()
        array *= 3
        run.epoch()
    series = fa_registry.series(run.run_id)
    norms = series[series.quantity == "h_norm"]
    assert len(norms) == 9 and norms.groupby("site").value.nunique().eq(1).all()
    assert record_of(run).provenance["dataset_digest"] == digest


def test_a_resumed_loop_with_another_batch_is_refused(workplace):
    x, y = batch()
    with pytest.raises(KeyboardInterrupt), fa_registry.track(Net(), SITES, (x, y), "mine", dataset="named") as run:
        run.epoch()
        raise KeyboardInterrupt
    with pytest.raises(InvalidFields, match="eval"):
        fa_registry.track(Net(), SITES, (x + 1, y), "mine", dataset="named", resume=True).__enter__()
    with fa_registry.track(Net(), SITES, (x, y), "mine", dataset="named", resume=True) as run:
        assert run.done == 1
        run.epoch()
    assert len(record_of(run).provenance[OWN_LOOP][EPOCH_WEIGHTS]) == 3


def step(model, rate):
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], lr=rate)
    functional.cross_entropy(model(batch()[0]), batch()[1]).backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("rates", "is_copy", "control", "warned"),
    [
        ((0.1, 0.1, 0.1), True, False, True),  # a deep copy is trained
        ((0.1, 0.1), True, ["a", "b"], True),  # its unfrozen head, too
        ((0, 0.1, 0.1), False, False, False),  # a warm-up
        ((0.1, 0.1), False, ["a", "b"], False),
        ((0, 0), False, ["a", "b", "c"], False),  # a control that freezes everything
        ((0,), False, False, False),
    ],
)
def test_weights_that_never_change_are_a_warning_and_a_finding(workplace, caplog, rates, is_copy, control, warned):
    model = Net()
    with fa_registry.track(model, SITES, batch(), "mine", control=control) as run:
        trained = copy.deepcopy(model) if is_copy else model
        for epoch, rate in enumerate(rates, start=1):
            if rate:
                step(trained, rate)
            run.epoch(test_accuracy=0.5)
            is_warned = any("did not change" in record.getMessage() for record in caplog.records)
            assert is_warned == (warned and epoch >= 2)
    assert sum("did not change" in record.getMessage() for record in caplog.records) == warned
    assert [(finding.outcome, finding.state) for finding in findings(run)] == [("warn", "NEVER CHANGED")] * warned


@pytest.mark.parametrize(
    ("digests", "expected"),
    [
        (["a", "a", "a"], True),
        (["a", "b", "b", "b"], True),  # initialised after the start
        (["a", "b", "b"], False),
        (["a", "a", "b"], False),
        (["a", "a"], False),
        (["", "", ""], False),
        ([], False),
    ],
)
def test_the_finding_reads_recorded_digests(digests, expected):
    assert never_changed(digests) == expected
