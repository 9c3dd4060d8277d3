"""The frozen control of models in five styles: which parameters are found, what stays bit for bit, and what still learns."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

import fa_registry
from fa_registry import frozen_control
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.external.block_parameters import parameters_between
from fa_registry.external.frozen_control import SKIP, frozen_blocks
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record
from tests.helpers.covering import rest_long
from tests.helpers.nets import hooks_of
from tests.helpers.tiny_tasks import tiny_task

WIDTH, CLASSES, TOKENS, SAMPLES = 6, 3, 11, 16


class Plain(nn.Module):
    """Style 1: modules in a row."""

    sites = ("layers.0", "layers.1")
    between = ("layers.0.0.weight", "layers.0.0.bias", "layers.1.0.weight", "layers.1.0.bias")

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(5, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(2))

    def forward(self, x):
        h = self.stem(x)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


class Functions(nn.Module):
    """Style 2: function calls between the modules, parameters that belong to no layer, one of them a view of another's memory."""

    sites = ("first", "last")
    between = ("scale", "W", "first.weight", "first.bias", "last.weight", "last.bias")

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.W = nn.Parameter(torch.randn(WIDTH, WIDTH) / 2)
        self.after = nn.Parameter(torch.zeros(WIDTH))
        self.stem, self.head = nn.Linear(5, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        h = F.relu(self.stem(x))
        h = F.relu(self.first(h)).view(len(x), 2, -1).flatten(1)
        h = h + self.scale * F.linear(h, self.W.t())
        return self.head(F.relu(self.last(h)) + self.after)


class Feedback(torch.autograd.Function):
    """Forward W, backward B."""

    @staticmethod
    def forward(ctx, h, weight, feedback):
        ctx.save_for_backward(h, feedback)
        return h.mm(weight.detach().t())

    @staticmethod
    def backward(ctx, gradient):
        h, feedback = ctx.saved_tensors
        return gradient.mm(feedback), gradient.t().mm(h), None  # fa: ok FA013 a layer of feedback alignment


class FeedbackLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.register_buffer("B", torch.randn(outputs, inputs))

    def forward(self, h):
        return Feedback.apply(h, self.weight, self.B)


class Custom(nn.Module):
    """Style 3: a residual network of layers with their own backward pass."""

    sites = ("layers.0", "layers.1")
    between = ("layers.0.weight", "layers.1.weight")
    skip = "outside"

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(5, WIDTH), FeedbackLinear(WIDTH, CLASSES)
        self.layers = nn.ModuleList(FeedbackLinear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x):
        h = self.stem(x)
        for layer in self.layers:
            h = h + layer(h)
        return self.head(h)


class Detached(Plain):
    """Style 4: states cut from the graph, credits fed in by hand."""

    def states(self, x, cut):
        h = self.stem(x)
        states = [h]
        for layer in self.layers:
            h = layer(cut(h))
            states.append(h)
        return states, self.head(cut(h))


def handed_on(h):
    return h.detach().requires_grad_()


def by_hand(cut):
    """One step's gradients: every state is given e B, the readout its own error."""

    def backward(model, x, y):
        states, z = model.states(x, cut)
        error = (z.detach().softmax(1) - F.one_hot(y, CLASSES)) / len(y)
        z.backward(error)
        for state in states:
            state.backward(error @ torch.eye(CLASSES, WIDTH))

    return backward


def decoder(is_tied=False):
    """Style 5: a decoder of transformers, made from a config."""
    fa_registry.torchvision()  # transformers imports it
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=TOKENS,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=is_tied,
    )
    return transformers.LlamaForCausalLM(config)


LAYER = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
LAYER += ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm")
DECODER_SITES = ("model.layers.0", "model.layers.1")
DECODER_BETWEEN = tuple(f"{site}.{part}.weight" for site in DECODER_SITES for part in LAYER)
DECODER_READS = {"inputs": lambda x: {"input_ids": x}, "output": lambda out: out.logits[:, -1]}


def backpropagated(model, x, y):
    F.cross_entropy(model(x), y).backward()


def next_token(model, x, y):
    F.cross_entropy(model(input_ids=x).logits[:, -1], y).backward()


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(SAMPLES, 5, generator=generator), torch.arange(SAMPLES) % CLASSES


@pytest.fixture
def tokens():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(TOKENS, (SAMPLES, 7), generator=generator), torch.arange(SAMPLES) % CLASSES


