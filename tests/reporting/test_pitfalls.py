"""The checklist: every item of protocol.md, numbered, runs that are answered alike together, the worst answer first."""

from __future__ import annotations

import dataclasses

import pytest

from fa_lint.rules import all_rules
from fa_registry.metrics import AGGREGATES
from fa_registry.protocol.integrity import compare
from fa_registry.records import Exclusion, FigureDifference, Integrity, OtherRun, Reading, SelectionSummary
from fa_registry.reporting import pitfalls as questions
from fa_registry.reporting.pitfalls import WORST_FIRST, PitfallContext, pitfalls
from fa_registry.reporting.report_index import Sources
from tests.reporting.report_changes import asked, changed, run_of, with_record


def checklist(report, method="dfa"):
    sources = Sources.of(report)
    return pitfalls(next(group for group in sources.groups if group.method == method), sources)


def test_all_are_answered_for_every_run(report, rich):
    for audit in (report, rich):
        for group in Sources.of(audit).groups:
            found = pitfalls(group, Sources.of(audit))
            assert [one.number for one in found] == list(range(1, len(questions.QUESTIONS) + 1))
            ids = sorted(run.record.run_id for run in group.runs)
            for one in found:
                assert sorted(run_id for answer in one.answers for run_id in answer.run_ids) == ids
                assert all(answer.evidence and answer.outcome in WORST_FIRST for answer in one.answers)


def test_runs_that_differ_are_distinguished_and_the_worst_comes_first(rich):
    changed = tuple(
        with_record(run, feedback={}) if run.record.spec.method == "dfa" and run.record.spec.seed == 123 else run
        for run in rich.runs
    )
    saved = checklist(dataclasses.replace(rich, runs=changed))[6]
    assert [answer.outcome for answer in saved.answers] == ["violated", "avoided"] and saved.outcome == "violated"
    assert checklist(rich)[6].outcome == "avoided"


def with_runs(report, method, **of_seeds):
    """The checklist of a method of which the runs of some seeds are changed: `s42` → as for report_changes.changed."""

    def put(run):
        spec = run.record.spec
        mine = (spec.method, spec.control) == (method, "none")
        return changed(run, **of_seeds.get(f"s{spec.seed}", {})) if mine else run

    return checklist(dataclasses.replace(report, runs=tuple(map(put, report.runs))), method)


def outcomes(pitfall):
    return [answer.outcome for answer in pitfall.answers]


def test_a_violation_outweighs_what_is_not_known_and_that_what_was_avoided(rich):
    null = "gamma_null_p"
    unknown, violated, avoided = ({"sites": {null: ranks}} for ranks in (None, 0.6, 0.048))
    assert outcomes(with_runs(rich, "dfa", s42=unknown, s123=violated)[3]) == ["violated", "unknown"]
    assert outcomes(with_runs(rich, "dfa", s42=avoided, s123=unknown)[3]) == ["unknown", "avoided"]
    saved = with_runs(rich, "bp", s42={"feedback": {}}, s123={"feedback": {"sha256": "ab"}})[6]
    assert outcomes(saved) == ["avoided", "not applicable"]


def test_a_run_that_is_not_what_was_recorded_avoids_nothing(rich):
    """Its own figures say that it avoids much; nothing of that is evidence."""
    before = {item.number for item in checklist(rich) if item.outcome == "avoided"}
    forged = {"integrity": "mismatch"}
    after = {item.number: item for item in with_runs(rich, "dfa", s42=forged, s123=forged)}
    assert before and all(item.outcome in ("unknown", "violated") for item in after.values())
    assert questions.NO_EVIDENCE in {after[number].answers[0].evidence for number in before}


def test_what_lint_finds_in_code_names_its_rule(rich):
    codes = {item.number: item.lint for item in checklist(rich) if item.lint}
    pitfall_of = {rule.card.code: rule.card.pitfall for rule in all_rules()}
    assert sorted(codes) == [number for number in range(1, 13) if number != 5]  # no rule finds a missing aggregation
    assert all(pitfall_of[code] == number for number, code in codes.items())


