"""The form's context: what people wrote, every aggregate, the other editions, and the sentences about the margin."""

from __future__ import annotations

import dataclasses
import re
import shlex

import pytest

from fa_registry.errors import UsageError
from fa_registry.provenance import NOT_A_CHECKOUT
from fa_registry.records import Exclusion, Integrity, SelectionSummary, Verdict
from fa_registry.reporting.labels import control_of
from fa_registry.reporting.pages.form import (
    blanks,
    check_blanks_kept,
    completion_commands,
    form_context,
    inline_assets,
    lines,
    read_blanks,
)
from fa_registry.reporting.pages.index import index_context
from fa_registry.reporting.pages.notes import note_context
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.report_values import Values
from fa_registry.reporting.text.environment import TemplateRenderer, variables
from tests.reporting.report_changes import changed, with_record
from tests.reporting.runs import EPOCHS, THREE_SEEDS, full


@pytest.fixture
def form():
    """The form of a method in a report."""

    def made(report, method, written=()):
        sources = Sources.of(report)
        group, link = next((group, link) for group, link in sources.forms if group.method == method)
        return form_context(group, link, sources, dict(written))

    return made


def test_a_note_leaves_the_explanations_to_the_form(form, rich):
    fa = next(run for run in rich.runs if run.record.spec.method == "fa")
    assert "note" in {claim.kind for claim in form(rich, "fa").claims}
    assert "note" not in {claim.kind for claim in note_context(fa, Sources.of(rich)).claims}


@pytest.mark.long
def test_the_headline_says_what_the_size_of_the_test_set_leaves_open(report):
    """In both forms, next to the seeds' interval; nothing where a run did not write the size down."""
    sized = [changed(run, conventions={"test_samples": 360}) for run in report.runs]
    for runs, statement in ((tuple(sized), True), (report.runs, False)):
        sources, written = Sources.of(dataclasses.replace(report, runs=runs)), TemplateRenderer()
        group, link = next(pair for pair in sources.forms if pair[0].method == "bp")
        context = form_context(group, link, sources)
        assert (context.sampling is not None) == statement
        for kind in ("html", "md"):
            text = written.render(f"form.{kind}.j2", variables(context))
            assert ("360 test samples" in text) == statement


def test_a_form_that_is_not_there_has_no_text(tmp_path):
    assert read_blanks(tmp_path / "none.md") == {}


def test_text_is_read_as_it_was_written(tmp_path):
    form = tmp_path / "form.md"
    form.write_text("x\n<!-- fa:blank claim -->\n**Ours** <b>&</b>\n\nmore\n<!-- /fa:blank -->\ny", encoding="utf-8")
    assert read_blanks(form) == {"claim": "**Ours** <b>&</b>\n\nmore"}


@pytest.mark.parametrize(
    "text",
    [
        "<!-- fa:blank claim -->\nmine\n",
        "<!-- fa:blank claim -->\nmine\n<!-- fa:blank other -->\n<!-- /fa:blank -->",
        "<!-- fa:blank claim -->a<!-- /fa:blank --><!-- fa:blank claim -->b<!-- /fa:blank -->",
        "<!-- fa:blank claim -->\nmine\n<!-- /fa:blank -->\nmine too\n<!-- /fa:blank -->",
    ],
)
def test_broken_markers_are_refused(tmp_path, text):
    form = tmp_path / "form.md"
    form.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"form\.md: the texts in its blanks cannot be kept"):
        read_blanks(form)


def test_a_form_that_is_no_utf_8_is_named(tmp_path):
    form = tmp_path / "form.md"
    form.write_bytes("<!-- fa:blank claim -->\nGewöhnlich\n<!-- /fa:blank -->".encode("latin-1"))
    with pytest.raises(
        UsageError, match=r"form\.md: the texts in its blanks cannot be kept: expected UTF-8, found .* at byte 27"
    ):
        read_blanks(form)


CLAIM = "<!-- fa:blank claim -->\n{}\n<!-- /fa:blank -->"


def test_a_new_page_that_has_the_text_may_replace_the_old(tmp_path):
    check_blanks_kept({"claim": "mine", "motivation": ""}, CLAIM.format("mine"), tmp_path / "form.md")
    check_blanks_kept({"claim": ""}, "a template without blanks", tmp_path / "form.md")