def weights(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def changed(model, before):
    return {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}


def train(model, batch, backward, optimizer=None, steps=3):
    """Several steps of AdamW over all parameters, frozen or not: what has no gradient must not decay either."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        backward(model, *batch)
        optimizer.step()


STYLES = {
    "plain modules": (Plain, backpropagated),
    "function calls": (Functions, backpropagated),
    "custom autograd": (Custom, backpropagated),
    "credits by hand": (Detached, by_hand(handed_on)),
    "credits by hand on states that require none": (Detached, by_hand(torch.Tensor.detach)),
}


@pytest.mark.parametrize(("build", "backward"), STYLES.values(), ids=STYLES)
def test_what_runs_between_the_sites_is_frozen_and_everything_else_learns(build, backward, batch):
    torch.manual_seed(0)
    model = build()
    before, known = weights(model), set(dict(model.named_parameters()))
    with frozen_control(model, sites=model.sites, x=batch[0]):
        assert frozen_blocks(model) == build.between
        assert {name for name, weight in model.named_parameters() if not weight.requires_grad} == set(build.between)
        train(model, batch, backward)
    assert changed(model, before) == known - set(build.between)
    assert frozen_blocks(model) == () and all(weight.requires_grad for weight in model.parameters())
    train(model, batch, backward)
    assert changed(model, before) == known
    assert not any(hooks_of(model))


@pytest.mark.long
def test_of_a_decoder_the_named_layers_are_frozen_and_everything_else_learns(tokens):
    torch.manual_seed(0)
    model = decoder()
    before, known = weights(model), set(dict(model.named_parameters()))
    with frozen_control(model, sites=DECODER_SITES, x={"input_ids": tokens[0]}):
        assert frozen_blocks(model) == DECODER_BETWEEN
        train(model, tokens, next_token)
    assert changed(model, before) == known - set(DECODER_BETWEEN)
    adapted = fa_registry.adapt(model, DECODER_SITES, skip="inside", **DECODER_READS)
    with frozen_control(adapted, x=tokens[0]):
        assert frozen_blocks(model) == frozen_blocks(adapted) == DECODER_BETWEEN


def test_an_embedding_tied_to_the_head_is_no_block(tokens):
    model = decoder(is_tied=True)
    found = parameters_between(lambda: model(tokens[0]), model, *DECODER_SITES)
    assert found == (DECODER_BETWEEN, ())


class Tied(nn.Module):
    """The head reads a block's weight, and the blocks are written in unusual ways."""

    def __init__(self):
        super().__init__()
        flat = torch.randn(3, WIDTH, WIDTH)
        self.position = nn.Parameter(torch.randn(WIDTH))
        self.before, self.inside, self.behind = (nn.Parameter(part) for part in flat)  # one storage for all of them
        self.masked = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.register_buffer("mask", torch.ones(WIDTH, WIDTH).tril())
        self.begin, self.finish = nn.Tanh(), nn.Tanh()
        self.shared = nn.Linear(WIDTH, WIDTH, bias=False)
        self.normed = parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH, bias=False))

    def forward(self, x):
        masked, inside = (self.masked * self.mask).t(), self.inside.t()  # computed early, and only viewed early
        h = self.position.repeat(len(x), 1)
        h += F.pad(x, (0, WIDTH - x.shape[1])) @ self.before  # the state is where a copy of a parameter was
        h = self.begin(h) @ inside @ masked
        h = self.finish(self.normed(self.shared(h)))
        return F.linear(h @ self.behind, self.shared.weight)[:, :CLASSES]


def test_parameters_are_recognised_by_their_memory_and_those_used_elsewhere_too_are_named(batch, caplog, capsys):
    model = Tied()
    norm = "normed.parametrizations.weight"
    inside = ("inside", "masked", "shared.weight", f"{norm}.original0", f"{norm}.original1")
    found = parameters_between(lambda: model(batch[0]), model, "begin", "finish")
    assert found == (inside, ("masked", "shared.weight"))
    with frozen_control(model, sites=("begin", "finish"), x=batch[0]):
        pass
    (warning,) = caplog.records
    assert warning.levelname == "WARNING" and warning.getMessage().endswith(": masked, shared.weight")
    assert capsys.readouterr().out == f"frozen: 5 parameters: {', '.join(inside)}\n"


def test_a_cast_that_autocast_keeps_hides_no_use(batch):
    """The second use of a weight takes autocast's copy of it."""
    model = Tied()

    def call():
        with torch.autocast("cpu", torch.bfloat16):
            model(batch[0])

    assert parameters_between(call, model, "begin", "finish").shared == ("masked", "shared.weight")


