"""Device choice: auto says what it took, cuda without a card is an error."""

from __future__ import annotations

import os

import pytest
import torch

from fa_registry.training.devices import gpu_name, resolve, usable_cores


@pytest.fixture(params=[False, True])
def cuda(request, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param)
    return request.param


def test_auto_prefers_cuda(cuda):
    assert resolve("auto") == ("cuda" if cuda else "cpu")


def test_cuda_without_a_card_is_an_error(cuda):
    if cuda:
        assert resolve("cuda") == "cuda"
    else:
        with pytest.raises(ValueError, match="torch sees no CUDA device; use cpu or auto"):
            resolve("cuda")


def test_an_unknown_device_is_refused():
    with pytest.raises(ValueError, match="expected one of auto, cuda, cpu, found 'gpu'"):
        resolve("gpu")


def test_a_cpu_has_no_gpu_name():
    assert gpu_name(torch.device("cpu")) == ""


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 64
