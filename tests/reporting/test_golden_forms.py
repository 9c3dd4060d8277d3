"""The whole text of a form for each kind of case, as a reader gets it: a sentence that appears, goes or moves is seen in the diff.

test_claims_table checks what each claim needs; claims.md has every text that it finds.
`python -m tests.reporting.test_golden_forms` writes the texts again: read the diff before you commit it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import AuditReport, Waiver
from fa_registry.reporting.pages.comparison import compare_context
from fa_registry.reporting.pages.form import form_context
from fa_registry.reporting.pages.notes import Notes
from fa_registry.reporting.render import render_comparison
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.text.environment import TemplateRenderer, variables
from tests.reporting.page import lines_of, written
from tests.reporting.runs import CARDS, SITES, THREE_SEEDS, diverged, full, make_record, without_feedback
from tests.reporting.sample_reports import DIAGNOSTIC_CARDS, full_report, make_report, small_report
from tests.reporting.test_claims_table import golden_text

FOLDER = Path(__file__).parent / "golden_forms"
KINDS = {  # kind of case → the method whose form it is
    "exact method": "bp",
    "exploded method": "fa",
    "no feedback state": "dfa",
    "diverged run": "drtp",
    "waived rule": "fa",
}


def an_audit(*waivers: Waiver) -> AuditReport:
    """bp that learns, fa whose stream explodes, dfa without its feedback file, drtp that diverged; and the frozen controls."""
    frozen = [full(make_record("bp", seed, 0.80, 1.02, 0.4, 0.0, control="frozen")) for seed in THREE_SEEDS]
    bp = [full(make_record("bp", seed, 0.97, 3.0, 1e-2, 1.0), gain=[0.3] * SITES) for seed in THREE_SEEDS]
    fa = [full(make_record("fa", seed, 0.70, 5e8, 1e-5, 0.25), gain=[1.1e-5] * SITES) for seed in THREE_SEEDS]
    dfa = [without_feedback(full(make_record("dfa", seed, 0.84, 3.0, 1e-2, 0.1))) for seed in THREE_SEEDS]
    drtp = [diverged(make_record("drtp", seed, 0.10, 5e8, 1e-9, 0.1)) for seed in THREE_SEEDS]
    report = make_report([*bp, *fa, *dfa, *drtp, *frozen], "2026-12", ("2026-05",), waivers=waivers)
    return dataclasses.replace(report, cards={**CARDS, **DIAGNOSTIC_CARDS})


def form_of(kind: str) -> str:
    """form.md of the kind's method."""
    waivers = [
        Waiver("D3", "the margin is judged in a later paper", "A. Person", "2026-05-01", "2026-12-31", method="fa")
    ]
    sources = Sources.of(an_audit(*(waivers if kind == "waived rule" else ())))
    group, link = next(pair for pair in sources.forms if pair[0].method == KINDS[kind])
    return TemplateRenderer().render("form.md.j2", variables(form_context(group, link, sources)))


def path_of(kind: str) -> Path:
    return FOLDER / f"{kind.replace(' ', '-')}.md"


def pages_text(small: AuditReport, rich: AuditReport, first: dict[str, str], pages: dict[str, str]) -> dict[str, str]:
    """File → what the pages of two audits (`first` and `pages`), a comparison and the notes of the store say."""
    with TemporaryDirectory() as folder:
        compared = render_comparison(compare_context(rich, groups(rich)), Path(folder)).read_text(encoding="utf-8")

    def form(files: dict[str, str], kind: str) -> str:
        return next(text for name, text in files.items() if name.startswith("forms/dfa") and name.endswith(kind))

    notes, address = Notes(small), "#/a/"
    texts = [notes.of_run(small.runs[3], "#/form", address), notes.of_audit(address, "#/table")]
    texts += [notes.of_excluded(one, address) for one in small.excluded]
    shown = {"full-index": pages["index.html"], "small-index": first["index.html"]}
    shown |= {"full-form": form(pages, ".html"), "comparison": compared}
    plain = {"notes.md": "\n---\n".join(texts), "small-form.md": form(first, ".md")}
    plain |= {"small-table.tex": first["audit_table.tex"], "small-notes.tex": first["audit_table_notes.tex"]}
    return {f"{name}.txt": lines_of(page) for name, page in shown.items()} | plain


def test_the_pages_read_as_they_did(report, rich, pages, rich_pages):
    for name, text in pages_text(report, rich, pages, rich_pages).items():
        assert text == (FOLDER / name).read_text(encoding="utf-8"), "python -m tests.reporting.test_golden_forms"


@pytest.mark.parametrize("kind", KINDS)
def test_the_form_reads_as_it_did(kind):
    stands = path_of(kind).read_text(encoding="utf-8")
    assert form_of(kind) == stands, "python -m tests.reporting.test_golden_forms"


def test_the_claims_read_as_they_did():
    stands = (FOLDER / "claims.md").read_text(encoding="utf-8")
    assert golden_text() == stands, "python -m tests.reporting.test_golden_forms"


def test_each_kind_says_what_it_is_there_for():
    """The texts are of their kind: a rewrite that loses one is noticed."""
    telling = {
        "exact method": "exact by construction",
        "exploded method": "exploded",
        "no feedback state": "feedback",
        "diverged run": "diverged",
        "waived rule": "waived",
    }
    for kind, text in telling.items():
        assert text in path_of(kind).read_text(encoding="utf-8"), kind
    assert "interpreted as alignment" not in path_of("exact method").read_text(encoding="utf-8")
    waived, plain = (path_of(kind).read_text(encoding="utf-8") for kind in ("waived rule", "exploded method"))
    assert "A. Person" in waived and "A. Person" not in plain


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for kind in KINDS:
        path_of(kind).write_text(form_of(kind), encoding="utf-8")
    audits = small_report(), full_report()
    with TemporaryDirectory() as folder:
        made = [written(audit, Path(folder) / str(place)) for place, audit in enumerate(audits)]
    for name, text in {"claims.md": golden_text(), **pages_text(*audits, *made)}.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
