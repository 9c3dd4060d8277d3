"""The analyses on the page: what answers, what is left out and why, and no number without its run."""

from __future__ import annotations

import base64
import dataclasses

import pytest

from fa_registry.analyses import CATALOG
from fa_registry.protocol.rules import load_edition
from fa_registry.reporting.pages import analyses as module
from fa_registry.reporting.pages.analyses import page_analyses, silence
from tests.analyses.builders import OURS, controlled, report_of, run
from tests.reporting.page import Page, section, words_of, written

EDITION = load_edition("2026-11")


def sweep():
    return [run("dfa", seed, spec={"penalty": strength}) for seed in (1, 2) for strength in (0.0, 0.01)]


def test_what_has_something_to_say_is_shown_and_the_rest_says_why(rich):
    page = page_analyses(rich)
    assert [one.name for one in page.shown] == ["sensitivity", "ablation", "first-fire", "per-layer"]
    why = dict(page.left_out)
    assert why["Penalty sweep"] == "no method was run with more than one λ"
    assert (
        why["Depth ladder"].startswith("no rung was run")
        and why["Across architectures"] == "all runs are of one network"
    )
    assert page == page_analyses(rich)


def test_every_analysis_of_the_list_exists_and_has_a_figure():
    assert set(module.NAMES) <= set(CATALOG.names())


def test_a_sweep_two_networks_and_rungs_are_shown():
    runs = [*sweep(), run("dfa", 1, spec={"control": "ladder_1"}), run("dfa", 1, spec={"architecture": "cnn"})]
    report = report_of(controlled(*runs), EDITION)
    names = {one.name for one in page_analyses(report, room=10**7).shown}
    assert {"penalty", "cross-architecture", "ladder"} <= names


def test_the_page_runs_full(rich):
    assert page_analyses(rich, room=0).shown == ()
    assert (
        "the page is full; fa-registry analyse sensitivity writes it"
        in dict(page_analyses(rich, room=0).left_out).values()
    )
    few = page_analyses(rich, room=module.LEAST)
    assert len(few.shown) < 4


def test_an_edition_that_cannot_be_read_again_leaves_all_out_and_says_so(rich):
    unknown = dataclasses.replace(rich, edition=dataclasses.replace(rich.edition, name="/gone/mine.toml"))
    other = dataclasses.replace(rich, edition=dataclasses.replace(rich.edition, digest="0" * 64))
    for report, words in (
        (unknown, "cannot be read here"),
        (other, "is not the one that judged (sha256 000000000000…)"),
    ):
        page = page_analyses(report)
        assert page.shown == () and len(page.left_out) == len(module.NAMES)
        assert all(words in why for _, why in page.left_out)


def test_thresholds_changed_on_the_command_line_are_judged_by_again():
    report = report_of(controlled(*sweep()), OURS)
    assert report.edition.overrides and page_analyses(report).shown


def test_controls_alone_have_nothing_to_say():
    report = report_of(controlled(), EDITION)
    page = page_analyses(report)
    assert page.shown == () and len(page.left_out) == len(module.NAMES) and all(why for _, why in page.left_out)
    empty = dataclasses.replace(report, runs=())
    assert page_analyses(empty).shown == ()


def test_silence_has_a_reason_of_its_own(rich):
    analysis = CATALOG.get("penalty").run(rich, EDITION)
    assert silence(analysis) == "no method was run with more than one λ"
    assert silence(CATALOG.get("ablation").run(rich, EDITION)) == ""


def test_cells_are_words_and_numbers_with_their_runs(rich):
    by_name = {one.name: one for one in page_analyses(rich).shown}
    first = by_name["first-fire"]
    assert first.setting == rich.runs[0].record.setting and "setting" not in [name for name, _, _ in first.columns]
    cells = [cell for row in first.rows.shown for cell in row.cells]
    never = next(cell for cell in cells if cell.words == "never")
    assert never.number is None and never.reason
    ids = {run.record.run_id for run in rich.runs}
    assert all(row.run_ids and set(row.run_ids) <= ids for row in first.rows.shown)
    head, data = first.uri.split(",", 1)
    assert head == "data:image/png;base64" and base64.b64decode(data).startswith(b"\x89PNG")


def test_the_page_holds_tables_figures_and_reasons(rich, rich_pages):
    part = section(rich_pages["index.html"], "analyses")
    page = Page(part)
    assert page.tags.count("img") == page.tags.count("table") == 4
    words = words_of(part)
    assert "Penalty sweep is not shown: no method was run with more than one λ." in words
    assert "nan" not in words.lower().split() and "How far may each threshold move" in words


def test_a_long_table_says_how_much_of_it_is_shown(rich, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    words = words_of(section(written(rich, tmp_path)["index.html"], "analyses"))
    assert "the first 2 of" in words and "fa-registry analyse first-fire writes all" in words


@pytest.mark.parametrize("name", ["<b>x</b>", "{{7*7}}"])
def test_foreign_names_stay_text(name, tmp_path):
    report = report_of(controlled(run(name, 1), run("dfa", 1)), EDITION)
    text = section(written(report, tmp_path)["index.html"], "analyses")
    assert "<b>x</b>" not in text and "49" not in words_of(text).split()
