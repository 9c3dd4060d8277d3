"""The import of torchvision: one known fault is mended, nothing else is swallowed."""

from __future__ import annotations

import types

import pytest
import torch

from fa_registry.datasets import _files
from fa_registry.errors import UsageError

KNOWN = "operator torchvision::nms does not exist"
MODULE = types.ModuleType("torchvision.datasets")


@pytest.fixture
def attempts(monkeypatch):
    """What successive imports do: raise, or return. The test fills it; what is left over was never tried."""
    outcomes = []

    def attempt(name):
        assert name == "torchvision.datasets"
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(_files.importlib, "import_module", attempt)
    return outcomes


@pytest.fixture
def defined(monkeypatch):
    """Names of the operators that are defined, instead of defining them."""
    names = []
    monkeypatch.setattr(torch.library, "define", lambda name, schema: names.append(name))
    monkeypatch.setattr(torch.ops, "torchvision", types.SimpleNamespace(), raising=False)
    return names


def test_an_import_that_works_defines_nothing(attempts, defined):
    attempts[:] = [MODULE]
    assert _files.torchvision_datasets() is MODULE and defined == []


def test_after_the_known_failure_both_operators_are_declared_and_it_is_tried_again(attempts, defined):
    attempts[:] = [RuntimeError(KNOWN), MODULE]
    assert _files.torchvision_datasets() is MODULE
    assert defined == ["torchvision::nms", "torchvision::qnms"]


def test_an_operator_that_exists_is_not_declared_again(attempts, defined):
    torch.ops.torchvision.nms = "there"
    attempts[:] = [RuntimeError("operator torchvision::qnms does not exist"), MODULE]
    assert _files.torchvision_datasets() is MODULE and defined == ["torchvision::qnms"]


@pytest.mark.parametrize(
    "failure",
    [
        RuntimeError("operator torchvision::roi_align does not exist"),
        RuntimeError("CUDA driver version is insufficient"),
        ImportError("libc10.so: cannot open shared object file"),
        ModuleNotFoundError("No module named 'PIL'", name="PIL"),
    ],
)
def test_any_other_failure_is_raised_as_it_is(attempts, defined, failure):
    attempts[:] = [failure, MODULE]
    with pytest.raises(type(failure)) as raised:
        _files.torchvision_datasets()
    assert raised.value is failure and attempts == [MODULE] and defined == []


def test_a_second_failure_is_loud(attempts, defined):
    attempts[:] = [RuntimeError(KNOWN), RuntimeError(KNOWN)]
    with pytest.raises(RuntimeError, match=KNOWN):
        _files.torchvision_datasets()


def test_a_missing_torchvision_is_a_usage_error(attempts):
    attempts[:] = [ModuleNotFoundError("No module named 'torchvision'", name="torchvision")]
    with pytest.raises(UsageError, match=r'^torchvision is not installed: pip install "fa_registry\[images\]"$'):
        _files.torchvision_datasets()


def test_the_installed_one_imports():
    loaded = _files.torchvision_datasets()
    assert {"CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "SVHN"} <= set(vars(loaded))
