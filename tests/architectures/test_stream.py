"""The stream before a norm that ends a block: post-LN networks, built by an architecture or adapted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fa_registry
from fa_registry.architectures import adapt
from fa_registry.architectures.base import Network, stream_of
from fa_registry.diagnostics import observe
from fa_registry.diagnostics.h_norm import PLUGIN as H_NORM
from fa_registry.errors import InvalidFields
from fa_registry.records import NORMALISED, RESIDUAL
from tests.helpers.nets import hooks_of

WIDTH, SAMPLES, FACTORS = 256, 8, (3.5, 99.0)


class PostNorm(nn.Module):
    """Block of a post-LN network: LN(h + factor · h), as a state, or as a branch without the state."""

    def __init__(self, factor: float, as_branch: bool = False, stream: str = ""):
        super().__init__()
        self.factor, self.as_branch = factor, as_branch
        self.norm = nn.LayerNorm(WIDTH)
        if stream:
            self.stream = stream

    def forward(self, state: Tensor) -> Tensor:
        normalised = self.norm(state + self.factor * state)
        return normalised - state if self.as_branch else normalised


class Model(nn.Module):
    """Third-party model: an embedding with a norm, post-LN blocks, a head."""

    def __init__(self, *blocks: nn.Module):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(4, WIDTH), nn.LayerNorm(WIDTH))
        self.layers, self.head = nn.ModuleList(blocks), nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = self.embed(x)
        for layer in self.layers:
            state = layer(state)
        return self.head(state)


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(SAMPLES, 4, generator=generator), torch.arange(SAMPLES) % 3


def network(stream: str) -> Network:
    torch.manual_seed(3)
    blocks = [PostNorm(factor, as_branch=True, stream=stream) for factor in FACTORS]
    return Network(nn.Sequential(nn.Linear(4, WIDTH), nn.LayerNorm(WIDTH)), blocks, None, nn.Linear(WIDTH, 3))


def model() -> Model:
    torch.manual_seed(3)
    return Model(*(PostNorm(factor) for factor in FACTORS))


def adapted(**arguments):
    return adapt(model(), sites=["layers.0", "layers.1"], skip="inside", readout="head", **arguments)


def values(row) -> list[float | None]:
    return [reading.value for reading in row]


OBSERVED = {
    "architecture": lambda: network("norm"),
    "adapt": lambda: adapted(stream="norm"),
    "adapt without a backward pass": lambda: adapted(stream="norm", gradient="forward"),
}


@pytest.mark.parametrize("kind", OBSERVED)
def test_the_stream_is_measured_before_the_norm_that_a_block_names(kind, batch):
    """LN(h) has the length √D = 16: block l multiplies it by 1 + factor, to 72 and 1600, and its norm divides that out."""
    measured = H_NORM.measure(observe(OBSERVED[kind](), *batch, double=False))
    root = WIDTH**0.5
    assert values(measured.sites["h_norm"]) == pytest.approx([root, 4.5 * root, 100 * root], rel=1e-3)
    assert values(measured.sites["growth"])[1:] == pytest.approx([4.5, 100.0], rel=1e-3)
    assert measured.scalars["growth_max"].value == pytest.approx(100.0, rel=1e-3)


@pytest.mark.parametrize("kind", ["architecture", "adapt"])
def test_without_a_name_the_norm_hides_the_growth(kind, batch):
    unnamed = network("") if kind == "architecture" else adapted()
    measured = H_NORM.measure(observe(unnamed, *batch, double=False))
    assert values(measured.sites["h_norm"]) == pytest.approx([WIDTH**0.5] * 3, rel=1e-3)
    assert measured.scalars["growth_max"].value == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(("stream", "fires"), [("", False), ("norm", True)])
def test_d1_fires_on_a_post_ln_model_that_names_its_stream(stream, fires, batch):
    inputs, labels = batch
    batches = [(inputs + 0.1 * index, labels) for index in range(8)]
    report = fa_registry.diagnose(adapted(stream=stream), batches, 0.9, 0.5, edition="2026-12")
    assert (report.residual_stream_exploded is True) == fires  # None: the initialisation was not measured


def test_the_attribute_of_a_module_is_the_default_of_adapt(batch):
    named = Model(*(PostNorm(factor, stream="norm") for factor in FACTORS))
    observed = observe(adapt(named, sites=["layers.0", "layers.1"], skip="inside", readout="head"), *batch)
    assert H_NORM.measure(observed).scalars["growth_max"].value == pytest.approx(100.0, rel=1e-3)


def test_every_call_of_a_shared_module_is_a_site_of_its_own(batch):
    """A block that runs twice, with the factor 1 + number of calls."""

    class Counting(PostNorm):
        calls = 0

        def forward(self, state: Tensor) -> Tensor:
            self.calls = self.calls % 2 + 1
            return self.norm(state * 10.0**self.calls)

    block = Counting(0.0)
    network = adapt(Model(block, block), sites=["layers.0#1", "layers.0#2"], readout="head", stream="norm")
    measured = H_NORM.measure(observe(network, *batch, double=False))
    assert values(measured.sites["growth"])[1:] == pytest.approx([10.0, 100.0], rel=1e-3)


def test_a_stream_that_every_block_names_is_residual():
    class Turning(PostNorm):
        def forward(self, state: Tensor) -> Tensor:
            return self.norm(state + self.factor * state.roll(1, -1)) - state

    inputs = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(5))
    for stream, kind in (("norm", RESIDUAL), ("", NORMALISED)):
        turning = network("")
        turning.blocks = nn.ModuleList(Turning(factor, True, stream) for factor in FACTORS)
        assert stream_of(turning, inputs) == kind


def test_no_hook_remains_after_a_measurement(batch):
    named = network("norm")
    observe(named, *batch)
    assert not any(hooks_of(named))


def test_a_name_that_no_module_has_is_refused(batch):
    with pytest.raises(InvalidFields, match="stream: expected the name of a module of the site layers.0, found 'nrom'"):
        adapted(stream="nrom")
    with pytest.raises(
        InvalidFields, match="stream: expected a module of the block PostNorm, found 'nrom'; known: norm"
    ):
        observe(network("nrom"), *batch)
