"""Device choice: auto says what it took, cuda without a card is an error."""

from __future__ import annotations

import importlib.metadata
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from fa_registry.errors import InvalidFields
from fa_registry.training import device_names
from fa_registry.training.device_names import resolve
from fa_registry.training.devices import device_of, gpu_name, on_device, products, runner
from fa_registry.training.trainer import Trainer
from tests.helpers.tiny_tasks import tiny_spec, tiny_task, weights_equal


@pytest.fixture(params=[False, True])
def cuda(request, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param)
    return request.param


def test_auto_prefers_cuda(cuda):
    assert resolve("auto") == ("cuda" if cuda else "cpu")


@pytest.mark.parametrize(
    ("version", "asks_torch"), [("2.13.0+cpu", False), ("2.13.0", True), ("2.13.0+cu126", True), (None, True)]
)
def test_auto_asks_torch_unless_it_is_a_build_for_the_cpu(version, asks_torch, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    loaded = {name: module for name, module in sys.modules.items() if name != "torch"}
    monkeypatch.setattr(device_names, "sys", SimpleNamespace(modules=loaded))
    assert resolve("auto") == ("cuda" if asks_torch else "cpu")


def test_auto_asks_a_torch_that_no_package_manager_installed(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    loaded = {name: module for name, module in sys.modules.items() if name != "torch"}
    monkeypatch.setattr(device_names, "sys", SimpleNamespace(modules=loaded))
    assert resolve("auto") == "cuda"


def test_cuda_without_a_card_is_an_error(cuda):
    if cuda:
        assert resolve("cuda") == "cuda"
    else:
        with pytest.raises(ValueError, match="torch finds no CUDA device; use cpu or auto"):
            resolve("cuda")


def test_an_unknown_device_is_refused():
    with pytest.raises(
        ValueError, match="expected one of auto, cuda, cpu, or a numbered GPU such as cuda:1; found 'gpu'"
    ):
        resolve("gpu")


@pytest.fixture
def cards(monkeypatch):
    """Two cards that are there; those that were made the current one, in order, and what came back."""
    current = [0]
    seen: list[int] = []

    @contextmanager
    def device(index):
        current.append(index)
        seen.append(index)
        yield
        current.pop()
        seen.append(current[-1])

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "device", device)
    return seen


def test_one_of_several_cards_is_taken_and_given_back(cards):
    assert resolve("cuda:1") == resolve("cuda:0") == "cuda"  # which of them is no part of what is trained
    with on_device("cuda:1"):
        assert device_of("cuda") == torch.device("cuda:1")
        assert device_of("cpu") == torch.device("cpu")
    assert device_of("cuda") == torch.device("cuda:0") and cards == [1, 0]
    for name in ("auto", "cuda", "cpu", ""):
        with on_device(name):
            assert cards == [1, 0]


@pytest.mark.parametrize("name", ["cuda:2", "cuda:01", "cuda:11"])
def test_a_card_that_is_not_there_is_refused_with_those_that_are(cards, name):
    with pytest.raises(ValueError, match=f"{name} was requested, but torch finds only cuda:0, cuda:1; use cuda, cpu"):
        resolve(name)


@pytest.mark.parametrize("name", ["cuda:", "cuda:-1", "cuda:one", "cpu:0", "mps"])
def test_what_names_no_card_is_refused(cards, name):
    with pytest.raises(
        ValueError, match=f"expected one of auto, cuda, cpu, or a numbered GPU such as cuda:1; found '{name}'"
    ):
        resolve(name)


def test_a_card_where_there_is_none_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="cuda:1 was requested, but torch finds no CUDA device; use cpu or auto"):
        resolve("cuda:1")


def test_a_cpu_has_no_gpu_name():
    assert gpu_name(torch.device("cpu")) == ""


SWITCHES = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)


def set_to():
    return [switch.fp32_precision for switch in SWITCHES]


def test_products_are_exact_unless_tf32_is_asked_for_and_what_was_set_comes_back():
    before = set_to()
    with products("tf32"):
        assert set_to() == ["tf32", "tf32"]
        with products("fp32"):
            assert set_to() == ["ieee", "ieee"]
        assert set_to() == ["tf32", "tf32"]
    assert set_to() == before


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_code_that_reads_the_older_flags_does_not_fail(legacy, precision):
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32
    matmul.allow_tf32 = legacy
    try:
        with products(precision):
            assert matmul.allow_tf32 is cudnn.allow_tf32 is (precision == "tf32")
        assert matmul.allow_tf32 is legacy and isinstance(cudnn.allow_tf32, bool)
    finally:
        matmul.allow_tf32 = before


def test_an_epoch_trains_in_its_precision_and_measuring_is_exact(monkeypatch):
    task = tiny_task(precision="bf16")
    seen = []
    monkeypatch.setattr(Trainer, "step", lambda self, *_: seen.append(set_to()) or _stop())
    with products("tf32"), pytest.raises(StopIteration):
        Trainer(task).run_epoch()
    assert seen == [["ieee", "ieee"]]


def _stop():
    raise StopIteration


def test_bf16_rounds_inside_the_parts_and_hands_out_float32():
    exact, rounded = runner("fp32", torch.device("cpu")), runner("bf16", torch.device("cpu"))
    part, x = torch.nn.Linear(64, 64), torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(exact(part, x), part(x))
    error = (rounded(part, x) - part(x)).abs().max()
    assert rounded(part, x).dtype == torch.float32 and 1e-4 < error < 1e-1


def test_bf16_keeps_no_rounded_weight_from_call_to_call():
    """In a CUDA graph it would be the graph's memory, and the next replay would overwrite it."""
    found = []
    runner("bf16", torch.device("cpu"))(lambda x: found.append(torch.is_autocast_cache_enabled()) or x, torch.ones(1))
    assert found == [False]


@pytest.mark.parametrize("method", ["bp", "dfa", "state_bridge"])
def test_bf16_trains_nearly_as_fp32_does_with_float32_weights(method):
    rounded, exact = Trainer(tiny_task(method=method, precision="bf16")), Trainer(tiny_task(method=method))
    losses = [trainer.run_epoch()["loss_train"].value for trainer in (rounded, exact)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02) and losses[0] != losses[1]
    assert not weights_equal(rounded.setup.network, exact.setup.network)
    assert {parameter.dtype for parameter in rounded.parameters} == {torch.float32}


def test_a_precision_that_cannot_be_is_refused_with_the_reason():
    with pytest.raises(InvalidFields, match="precision: tf32 exists only on CUDA"):
        tiny_spec(precision="tf32")
    with pytest.raises(InvalidFields, match="precision: bf16 uses autocast"):
        tiny_spec(method="weight_fa", precision="bf16")
    with pytest.raises(InvalidFields, match="precision: unknown value 'fp16'"):
        tiny_spec(precision="fp16")
