"""datasets.get: one lookup for plain names and for names with an argument."""

from __future__ import annotations

import pytest

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


def test_a_plain_name_takes_no_argument():
    assert datasets.get("digits") is datasets.CATALOG.get("digits")
    for name in ("digits:1", "digits:", "digit"):
        with pytest.raises(UnknownName, match=f"unknown data set '{name}' .did you mean 'digits'.*; known: cifar10, "):
            datasets.get(name)