def test_a_weight_that_a_hook_computes_is_read_inside(batch):
    """As the hook of `torch.nn.utils.spectral_norm` does, before the layer itself runs."""
    model = nn.Sequential(nn.Linear(5, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
    scale, raw = nn.Parameter(torch.ones(1)), nn.Parameter(model[2].weight.detach().clone())
    del model[2].weight
    model[2].register_parameter("scale", scale)
    model[2].register_parameter("raw", raw)
    model[2].register_forward_pre_hook(lambda module, args: setattr(module, "weight", scale * raw))
    assert parameters_between(lambda: model(batch[0]), model, "2", "2") == (("2.bias", "2.scale", "2.raw"), ())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.layer, self.norm = nn.Linear(5, WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.late, self.head, self.never = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES), nn.Linear(2, 2)

    def forward(self, x):
        h = self.norm(self.layer(self.stem(x)))
        return self.head(F.relu(self.layer(self.late(self.layer(h)))))


@pytest.mark.parametrize(
    ("first", "last", "names", "shared"),
    [
        ("layer#1", "layer#2", ("layer", "norm"), ("layer",)),
        ("layer#2", "layer#3", ("layer", "late"), ("layer",)),
        ("layer#1", "layer#3", ("layer", "norm", "late"), ()),
        ("layer#3", "layer#3", ("layer",), ("layer",)),
        ("norm", "layer#2", ("layer", "norm"), ("layer",)),
        ("late", "late", ("late",), ()),
    ],
)
def test_of_a_module_that_is_called_several_times_the_numbered_calls_bound_the_interval(
    batch, first, last, names, shared
):
    model = Recurrent()
    found = parameters_between(lambda: model(batch[0]), model, first, last)
    assert found == tuple(
        tuple(f"{name}.{part}" for name in part_of for part in ("weight", "bias")) for part_of in (names, shared)
    )


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        ("layer", "late", "layer:"),
        ("norm", "layer#4", "layer#4: expected 4 or more calls of layer in a forward pass, found 3"),
        ("never", "late", "never:"),
        ("late", "norm", "expected late to begin before norm ends, but norm ends first"),
        ("layer#2", "layer#1", "expected layer#2 to begin before layer#1 ends"),
        ("layer#0", "late", "layer#0: expected the number of a call after #, as in layer#2"),
        ("layer#x", "late", "layer#x: expected the number of a call"),
        ("layers", "late", r"unknown module 'layers' \(did you mean 'layer'\?\)"),
    ],
)
def test_sites_that_bound_no_interval_are_refused(batch, first, last, text):
    model = Recurrent()
    with pytest.raises(UsageError, match=text), frozen_control(model, sites=(first, last), x=batch[0]):
        raise AssertionError("it was frozen")
    assert all(weight.requires_grad for weight in model.parameters())
    assert not any(hooks_of(model))


def test_an_interval_without_parameters_is_refused(batch):
    model = Plain()
    with pytest.raises(UsageError, match=r"the end of layers\.0\.1, found none; choose two sites"):
        parameters_between(lambda: model(batch[0]), model, "layers.0.1", "layers.0.1")


def test_the_search_leaves_model_and_generators_as_they_were(batch):
    model = nn.Sequential(nn.Linear(5, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(), nn.Linear(WIDTH, CLASSES))
    backpropagated(model, *batch)
    before, state = [weight.grad.clone() for weight in model.parameters()], torch.get_rng_state()
    buffers = [buffer.clone() for buffer in model.buffers()]

    def call():
        assert not model[2].training
        states = model[:3](batch[0] + torch.rand(1))
        states.retain_grad()  # as a model's own code may
        model[3](states)
        model(batch[0]).sum().backward()

    assert parameters_between(call, model, "1#1", "2#1").names == ("1.weight", "1.bias")
    assert model.training and model[2].training and torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, before, (weight.grad for weight in model.parameters())))
    assert all(map(torch.equal, buffers, model.buffers()))


def test_blocks_may_be_named_as_modules_and_parameters_and_go_before_sites(batch):
    torch.manual_seed(0)
    model = Functions()
    before, known = weights(model), set(dict(model.named_parameters()))
    with frozen_control(model, ["last", "W"], sites=model.sites, x=batch[0]):
        assert frozen_blocks(model) == ("last", "W")
        train(model, batch, backpropagated)
    assert known - changed(model, before) == {"last.weight", "last.bias", "W"}


