"""BibTeX of exactly what was used: every entry once, in words where a card has no more, and said where it has nothing."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry import datasets, diagnostics, jsonio, methods
from fa_registry.records import EditionReference
from fa_registry.reporting.citations import bibliography, entries_of
from tests.reporting.report_changes import with_record


@pytest.fixture
def cited():
    """The bibliography of a method's runs in a report, with changes to its cards."""

    def made(report, method="dfa", **cards):
        report = dataclasses.replace(report, cards={**report.cards, **cards})
        runs = [run for run in report.runs if run.record.spec.method == method and run.record.spec.control == "none"]
        return bibliography(runs, [finding for run in runs for finding in run.findings], report)

    return made


def keys(found) -> list[str]:
    return [entry.key for entry in found.entries]


def uses(found, key: str) -> str:
    return " | ".join(next(entry.uses for entry in found.entries if entry.key == key))


def test_every_edition_is_cited_and_one_of_a_user_by_its_text(cited, rich):
    found = cited(rich)
    assert all(f"edition {name}" in uses(found, "arxiv2606.21126") for name in ("2026-12", "2026-05", "2026-04"))
    mine = EditionReference("mine", "t", "A. Person, 100% {of} \\rules & more", "0" * 64)
    (entry,) = [
        entry for entry in cited(dataclasses.replace(rich, edition=mine)).entries if entry.key == "edition-mine"
    ]
    assert "100\\% of rules \\&" in entry.bibtex


def test_diagnostics_are_cited_only_where_a_rule_looked_at_their_quantity(cited, report):
    growth = {"quantities": ["h_norm", "growth"], "source": "A book on growth, 1999"}
    other = {"quantities": ["rho"], "source": "A book on rho, 1998"}
    found = cited(report, **{"diagnostics/h_norm": growth, "diagnostics/rho": other})
    assert "diagnostic-h_norm" in keys(found) and "diagnostic-rho" not in keys(found)


def test_a_diagnostic_of_a_preprint_and_a_paper_cites_both(cited, rich):
    card = jsonio.encode(diagnostics.CATALOG.get("gamma_null").card)
    found = cited(rich, **{"diagnostics/gamma_null": {**card, "quantities": ["gain"]}})
    assert "diagnostic gamma_null" in uses(found, "phipson2010permutation")
    assert "diagnostic gamma_null: arXiv" in uses(found, "arxiv2606.21126")


def test_a_further_condition_of_a_rule_counts_too(cited, rich):
    found = cited(rich, **{"diagnostics/gain": {"quantities": ["gain"], "source": "this project: of gain"}})
    assert "diagnostic gain" in uses(found, "fa_registry")


def test_a_card_without_a_citation_is_reported(cited, report):
    found = cited(report, **{"methods/dfa": {"name": "dfa"}})
    assert len(found.uncited) == 1 and "method dfa" in found.uncited[0] and "nokland2016direct" not in keys(found)


def test_a_plugin_whose_card_is_not_there_is_reported(cited, report):
    bare = dataclasses.replace(report, cards={})
    assert len(cited(bare).uncited) == 3 and keys(cited(bare)) == ["arxiv2606.21126", "fa_registry"]


def test_two_texts_under_one_key_are_both_kept(cited, report):
    found = cited(report, **{"datasets/digits": {"bibtex": "@misc{nokland2016direct,\n note={another}\n}"}})
    assert keys(found)[0] == "nokland2016direct" and "@misc{nokland2016direct-2," in found.bibtex


def test_several_entries_of_a_card_are_taken_apart():
    two = "@article{a,\n title={A}\n}\n@book{b, title={B}}"
    assert list(entries_of(two)) == [("a", "@article{a,\n title={A}\n}"), ("b", "@book{b, title={B}}")]
    ((key, entry),) = entries_of("Anonymous 1999")
    assert key == "anonymous-1999" and entry.startswith("@misc{anonymous-1999,") and "note={Anonymous 1999}" in entry


def test_a_version_that_was_not_recorded_is_not_made_up(cited, report):
    runs = tuple(with_record(run, provenance={}) for run in report.runs)
    assert ", version" not in cited(dataclasses.replace(report, runs=runs)).bibtex


def test_the_bibtex_of_every_shipped_card_can_be_taken_apart():
    families = (methods.CATALOG, datasets.CATALOG, diagnostics.CATALOG)
    texts = [text for family in families for name in family.names() if (text := family.get(name).card.bibtex)]
    found = [(key, entry) for text in texts for key, entry in entries_of(text)]
    assert len(texts) >= 20 and all(key in entry and entry.count("{") == entry.count("}") for key, entry in found)
    assert len(dict(found)) == len(set(found))  # one text a key, or a form would cite one paper twice