def test_no_answer_is_always_the_same(rich):
    """Recomputed, trusted, and found to differ: each changes what can be known."""
    outcomes = []
    for state, differing in (("verified", ()), ("trusted", ()), ("mismatch", ("h_norm", "gamma"))):
        differences = tuple(FigureDifference(name, 0, Reading(1.0), Reading(2.0)) for name in differing)
        held = Integrity(state, differences=differences)
        runs = tuple(with_record(run, integrity=held) for run in rich.runs)
        outcomes.append([item.outcome for item in checklist(dataclasses.replace(rich, runs=runs))])
    assert [row[0] for row in outcomes] == ["avoided", "unknown", "violated"]
    assert [row[11] for row in outcomes] == ["avoided", "unknown", "violated"]
    assert [row[1] for row in outcomes] == ["avoided", "avoided", "violated"]


def test_every_figure_that_does_not_come_out_again_is_asked_for_not_the_first_few(rich):
    """The words name five differences; gain and Γ are measured late, and come after all of them."""
    dfa = next(run for run in rich.runs if run.record.spec.method == "dfa" and run.record.spec.control == "none")
    figures = dfa.record.measurements
    late = {name: tuple(Reading(one.value * 1.5) for one in figures.sites[name]) for name in ("gain", "gamma")}
    early = {name: tuple(Reading(one.value * 1.5) for one in figures.sites[name]) for name in ("rho_bp", "nudge")}
    logged = dataclasses.replace(figures, sites={**early, **late})
    again = dataclasses.replace(figures, sites={name: figures.sites[name] for name in logged.sites})
    held = compare(logged, again)
    assert not any("gain" in line or "gamma" in line for line in held.details)
    run = with_record(dfa, integrity=held)
    runs = tuple(run if one is dfa else one for one in rich.runs)
    norms, cosines, *_ = checklist(dataclasses.replace(rich, runs=runs))
    assert (norms.outcome, cosines.outcome) == ("violated", "violated")
    assert "gain[0]: logged " in norms.answers[0].evidence and "gamma[0]: logged " in cosines.answers[0].evidence


def test_what_is_no_figure_is_no_figure_that_came_out_otherwise(rich):
    """A feedback that is no draw of the seed does not show the mode in which the metrics were measured."""
    held = Integrity("mismatch", ("feedback: B_01 is no draw of seed 42",))
    runs = tuple(with_record(run, integrity=held) for run in rich.runs)
    modes = checklist(dataclasses.replace(rich, runs=runs))[11]
    assert modes.outcome == "unknown"


@pytest.fixture
def answer(rich):
    def answer(question, method="dfa", cards=(), **changes):
        return question(asked(rich, changed(run_of(rich, method), **changes), **dict(cards)))

    return answer


TRUSTED = {"integrity": "trusted"}
BOTH = {"conventions": {"test_samples": 360, "eval_samples": 128}, **TRUSTED}
REDUCED = {"gradient_reduction": "sum", "g_norm_mean_ce_samples": 128}
OTHER_NORM = "recomputed with one L₂ norm per sample, the metrics differ: g_norm[0]: logged 1e-09, recomputed 0.2"
NO_CLAMP = "a clamp would not have changed the median cosine"
REACHED = "0.600, at site 2: 12 of 20 fresh draws reach this Γ; not significant at level 0.05"
EXACT_LAST = {"methods/dfa": {"exact_sites": "last"}}
FEEDBACK = {"feedback": {"sha256": "ab"}}


OF_GAMMA = (questions.own_feedback, questions.every_aggregation, questions.no_single_site)


def of_card(**card):
    return {"feedback": {}, "cards": {"methods/dfa": card}}


def sites(**rows):
    return {"sites": rows}


def stepped(change):
    """h = 10, g = 10, η = .01: to first order the loss changes by −1."""
    return {**sites(h_norm=10, g_norm=10, nudge_bp=change), "conventions": {"nudge_step": 0.01}, **TRUSTED}


def normed(gradient, ratio):
    return {**sites(g_norm=gradient, norm_ratio=ratio), **TRUSTED}