def test_a_compiled_model_is_frozen_by_its_own_names(batch):
    model = Plain()
    with frozen_control(torch.compile(model, backend="eager"), sites=model.sites, x=batch[0]):
        assert frozen_blocks(model) == Plain.between


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({}, r'found none, and the model has no \.blocks; pass blocks=\["stem"'),
        ({"blocks": ["W", "nowhere"]}, r'found nowhere; pass blocks=\["stem"'),
        ({"sites": Functions.sites}, "x:"),
    ],
)
def test_names_that_are_none_and_sites_without_a_batch_are_refused(known, text):
    with pytest.raises(UsageError, match=text), frozen_control(Functions(), **known):
        raise AssertionError("it was frozen")


def test_a_loop_that_writes_gradients_or_weights_by_hand_is_no_control(batch):
    model = Functions()

    def writes(model, x, y):
        backpropagated(model, x, y)
        model.W.grad = torch.ones_like(model.W)

    with (
        pytest.raises(UsageError, match="frozen_control: W changed although frozen"),
        frozen_control(model, sites=model.sites, x=batch[0]),
    ):
        train(model, batch, writes)
    with pytest.raises(UsageError, match="scale changed although frozen"), frozen_control(model, ["scale"]):
        model.scale = nn.Parameter(model.scale.detach() + 1)


def test_the_error_for_a_loop_without_a_graph_says_what_to_write(batch):
    """Bare parameters belong to no layer whose output could be given a graph."""
    model = Functions()
    with pytest.raises(RuntimeError) as failed, frozen_control(model, ["W"]):
        F.linear(batch[0].new_ones(2, WIDTH), model.W).backward(torch.ones(2, WIDTH))
    (note,) = failed.value.__notes__
    assert note.startswith("frozen_control:") and "W" in note and SKIP in note
    assert model.W.requires_grad and frozen_blocks(model) == ()


def test_an_activation_in_place_follows_a_frozen_layer(batch):
    """The output that was given a graph is no leaf."""
    model = nn.Sequential(nn.Linear(5, WIDTH), nn.ReLU(inplace=True))
    with frozen_control(model, ["0"]):
        h = model(batch[0])
        assert h.requires_grad and torch.equal(h, F.relu(F.linear(batch[0], model[0].weight, model[0].bias)))
        h.backward(torch.ones_like(h))
        with torch.no_grad():
            assert not model(batch[0]).requires_grad
    assert all(weight.grad is None for weight in model.parameters())


def test_a_model_is_frozen_once(batch):
    model = Plain()
    with frozen_control(model, ["layers"]):
        with (
            pytest.raises(UsageError, match="found a model that another frozen_control has frozen"),
            frozen_control(model, ["head"]),
        ):
            raise AssertionError("it was frozen twice")
        assert frozen_blocks(model) == ("layers",) and model.head.weight.requires_grad


