"""card: everything that is declared, for people and as JSON."""

from __future__ import annotations

import json

import pytest

from fa_registry import methods
from fa_registry.workflows.looking import CATALOGS


@pytest.mark.parametrize("family", CATALOGS)
def test_every_member_has_a_card_to_show(registry, family):
    for name in CATALOGS[family].names():
        card = json.loads(registry("card", name, "--family", family, "--json").stdout)
        assert (card["family"], card["name"]) == (family, name) and card["file"].endswith(".py")
        assert f"name: {name}\n" in registry("card", name, "--family", family).stdout


def test_deviations_are_numbered_and_options_say_what_they_take(registry):
    text = registry("card", "dfa").stdout
    for number, deviation in enumerate(methods.CATALOG.get("dfa").card.deviations, start=1):
        assert f"\n  {number}. {deviation}\n" in text
    text = registry("card", "mlp").stdout
    assert "\n  activation: relu (after every hidden layer, one of relu, tanh, sigmoid, gelu)\n" in text
    assert "\n  d_hidden: 256 (width of every hidden layer, at least 1)\n" in text


def test_unknown_names_are_refused(registry):
    result = registry("card", "dfaa")
    assert result.exit_code == 2 and "unknown name 'dfaa' (did you mean 'dfa'?)" in result.stderr
    result = registry("card", "dfa", "--family", "method")
    assert result.exit_code == 2 and "did you mean 'methods'" in result.stderr