def precise(precision, gradient):
    return {**sites(g_norm_mean_ce=gradient), "spec": {"precision": precision}}


def two_gradients(own, mean, conventions=REDUCED):
    return {**sites(g_norm=own, g_norm_mean_ce=mean), "conventions": conventions}


def accurate(value, changes=BOTH, **conventions):
    sizes = {"conventions": conventions} if conventions else {}
    return {"scalars": {"accuracy": value}, **changes, **sizes}


def recomputed(state, *differing):
    return {"integrity": state, "differing": differing}


# Question, what is changed of the run, outcome, and a part of the evidence.
ANSWERS = [
    (questions.own_feedback, sites(gamma_null_p=0.048), "avoided", "20 fresh draws"),
    (questions.own_feedback, sites(gamma_null_p=0.05), "avoided", "20 fresh draws"),
    (questions.own_feedback, sites(gamma_null_p=[0.048, 0.048, 0.6, 0.048, 0.048]), "violated", REACHED),
    (questions.own_feedback, sites(gamma_null_p=None), "unknown", "taken away"),
    *((one, {"method": "bp"}, "not applicable", questions.EXACT) for one in OF_GAMMA),
    (questions.every_aggregation, {}, "avoided", ""),
    (questions.every_aggregation, {"scalars": dict.fromkeys(list(AGGREGATES)[1:])}, "violated", ""),
    (
        questions.every_aggregation,
        {"scalars": {**dict.fromkeys(AGGREGATES), "gamma_deep_mean": None}},
        "unknown",
        "taken away",
    ),
    (
        questions.every_aggregation,
        {"scalars": {name: 0.1 * place for place, name in enumerate(AGGREGATES)}},
        "avoided",
        "0.000 to 0.700, a spread of 0.700",
    ),
    (questions.no_single_site, sites(gamma=0.1), "avoided", ""),
    (questions.no_single_site, sites(gamma=[0.01, 0.01, 0.9, 0.01, 0.01]), "violated", ""),
    (questions.no_single_site, sites(gamma=[0.1, None, None, None, None]), "unknown", ""),
    (questions.no_single_site, sites(gamma=[0.1, -0.1, 0.0, 0.0, 0.0]), "violated", ""),
    (
        questions.no_single_site,
        sites(gamma=[0.1, 0.0, 0.0, 0.0, 0.0]),
        "avoided",
        "",
    ),  # no site changes a headline of 0
    (questions.no_single_site, sites(gamma=[0.5, 0.25, 0.75, None, None]), "avoided", ""),  # half is not more than half
    (questions.no_single_site, sites(gamma=[0.1, 0.1, 0.1, 0.1, 1.0]), "violated", ""),
    (questions.no_single_site, {**sites(gamma=[0.1, 0.1, 0.1, 0.1, 1.0]), "cards": EXACT_LAST}, "avoided", ""),
    (questions.saved_feedback, FEEDBACK, "avoided", ""),
    (questions.saved_feedback, {"feedback": {}}, "violated", ""),
    (questions.saved_feedback, {"feedback": {}, **sites(gamma=None)}, "avoided", ""),
    (questions.saved_feedback, {"feedback": {}, "method": "bp"}, "not applicable", ""),
    # a field of the card states whether there is feedback to save, and no sentence
    (questions.saved_feedback, of_card(has_feedback=True, feedback="none of the matrices is fixed"), "violated", ""),
    (questions.saved_feedback, of_card(has_feedback=False, feedback="no matrices"), "not applicable", ""),
    (questions.saved_feedback, of_card(), "unknown", ""),
    (questions.norm_of_samples, stepped(-1.0), "avoided", "at site 0"),
    (questions.norm_of_samples, stepped(-0.2), "avoided", "at site 0"),
    (questions.norm_of_samples, stepped(-10.0), "avoided", "at site 0"),  # agreement to a decade
    (questions.norm_of_samples, stepped(-50.0), "unknown", "at site 0"),
    (questions.norm_of_samples, stepped(-1e6), "violated", "at site 0"),
    (questions.norm_of_samples, stepped(-1e7), "violated", "at site 0"),
    (questions.norm_of_samples, stepped(-1e-7), "violated", "at site 0"),
    (
        questions.norm_of_samples,
        stepped([-1.0, -0.5, -0.001, -1.0, -1.0]),
        "avoided",
        "1.0 times the value that ‖h‖·‖g‖ predicts at site 0, which fits best, and 0.0010 times at site 2",
    ),
    (questions.norm_of_samples, stepped(None), "unknown", ""),
    (questions.norm_of_samples, recomputed("verified"), "avoided", ""),
    (questions.norm_of_samples, recomputed("mismatch", "g_norm"), "violated", OTHER_NORM),
    (questions.unclamped_cosine, normed(1e-3, 1), "avoided", NO_CLAMP),
    (questions.unclamped_cosine, normed(1e-6, 1), "avoided", "smallest median norm"),
    (questions.unclamped_cosine, normed(1e-7, 1), "unknown", "smallest median norm"),
    (questions.unclamped_cosine, normed(1e-3, 1e-5), "unknown", "smallest median norm"),
    (questions.unclamped_cosine, recomputed("mismatch", "gamma"), "violated", ""),
    (questions.unclamped_cosine, recomputed("verified"), "avoided", ""),
    (questions.unclamped_cosine, {**sites(g_norm=None), **TRUSTED}, "unknown", ""),
    (questions.no_underflow, precise("fp32", 1e-9), "avoided", ""),
    (questions.no_underflow, precise("bf16", 1e-9), "avoided", ""),
    (questions.no_underflow, precise("fp16", 1e-9), "violated", ""),
    (
        questions.no_underflow,
        precise("fp16", questions.UNDERFLOW),
        "unknown",
        "",
    ),  # the smallest number does not underflow
    (questions.no_underflow, precise("fp16", 1e-3), "unknown", ""),
    (questions.no_underflow, precise("odd", None), "unknown", ""),
    (questions.no_underflow, {"scalars": {"fidelity_min": 0.998}}, "avoided", "at least 0.998000"),
    (questions.no_underflow, {"scalars": {"fidelity_min": None}}, "avoided", "smallest numbers"),
    (questions.per_sample_gradients, two_gradients(0.128, 0.001), "avoided", ""),
    (questions.per_sample_gradients, two_gradients(0.1280064, 0.001), "avoided", ""),  # .005 % of itself is rounding
    (questions.per_sample_gradients, two_gradients(0.001, 0.001), "violated", ""),
    (
        questions.per_sample_gradients,
        two_gradients(0.128, 0.001, {**REDUCED, "gradient_reduction": "mean"}),
        "violated",
        "",
    ),
    (questions.per_sample_gradients, two_gradients(0.128, 0.001, {}), "unknown", ""),
    (questions.per_sample_gradients, two_gradients(0.128, None), "unknown", ""),
    (questions.metric_of_test_set, accurate(337 / 360), "avoided", ""),
    (questions.metric_of_test_set, accurate(120 / 128), "violated", ""),  # 0.9375 · 360 = 337.5
    (questions.metric_of_test_set, accurate(0.5), "unknown", ""),
    (questions.metric_of_test_set, accurate(0.5, {**BOTH, "integrity": "verified"}), "avoided", ""),
    (questions.metric_of_test_set, accurate(0.5, test_samples=128, eval_samples=128), "avoided", ""),
    (questions.metric_of_test_set, accurate(0.5, test_samples=128, eval_samples=256), "unknown", ""),
    (questions.metric_of_test_set, accurate(0.5, TRUSTED), "unknown", ""),
    (questions.metric_of_test_set, accurate(None), "unknown", ""),
    (questions.eval_mode, recomputed("verified"), "avoided", ""),
    (questions.eval_mode, recomputed("mismatch", "rho"), "violated", ""),
    (questions.eval_mode, recomputed("trusted"), "unknown", ""),
    (questions.eval_mode, recomputed("unverifiable"), "unknown", ""),
]


