"""In a notebook: the numbers of the pages, escaped, without a script, and in its own colours."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from html.parser import HTMLParser

from fa_registry.analyses import AnalysisCell, AnalysisColumn, AnalysisTable
from fa_registry.records import Reading, Verdict
from fa_registry.reporting.notebook import LINES, MOST, SCREEN, WRITERS
from fa_registry.reporting.text.filters import reading

EVIL = "<script>alert(1)</script>\u202e"


class Tags(HTMLParser):
    """What is in a page, and that every element ends."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.seen, self.words = [], [], []
        self.feed(text)
        assert self.open == [], self.open

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_an_audit_shows_its_verdicts_and_figures(rich):
    page = Tags(rich._repr_html_())
    text = " ".join(page.words)
    assert page.seen.count("tr") == 1 + len(rich.runs) and "script" not in page.seen
    assert all(run.verdict.full_label in text for run in rich.runs) and rich.title in text


def test_a_run_shows_its_findings(rich):
    run = next(run for run in rich.runs if run.findings and "gamma_deep_mean" in run.record.measurements.scalars)
    page = " ".join(Tags(run._repr_html_()).words)
    assert all(finding.rule in page for finding in run.findings) and run.record.run_id in page
    assert run.record.integrity.state in " ".join(Tags(run.record._repr_html_()).words)
    gamma = run.record.measurements.scalars["gamma_deep_mean"]
    assert Tags(run.record._repr_html_()).words[-1] == reading(gamma, "cos")  # over the deep sites, not of the last


def test_foreign_text_is_text(rich):
    run = rich.runs[0]
    evil = dataclasses.replace(run.record, name=EVIL, setting=EVIL)
    judged = dataclasses.replace(run, record=evil, verdict=Verdict("fail", EVIL))
    report = dataclasses.replace(rich, title=EVIL, runs=(judged,))
    for shown in (evil, judged, judged.verdict, report):
        page = Tags(shown._repr_html_())
        assert "script" not in page.seen and "\u202e" not in "".join(page.words)
        assert any("<script>alert(1)</script>" in text for text in page.words)


def test_print_shows_a_screen_and_repr_one_line(rich):
    run = rich.runs[0]
    for shown, name in ((rich, rich.title), (run, run.record.name), (run.record, run.record.name)):
        lines = str(shown).splitlines()
        assert 3 <= len(lines) <= 60 and max(map(len, lines)) < 400
        assert name in str(shown) and name in repr(shown)
        assert "\n" not in repr(shown) and len(repr(shown)) < 300
    assert all(run.verdict.full_label in str(rich) for run in rich.runs)
    assert run.verdict.full_label in repr(run) and run.verdict.full_label in repr(rich)
    assert all(finding.rule in str(run) for finding in run.findings)
    assert str(run.verdict) == run.verdict.full_label


def test_print_of_many_runs_names_the_number_that_is_not_shown(rich):
    many = dataclasses.replace(rich, runs=rich.runs * 100)
    assert len(str(many).splitlines()) == 2 + 1 + SCREEN + 1
    assert str(many).endswith(f"the first {SCREEN} of {len(many.runs)} rows are shown")
    assert f"the first {MOST} of {len(many.runs)} rows are shown" in many._repr_html_()


def test_measurements_and_findings_have_one_line(rich):
    run = next(run for run in rich.runs if run.findings)
    assert run.findings[0].sentence in str(run.findings[0])
    assert len(str(run.record.measurements).splitlines()) <= LINES and "h_norm" in str(run.record.measurements)
    for shown in (run.findings[0], run.record.measurements):
        assert "\n" not in repr(shown) and len(repr(shown)) <= 200


def test_a_table_of_an_analysis_has_one_line_and_prints_a_screen():
    row = {"method": AnalysisCell(text="dfa"), "count": AnalysisCell(Reading(3.0))}
    columns = AnalysisColumn("method", ""), AnalysisColumn("count", "", "", "count")
    table = AnalysisTable("evidence", "All runs", columns, (row,) * 100)
    assert repr(table).startswith("AnalysisTable('evidence', ") and "rows: 100" in repr(table)
    lines = str(table).splitlines()
    assert lines[0] == table.title and "dfa" in lines[2] and lines[-1].startswith(f"the first {SCREEN} of 100")


def test_print_escapes_foreign_text(rich):
    evil = dataclasses.replace(rich.runs[0].record, name="\x1b[31mred\u202e", setting="two\nlines")
    assert not {"\x1b", "\u202e"} & set(str(evil)) and len(str(evil).splitlines()) == len(
        str(rich.runs[0].record).splitlines()
    )
    assert not {"\x1b", "\u202e", "\n"} & set(repr(evil))


def test_every_kind_has_its_form():
    kinds = {"Verdict", "RunRecord", "RunAudit", "AuditReport", "Measurements", "Analysis", "AnalysisTable"}
    assert {kind.__name__ for kind in WRITERS} == kinds


def test_a_record_alone_is_plain_text_where_no_page_code_is_loaded():
    code = "from fa_registry.records import Verdict; print(Verdict('pass', 'PASS')._repr_html_())"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "None"
    )
