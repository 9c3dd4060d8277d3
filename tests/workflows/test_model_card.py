"""The card in Markdown: its first lines, and that nothing from outside is more than text in it."""

from __future__ import annotations

import dataclasses

import pytest
from markdown_it import MarkdownIt

from fa_registry.protocol.shipped import digests
from fa_registry.records import EditionReference, Finding, Integrity, Reading, Verdict
from fa_registry.training.model_folder import Despite, ModelCard, Opinion
from fa_registry.workflows.promote import model_card_text

EVIL = "<script>alert(1)</script> {{7*7}} **bold** [link](http://evil.example) `code`\n# heading"


def edition(name):
    return EditionReference(name, "title", "source", digests().get(name, "1a2b3c4d" * 8))


def card(text="plain", **changes):
    finding = Finding("D1", text, "pass", text, Reading(1.0), text, text, "r")
    fields = {
        "method": text,
        "setting": text,
        "control": "none",
        "run_id": "r",
        "run_name": text,
        "identity": "0" * 64,
        "accuracy": Reading(0.9),
        "opinions": (
            Opinion(edition("2026-11"), Verdict("pass", "PASS"), (finding,)),
            Opinion(edition("2026-05"), Verdict("fail", "FAIL(D3)"), ()),
        ),
        "audit_run_id": "a",
        "integrity": Integrity("verified", (text,)),
        "digests": {"network.safetensors": "1" * 64},
        "provenance": {"commit": text, "dirty": None, "eval_indices": list(range(128))},
        "citation": text,
        "bibtex": text,
    }
    return ModelCard(**{**fields, **changes})


def test_the_verdict_that_decided_stands_first_and_the_others_are_told():
    lines = model_card_text(card(), "m").splitlines()
    digest = digests()["2026-11"]
    assert lines[0] == f"**PASS** by edition 2026-11, sha256 {digest[:8]} · plain · plain"
    assert f"Edition sha256 {digest}" in lines
    assert lines[2] == "Other editions: FAIL(D3) by 2026-05"
    assert "- No rule judged this run." in lines and "- pass: plain" in lines


def test_a_reason_goes_before_the_verdict():
    text = model_card_text(card(despite=Despite("we need it", "A. Nother")), "m")
    assert text.startswith("**Promoted despite PASS** by A. Nother: we need it\n\n**PASS** by edition")


def test_a_control_and_a_modified_edition_are_called_so():
    modified = dataclasses.replace(edition("e"), overrides={"D1.threshold": 100.0})
    text = model_card_text(card(control="frozen", opinions=(Opinion(modified, Verdict("pass", "PASS"), ()),)), "m")
    assert (
        text.startswith("**frozen control** · **PASS**")
        and "## PASS by e, mine (not a shipped edition) (modified)" in text
    )


@pytest.mark.parametrize(
    ("accuracy", "shown"), [(Reading(0.9), "90.0\u00a0%"), (Reading(None, "a regression"), "N/A: a regression")]
)
def test_an_accuracy_that_is_missing_has_its_reason(accuracy, shown):
    assert f"- test accuracy: {shown} (run r)" in model_card_text(card(accuracy=accuracy), "m")


def test_nothing_from_outside_is_more_than_text():
    evil = card(EVIL, despite=Despite(EVIL, EVIL), feedback={EVIL: EVIL}, control=EVIL)
    html = MarkdownIt().render(model_card_text(evil, "m"))
    assert "<script" not in html and "<a " not in html and "<h1>" not in html and "<em>" not in html
    assert html.count("&lt;script&gt;") > 5 and "<strong>bold" not in html


def test_the_long_list_of_measured_samples_stays_in_the_json():
    text = model_card_text(card(), "m")
    assert "eval" not in text and "- dirty: not recorded" in text


def test_the_same_record_gives_the_same_bytes():
    assert model_card_text(card(), "m") == model_card_text(card(), "m")