@pytest.mark.parametrize(
    ("question", "changes", "outcome", "text"), ANSWERS, ids=lambda value: getattr(value, "__name__", "")
)
def test_what_is_measured_decides_each_answer(answer, question, changes, outcome, text):
    found, evidence = answer(question, **changes)
    assert found == outcome and text in evidence
    if "smallest median norm" in evidence:
        assert (NO_CLAMP in evidence) == (outcome == "avoided")


def test_the_mean_that_no_site_may_carry_is_the_headline(answer):
    """gamma_deep_mean has no site 0; the effect of site 0 on the mean over all sites is shown next to it."""
    outcome, evidence = answer(questions.no_single_site, sites={"gamma": [0.9, 0.1, 0.1, 0.1, 0.1]})
    assert outcome == "avoided" and "gamma_deep_mean" in evidence and "0.100 over 4 sites" in evidence
    assert "gamma_all_mean_mean, site 0" in evidence and "62\u00a0% of its" in evidence
    assert "site 0" not in answer(questions.no_single_site, sites={"gamma": 0.1})[1]
    half = {"gamma": [1.0, 0.25, 0.25, None, None]}  # site 0 carries exactly half of the mean over all
    assert "gamma_all_mean_mean" not in answer(questions.no_single_site, sites=half)[1]
    hidden = {"gamma": [0.5, 0.6, 0.1, 0.1, 0.1]}  # over all sites no one carries it
    assert answer(questions.no_single_site, sites=hidden)[0] == "violated"


