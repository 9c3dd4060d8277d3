"""A comparison looks everything up in the report, and says what cannot be compared instead of comparing it."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fa_registry.errors import UsageError
from fa_registry.metrics import HEADLINE_GAMMA, label_of
from fa_registry.protocol.grouping import groups
from fa_registry.records import Recipe
from fa_registry.reporting.pages.comparison import (
    compare_context,
    compared_setting,
    differing_fields,
    is_of_setting,
    layer_figure,
    layer_numbers,
    paired_rows,
    settings_shared,
)
from fa_registry.reporting.pages.form import form_context
from fa_registry.reporting.pages.index import index_context
from fa_registry.reporting.render import render_comparison
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.report_values import Values
from fa_registry.statistics import crossed_mean, paired_difference
from tests.reporting.page import Page
from tests.reporting.report_changes import changed


def group(report, method):
    return next(group for group in groups(report) if group.method == method)


def part_of(report, chosen, cards=None):
    """The comparison of these groups in one part, without its figures."""
    return compared_setting(chosen, (), Sources.of(dataclasses.replace(report, cards=cards or {})))


def moved(record, dataset="mnist"):
    """The same run on another data set."""
    spec = dataclasses.replace(record.spec, dataset=dataset)
    return dataclasses.replace(record, spec=spec, run_id=spec.identity[:32], setting=f"{dataset} · resmlp")


@pytest.fixture
def two_settings(judged, report):
    records = [run.record for run in report.runs]
    return judged([*records, *(moved(record) for record in records if record.spec.method == "dfa")])


def test_the_figures_are_those_of_the_form(report):
    sources = Sources.of(report)
    forms = {group.method: form_context(group, link, sources) for group, link in sources.forms}
    ((part, _),) = compare_context(report, [group(report, "dfa"), group(report, "bp")]).parts
    assert [column.method for column in part.columns] == ["dfa", "bp"]
    for place, form in enumerate((forms["dfa"], forms["bp"])):
        shown = part.columns[place].estimates
        assert (shown["accuracy"], shown["margin_pp"]) == (form.accuracy, form.margin)
        assert (shown["frozen_accuracy"], shown["gamma_deep_mean"]) == (form.frozen, form.gamma)
        assert [shown[metric.name] for metric in form.aggregates] == [row.cells[0] for row in form.aggregates]
        assert part.columns[place].verdict == form.verdict
        assert [row for rule in part.rules for row in rule.columns[place]] == list(form.findings)


def test_a_column_is_the_row_of_the_audit_table(rich):
    sources = Sources.of(rich)
    chosen = [one for one in sources.groups if not one.control]
    part = compared_setting(chosen, sources.columns, sources)
    rows = {row.method: row for table in index_context(sources).settings for row in table.rows if not row.control}
    assert [column.method for column in part.columns] == list(rows)
    for column, row in zip(part.columns, rows.values(), strict=True):
        assert (column.verdict, column.replays, column.control_state) == (row.verdict, row.replays, row.control_state)
        assert [seed.run_id for seed in column.seeds] == [seed.run_id for seed in row.seeds]
        for name, estimate in row.estimates.items():
            assert column.estimates[name] == dataclasses.replace(estimate, marks=())


@pytest.mark.long
def test_only_what_differs_is_named(rich):
    ((part, _),) = compare_context(rich, [group(rich, "dfa"), group(rich, "frozen")]).parts
    assert part.fields == {
        "method": ("dfa", "bp"),
        "control": ("none", "frozen"),
    }


@pytest.mark.long
def test_columns_of_a_shared_setting_are_together_and_the_rest_is_reported(two_settings):
    made = compare_context(two_settings, [group for group in groups(two_settings) if group.method in ("dfa", "bp")])
    ((part, _),) = made.parts
    assert part.comparable and [column.method for column in part.columns] == ["bp", "dfa"]
    assert made.remarks[0].startswith("dfa also ran") and "mnist · resmlp" in made.remarks[0]


@pytest.mark.long
def test_settings_that_differ_are_reported_not_to_be_comparable(two_settings):
    bp = group(two_settings, "bp")
    other = next(group for group in groups(two_settings) if group.setting == "mnist · resmlp")
    ((part, _),) = compare_context(two_settings, [bp, other]).parts
    assert not part.comparable and part.paired == ()
    assert part.why_not.endswith("differ in dataset.")


def test_every_setting_that_all_share_is_a_part(two_settings):
    chosen = [group for group in groups(two_settings) if group.method == "dfa"]
    parts, left_out = settings_shared(chosen)
    assert [[one.setting for one in part] for part in parts] == [[one.setting] for one in chosen] and left_out == []


@pytest.mark.long
def test_what_shares_no_seed_has_no_paired_difference_and_it_is_stated(rich):
    dfa = group(rich, "dfa")
    alone = [dataclasses.replace(dfa, method=f"dfa {run.record.run_id[:4]}", runs=(run,)) for run in dfa.runs]
    made = compare_context(rich, alone)
    assert made.parts[0][0].paired == ()
    assert "share no seed" in made.remarks[0]


def test_nested_fields_by_dotted_name_and_a_dash_where_there_is_none(judged, record):
    first = record("dfa", 1, 0.5, 3.0, 0.1, 0.1)
    changes = {"recipe": Recipe(learning_rate=0.5), "method_options": {"K": 2}, "seed": 7, "penalty": 0.01}
    other = dataclasses.replace(first, run_id="e" * 32, spec=dataclasses.replace(first.spec, **changes))
    fields = differing_fields(groups(judged([first, other])))
    assert fields == {
        "seed": ("1", "7"),
        "method_options.K": ("—", "2"),
        "recipe.learning_rate": ("0.001", "0.5"),
        "penalty": ("0.0", "0.01"),
    }
    assert list(filter(is_of_setting, fields)) == ["recipe.learning_rate"]


def test_the_same_specification_differs_in_nothing(report):
    assert differing_fields([groups(report)[0], groups(report)[0]]) == {}


def test_it_shows_the_geometric_mean_of_g_and_the_mean_of_gamma(rich):
    chosen = [group for group in groups(rich) if group.method in ("bp", "dfa")]
    frame = layer_numbers(part_of(rich, chosen))
    runs = chosen[0].runs
    rows = [run.record.measurements.sites for run in runs]
    first = frame[(frame["method"] == "bp") & (frame["site"] == 0)].set_index("panel")["value"]
    product = 1.0
    for row in rows:
        product *= row["g_norm_mean_ce"][0].value
    assert first["g"] == pytest.approx(product ** (1 / len(rows)))
    assert first["gamma"] == pytest.approx(sum(row["gamma"][0].value for row in rows) / len(rows))


def test_the_same_bytes_twice_and_text_for_who_cannot_see_it(rich):
    chosen = list(groups(rich))
    part = part_of(rich, chosen)
    figure = layer_figure(part)
    assert layer_figure(part) == figure and figure.drawn
    assert all(f"of {one.method} from" in figure.alt for one in chosen)


def test_where_credit_is_exact_is_known_of_gamma_and_of_the_methods_that_say_so(rich):
    bp, dfa = (group for group in groups(rich) if group.method in ("bp", "dfa"))
    cards = {"methods/bp": {"exact_sites": "all"}, "methods/dfa": {"exact_sites": "last"}}
    part = part_of(rich, [bp, dfa], cards)
    gamma, *others = part.sites
    sites = len(gamma.rows)
    assert part.exact_sites(gamma.name) == (tuple(range(sites)), (sites - 1,))
    assert {part.exact_sites(other.name) for other in others} == {((), ())}
    frame = layer_numbers(part)
    assert set(frame["panel"]) == {"g", "gamma"} and not frame.loc[frame["panel"] == "g", "exact"].any()
    assert frame.loc[frame["panel"] == "gamma", "exact"].sum() == sites + 1
    assert part_of(rich, [bp]).exact == ((),)


def test_the_last_site_is_that_of_each_network(rich):
    bp, dfa = (group for group in groups(rich) if group.method in ("bp", "dfa"))
    sites = dfa.runs[0].record.measurements.sites
    shallow = tuple(changed(run, sites={"gamma": sites["gamma"][:3]}) for run in dfa.runs)
    part = part_of(rich, [bp, dataclasses.replace(dfa, runs=shallow)], {"methods/dfa": {"exact_sites": "last"}})
    assert part.exact == ((), (2,)) and len(part.sites[0].rows) == len(sites["gamma"])


def test_runs_that_measured_no_site_have_no_figure(report, judged):
    record = report.runs[0].record
    bare = dataclasses.replace(record, measurements=dataclasses.replace(record.measurements, sites={}))
    alone = judged([bare])
    part = part_of(alone, groups(alone))
    assert part.sites == () and layer_figure(part) is None


def without_answers(run):
    measured = dataclasses.replace(run.record.measurements, sample_scores={})
    return dataclasses.replace(run, record=dataclasses.replace(run.record, measurements=measured))


def rows_of(report, first, second):
    by_method = {group.method: group for group in groups(report)}
    return {row.words: row for row in paired_rows(by_method[first], by_method[second], Values.of(report))}


@pytest.fixture
def two(judged, record):
    """dfa and bp over given seeds, with given accuracies and ‖h_L‖."""

    def make(dfa, bp, scale=1e3):
        runs = [record("dfa", seed, value, scale * (1 + seed), 0.1, 0.1) for seed, value in dfa.items()]
        return judged([*runs, *(record("bp", seed, value, 3.0, 0.1, 1.0) for seed, value in bp.items())])

    return make


def test_the_difference_of_a_main_metric_has_the_error_of_the_test_set(two):
    dfa, bp = {1: 0.5, 2: 0.61, 3: 0.7, 9: 0.1}, {1: 0.9, 2: 0.93, 3: 0.99}
    report = two(dfa, bp)
    row = rows_of(report, "dfa", "bp")[label_of("accuracy")]
    scores = {
        (run.record.spec.method, run.record.spec.seed): run.record.measurements.sample_scores["accuracy"].scores()
        for run in report.runs
    }
    expected = crossed_mean([100 * (scores["dfa", seed] - scores["bp", seed]) for seed in bp]).interval
    assert (row.low.value, row.high.value) == pytest.approx((expected.low, expected.high))
    assert (row.seeds, row.answer) == ((1, 2, 3), "lower")


def test_the_difference_of_gamma_has_the_error_of_its_samples(two):
    report = two({1: 0.5, 2: 0.61, 3: 0.7}, {1: 0.9, 2: 0.93, 3: 0.99})
    row = rows_of(report, "dfa", "bp")[label_of(HEADLINE_GAMMA)]
    scores = {
        (run.record.spec.method, run.record.spec.seed): run.record.measurements.sample_scores[HEADLINE_GAMMA].scores()
        for run in report.runs
    }
    expected = crossed_mean([scores["dfa", seed] - scores["bp", seed] for seed in (1, 2, 3)]).interval
    assert (row.low.value, row.high.value) == pytest.approx((expected.low, expected.high), abs=1e-7)


def test_without_scores_it_is_the_paired_t_interval_over_shared_seeds(two):
    dfa, bp = {1: 0.5, 2: 0.61, 3: 0.7, 9: 0.1}, {1: 0.9, 2: 0.93, 3: 0.99}
    report = two(dfa, bp)
    report = dataclasses.replace(report, runs=tuple(map(without_answers, report.runs)))
    row = rows_of(report, "dfa", "bp")[label_of("accuracy")]
    expected = paired_difference({seed: 100 * dfa[seed] for seed in bp}, {seed: 100 * bp[seed] for seed in bp})
    assert row.difference.reading.value == expected.mean
    assert (row.low.value, row.high.value) == (expected.interval.low, expected.interval.high)
    assert (row.seeds, row.answer) == ((1, 2, 3), "lower")
    assert row.remark.startswith("without seed 9,")
    assert len(row.difference.run_ids) == 6


def test_scales_are_compared_in_decades(two):
    row = rows_of(two({1: 0.5, 2: 0.6}, {1: 0.5, 2: 0.6}), "dfa", "bp")["‖h_L‖₂"]
    assert row.unit == "decades" and row.difference.reading.value == pytest.approx(
        (math.log10(1e3 * 2 / 3) + math.log10(1e3 * 3 / 3)) / 2, abs=0.02
    )


def test_an_interval_with_zero_inside_is_undecided(two):
    assert (
        rows_of(two({1: 0.5, 2: 0.7, 3: 0.6}, {1: 0.6, 2: 0.6, 3: 0.6}), "dfa", "bp")[label_of("accuracy")].answer
        == "undecided"
    )


def test_one_pair_is_provisional(two):
    row = rows_of(two({1: 0.5}, {1: 0.6}), "dfa", "bp")[label_of("accuracy")]
    assert row.answer == "provisional" and "one shared seed" in row.low.reason


def test_of_a_seed_that_occurs_twice_the_newest_run_is_paired(two):
    report = two({1: 0.5, 2: 0.6}, {1: 0.5, 2: 0.6})
    first = report.runs[0]
    again = changed(
        first, run_id="d" * 32, scalars={"accuracy": first.record.measurements.scalars["accuracy"].value + 0.2}
    )
    report = dataclasses.replace(report, runs=tuple(map(without_answers, (*report.runs, again))))
    row = rows_of(report, "dfa", "bp")[label_of("accuracy")]
    assert row.answer == "undecided" and abs(row.difference.reading.value) == pytest.approx(10.0)
    assert "d" * 32 in row.difference.run_ids and first.record.run_id not in row.difference.run_ids


def test_what_is_not_finite_is_left_out_not_subtracted(report):
    """One of the two dfa runs of the small report diverged: its ‖h_L‖ is not finite."""
    row = rows_of(report, "dfa", "bp")["‖h_L‖₂"]
    assert len(row.seeds) == 1 and "has no value" in row.remark


@pytest.fixture(scope="module", params=["report", "rich"])
def context(request):
    report = request.getfixturevalue(request.param)
    return compare_context(report, groups(report))


@pytest.mark.long
def test_the_page_nests_and_holds_nothing_from_outside(context, tmp_path):
    page = Page(render_comparison(context, tmp_path).read_text("utf-8"))
    assert not {"script", "iframe", "link", "form"} & set(page.tags) and page.handlers == []
    assert all(reference.startswith(("data:image/png;base64,", "#")) for reference in page.references)
    assert all(reference[1:] in page.ids for reference in page.references if reference.startswith("#"))
    assert len(page.ids) == len(set(page.ids))
    labels = [attributes["aria-label"] for tag, attributes in page.attributes if attributes.get("role") == "region"]
    assert len(labels) == len(set(labels))
    assert all(attributes.get("alt") for tag, attributes in page.attributes if tag == "img")
    assert "nan" not in "".join(page.words).lower().split()


def test_the_same_bytes_twice(context, tmp_path):
    first = render_comparison(context, tmp_path / "a").read_bytes()
    assert render_comparison(context, tmp_path / "b").read_bytes() == first
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["compare.html"]


def test_foreign_names_are_text(context, tmp_path, hostile):
    strange = dataclasses.replace(context, title=hostile, remarks=(hostile,))
    text = render_comparison(strange, tmp_path).read_text("utf-8")
    assert hostile not in text and "".join(Page(text).words).count(hostile) >= 3


def test_a_users_template_stands_in_and_one_that_fails_writes_nothing(context, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "compare.html.j2").write_text("<p>{{ title }}</p>")
    assert render_comparison(context, tmp_path / "a", mine).read_text("utf-8").startswith("<p>bp against")
    (mine / "compare.html.j2").write_text("{{ titel }}")
    with pytest.raises(UsageError, match=r"compare\.html\.j2, line 1: unknown name 'titel' \(did you mean 'title'\?\)"):
        render_comparison(context, tmp_path / "b", mine)
    assert not (tmp_path / "b").exists()
