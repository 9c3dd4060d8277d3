"""A waivers.toml next to the store changes no verdict unless the command or the study names it."""

from __future__ import annotations

import pytest

from tests.security.conftest import STUDY, call, judged, publishing, written_report

pytestmark = pytest.mark.long

WAIVER = """
[[waiver]]
rule = "{rule}"
method = "{method}"
reason = "it would fail without this file"
author = "A. Author"
date = 2026-01-01
expiry = 9999-01-01
"""
FIRES = ("--edition", "2026-05", "--threshold", "D3=200")  # a margin of 200 pp: D3 fires for every training
UNUSED = "`--waivers waivers.toml`"


@pytest.fixture
def planted(store):
    """The honest store, with a waivers.toml in the working folder that waives D3 of every method."""
    text = "".join(WAIVER.format(rule="D3", method=method) for method in ("bp", "fa", "dfa"))
    (store.folder / "waivers.toml").write_text(text, encoding="utf-8")
    return store


def run_audit(store, *arguments, published=False):
    with publishing(published):
        result = call("audit", "--study", "tiny", "--out", "pages", "--trust-logged", *FIRES, *arguments)
    return result, written_report(store.folder)


def outcomes(report):
    return {run.verdict.outcome for run in judged(report, control="none")}


def test_a_file_that_was_not_named_changes_nothing(planted):
    result, report = run_audit(planted)
    assert (result.exit_code, outcomes(report), report.waivers) == (1, {"fail"}, ())
    assert result.output.count(UNUSED) == 1


def test_the_named_file_applies_and_no_line_calls_it_unused(planted):
    result, report = run_audit(planted, "--waivers", "waivers.toml")
    assert result.exit_code == 0 and "fail" not in outcomes(report) and len(report.waivers) == 3
    assert UNUSED not in result.output


def test_the_study_names_its_own_file_and_the_page_says_so(planted):
    (planted.folder / "waivers.toml").rename(planted.folder / "tiny" / "mine.toml")
    (planted.folder / "tiny" / "study.toml").write_text(f'waivers = "mine.toml"\n{STUDY}', encoding="utf-8")
    result, report = run_audit(planted, published=True)
    assert result.exit_code == 0 and "fail" not in outcomes(report)
    assert "mine.toml" in (planted.folder / "pages" / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("named", ['"gone.toml"', "3"])
def test_a_study_that_names_no_readable_file_is_refused(planted, named):
    (planted.folder / "tiny" / "study.toml").write_text(f"waivers = {named}\n{STUDY}", encoding="utf-8")
    result = call("audit", "--study", "tiny", "--out", "pages")
    assert result.exit_code == 2 and "waivers" in result.output
    assert not (planted.folder / "pages").exists()