def test_the_control_of_the_same_setting_seed_and_data(rich):
    assert questions.own_control(asked(rich, run_of(rich)))[0] == "avoided"


@pytest.mark.parametrize(
    ("change", "what"),
    [({"spec": {"epochs": 7}}, "setting"), ({"spec": {"seed": 7}}, "seed"), ({"provenance": {}}, "data digest")],
)
def test_a_control_that_differs_is_named(rich, change, what):
    run = changed(run_of(rich), **change)
    outcome, evidence = questions.own_control(asked(rich, run))
    assert outcome == "violated" and evidence.endswith(f" in {what}")


def test_without_a_control_nothing_is_known(rich):
    run = run_of(rich)
    alone = dataclasses.replace(run, frozen_run_id="")
    assert questions.own_control(asked(rich, alone))[0] == "unknown"
    given = changed(alone, scalars={"frozen_accuracy": 0.3})  # fa: ok FA010 a stated value
    outcome, evidence = questions.own_control(asked(rich, given))
    assert outcome == "violated" and "stated by the author" in evidence
    elsewhere = dataclasses.replace(run, frozen_run_id="0" * 32)
    assert questions.own_control(asked(rich, elsewhere))[1] != questions.own_control(asked(rich, alone))[1]


def seeds(report, method):
    sources = Sources.of(report)
    group = next(group for group in sources.groups if group.method == method)
    return questions.same_seeds(PitfallContext(group.runs[0], group.runs, sources))


def test_seeds_that_differ_between_methods_are_named(rich, report):
    outcome, evidence = seeds(rich, "dfa")
    assert outcome == "violated" and "other seeds for drtp" in evidence  # drtp has seed 42 alone
    whole = dataclasses.replace(report, excluded=(), choice=SelectionSummary("digits", unaudited=()))
    outcome, evidence = seeds(whole, "dfa")
    assert outcome == "avoided" and evidence.startswith("seeds 42, 123")
    assert "in study digits;" in evidence and evidence.endswith("including deleted runs")


@pytest.mark.parametrize(
    ("choice", "outcome", "text"),
    [
        ({"asked": {"seeds": "42"}, "others": 10}, "violated", "--seeds 42 was given, while runs of study digits"),
        ({"asked": {"seeds": "42"}}, "unknown", "--seeds 42 was given instead of the seeds of the study's file"),
        ({"others": 10}, "unknown", "that were not audited, because their specifications are different: 10"),
        ({"asked": {"epochs": "5"}}, "avoided", "no run is left out"),
    ],
)
def test_seeds_that_were_picked_or_runs_left_out_are_no_whole_study(report, choice, outcome, text):
    found, evidence = seeds(
        dataclasses.replace(report, excluded=(), choice=SelectionSummary("digits", **{"unaudited": (), **choice})),
        "dfa",
    )
    assert found == outcome and text in evidence
    assert ("no run is left" in evidence) == (outcome == "avoided")