@pytest.mark.parametrize(
    "page", ["no blanks", CLAIM.format("min"), CLAIM.format("mine\n<!-- /fa:blank -->"), CLAIM.format("&lt;mine&gt;")]
)
def test_a_new_page_that_drops_the_text_may_not(tmp_path, page):
    with pytest.raises(UsageError, match=r"form\.md"):
        check_blanks_kept({"claim": "mine"}, page, tmp_path / "form.md")


def test_blanks_of_another_template_are_kept():
    made = blanks({"claim": "mine", "retired": "old words"})
    assert {blank.key: blank.text for blank in made} == {
        "motivation": "",
        "claim": "mine",
        "limitations": "",
        "retired": "old words",
    }


DIRTY = "  # the working tree was DIRTY: the changes after this commit were not recorded"


@pytest.fixture
def made(rich):
    """The lines of dfa's form; changes: to the report. provenance: of every run instead of its own."""

    def of(provenance=None, **changes):
        report = dataclasses.replace(rich, **changes)
        if provenance is not None:
            runs = [with_record(run, provenance=provenance) for run in report.runs]
            report = dataclasses.replace(report, runs=tuple(runs))
        runs = [run for run in report.runs if run.record.spec.method == "dfa"]
        return runs, lines(runs, report, Values.of(report))

    return of


def test_the_audit_is_the_one_that_was_asked_for(made, rich):
    choice = SelectionSummary("digits", {"seeds": "42, 123", "scale": "0.02"})
    modified = dataclasses.replace(rich.edition, overrides={"D1.threshold": 100.0})
    _, found = made(choice=choice, edition=modified, waivers=())
    command_name, verb, *options = shlex.split(found[-1])
    assert (command_name, verb) == ("fa-registry", "audit")
    assert dict(zip(options[::2], options[1::2], strict=True)) == {
        "--study": "digits",
        "--seeds": "42,123",
        "--scale": "0.02",
        "--device": "cpu",
        "--editions": "2026-12,2026-05,2026-04",
        "--threshold": "D1.threshold=100.0",
    }


def test_without_a_study_the_new_runs_are_audited_and_waivers_are_reported(made):
    line = made(opinions=())[1][-1]
    asked, _, remark = line.partition("  # ")
    assert shlex.split(asked)[2:] == ["--run", "RUN", "--edition", "2026-12", "--waivers", "waivers.toml"]
    assert remark.startswith("RUN: ") and "waivers.toml" in remark


def test_an_incomplete_is_followed_by_the_lines_that_complete_it(report):
    """The very run that is missing: trained by its line, the line of its study, or by force where the store has it already."""
    run = next(run for run in report.runs if run.record.spec.method == "bp" and run.record.spec.control == "none")
    control = next(one.record.spec for one in report.runs if one.record.spec.control == "frozen")
    incomplete = dataclasses.replace(run, verdict=Verdict("incomplete", "INCOMPLETE"))
    assert completion_commands([run], (), report) == ()
    bare = dataclasses.replace(report, waivers=())
    audit = lines([run], bare, Values.of(bare))[-1]
    alone, again = dataclasses.replace(incomplete, frozen_run_id=""), incomplete
    first, second = (completion_commands([one], (), bare) for one in (alone, again))
    assert first[-1] == second[-1] == audit and len(first) == len(second) == 2
    assert shlex.split(first[0])[:2] == ["fa-registry", "train"] and "--control frozen" in first[0]
    assert control_of(run.record.spec) == control and "--force" not in first[0]
    assert second[0] == f"{first[0].replace(' --control frozen', '')} --force"
    study = dataclasses.replace(bare, choice=SelectionSummary("digits", {"seeds": "42, 123"}))
    whole = shlex.split(completion_commands([alone], (), study)[0])
    assert whole == ["fa-registry", "study", "digits", "--seeds", "42,123", "--device", "cpu"]
    gone = Exclusion("d" * 32, "bp s9", "why", spec=dataclasses.replace(run.record.spec, seed=9), kind="not trained")
    assert (
        "--seed 9" in completion_commands([run], (gone,), bare)[0]
        and "--force" not in completion_commands([run], (gone,), bare)[0]
    )
    assert completion_commands([run], (dataclasses.replace(gone, kind="integrity"),), study)[0].endswith(
        "--study digits --force"
    )
    assert completion_commands([run], (dataclasses.replace(gone, spec=None),), bare) == ()
    many = [dataclasses.replace(gone, spec=dataclasses.replace(run.record.spec, seed=seed)) for seed in range(20)]
    assert completion_commands([], many, bare)[-2].startswith("# and 8 more")


