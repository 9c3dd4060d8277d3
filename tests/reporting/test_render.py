"""The written pages: the same bytes twice, the record without loss, people's words kept, all or nothing."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from fa_registry import bundled_files, jsonio
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.metrics import label_of
from fa_registry.protocol.grouping import groups
from fa_registry.records import AuditReport
from fa_registry.reporting.files import report_files
from fa_registry.reporting.pages.comparison import compare_context
from fa_registry.reporting.render import (
    LINKED,
    PAPER,
    UNLINKED,
    check_templates,
    overridable,
    render_comparison,
    render_report,
    template_problems,
    unfinished,
)
from tests.helpers.dead_process import left_folder
from tests.reporting.page import Page, written
from tests.reporting.sample_reports import make_report

pytestmark = pytest.mark.long

OTHER_FILES = (*(file.name for file in report_files()), *PAPER)


def test_an_index_a_form_for_each_method_and_the_record_are_written(pages):
    names = [name for name in pages if not name.startswith("figures/")]
    assert names[0] == "index.html" and tuple(names[-len(OTHER_FILES) :]) == OTHER_FILES
    assert [re.sub(r"-.*", "", name) + name[name.rindex(".") :] for name in names[1 : -len(OTHER_FILES)]] == [
        f"forms/{method}.{kind}" for method in ("bp", "dfa") for kind in ("html", "md")
    ]


def test_rendering_again_gives_the_same_bytes(rich, rich_pages, tmp_path):
    assert written(rich, tmp_path, drawn=True) == rich_pages


def test_the_record_is_lossless(report, pages):
    assert jsonio.decode(AuditReport, json.loads(pages["audit.json"])) == report


@pytest.mark.usefixtures("undrawn")
def test_values_of_which_there_is_no_page_are_reported_and_nothing_is_written(rich, tmp_path):
    held = jsonio.encode(rich)
    (sites, *_) = (
        run["record"]["measurements"]["sites"]
        for run in held["runs"]
        if run["record"]["spec"]["method"] == "fa" and "gamma_null_p" in run["record"]["measurements"]["sites"]
    )
    sites["gamma_null_p"][2] = 7.0
    with pytest.raises(InvalidFields, match=r"cannot be rendered.*expected p-values from 0 to 1, found \[7.0\]"):
        render_report(jsonio.decode(AuditReport, held), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("undrawn")
def test_what_people_wrote_survives_and_reaches_the_page(report, tmp_path):
    form = next(path for path in render_report(report, tmp_path) if path.suffix == ".md")
    text_of_author = "We expected **0.9**.\n\n<b>bold</b> & {{ 7 * 7 }}"
    text = form.read_text("utf-8")
    form.write_text(
        text.replace("<!-- fa:blank motivation -->\n", f"<!-- fa:blank motivation -->\n{text_of_author}"),
        encoding="utf-8",
    )
    for _ in range(2):
        render_report(report, tmp_path)
        assert f"<!-- fa:blank motivation -->\n{text_of_author}\n<!-- /fa:blank -->" in form.read_text("utf-8")
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; {{ 7" in form.with_suffix(".html").read_text("utf-8")


@pytest.mark.usefixtures("undrawn")
def test_a_form_with_broken_markers_stops_the_rendering_before_anything_is_written(report, tmp_path):
    paths = render_report(report, tmp_path)
    form = next(path for path in paths if path.suffix == ".md")
    form.write_text(form.read_text("utf-8").replace("<!-- /fa:blank -->", "", 1), encoding="utf-8")
    paths[0].unlink()
    with pytest.raises(UsageError, match="blanks cannot be kept"):
        render_report(report, tmp_path)
    assert not paths[0].exists()


@pytest.mark.usefixtures("undrawn")
def test_a_template_without_blanks_does_not_overwrite_what_people_wrote(report, tmp_path):
    mine, out = tmp_path / "mine", tmp_path / "out"
    mine.mkdir()
    (mine / "form.md.j2").write_text("{{ title }}")
    form = next(path for path in render_report(report, out) if path.suffix == ".md")
    filled = form.read_text("utf-8").replace("<!-- fa:blank claim -->\n", "<!-- fa:blank claim -->\nmine", 1)
    form.write_text(filled, encoding="utf-8")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"the texts that the author wrote into claim would be lost"):
        render_report(dataclasses.replace(report, title="another"), out, templates=mine)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    form.unlink()
    assert render_report(report, out, templates=mine) and form.is_file()


def test_an_audit_without_runs_is_still_a_page(report, tmp_path):
    paths = render_report(dataclasses.replace(report, runs=(), excluded=(), remarks=(), cards={}), tmp_path)
    assert [path.name for path in paths] == ["index.html", *OTHER_FILES]
    text = "".join(Page(paths[0].read_text("utf-8")).words)
    assert "No method was judged." in text and "no table to show" in text and "every selected run" in text


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
    text = "".join(Page(paths[0].read_text("utf-8")).words)
    assert "INCOMPLETE" in text and "accuracy was not measured" in text


@pytest.mark.usefixtures("undrawn")
def test_a_users_template_stands_in_by_name_and_is_sandboxed(report, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "index.html.j2").write_text(
        "{% import 'macros.html.j2' as m %}<p>{{ title }} {{ m.chip(forms[0].verdict) }}</p>"
    )
    paths = render_report(report, tmp_path / "out", templates=mine)
    assert paths[0].read_text("utf-8").startswith("<p>digits, first audit")
    assert "What may be claimed" in paths[1].read_text("utf-8")
    (mine / "index.html.j2").write_text("{{ title.__class__ }}")
    with pytest.raises(UsageError, match="SecurityError"):
        render_report(report, tmp_path / "out", templates=mine)


@pytest.mark.usefixtures("undrawn")
def test_a_failed_rendering_leaves_earlier_pages_as_they_were(report, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    before = {path: path.read_bytes() for path in render_report(report, tmp_path / "out")}
    (mine / "form.md.j2").write_text("{{ nothing }}")
    with pytest.raises(UsageError, match=r"form\.md\.j2"):
        render_report(dataclasses.replace(report, title="another"), tmp_path / "out", templates=mine)
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        ["figures", "forms", "index.html", *OTHER_FILES]
    )


def test_the_folder_is_there_while_it_is_needed(tmp_path):
    with unfinished(tmp_path / "out") as folder:
        assert folder.parent == tmp_path / "out" and folder.is_dir()
    assert list((tmp_path / "out").iterdir()) == []


def test_what_the_killed_left_is_removed_and_what_is_in_use_is_not(tmp_path):
    left = left_folder(".rendering-", tmp_path)
    (tmp_path / ".rendering-mine").mkdir()
    with unfinished(tmp_path) as first:
        assert not left.exists()
        (first / "page").touch()
        with unfinished(tmp_path):
            assert (first / "page").exists()
    assert [path.name for path in tmp_path.iterdir()] == [".rendering-mine"]


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()

    def write(**texts):
        for name, text in texts.items():
            (folder / f"{name.replace('_', '.')}.j2").write_text(text, encoding="utf-8")
        return folder

    return write


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "ok\n{{ titel }}",
            r"template index.html.j2, line 2: unknown name 'titel' \(did you mean 'title'\?\); known: .*run_count",
        ),
        ("{{ title | uper }}", r"template index.html.j2, line 1: unknown filter 'uper' \(did you mean 'upper'\?\)"),
        ("{{ title | safe }}", "line 1: unknown filter 'safe'"),
        ("ok\n{% if %}", "template index.html.j2, line 2: TemplateSyntaxError"),
        ("{{ title is wonderful }}", "line 1: TemplateAssertionError: No test named 'wonderful'"),
    ],
)
def test_a_wrong_template_is_named_with_its_line(mine, text, message):
    (problem,) = template_problems(mine(index_html=text))
    assert re.search(message, problem)


def test_every_problem_is_named_at_once_and_nothing_is_written(mine, report, tmp_path):
    folder = mine(index_html="{{ titel }}{{ seitdem }}", form_md="{{ titel }}", indx_html="", note_md="")
    (folder / "latin.html.j2").write_bytes(b"\xe9")
    with pytest.raises(InvalidFields) as caught:
        render_report(report, tmp_path / "out", folder)
    listed = "\n".join(caught.value.problems)
    assert listed.count("unknown name") == 3 and "UnicodeDecodeError" in listed
    assert "indx.html.j2: no page" in listed and "mean 'index.html.j2'?" in listed and "note.md.j2: " in listed
    assert not (tmp_path / "out").exists()


def test_a_part_that_a_template_takes_in_is_known(mine):
    assert template_problems(mine(index_html="{% include 'mine.html.j2' %}", mine_html="{{ title }}")) == []


@pytest.mark.parametrize("name", ["x" * 300, "none"])
def test_a_folder_that_cannot_exist_is_one_problem(name):
    """The file system allows no name of 300 characters."""
    (problem,) = template_problems(Path(name))
    assert problem.startswith("templates:")


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ((), "no file in this folder ends in .j2, so no page would change; found nothing; known: .*form.html.j2"),
        (
            ("notes.txt", "a.css"),
            "no file in this folder ends in .j2, so no page would change; found a.css, notes.txt; known",
        ),
        (("form.html", "index.html.j2"), "form.html: its name does not end in .j2, so it is not used for any page"),
        (("form.html.jinja2",), r"form.html.jinja2: its name does not end in .j2, .*\(did you mean 'form.html.j2'\?\)"),
        (("FORM.HTML.J2",), r"FORM.HTML.J2: its name does not end in .j2, .*\(did you mean 'form.html.j2'\?\)"),
    ],
)
def test_a_folder_whose_templates_would_change_no_page_is_refused(tmp_path, files, text):
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in files:
        (folder / name).write_text("")
    (problem,) = template_problems(folder)
    assert re.search(text, problem), problem


def test_templates_that_only_take_in_one_another_change_no_page(mine):
    problems = template_problems(mine(one_html="{% include 'two.html.j2' %}", two_html="{% include 'one.html.j2' %}"))
    assert [problem.partition(":")[0] for problem in problems] == ["one.html.j2", "two.html.j2"]


def test_other_files_next_to_templates_are_ignored(mine):
    folder = mine(index_html="{{ title }}")
    (folder / "README.md").write_text("ours")
    assert template_problems(folder) == []


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InvalidFields, match="found no folder"):
        check_templates(tmp_path / "none")
    check_templates(None)


@pytest.mark.usefixtures("undrawn")
def test_the_shipped_templates_pass_and_render_the_same_in_the_sandbox(mine, report, tmp_path):
    folder = mine()
    for name in overridable():
        (folder / name).write_bytes((bundled_files.templates() / name).read_bytes())
    assert template_problems(folder) == []
    shipped = {path.name: path.read_bytes() for path in render_report(report, tmp_path / "shipped")}
    assert {path.name: path.read_bytes() for path in render_report(report, tmp_path / "own", folder)} == shipped


def test_every_figure_is_next_to_the_pages_for_paper(report, tmp_path):
    """Named as it is called, in both forms, without a date; two settings do not write over each other."""
    paths = [path for path in render_report(report, tmp_path) if path.parent.name == "figures"]
    names = {path.name for path in paths}
    accuracy = label_of("accuracy").replace(" ", "-")
    assert {f"{accuracy}.svg", f"{accuracy}.pdf", "accuracy-of-every-seed.svg"} <= names
    assert {path.stem for path in paths if path.suffix == ".svg"} == {
        path.stem for path in paths if path.suffix == ".pdf"
    }
    index = (tmp_path / "index.html").read_text("utf-8")
    assert all(f'href="figures/{name}"' in index for name in names)
    assert index.count("<img ") == len(names) / 2
    for path in paths:
        drawn = path.read_bytes()
        assert drawn.startswith(b"%PDF" if path.suffix == ".pdf" else b"<?xml ")
        assert not any(word in drawn for word in (b"CreationDate", b"dc:date", b"Matplotlib v"))
    second = [dataclasses.replace(run.record, setting="another") for run in report.runs]
    second = [
        dataclasses.replace(run, spec=dataclasses.replace(run.spec, epochs=31), run_id=run.run_id[::-1])
        for run in second
    ]
    two = make_report([*(run.record for run in report.runs), *second])
    many = {path.name for path in render_report(two, tmp_path / "two") if path.parent.name == "figures"}
    assert {name for name in many if name.startswith(f"{accuracy}-")} >= {f"{accuracy}-another.svg"}
    assert len(many) > len(names)


@pytest.mark.usefixtures("undrawn")
def test_the_index_links_a_comparison_of_its_own_runs_alone(report, rich, tmp_path):
    """The index itself is the same bytes in every folder: it is stored too, where no comparison is next to it."""
    index = tmp_path / "index.html"
    render_report(report, tmp_path)
    bare = index.read_bytes()
    assert UNLINKED.encode() in bare and LINKED.encode() not in bare
    render_comparison(compare_context(report, groups(report)), tmp_path)
    linked = index.read_bytes()
    assert linked == bare.replace(UNLINKED.encode(), LINKED.encode())
    render_comparison(compare_context(rich, groups(rich)), tmp_path)
    assert index.read_bytes() == bare
    render_comparison(compare_context(report, groups(report)), tmp_path)
    assert index.read_bytes() == linked
    render_report(report, tmp_path)
    assert index.read_bytes() == bare


@pytest.mark.usefixtures("undrawn")
def test_a_comparison_is_written_next_to_a_users_index_in_another_encoding(report, tmp_path):
    index = tmp_path / "index.html"
    for content in (b"caf\xe9", b"caf\xe9" + UNLINKED.encode()):
        index.write_bytes(content)
        assert render_comparison(compare_context(report, groups(report)), tmp_path).is_file()
        assert index.read_bytes() == content


@pytest.mark.parametrize("path", ["figure", "_figure"])
def test_a_users_template_does_not_reach_what_writes_files(report, tmp_path, path):
    """matplotlib's figure can save itself anywhere."""
    mine = tmp_path / "mine"
    mine.mkdir()
    picture = "figures.shown[0].pictures[0].drawn"
    (mine / "index.html.j2").write_text(
        f"{{% if figures.shown %}}{{{{ {picture}.{path}.savefig('{tmp_path}/x.png') }}}}{{% endif %}}"
    )
    with pytest.raises(UsageError, match="index.html.j2"):
        render_report(report, tmp_path / "out", templates=mine)
    assert not (tmp_path / "x.png").exists()
