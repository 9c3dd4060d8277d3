"""datasets.get: one lookup for plain names and for names with an argument."""

from __future__ import annotations

import pytest
import torch

from fa_registry import datasets
from fa_registry.datasets.base import Dataset, DatasetFamily
from fa_registry.errors import UnknownName


@pytest.mark.parametrize("name", datasets.CATALOG.names())
def test_every_member_has_a_card_by_its_name_and_a_file_set_says_so(name):
    member = datasets.CATALOG.get(name)
    assert isinstance(member, Dataset)
    assert member.card.name == name or isinstance(member, DatasetFamily)
    assert member.card.line and member.card.normalisation and member.card.augmentation
    assert bool(member.card.files) == ("needs files" in member.card.line)


def is_the_same(member: Dataset) -> bool:
    first, other = (member.load(torch.device("cpu"), None, seed) for seed in (0, 1))
    return first.digest == other.digest


WITH_ARGUMENTS = {"cifar_shaped": "cifar_shaped:1000", "random_targets": "random_targets:digits"}


@pytest.mark.parametrize("name", [WITH_ARGUMENTS.get(name, name) for name in datasets.CATALOG.names()])
def test_a_set_that_says_it_is_the_same_for_every_seed_is(name):
    member = datasets.get(name)
    hash(member)
    if not member.card.files:  # those are read whole, and nothing of them is drawn
        assert member.same_for_every_seed == is_the_same(member)


def test_a_plain_name_takes_no_argument():
    assert datasets.get("digits") is datasets.CATALOG.get("digits")
    for name in ("digits:1", "digits:", "digit"):
        with pytest.raises(UnknownName, match=f"unknown data set '{name}' .did you mean 'digits'.*; known: cifar10, "):
            datasets.get(name)
