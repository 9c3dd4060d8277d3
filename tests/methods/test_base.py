"""The contract of a method: cards, fixed matrices, and what a credit must fit."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fa_registry import methods
from fa_registry.errors import PluginError
from fa_registry.methods.base import Bridge, FixedMatrices, Method, NetworkShape, check_credits
from fa_registry.methods.dfa import PLUGIN as DFA
from fa_registry.methods.dfa import DirectFeedbackAlignment


@pytest.mark.parametrize("name", methods.CATALOG.names())
def test_every_card_is_complete(name):
    method = methods.CATALOG.get(name)
    assert isinstance(method, Method)
    assert method.card.name == name
    assert method.card.bibtex.startswith("@")
    assert method.card.architectures


def test_a_card_names_all_it_lacks():
    with pytest.raises(
        PluginError,
        match=r"'dfa' has missing or invalid fields: citation, gamma_reference \(one of bp.*exact_sites \(one of none",
    ):
        dataclasses.replace(DFA.card, citation="", gamma_reference="sgd", exact_sites="some")


def test_exact_sites():
    card = dataclasses.replace(DFA.card, exact_sites="all")
    assert all(card.is_exact(site, 2) for site in range(3))


def test_network_shape_counts_blocks():
    assert NetworkShape((4, 5, 6), 10).blocks == 2


def test_fixed_matrices_are_buffers_and_no_parameters():
    feedback = FixedMatrices([torch.zeros(2, 3), torch.ones(4, 3)])
    assert list(feedback.state_dict()) == ["B_01", "B_02"]
    assert not list(feedback.parameters())
    assert torch.equal(feedback.matrix(2), torch.ones(4, 3))


def test_too_few_credits_are_named():
    with pytest.raises(PluginError, match=r"'mine' returned 1 credits, expected one for each of the 2 sites \(0..1\)"):
        check_credits("mine", [torch.zeros(2, 3)], [torch.zeros(2, 3)] * 2)


def test_a_misshapen_credit_is_named_with_both_shapes():
    with pytest.raises(PluginError, match=r"'mine', site 1: expected a credit of shape \(2, 3\), found \(3, 2\)"):
        check_credits("mine", [torch.zeros(2, 3), torch.zeros(3, 2)], [torch.zeros(2, 3)] * 2)


def test_fitting_credits_pass():
    assert check_credits("mine", [torch.zeros(2, 3)], [torch.ones(2, 3)]) is None


def test_a_bridge_must_give_its_residuals():
    class Promising(DirectFeedbackAlignment, Bridge):
        pass

    with pytest.raises(TypeError, match="bridge_residuals"):
        Promising()
