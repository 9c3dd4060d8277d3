"""The written pages: the same bytes twice, the record without loss, people's words kept, all or nothing."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from fa_registry import jsonio
from fa_registry.errors import UsageError
from fa_registry.records import AuditReport
from fa_registry.reporting.render import render_report
from tests.reporting.page import Page

BESIDE = ("audit_table.tex", "audit.csv", "junit.xml", "audit.json")


def test_an_index_a_form_for_each_method_and_the_record_are_written(pages):
    names = list(pages)
    assert names[0] == "index.html" and tuple(names[-len(BESIDE) :]) == BESIDE
    assert [re.sub(r"-.*", "", name) + name[name.rindex(".") :] for name in names[1 : -len(BESIDE)]] == [
        f"forms/{method}.{kind}" for method in ("bp", "dfa") for kind in ("html", "md", "tex")
    ]


@pytest.mark.parametrize("which", ["report", "rich"])
def test_rendering_again_gives_the_same_bytes(which, request, tmp_path):
    report = request.getfixturevalue(which)
    first = {path: path.read_bytes() for path in render_report(report, tmp_path)}
    assert {path: path.read_bytes() for path in render_report(report, tmp_path)} == first
    elsewhere = render_report(report, tmp_path / "elsewhere")
    assert [path.read_bytes() for path in elsewhere] == list(first.values())


def test_the_record_is_lossless(report, pages):
    assert jsonio.decode(AuditReport, json.loads(pages["audit.json"])) == report


def test_what_people_wrote_survives_and_reaches_the_page(report, tmp_path):
    form = next(path for path in render_report(report, tmp_path) if path.suffix == ".md")
    written = "We expected **0.9**.\n\n<b>bold</b> & {{ 7 * 7 }}"
    text = form.read_text("utf-8")
    form.write_text(
        text.replace("<!-- fa:blank motivation -->\n", f"<!-- fa:blank motivation -->\n{written}"), encoding="utf-8"
    )
    for _ in range(2):
        render_report(report, tmp_path)
        assert f"<!-- fa:blank motivation -->\n{written}\n<!-- /fa:blank -->" in form.read_text("utf-8")
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; {{ 7 * 7 }}" in form.with_suffix(".html").read_text("utf-8")


def test_a_form_with_broken_markers_stops_the_rendering_before_anything_is_written(report, tmp_path):
    paths = render_report(report, tmp_path)
    form = next(path for path in paths if path.suffix == ".md")
    form.write_text(form.read_text("utf-8").replace("<!-- /fa:blank -->", "", 1), encoding="utf-8")
    paths[0].unlink()
    with pytest.raises(UsageError, match="blanks cannot be kept"):
        render_report(report, tmp_path)
    assert not paths[0].exists()


def test_a_template_without_blanks_does_not_overwrite_what_people_wrote(report, tmp_path):
    mine, out = tmp_path / "mine", tmp_path / "out"
    mine.mkdir()
    (mine / "form.md.j2").write_text("{{ title }}")
    form = next(path for path in render_report(report, out) if path.suffix == ".md")
    filled = form.read_text("utf-8").replace("<!-- fa:blank claim -->\n", "<!-- fa:blank claim -->\nmine", 1)
    form.write_text(filled, encoding="utf-8")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"what people wrote into claim would be lost"):
        render_report(dataclasses.replace(report, title="another"), out, templates=mine)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    form.unlink()
    assert render_report(report, out, templates=mine) and form.is_file()


def test_an_audit_without_runs_is_still_a_page(report, tmp_path):
    paths = render_report(dataclasses.replace(report, runs=(), excluded=(), remarks=(), cards={}), tmp_path)
    assert [path.name for path in paths] == ["index.html", *BESIDE]
    words = "".join(Page(paths[0].read_text("utf-8")).words)
    assert (
        "No method was judged." in words
        and "no table to show" in words
        and "None: every selected run was judged." in words
    )


def test_a_run_that_measured_nothing_is_still_a_page(report, tmp_path, judged):
    record = report.runs[0].record
    broken = dataclasses.replace(
        record,
        status="failed",
        trajectory={},
        provenance={},
        measurements=dataclasses.replace(record.measurements, sites={}, scalars={}, conventions={}),
    )
    paths = render_report(judged([broken]), tmp_path)
    words = "".join(Page(paths[0].read_text("utf-8")).words)
    assert "INCOMPLETE" in words and "accuracy was not measured" in words


def test_a_users_template_stands_in_by_name_and_is_sandboxed(report, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "index.html.j2").write_text(
        "{% import 'macros.html.j2' as m %}<p>{{ title }} {{ m.chip(forms[0].verdict) }}</p>"
    )
    paths = render_report(report, tmp_path / "out", templates=mine)
    assert paths[0].read_text("utf-8").startswith("<p>digits, first audit")
    assert "Reporting form" in paths[1].read_text("utf-8")
    (mine / "index.html.j2").write_text("{{ title.__class__ }}")
    with pytest.raises(UsageError, match="SecurityError"):
        render_report(report, tmp_path / "out", templates=mine)


def test_a_failed_rendering_leaves_earlier_pages_as_they_were(report, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    before = {path: path.read_bytes() for path in render_report(report, tmp_path / "out")}
    (mine / "form.md.j2").write_text("{{ nothing }}")
    with pytest.raises(UsageError, match=r"form\.md\.j2"):
        render_report(dataclasses.replace(report, title="another"), tmp_path / "out", templates=mine)
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(["forms", "index.html", *BESIDE])
