"""Seeds that a rule judges alike are together; the most severe findings are first."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fa_registry.metrics import HEADLINE_GAMMA, metric_named
from fa_registry.records import OUTCOMES, FurtherLimit, GuardReading, Reading
from fa_registry.reporting.report_values import (
    BY_AUTHOR,
    OVER_SAMPLES,
    OVER_TEST_SET,
    SEVERITY,
    Values,
    audit_columns,
    finding_rows,
    last_site,
    most_severe_first,
    rule_sentence,
    scalar_metric,
    seed_estimate,
    seed_row,
)
from fa_registry.reporting.view_models import OVER_SEEDS, Number, SeedValue
from fa_registry.statistics import crossed_mean, summary
from tests.reporting.report_changes import changed
from tests.reporting.runs import SITES, full, make_record
from tests.reporting.sample_reports import a_finding, make_report


@pytest.fixture
def rows(report):
    """The rows of one method whose seeds have these findings."""

    def of(*findings_of_seeds):
        runs = [
            dataclasses.replace(run, findings=tuple(findings))
            for run, findings in zip(report.runs[:2], findings_of_seeds, strict=True)
        ]
        return finding_rows(runs, "bp", "a setting", {})

    return of


@pytest.fixture(scope="module")
def exploded():
    """A judged run of fa whose stream explodes; feedback of site 3 is not specific."""
    record = full(make_record("fa", 42, 0.70, 5e8, 1.498e-5, 0.25), gain=[1.689e-4] * SITES)
    ranks = tuple(map(Reading, [0.01, 0.02, 0.03, 0.2604, 0.01]))
    measured = record.measurements
    sites = {**measured.sites, "gamma_null_p": ranks, "fidelity_batch": (Reading(1.0),) * SITES}
    scalars = {**measured.scalars, "gamma_centred_mid": Reading(0.2)}
    record = dataclasses.replace(record, measurements=dataclasses.replace(measured, sites=sites, scalars=scalars))
    return make_report([record], "2026-12").runs[0]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("D1", "D1 scale stability: growth 155.5 (limit 50): exploded; growth since init 5×10⁸ (limit 50)"),
        (
            "D2",
            "D2 reference validity: ‖g_L‖₂ 1.17×10⁻⁷ (floor 10⁻⁷): clear; gain 1.689×10⁻⁴ (limit 0.01); "
            "fidelity 1 (limit 0.99); fidelity batch 1 (limit 0.99)",
        ),
        ("D4", "D4 credit distribution: largest p of 5 sites 0.2604 (limit 0.05): not specific; Γ 0.1875 (limit 0.05)"),
        ("S", "S cross-batch stability: stability 0.1 (limit 0.3): clear; Γ centred 0.2 (limit 0.05)"),
    ],
)
def test_a_rule_is_written_as_values_with_their_limits(exploded, rule, text):
    (finding,) = [finding for finding in exploded.findings if finding.rule == rule]
    assert rule_sentence(finding, exploded.record, {}) == text
    (row,) = [row for row in finding_rows([exploded], "fa", "a setting", {}) if row.rule == rule]
    assert [statement.sentence for statement in row.said] == [text]
    assert "required at" in finding.sentence  # the stored sentence, which verify compares, is another


def test_a_further_limit_on_p_compares_the_largest_p(exploded):
    growth = next(finding for finding in exploded.findings if finding.rule == "D1")
    both = dataclasses.replace(growth, further=(FurtherLimit("gamma_null_p", 0.05),))
    assert rule_sentence(both, exploded.record, {}).endswith("sites 0.2604 (limit 0.05)")


def test_the_stored_sentence_is_shown_where_the_record_lacks_a_value_or_the_margin_has_notes(exploded):
    margin = next(finding for finding in exploded.findings if finding.rule == "D3")
    reference = next(finding for finding in exploded.findings if finding.rule == "D2")
    assert rule_sentence(margin, exploded.record, {}) == margin.sentence
    for name in ("gain", "fidelity"):
        lacking = changed(exploded, sites={name: []}).record
        assert rule_sentence(reference, lacking, {}) == reference.sentence
    missing = dataclasses.replace(reference, observed=Reading(None, "not measured"))
    assert rule_sentence(missing, exploded.record, {}) == reference.sentence


def test_a_check_of_evidence_is_written_as_its_reason(exploded):
    reason = "no audit has checked whether method fa matches its card"
    found = a_finding("method", "warn", title="conformance of the method", observed=Reading(None, reason))
    assert rule_sentence(found, exploded.record, {}) == f"conformance of the method: {reason}"


def test_the_guard_of_the_credit_is_written_after_its_p_value(exploded):
    credit = next(finding for finding in exploded.findings if finding.rule == "D4")
    guarded = dataclasses.replace(credit, guard=GuardReading("gamma", "above", Reading(0.8), 0, mean=0.2))
    assert "(limit 0.05); without site" in rule_sentence(guarded, exploded.record, {})


def test_every_outcome_has_its_place():
    assert sorted(SEVERITY) == sorted((*OUTCOMES, "inapplicable"))
    assert SEVERITY == ("error", "fail", "warn", "not_applicable", "skipped", "waived", "inapplicable", "pass")


def test_the_same_sentence_about_both_seeds_is_shown_once(rows):
    over_seeds = {"quantity": "margin_pp", "observed": Reading(2.5), "interval": (-1.0, 6.0), "state": "UNDECIDED"}
    ours = [
        a_finding("D3", "warn", run_id=run_id, reference_run_id=f"f{run_id}", **over_seeds) for run_id in ("r1", "r2")
    ]
    (row,) = rows(ours[:1], ours[1:])
    (statement,) = row.said
    assert (statement.seeds, statement.run_ids, statement.reference_run_ids) == (
        (42, 123),
        ("r1", "r2"),
        ("fr1", "fr2"),
    )
    assert statement.interval == (-1.0, 6.0) and statement.observed.kind == "pp" and row.seeds == (42, 123)


def test_seeds_with_figures_of_their_own_keep_them_under_one_heading(rows):
    (row,) = rows([a_finding("D1", observed=Reading(60.0))], [a_finding("D1", observed=Reading(70.0))])
    assert [(statement.seeds, statement.observed.reading.value) for statement in row.said] == [
        ((42,), 60.0),
        ((123,), 70.0),
    ]


@pytest.mark.parametrize(
    "change", [{"outcome": "warn"}, {"state": "ODD"}, {"gating": False}, {"required": "at most 9"}]
)
def test_seeds_that_are_judged_otherwise_stand_apart(rows, change):
    other = dataclasses.replace(a_finding("D1"), **change)
    assert [row.seeds for row in rows([a_finding("D1")], [other])] == [(42,), (123,)]


def test_site_and_first_fire_are_put_into_text(rows):
    (row,) = rows([a_finding("D1", site=4, first_fire=8)], [a_finding("D1")])
    assert [(one.site, one.epoch.rpartition(" ")[2]) for one in row.said] == [("site 4", "8"), ("", "")]


def test_a_control_that_skips_what_it_is_the_reference_of_is_no_news(report):
    control = report.runs[-1]
    assert any(finding.outcome == "skipped" for finding in control.findings)
    assert not any(row.outcome == "skipped" for row in finding_rows([control], "frozen", "s", {}))
    trained = dataclasses.replace(report.runs[0], findings=(a_finding("D3", "skipped"),))
    assert [row.outcome for row in finding_rows([trained], "bp", "s", {})] == ["skipped"]


def test_by_severity_and_what_decides_before_what_is_only_reported(rows):
    findings = [
        a_finding(f"{outcome}-{gating}", outcome, gating=gating) for gating in (False, True) for outcome in OUTCOMES
    ]
    ordered = most_severe_first(rows(findings, []))
    outcomes = [outcome for outcome in SEVERITY if outcome in OUTCOMES]
    assert [row.rule for row in ordered] == [f"{outcome}-{gating}" for outcome in outcomes for gating in (True, False)]


def test_a_rule_that_does_not_apply_is_not_one_that_could_not_be_judged(rows):
    missing = a_finding("missing", "not_applicable")
    inapplicable = a_finding("inapplicable", "not_applicable", inapplicable="no residual stream")
    ordered = most_severe_first(rows([a_finding("passed", "pass"), inapplicable, missing], []))
    assert [(row.rule, row.outcome) for row in ordered] == [
        ("missing", "not_applicable"),
        ("inapplicable", "inapplicable"),
        ("passed", "pass"),
    ]
    assert (missing.is_missing, inapplicable.is_missing) == (True, False)


def test_the_limit_stands_without_its_unit_where_the_report_knows_it_apart(rows):
    """Read out of the text it would end at the first bracket, regardless of its place."""
    known = a_finding("Z", required="at 50 (of 100) (ratio)", limit="at 50 (of 100)")
    older = dataclasses.replace(known, limit="")
    assert [row.limit for row in rows([known], [])] == [known.limit]
    assert [row.limit for row in rows([older], [])] == [known.required]


def values(*readings):
    return [SeedValue(seed, Number(reading, "pct", (f"run{seed}",))) for seed, reading in enumerate(readings)]


def test_a_seed_row_holds_the_runs_own_numbers(report):
    run = report.runs[2]
    numbers = seed_row(run, Values.of(report), audit_columns(report.runs)).numbers
    assert numbers["accuracy"].reading == run.record.measurements.scalars["accuracy"] == Reading(0.81)
    assert numbers["g_norm_mean_ce_L"].reading == run.record.measurements.sites["g_norm_mean_ce"][-1]
    assert numbers["accuracy"].run_ids == (run.record.run_id,)
    assert numbers["frozen_accuracy"].run_ids == (run.frozen_run_id,)
    assert numbers["margin_pp"] == Number(Reading(0.0), "pp", (run.record.run_id, run.frozen_run_id))


def test_a_control_is_not_compared_with_itself(report):
    control = next(run for run in report.runs if run.verdict.outcome == "control")
    assert "the frozen control" in Values.of(report).frozen(control).reading.reason


def test_a_missing_frozen_control_is_na_with_its_reason(report):
    alone = dataclasses.replace(report.runs[0], frozen_run_id="")
    assert "no frozen control" in Values.of(report).margin(alone).reading.reason
    lost = dataclasses.replace(report.runs[0], frozen_run_id="0" * 32)
    assert "not part of" in Values.of(report).margin(lost).reading.reason


def test_what_was_not_measured_says_so(report):
    assert scalar_metric(report.runs[0].record, "rho") == Reading(None, "rho was not measured")
    assert last_site(report.runs[0].record, "rho") == Reading(None, "rho was not measured")


def test_the_estimate_is_the_summary_of_what_is_there():
    found = seed_estimate(metric_named("accuracy"), values(Reading(0.9), Reading(None, "no file"), Reading(0.8)))
    expected = summary([0.9, 0.8])
    assert (found.n, found.of) == (2, 3)
    assert (found.mean.reading.value, found.std.value, found.low.value) == (expected.mean, expected.std, expected.low)
    assert found.mean.run_ids == ("run0", "run2")


def test_one_value_that_is_not_finite_leaves_no_mean():
    found = seed_estimate(metric_named("growth_max"), values(Reading(1.0), Reading.of(math.inf)))
    assert found.n == 0 and found.mean.reading.not_finite and found.mean.run_ids == ("run1",)


@pytest.mark.parametrize(
    ("readings", "reason"),
    [
        ((Reading(0.9),), "one seed: no interval"),
        ((Reading(None, "no file"),), "no file"),
        ((), "no run"),
    ],
)
def test_without_an_interval_there_is_a_reason(readings, reason):
    assert seed_estimate(metric_named("accuracy"), values(*readings)).low == Reading(None, reason)


def two_seeds(report):
    return [run for run in report.runs if run.record.spec.method == "dfa" and run.record.spec.control == "none"][:2]


@pytest.mark.parametrize(("metric", "over"), [("accuracy", OVER_TEST_SET), (HEADLINE_GAMMA, OVER_SAMPLES)])
def test_the_interval_of_a_metric_with_scores_contains_the_error_of_its_samples(rich, metric, over):
    runs = two_seeds(rich)
    found = Values.of(rich).estimate(runs, metric_named(metric))
    crossed = crossed_mean([run.record.measurements.sample_scores[metric].scores() for run in runs]).interval
    assert found.over == over
    # ends of the main metric contain the resolution of the test set, half a sample of 1000
    assert (found.low.value, found.high.value) == pytest.approx((crossed.low, crossed.high), abs=6e-4)
    assert found.high.value - found.low.value > 0.01


@pytest.mark.parametrize("fault", ["scores", "seed", "batch"])
def test_without_the_scores_of_every_seed_the_interval_is_that_over_seeds(rich, fault):
    runs = two_seeds(rich)
    if fault == "seed":  # two runs of one seed
        runs = [*runs, runs[0]]
    else:
        changes = {"sample_scores": {}} if fault == "scores" else {"conventions": {"eval_digest": "other"}}
        measured = dataclasses.replace(runs[0].record.measurements, **changes)
        record = dataclasses.replace(runs[0].record, measurements=measured)
        runs = [dataclasses.replace(runs[0], record=record), *runs[1:]]
    found = Values.of(rich).estimate(runs, metric_named(HEADLINE_GAMMA))
    expected = summary(dict((one.seed, one.number.reading.value) for one in found.values).values())
    assert (found.over, found.low.value) == (OVER_SEEDS, pytest.approx(expected.low))


def test_a_stated_frozen_accuracy_has_no_interval_that_is_paired_by_seed(report):
    runs = two_seeds(report)
    known, margin = Values.of(report), metric_named("margin_pp")
    assert known.estimate(runs, margin).low.value is not None
    alone = [
        dataclasses.replace(changed(run, scalars={"frozen_accuracy": 0.3}), frozen_run_id="")  # fa: ok FA010 stated
        for run in runs
    ]
    stated = [runs[0], alone[1]]
    for column in (margin, metric_named("frozen_accuracy")):
        found = known.estimate(stated, column)
        assert (
            found.mean.reading.value is not None
            and found.low.reason == BY_AUTHOR.format("frozen accuracy") == found.high.reason
        )
    assert known.estimate(stated, metric_named("accuracy")).low.value is not None


def test_a_column_may_be_a_site_quantity_at_the_last_site_and_never_one_by_site(rich):
    (gain, by_site) = (metric_named(name) for name in ("gain_L", "gain"))
    run, known = rich.runs[0], Values.of(rich)
    assert known.value(run, gain).reading == run.record.measurements.sites["gain"][-1]
    assert gain.words.startswith(f"{by_site.words}, ") and (gain.about, gain.mean) == ("gain", by_site.mean)
    assert "gain_L" in known.value(run, by_site).reading.reason


def test_a_stated_token_loss_is_named_as_such(report):
    runs = two_seeds(report)
    losses = {"token_loss": 3.2, "frozen_token_loss": 3.3, "accuracy": None}
    stated = []
    for run in runs:
        alone = changed(run, scalars=losses)
        scalars = {name: value for name, value in alone.record.measurements.scalars.items() if name != "accuracy"}
        measured = dataclasses.replace(alone.record.measurements, scalars=scalars)
        record = dataclasses.replace(alone.record, measurements=measured)
        stated.append(dataclasses.replace(alone, record=record, frozen_run_id=""))
    found = Values.of(report).estimate(stated, metric_named("margin_nats"))
    assert found.low.reason == BY_AUTHOR.format("frozen loss per token")
