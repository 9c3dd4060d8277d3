"""Models that are wrapped, compiled, hooked, noisy or otherwise unusual: measured right, or refused with a sentence of advice."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import fa_registry
from fa_registry.diagnostics import run_forward_backward
from fa_registry.diagnostics._forward_backward import ESTIMATED, TRACED
from fa_registry.errors import InvalidFields, UsageError
from tests.own_models.nets import (
    BOTH,
    CLASSES,
    REENTRANT_WARNS,
    SAMPLES,
    WIDTH,
    Net,
    Tied,
    assert_true,
    assert_withdrawn,
    batch,
    measure,
    plain,
    true_norms,
    values,
)


@BOTH
def test_a_plain_model_is_measured(gradient):
    assert_true(measure(Net(), gradient), plain, Net())


@BOTH
@pytest.mark.parametrize("sites", [("b", "c"), ("_orig_mod.b", "_orig_mod.c")])
def test_a_compiled_model_is_measured_without_its_wrapper(gradient, sites):
    model = torch.compile(Net(), backend="eager")
    model(batch()[0])  # compiled now, without our hooks
    assert_true(measure(model, gradient, sites), plain, Net())


@BOTH
@pytest.mark.parametrize("part", ["", "c"])
def test_a_model_compiled_in_place_is_measured_eagerly(gradient, part):
    model = Net()
    model.get_submodule(part).compile(backend="eager")
    model(batch()[0])
    assert_true(measure(model, gradient), plain, Net())


@BOTH
def test_a_compiled_layer_inside_is_measured(gradient):
    model = Net()
    model.c = torch.compile(model.c, backend="eager")
    assert_true(measure(model, gradient), plain, Net())


@BOTH
@pytest.mark.parametrize("sites", [("b", "c"), ("module.b", "module.c")])
def test_a_data_parallel_model_is_measured_without_its_wrapper(gradient, sites):
    assert_true(measure(nn.DataParallel(Net()), gradient, sites), plain, Net())


@pytest.fixture
def process_group():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@BOTH
def test_a_distributed_model_is_measured_without_its_wrapper(process_group, gradient):
    wrapped = nn.parallel.DistributedDataParallel(Net())
    assert_true(measure(wrapped, gradient), plain, Net())
    assert_true(measure(torch.compile(wrapped, backend="eager"), gradient, ("b", "c")), plain, Net())


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda model: torch.compile(model, backend="eager")])
def test_the_protocol_takes_wrapped_models(wrap):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(5)
            self.blocks, self.out_head = nn.ModuleList(nn.Linear(6, 6) for _ in range(2)), nn.Linear(6, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = x + block(x)
            return self.out_head(x)

    reports = [fa_registry.FAProtocol(made, *batch()).run(0.5, 0.9) for made in (Residual(), wrap(Residual()))]
    assert reports[0] == reports[1] and reports[0]["verdict"] == "PASS"


@pytest.mark.parametrize("factor", [0.99, 1.5, -1.0])
def test_a_backward_hook_that_changes_gradients_is_found(factor):
    model = Net()
    model.c.register_full_backward_hook(lambda module, into, out: (into[0] * factor,))
    assert_withdrawn(measure(model))
    assert_true(measure(model, "forward"), plain, Net())


def test_a_backward_hook_that_only_reads_is_let_be():
    model, seen = Net(), []
    model.c.register_full_backward_hook(lambda module, into, out: seen.append(out))
    assert_true(measure(model), plain, Net())
    assert seen


class TensorHook(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.b(functional.relu(self.a(x))))
        if h.requires_grad:
            h.register_hook(lambda error: 2 * error)
        return self.head(functional.relu(self.c(h)))


class UnguardedHook(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.b(functional.relu(self.a(x))))
        h.register_hook(lambda error: 2 * error)
        return self.head(functional.relu(self.c(h)))


@BOTH
def test_a_model_that_runs_with_a_graph_alone_is_refused(gradient):
    with pytest.raises(InvalidFields, match="cannot register a hook on a tensor that doesn't require gradient"):
        measure(UnguardedHook(), gradient)


def test_a_tensor_hook_that_changes_gradients_is_found():
    assert_withdrawn(measure(TensorHook()))
    assert_true(measure(TensorHook(), "forward"), plain, Net())


class Checkpointed(Net):
    def __init__(self, reentrant: bool):
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.a(x))
        h = checkpoint(lambda h: functional.relu(self.b(h)), h, use_reentrant=self.reentrant)
        h = checkpoint(lambda h: functional.relu(self.c(h)), h, use_reentrant=self.reentrant)
        return self.head(h)


@REENTRANT_WARNS
def test_gradient_checkpointing_is_measured():
    assert_true(measure(Checkpointed(False)), plain, Net())
    for reentrant in (False, True):
        assert_true(measure(Checkpointed(reentrant), "forward"), plain, Net())


@REENTRANT_WARNS
def test_reentrant_checkpointing_is_refused_with_advice():
    """Its states are on no graph that can be differentiated for them."""
    with pytest.raises(InvalidFields, match="(?s)detached or unused.*use_reentrant=True.*gradient='forward'"):
        measure(Checkpointed(True))


class Autocast(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x)


@BOTH
def test_autocast_inside_is_checked_in_float64_and_measured_as_it_runs(gradient):
    """Autocast leaves float64 alone: the gradient is checked there, and fidelity says what bfloat16 makes of it."""
    found = measure(Autocast(), gradient)
    assert max(values(found, "reference_check")) < 1e-5
    assert values(found, "g_norm") == pytest.approx(true_norms(plain, Net(), *batch()), rel=0.05)
    assert 0.99 < min(values(found, "fidelity")) < 1 - 1e-6  # of float32 it is 1 to 1e-12


@BOTH
def test_weights_tied_between_embedding_and_head_are_measured(gradient):
    model, (_, y) = Tied(), batch()
    ids = (y * 2) % CLASSES
    adapted = fa_registry.adapt(model, ["b"], gradient=gradient)
    found = fa_registry.alignment(adapted, (ids, y), lambda *_: [torch.ones(SAMPLES, WIDTH)] * 2)

    def equations(model: Tied, x: Tensor, state: Callable) -> Tensor:
        weight = model.tokens.weight
        h = state(state(weight[x.long()]) @ model.b.weight.T + model.b.bias)
        return h.tanh() @ weight.T

    assert values(found, "g_norm") == pytest.approx(true_norms(equations, model, ids, y), rel=1e-5)
    assert max(values(found, "reference_check")) < 1e-5


class Normed(Net):
    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(WIDTH), nn.Dropout(0.5)
        self.norm.running_mean.uniform_(-1, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(functional.relu(self.norm(self.b(functional.relu(self.a(x))))))
        return self.head(functional.relu(self.c(h)))


@BOTH
def test_batch_norm_and_dropout_are_measured_in_eval_mode_and_left_alone(gradient):
    def equations(model: Normed, x: Tensor, state: Callable) -> Tensor:
        h = state(model.b(state(model.a(x).clamp(min=0))))
        norm = model.norm
        h = (h - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        return model.head(state(model.c(h.clamp(min=0))).clamp(min=0))

    model = Normed().train()
    before = {name: held.clone() for name, held in model.state_dict().items()}
    assert_true(measure(model, gradient), equations, Normed())
    assert all(torch.equal(held, before[name]) for name, held in model.state_dict().items())
    assert all(module.training for module in model.modules())


class Counting(Net):
    """It writes into a buffer in every pass, in eval mode too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        return super().forward(x)