class Handed(nn.Module):
    """Modules that are handed parameters of the model."""

    sites = ("mix.0", "mix.1")
    between = ("W.0", "W.1")

    class Mix(nn.Module):
        def forward(self, h, weight):
            return torch.tanh(F.linear(h, weight))

    def __init__(self):
        super().__init__()
        self.W = nn.ParameterList(torch.randn(WIDTH, WIDTH) for _ in range(2))
        self.mix = nn.ModuleList(self.Mix() for _ in range(2))
        self.stem, self.head = nn.Linear(5, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        h = self.stem(x)
        for mix, weight in zip(self.mix, self.W, strict=True):
            h = mix(h, weight)
        return self.head(h)


TRACKED = {**STYLES, "function calls": (Handed, backpropagated)}


def record_of(run):
    tracker = MlflowTracker()
    return read_record(tracker, tracker.get(run.run_id))


@pytest.mark.parametrize("style", rest_long(TRACKED, {"plain modules", "function calls"}))
def test_a_run_may_be_its_own_frozen_control(workplace, style, batch):
    build, backward = TRACKED[style]
    torch.manual_seed(0)
    model = build()
    before, known = weights(model), set(dict(model.named_parameters()))
    shared = {"sites": model.sites, "skip": getattr(model, "skip", "inside"), "readout": "head", "eval": batch}
    run = fa_registry.track(model, **shared, method="mine", seed=7, dataset="mine", control=True)
    assert all(weight.requires_grad for weight in model.parameters())  # not before the context begins
    with run:
        assert frozen_blocks(model) == build.between
        for _ in range(2):
            train(model, batch, backward, steps=1)
            run.epoch(test_accuracy=0.4)
    assert changed(model, before) == known - set(build.between)
    assert all(weight.requires_grad for weight in model.parameters()) and frozen_blocks(model) == ()
    record = record_of(run)
    assert record.provenance["own_loop"]["frozen"] == list(build.between)
    assert (record.spec.method, record.spec.control, record.status) == ("bp", "frozen", "complete")
    with frozen_control(model, sites=model.sites, x=batch[0]):  # the same by two contexts
        around = fa_registry.track(model, **shared, method="mine", seed=7, dataset="mine")
        with around:
            for _ in range(2):
                around.epoch(test_accuracy=0.4)
    assert record_of(around).spec == record.spec
    assert record_of(around).provenance["own_loop"]["frozen"] == list(build.between)


@pytest.mark.long
def test_a_decoder_may_be_its_own_frozen_control(workplace, tokens):
    torch.manual_seed(0)
    model = decoder()
    before, known = weights(model), set(dict(model.named_parameters()))
    adapted = fa_registry.adapt(model, DECODER_SITES, skip="inside", **DECODER_READS)
    with fa_registry.track(adapted, eval=tokens, method="mine", control=True) as run:
        train(model, tokens, next_token)
        run.epoch()
    assert changed(model, before) == known - set(DECODER_BETWEEN)
    assert record_of(run).provenance["own_loop"]["frozen"] == list(DECODER_BETWEEN)


def tracked(model, batch, **options):
    return fa_registry.track(model, model.sites, batch, "mine", skip="inside", readout="head", **options)


def test_a_built_in_network_has_its_blocks_frozen(workplace):
    task = tiny_task()
    blocks = [f"blocks.{index}" for index in range(len(task.network.blocks))]
    with fa_registry.track(task.network, eval=task.eval_batch, method="mine", control=True) as run:
        run.epoch()
    assert record_of(run).provenance["own_loop"]["frozen"] == blocks


def test_other_blocks_may_be_named(workplace, batch):
    model = Plain()
    with tracked(model, batch, control=["layers.1", "layers.0.0.bias"]) as run:
        assert model.layers[0][0].weight.requires_grad and not model.layers[1][0].weight.requires_grad
        run.epoch()
    assert record_of(run).provenance["own_loop"]["frozen"] == ["layers.1", "layers.0.0.bias"]


def test_a_control_whose_blocks_were_trained_is_no_complete_run(workplace, batch):
    model = Plain()
    with (
        pytest.raises(UsageError, match=r"layers\.1\.0\.bias changed although frozen"),
        tracked(model, batch, control=True) as run,
    ):
        run.epoch(test_accuracy=0.4)
        model.layers[1][0].bias.data += 1
    assert MlflowTracker().get(run.run_id).tags[schema.TAG_STATUS] == "failed"
    assert all(weight.requires_grad for weight in model.parameters())


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), UsageError("mine")])
def test_the_blocks_learn_again_however_the_loop_ends(workplace, batch, error):
    model = Plain()
    with pytest.raises(type(error)) as raised, tracked(model, batch, control=True) as run:
        run.epoch()
        raise error
    assert raised.value is error
    assert MlflowTracker().get(run.run_id).tags[schema.TAG_STATUS] != "complete"
    assert all(weight.requires_grad for weight in model.parameters()) and frozen_blocks(model) == ()


def test_the_blocks_learn_again_where_the_run_cannot_begin(workplace, batch, monkeypatch):
    model = Plain()
    run = tracked(model, batch, control=True)
    monkeypatch.setattr("fa_registry.tracking.writer.RunWriter.start", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError), run:
        raise AssertionError("the loop began")
    assert all(weight.requires_grad for weight in model.parameters()) and frozen_blocks(model) == ()


def test_a_control_inside_a_control_and_a_word_for_one_are_refused(workplace, batch):
    model = Plain()
    with frozen_control(model, ["layers"]), pytest.raises(InvalidFields, match="use only one of control and"):
        tracked(model, batch, control=True)
    run = tracked(model, batch, control=True)
    with frozen_control(model, ["layers"]), pytest.raises(UsageError, match="another frozen_control has frozen"), run:
        raise AssertionError("it was frozen twice")
    for wrong in ("frozen", [], [3], 1, None):
        with pytest.raises(InvalidFields, match="control: expected True, False or a list of names"):
            tracked(model, batch, control=wrong)


def test_one_copy_of_several_is_not_frozen_alone(workplace, batch, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(InvalidFields, match="use frozen_control in every process, before the model is wrapped"):
        tracked(Plain(), batch, control=True)