@pytest.mark.parametrize(
    ("change", "facts", "outcome", "text"),
    [
        (
            {"seed": 7},
            {},
            "violated",
            "the store has runs that are not in this report: seed 7 of dfa, complete (run ffffffff)",
        ),
        ({"seed": 7}, {"deleted": True}, "violated", "complete, deleted in MLflow"),
        ({"seed": 7}, {"finished": False, "status": "running"}, "unknown", "but seed 7 of dfa, running (run"),
        ({}, {}, "unknown", "an older run of seed 42 of dfa"),
        ({}, {"newer": True}, "violated", "a newer run of seed 42 of dfa"),
        ({"seed": 7, "epochs": 999}, {}, "avoided", "no run is left out"),
        ({"seed": 7, "method": "drtp"}, {}, "avoided", "no run is left out"),
        ({"seed": 7, "control": "frozen"}, {}, "unknown", "seed 7 of frozen"),
        ({"control": "frozen"}, {}, "unknown", "an older run of seed 42 of frozen"),
    ],
)
def test_what_the_store_holds_besides_decides(report, change, facts, outcome, text):
    known = next(run.record.spec for run in report.runs if run.record.spec.method_label == "dfa")
    held = {"status": "complete", "finished": True, **facts}
    other = OtherRun("f" * 32, dataclasses.replace(known, **{"seed": 42, **change}), "a setting", **held)
    found, evidence = seeds(
        dataclasses.replace(report, excluded=(), choice=SelectionSummary("", unaudited=(other,))), "dfa"
    )
    assert found == outcome and text in evidence


def test_a_control_that_was_left_out_is_passed_over_though_its_seed_was_judged(report):
    known = next(run.record.spec for run in report.runs if run.record.spec.method_label == "dfa")
    control = OtherRun("f" * 32, dataclasses.replace(known, control="frozen"), "a setting", "complete", True)
    trained = tuple(run for run in report.runs if run.record.spec.control == "none")
    bare = dataclasses.replace(report, runs=trained, excluded=(), choice=SelectionSummary("", unaudited=(control,)))
    found, evidence = seeds(bare, "dfa")
    assert found == "violated" and f"report: seed {known.seed} of frozen" in evidence


def test_a_control_of_a_seed_that_was_trained_and_not_judged_is_passed_over(report):
    """The seed's own run is still at work and is only mentioned; its finished control could be in the paired difference."""
    known = next(run.record.spec for run in report.runs if run.record.spec.method_label == "dfa")
    own = OtherRun("e" * 32, dataclasses.replace(known, seed=7), "a setting", "running", False)
    control = OtherRun("f" * 32, dataclasses.replace(known, seed=7, control="frozen"), "a setting", "complete", True)
    found, evidence = seeds(
        dataclasses.replace(report, excluded=(), choice=SelectionSummary("", unaudited=(own, control))), "dfa"
    )
    assert found == "violated" and "seed 7 of frozen" in evidence


def test_what_was_left_out_makes_it_unknown(report):
    chosen = dataclasses.replace(report, choice=SelectionSummary("digits", unaudited=()))
    assert seeds(chosen, "dfa")[0] == "unknown" and "were not judged: 2" in seeds(chosen, "dfa")[1]
    assert seeds(report, "dfa")[0] == "unknown"  # no store was searched
    some = dataclasses.replace(report, excluded=(), selection="runs a, b")
    assert "by runs a, b" in seeds(some, "dfa")[1] and seeds(some, "dfa")[0] == "unknown"
    one = dataclasses.replace(some, excluded=(Exclusion("f", "n", "r"),))
    assert seeds(one, "dfa")[0] == "unknown"