def test_what_no_training_mends_is_reported_with_its_reason_and_what_was_killed_is_trained(report):
    run = next(run for run in report.runs if run.record.spec.control == "none")
    bare = dataclasses.replace(report, choice=SelectionSummary("digits"))
    spec = dataclasses.replace(run.record.spec, seed=9)
    broken = Exclusion("d" * 32, "bp s9", "cannot be recomputed:\nno data", spec=spec, kind="broken")
    (line,) = completion_commands([run], (broken,), bare)
    assert (
        line.startswith("# no command repairs") and "bp s9: cannot be" in line and line.endswith("recomputed: no data")
    )
    assert completion_commands([run], (dataclasses.replace(broken, spec=None),), bare)[0].startswith(
        "# no command repairs"
    )
    killed = dataclasses.replace(broken, kind="half-written")
    study = shlex.split(completion_commands([run], (killed,), bare)[0])
    assert study == ["fa-registry", "study", "digits", "--device", "cpu"]
    both = completion_commands([run], (broken, dataclasses.replace(killed, name="bp s10")), bare)
    assert [line.split()[:2] for line in both] == [["fa-registry", "study"], ["#", "no"], ["fa-registry", "audit"]]


def test_a_study_that_does_not_ship_is_asked_for_by_its_path(report):
    run = next(run for run in report.runs if run.record.spec.control == "none")
    gone = Exclusion("", "bp s9", "why", spec=dataclasses.replace(run.record.spec, seed=9), kind="not trained")
    own = "  # my; study: replace this name with the path of the study's study.toml"
    for name, remark in (("my;\nstudy", own), ("digits", "")):
        train, audit = completion_commands(
            [run], (gone,), dataclasses.replace(report, choice=SelectionSummary(name), waivers=())
        )
        assert train == f"fa-registry study {shlex.quote(name)} --device cpu{remark}"
        assert audit.endswith(remark) and ("#" in audit) == bool(remark)


def test_pages_that_lack_something_show_those_lines_and_whole_ones_none(report, rich_pages, judged):
    whole = judged([run.record for run in report.runs if run.record.spec.method == "bp"])
    sources = Sources.of(whole)
    (form,) = [form_context(group, link, sources) for group, link in sources.forms]
    assert form.completing == () and index_context(sources).completing == ()
    shown = [name for name, text in rich_pages.items() if "These commands complete the audit:" in text]
    assert "index.html" in shown and {name.rpartition(".")[2] for name in shown} == {"html", "md"}
    assert not any(name.startswith("forms/bp-") for name in shown)


@pytest.mark.parametrize(
    ("provenance", "line"),
    [
        ({"commit": "0123abc"}, "git checkout 0123abc  # it is not known whether the working tree was clean"),
        ({"commit": "a; rm -rf b", "dirty": False}, "git checkout 'a; rm -rf b'"),
        ({"commit": NOT_A_CHECKOUT, "fa_registry": "0.1.0"}, f"# commit: {NOT_A_CHECKOUT}; fa_registry 0.1.0"),
        (
            {"commit": "unknown: git\nrm -rf b"},
            "# commit: unknown: git rm -rf b; fa_registry of a version not recorded",
        ),
        ({}, "# commit: not recorded; fa_registry of a version not recorded"),
    ],
)
def test_what_is_known_of_the_commit_is_shown_in_one_line(made, provenance, line):
    assert made(provenance)[1][0] == line


def test_a_control_that_the_report_lacks_is_reported(made, rich):
    runs = tuple(run for run in rich.runs if run.record.spec.control == "none")
    found = made(runs=runs, opinions=())[1]
    assert sum(line.endswith("part of this report") for line in found) == 2


def test_links_to_neighbouring_files_become_their_text():
    page = '<nav><a class="up" href="../index.html">← <b>whole</b> audit</a></nav> <a href="a.md">x</a>'
    assert inline_assets(page) == "<nav>← <b>whole</b> audit</nav> x"


def test_links_that_lead_somewhere_stay():
    page = '<a href="#top">up</a> <a href="https://arxiv.org/abs/1">paper</a> <a href="mailto:x">mail</a>'
    assert inline_assets(page) == page


def test_a_real_form_keeps_everything_but_its_dead_links(pages):
    form = next(text for name, text in pages.items() if name.startswith("forms/") and name.endswith(".html"))
    alone = inline_assets(form)
    assert 'href="../index.html"' in form and "the whole audit" in alone
    assert re.findall(r'href="(?!#|https?:)[^"]*"', alone) == []
    assert re.sub(r"<[^>]+>", "", alone) == re.sub(r"<[^>]+>", "", form)