@BOTH
def test_buffers_that_a_pass_writes_into_are_as_before(gradient):
    model = Counting()
    adapted = fa_registry.adapt(model, Net.sites, gradient=gradient)
    before = model.passes.clone()
    run_forward_backward(adapted, *batch())
    assert torch.equal(model.passes, before)


class Data(Net):
    """A residual stream whose branches read `.data`: the backward pass has the skips alone."""

    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.a(x))
        h = h + torch.tanh(self.b(h.data))
        return self.head(h + torch.tanh(self.c(h.data)))


def test_data_is_found_backward_and_followed_forward():
    def equations(model: Net, x: Tensor, state: Callable) -> Tensor:
        h = state(model.a(x).clamp(min=0))
        h = h + state(model.b(h)).tanh()
        return model.head(h + state(model.c(h)).tanh())

    assert_withdrawn(measure(Data()))
    assert_true(measure(Data(), "forward"), equations, Net())


@BOTH
def test_activations_in_place_are_measured(gradient):
    class InPlace(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.c(self.b(self.a(x).relu_()).relu_()).relu_())

    assert_true(measure(InPlace(), gradient), plain, Net())


@BOTH
def test_a_stream_added_to_in_place_is_refused_with_advice(gradient):
    class Added(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            h += self.b(h)
            h += self.c(h)
            return self.head(h)

    with pytest.raises(UsageError, match=r"input of b was changed in place.*write h = h \+ block\(h\)"):
        measure(Added(), gradient)


@BOTH
@pytest.mark.parametrize("order", ["h last", "h among others"])
def test_blocks_called_by_keywords_alone_are_measured(gradient, order):
    class Block(nn.Linear):
        def forward(self, *, h: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
            return super().forward(h) * scale

    class Keywords(Net):
        def __init__(self):
            super().__init__()
            torch.manual_seed(5)
            self.a, self.b, self.c = nn.Linear(6, WIDTH), Block(WIDTH, WIDTH), Block(WIDTH, WIDTH)
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            more = {"mask": torch.ones(len(x)).bool(), "scale": 1.0}
            first, last = (more, {}) if order == "h last" else ({"scale": 1.0}, {})
            h = self.b(**first, h=functional.relu(self.a(x)), **last)
            return self.head(functional.relu(self.c(**first, h=functional.relu(h), **last)))

    def equations(model: Net, x: Tensor, state: Callable) -> Tensor:
        h = state(model.a(x).clamp(min=0))
        h = state(functional.linear(h, model.b.weight, model.b.bias)).clamp(min=0)
        return model.head(state(functional.linear(h, model.c.weight, model.c.bias)).clamp(min=0))

    assert_true(measure(Keywords(), gradient), equations, Keywords())


class Twice(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.b(functional.relu(self.a(x))))
        return self.head(functional.relu(self.b(h)))


@BOTH
def test_a_module_called_twice_names_its_calls(gradient):
    def equations(model: Net, x: Tensor, state: Callable) -> Tensor:
        h = state(model.b(state(model.a(x).clamp(min=0)))).clamp(min=0)
        return model.head(state(model.b(h)).clamp(min=0))

    def second(model: Net, x: Tensor, state: Callable) -> Tensor:
        h = state(model.b(model.a(x).clamp(min=0)).clamp(min=0))
        return model.head(state(model.b(h)).clamp(min=0))

    assert_true(measure(Twice(), gradient, ["b#1", "b#2"]), equations, Net())
    assert_true(measure(Twice(), gradient, ["b#2"]), second, Net())
    with pytest.raises(UsageError, match="expected one call.*found 2; name one of these calls as the site: b#1, b#2"):
        measure(Twice(), gradient, ["b"])
    with pytest.raises(UsageError, match="b#3: expected one call in a forward pass, found 0; name .* b#1, b#2"):
        measure(Twice(), gradient, ["b#3"])


@BOTH
def test_sites_in_the_wrong_order_are_refused(gradient):
    with pytest.raises(UsageError, match="expected the sites in the order in which the forward pass calls them: b, c"):
        measure(Net(), gradient, ["c", "b"])


def straight_through(rounded: Callable[[Tensor], Tensor]) -> type[Net]:
    class Quantised(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.b(functional.relu(self.a(x)))
            h = h + (rounded(h) - h).detach()
            return self.head(torch.tanh(self.c(h)))

    return Quantised


def test_a_straight_through_estimator_is_not_the_gradient():
    """The loss is a staircase: its gradient before the last rounding is zero, and forward it is measured as zero."""
    model = straight_through(torch.sign)
    assert_withdrawn(measure(model()))
    found = measure(model(), "forward")
    assert values(found, "g_norm")[:2] == [0.0, 0.0] and values(found, "g_norm")[2] > 0
    assert values(found, "gamma")[:2] == [None, None]
    assert max(values(found, "reference_check")) < 1e-5


def test_a_stop_gradient_is_found_and_followed():
    """The gate carries no gradient backward, and does forward."""

    class Gated(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.b(functional.relu(self.a(x)))
            return self.head(torch.tanh(self.c(h * torch.sigmoid(h.detach()))))

    def equations(model: Net, x: Tensor, state: Callable) -> Tensor:
        h = state(model.b(state(model.a(x).clamp(min=0))))
        return model.head(state(model.c(h * h.sigmoid())).tanh())

    assert_withdrawn(measure(Gated()))
    assert_true(measure(Gated(), "forward"), equations, Net())


class Outside(Net):
    """It leaves torch in the middle: a trace takes what comes back for a constant."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.b(functional.relu(self.a(x)))
        scale = torch.from_numpy(1 + abs(h.detach().numpy()).mean(axis=1, keepdims=True))
        return self.head(torch.tanh(self.c(h * scale)))


def test_what_a_trace_misses_is_differenced():
    def equations(model: Net, x: Tensor, state: Callable) -> Tensor:
        h = state(model.b(state(model.a(x).clamp(min=0))))
        return model.head(state(model.c(h * (1 + h.abs().mean(1, keepdim=True)))).tanh())

    assert_withdrawn(measure(Outside()))
    found = measure(Outside(), "forward")
    assert found.reference.startswith(ESTIMATED) and found.reference != ESTIMATED
    assert_true(found, equations, Net(), rel=1e-4)


def test_what_was_found_of_a_trace_holds_for_looks_that_are_not_checked():
    """An epoch between two checks must not show the gradient of the wrong trace."""
    adapted = fa_registry.adapt(Outside(), Net.sites, gradient="forward")
    credits = [torch.ones(SAMPLES, WIDTH)] * 3
    fa_registry.alignment(adapted, batch(), lambda *_: credits)
    assert run_forward_backward(adapted, *batch()).source.startswith(ESTIMATED)


class Parallel(Net):
    """c reads h_0 before b does, as attention and MLP side by side do."""

    sites = ("b",)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        aside = self.c(h)
        return self.head(torch.tanh(self.b(h)) + aside)


def test_an_input_that_is_read_before_the_first_site_is_refused_and_not_called_wrong():
    sentence = "before the first site runs; choose a first site whose input"
    assert_withdrawn(measure(Parallel(), sites=["b"]), sentence)
    with pytest.raises(UsageError, match=sentence):
        measure(Parallel(), "forward", ["b"])


@BOTH
def test_named_in_the_order_in_which_they_run_parallel_layers_are_measured(gradient):
    def equations(model: Net, x: Tensor, state: Callable) -> Tensor:
        h = state(model.a(x))
        aside = state(model.c(h))
        return model.head(state(model.b(h)).tanh() + aside)

    assert_true(measure(Parallel(), gradient, ["c", "b"]), equations, Net())


class Expanded(Net):
    """Its stream starts from one learnt vector, which no input precedes."""

    def __init__(self, copied: bool):
        super().__init__()
        self.start, self.copied = nn.Parameter(torch.linspace(-1, 1, WIDTH)), copied

    def forward(self, x: Tensor) -> Tensor:
        h = self.start.expand(len(x), WIDTH)
        h = h.clone() if self.copied else h
        return self.head(functional.relu(self.c(torch.tanh(self.b(h) + self.a(x)))))


@BOTH
def test_a_stream_that_starts_from_a_parameter_is_measured(gradient):
    def equations(model: Expanded, x: Tensor, state: Callable) -> Tensor:
        h = state(model.start.expand(len(x), WIDTH))
        return model.head(state(model.c((state(model.b(h)) + model.a(x)).tanh())).clamp(min=0))

    assert_true(measure(Expanded(True), gradient), equations, Expanded(True))
    with pytest.raises(UsageError, match=r"found an expanded tensor; write \.clone\(\)"):
        measure(Expanded(False), gradient)


def test_what_is_declared_as_no_skip_stays_so():
    """Of a residual stream the branches are read as branches only if nothing was declared."""

    class Residual(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            h = h + self.b(h)
            return self.head(h + self.c(h))

    found, declared = (fa_registry.adapt(Residual(), Net.sites, skip) for skip in ("", "none"))
    states = [run_forward_backward(adapted, *batch()).single.hidden for adapted in (found, declared)]
    assert (found.skip, declared.skip) == ("outside", "none")
    assert torch.equal(states[0][0], states[1][0])
    torch.testing.assert_close(states[0][1], states[1][0] + states[1][1])


def test_a_trace_is_named_as_the_source():
    assert (measure(Net()).reference, measure(Net(), "forward").reference) == ("", TRACED)
