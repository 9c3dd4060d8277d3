"""Editions as data: what a wrong one is told."""

from __future__ import annotations

import pytest

from fa_registry import resources
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.protocol.rules import load_edition

SHIPPED = (resources.editions() / "2026-05.toml").read_text(encoding="utf-8")


def write(tmp_path, *replacements):
    text = SHIPPED
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_published_limits():
    limits = {rule.code: (rule.threshold, rule.fires) for rule in load_edition("2026-05").rules}
    assert limits == {"D1": (50.0, "above"), "D2": (1e-7, "below"), "D3": (2.0, "below_reference_plus")}


def test_a_users_edition_is_told_apart_by_its_digest(tmp_path):
    mine = load_edition(write(tmp_path, ("threshold = 50.0", "threshold = 40.0")))
    assert mine.rules[0].threshold == 40.0
    assert mine.digest != load_edition("2026-05").digest


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (('fires = "above"', 'fires = "abov"'), r"rule\[0\].fires: unknown operator 'abov' \(did you mean 'above'\?\)"),
        (('fires = "above"', 'fires = "__import__"'), "unknown operator"),
        (("threshold = 50.0", 'threshold = "50"'), r"rule\[0\].threshold: expected float, found '50'"),
        (("threshold = 50.0", "threshold = true"), r"rule\[0\].threshold: expected float, found True"),
        (('source = "arXiv 2606.21126, D1: maximal growth per block > 50"', ""), r"rule\[0\].source: missing"),
        (('take = "max_over_sites"', 'take = "all"'), "unknown quantifier 'all'"),
        (('fail_if = [["D1", "D2"], ["D3"]]', 'fail_if = [["D9"]]'), "fail_if: unknown rule 'D9'"),
        (("strict = false", "strikt = false"), r"unknown field 'strikt' \(did you mean 'strict'\?\)"),
    ],
)
def test_a_wrong_edition_is_told_what_is_wrong(tmp_path, replacement, message):
    with pytest.raises(InvalidFields, match=message):
        load_edition(write(tmp_path, replacement))


def test_all_wrong_fields_are_named_together(tmp_path):
    with pytest.raises(InvalidFields) as caught:
        load_edition(write(tmp_path, ("threshold = 50.0", 'threshold = "x"'), ('take = "last_site"', 'take = "first"')))
    assert len(caught.value.problems) == 2


def test_unknown_names_and_files(tmp_path):
    with pytest.raises(UnknownName, match="did you mean '2026-05'"):
        load_edition("2026-5")
    with pytest.raises(InvalidFields, match="does not exist"):
        load_edition(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("= nonsense", encoding="utf-8")
    with pytest.raises(InvalidFields, match="not TOML"):
        load_edition(str(tmp_path / "bad.toml"))