def test_the_form_shows_the_margin_over_both_frozen_controls_and_what_frozen_blocks_change(form, judged, record):
    def runs_of(method, accuracy, **changes):
        return [full(record(method, seed, accuracy, 1.02, 0.4, 0.0, **changes)) for seed in THREE_SEEDS]

    longer = runs_of("bp", 0.94, control="frozen_long")
    longer = [dataclasses.replace(run, spec=dataclasses.replace(run.spec, epochs=2 * EPOCHS)) for run in longer]
    runs = [*runs_of("dfa", 0.9), *runs_of("bp", 0.8, control="frozen"), *longer]
    runs += runs_of("bp", 0.7, control="shallow")
    context = form(judged(runs, "2026-12"), "dfa")
    ((statement,),) = [row.said for row in context.depth]
    assert statement.observed.reading.value == pytest.approx(10.0)
    assert statement.over_frozen_long.reading.value == pytest.approx(-4.0)
    low, high = statement.frozen_long_interval
    assert low < -4.0 < high < 2.0
    row = runs[3].measurements.sites["h_norm"]
    assert context.frozen_scale.values[0].number.reading.value == pytest.approx(row[-1].value / row[0].value)
    assert [value.number.reading.value for value in context.shallow.values] == [0.7] * 3
    plain = [changed(run, conventions={"stream": "replaced"}) for run in judged(runs, "2026-12").runs]
    replaced = form(dataclasses.replace(judged(runs, "2026-12"), runs=tuple(plain)), "dfa")
    assert replaced.frozen_scale.n == 0
    for kind in ("html", "md"):
        page = TemplateRenderer().render(f"form.{kind}.j2", variables(context))
        text = " ".join(re.sub(r"<[^>]*>|\\", "", page).split())  # no-break spaces are spaces
        assert "over frozen_long, with twice the epochs, −4.0 pp" in text and "divided by its value at site 0" in text
        assert "shallow): 70.0" in text


def test_a_method_with_local_heads_is_compared_with_deep_supervision(form, judged, record):
    def runs_of(method, accuracy, **changes):
        return [full(record(method, seed, accuracy, 1.02, 0.4, 0.0, **changes)) for seed in THREE_SEEDS]

    supervised = runs_of("bp", 0.95, control="deep_supervision")
    runs = [*runs_of("mono_forward", 0.9), *runs_of("dfa", 0.8), *runs_of("bp", 0.8, control="frozen"), *supervised[:2]]
    wrong = dataclasses.replace(supervised[2], spec=dataclasses.replace(supervised[2].spec, penalty=0.1))
    report = judged([*runs, wrong], "2026-12")
    cards = {**report.cards, "methods/mono_forward": {"local_heads": True}}
    context = form(dataclasses.replace(report, cards=cards), "mono_forward")
    assert [value.number.reading.value for value in context.deep_supervision.values] == [0.95] * 2
    assert [value.seed for value in context.over_deep_supervision.values] == list(THREE_SEEDS[:2])
    assert context.over_deep_supervision.mean.reading.value == pytest.approx(-5.0)
    ids = context.over_deep_supervision.values[0].number.run_ids
    assert ids == (runs[0].run_id, supervised[0].run_id)
    assert form(report, "dfa").deep_supervision.n == 0 == form(report, "dfa").over_deep_supervision.n
    for kind in ("html", "md"):
        page = TemplateRenderer().render(f"form.{kind}.j2", variables(context))
        text = " ".join(re.sub(r"<[^>]*>|\\", "", page).split())
        assert "deep_supervision): 95.0" in text and "margin over it −5.0" in text


@pytest.mark.parametrize(("state", "has_interval"), [("trusted", True), ("unverifiable", False)])
def test_a_margin_over_an_unproven_deep_supervision_has_no_interval(judged, record, state, has_interval):
    def runs_of(method, accuracies, **changes):
        pairs = zip(THREE_SEEDS, accuracies, strict=True)
        return [full(record(method, seed, value, 1.02, 0.4, 0.0, **changes)) for seed, value in pairs]

    runs = [*runs_of("mono_forward", (0.9, 0.91, 0.9)), *runs_of("bp", (0.95,) * 3, control="deep_supervision")]
    runs = [dataclasses.replace(run, integrity=Integrity(state)) for run in runs]
    audits = judged(runs, "2026-12").runs
    estimate = Values().margin_over(audits[:3], audits[3:])
    assert estimate.n == 3 and (estimate.low.value is not None) == has_interval