@pytest.fixture
def of_tokens(rich):
    """The first dfa run as a run on tokens."""
    run = run_of(rich)
    scalars = {name: value for name, value in run.record.measurements.scalars.items() if name != "accuracy"}
    measured = dataclasses.replace(run.record.measurements, scalars={**scalars, "token_loss": Reading(3.2)})
    return with_record(run, measurements=measured)


@pytest.mark.parametrize(
    ("changes", "outcome", "words"),
    [
        ({**BOTH, "integrity": "verified"}, "avoided", "recomputed on all 360 test samples"),
        ({**BOTH, "integrity": "trusted"}, "unknown", "the loss per token does not show on how many samples"),
        (
            {"conventions": {"test_samples": 128, "eval_samples": 128}, **TRUSTED},
            "avoided",
            "the eval batch is the whole test set of 128",
        ),
        ({"scalars": {"token_loss": Reading(None, "lost")}, **BOTH}, "unknown", "loss per token: lost"),
    ],
)
def test_of_a_token_run_the_loss_is_asked_and_no_count_of_samples(rich, of_tokens, changes, outcome, words):
    given = {**changes, "conventions": {**BOTH["conventions"], **changes.get("conventions", {})}}
    found, evidence = questions.metric_of_test_set(asked(rich, changed(of_tokens, **given)))
    assert (found, evidence[: len(words)]) == (outcome, words) and "correct" not in evidence


def test_the_checklist_of_a_token_run_names_the_loss(rich, of_tokens):
    alone = changed(of_tokens, scalars={"frozen_token_loss": 3.3})
    report = dataclasses.replace(rich, runs=(dataclasses.replace(alone, frozen_run_id=""),))
    items = checklist(report)
    assert items[8].title.startswith("loss per token") and "frozen loss per token" in items[9].title
    assert "frozen loss per token" in items[9].answers[0].evidence
    assert "accurac" not in repr(items) and checklist(rich)[8].title.startswith("accuracy of")


def with_validation(report, share, reading, select="last", **recipe):
    """The report with validation samples in every run of dfa, and, with a `recipe`, a second group without any."""

    def put(run, recorded, **fields):
        record = run.record
        spec = dataclasses.replace(record.spec, recipe=dataclasses.replace(record.spec.recipe, **fields))
        scalars = {**record.measurements.scalars, **recorded}
        measurements = dataclasses.replace(record.measurements, scalars=scalars)
        return with_record(run, spec=spec, measurements=measurements)

    is_dfa = [(run.record.spec.method, run.record.spec.control) == ("dfa", "none") for run in report.runs]
    recorded = {"accuracy_validation": reading} if reading else {}
    runs = [
        put(run, recorded, validation=share, select=select) if chosen else run
        for run, chosen in zip(report.runs, is_dfa, strict=True)
    ]
    others = [run for run, chosen in zip(report.runs, is_dfa, strict=True) if chosen and recipe]
    runs += [with_record(put(run, {}, **recipe), run_id=f"{index:032x}") for index, run in enumerate(others)]
    return dataclasses.replace(report, runs=tuple(runs))


def answer_of_validation(report):
    sources = Sources.of(report)
    (group,) = [one for one in sources.groups if one.runs[0].record.spec.recipe.validation]
    (*first, last) = pitfalls(group, sources)
    assert (len(first), last.number) == (len(questions.QUESTIONS), len(questions.QUESTIONS) + 1)
    return last.outcome


def test_whether_a_choice_was_made_on_the_test_set_is_answered_for_runs_with_validation_samples(rich):
    assert answer_of_validation(with_validation(rich, 0.1, Reading(0.5))) == "avoided"
    assert answer_of_validation(with_validation(rich, 0.1, None)) == "unknown"
    assert answer_of_validation(with_validation(rich, 0.1, Reading(0.5), learning_rate=0.5)) == "unknown"
    assert answer_of_validation(with_validation(rich, 0.1, Reading(0.5), batch_size=7)) == "avoided"
    blind = with_validation(rich, 0.1, Reading(0.5), select="best validation", learning_rate=0.5)
    assert (
        answer_of_validation(blind) == "unknown"
    )  # a run without samples cannot select an epoch, and stays an alternative
