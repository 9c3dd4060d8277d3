"""The sites that an error message suggests for a model without `.blocks`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fa_registry
from fa_registry.architectures._site_names import names_argument, suggested_sites
from fa_registry.errors import InvalidFields

Linear = nn.Linear


def model(**parts):
    built = nn.Module()
    for name, part in parts.items():
        setattr(built, name, part)
    return built


def block():
    return nn.Sequential(nn.LayerNorm(8), Linear(8, 8))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3), nn.Conv2d(width, width, 3)


def conv(width):
    return nn.Sequential(nn.Conv2d(width, width, 3), nn.BatchNorm2d(width))


BODY = model(inp=Linear(4, 8), body=nn.ModuleList(block() for _ in range(3)), out=Linear(8, 2))
NORMS = nn.ModuleList(nn.LayerNorm(8) for _ in range(4))
DECODER = model(wte=nn.Embedding(9, 8), wpe=nn.Embedding(9, 8), h=nn.ModuleList([block(), block()]))
CHAIN = [Linear(4, 8), nn.ReLU(), Linear(8, 8), nn.ReLU(), Linear(8, 2)]
RESNET = model(stem=conv(3), layer1=nn.Sequential(Block(2), Block(2)), layer2=nn.Sequential(Block(4)), fc=Linear(4, 2))


@pytest.mark.parametrize(
    ("built", "names"),
    [
        (BODY, ["body.0", "body.1", "body.2"]),
        (model(norms=NORMS, layers=nn.ModuleList([block(), block()])), ["layers.0", "layers.1"]),
        (model(inner=DECODER, head=Linear(8, 9)), ["inner.h.0", "inner.h.1"]),
        (nn.ModuleList(CHAIN), ["0", "2"]),
        (nn.Sequential(*CHAIN), ["0", "2"]),
        (RESNET, ["layer1.0", "layer1.1", "layer2.0"]),
        (Linear(4, 2), []),
    ],
    ids=["module list", "two lists", "list inside", "a list with its head", "sequential", "resnet", "no chain"],
)
def test_the_blocks_of_a_model_are_its_list_or_its_longest_chain(built, names):
    assert suggested_sites(built) == names


@pytest.mark.parametrize("pointed_at", [["body"], [BODY.body], list(BODY.body)], ids=["name", "list", "modules"])
def test_what_the_user_pointed_at_is_named(pointed_at):
    assert suggested_sites(BODY, pointed_at) == ["body.0", "body.1", "body.2"]


@pytest.mark.parametrize("count", [2, 40])
def test_the_suggested_argument_is_source_code(count):
    for names in ([f"h.{index}" for index in range(count)], [f"h.{index}" for index in range(1, count)]):
        assert eval(f"dict({names_argument(names)})")["sites"] == names


@pytest.mark.parametrize(
    "sites", [(), ["blocks.0"], ["body"], "body", BODY.body, [BODY.body[0], BODY.body[2]]], ids=str
)
@pytest.mark.parametrize("call", ["adapt", "track", "alignment"])
def test_wrong_sites_are_reported_once_with_the_fix(call, sites):
    x, y = torch.zeros(4, 4), torch.arange(4) % 2
    calls = {
        "adapt": lambda: fa_registry.adapt(BODY, sites),
        "track": lambda: fa_registry.track(BODY, sites, eval=(x, y), method="mine", seed=1),
        "alignment": lambda: fa_registry.alignment(BODY, (x, y), lambda *_: [], sites),
    }
    with pytest.raises(InvalidFields) as refused:
        calls[call]()
    (problem,) = refused.value.problems
    expected = ["body.0", "body.2"] if isinstance(sites, list) and len(sites) == 2 else ["body.0", "body.1", "body.2"]
    assert names_argument(expected) in problem and refused.value.__cause__ is refused.value.__context__ is None


def test_a_model_without_blocks_is_reported_once_by_the_protocol():
    with pytest.raises(InvalidFields) as refused:
        fa_registry.FAProtocol(BODY, torch.zeros(4, 4), torch.arange(4) % 2)
    assert names_argument(["body.0", "body.1", "body.2"]) in refused.value.problems[0]
    assert len(refused.value.problems) == 1 and refused.value.__cause__ is None
