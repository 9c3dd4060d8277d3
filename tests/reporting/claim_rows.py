"""Rows of the table of claims: runs that support a sentence, and the same runs with one change that withdraws it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from fa_registry.protocol.evidence_rules import (
    ADOPTED,
    CODE,
    CONTRADICTED,
    CREDIT,
    DATA,
    DUPLICATE,
    MEASURING,
    METHOD,
    NETWORK,
    NOT_MEASURED,
    TASK,
    TRAINING,
    UNDECIDED_HERE,
    WEIGHTS,
)
from fa_registry.records import (
    NORMALISED,
    REPETITIONS,
    REPLACED,
    RESIDUAL,
    STREAM,
    Conformance,
    Exclusion,
    FurtherLimit,
    GuardReading,
    Integrity,
    OtherRun,
    Reading,
    RunAudit,
)
from tests.reporting.judged_runs import (
    CLEARS,
    EXPLODED,
    FLOOR,
    GREW,
    NO_GAMMA,
    PART,
    SOUND,
    Row,
    a_run,
    depth,
    null,
    over_seeds,
    reference,
    row,
    rows_of_explanations,
    rows_of_gamma_taken_back,
    rows_of_specific_sites,
    scale,
    stability,
)
from tests.reporting.report_changes import changed, with_record
from tests.reporting.sample_reports import a_finding


def rows_of_passing() -> Iterator[Row]:
    passes = a_run(CLEARS)
    under = a_run(depth("CLEARS", "pass", -5.5, (-6.0, -5.0), -10.0))
    for spoiled in (
        under,
        a_run(CLEARS, verdict="warn"),
        a_run(),  # nothing compared it with frozen blocks
        [passes, a_run(CLEARS, seed=123, verdict="warn")],
        [passes, a_run(seed=123)],
    ):
        yield row("trained depth", passes, spoiled)
    yield row("trained depth", passes, a_run(CLEARS, conventions={"test_samples": None}))
    two = [passes, a_run(CLEARS, seed=123, scalars={"accuracy": 0.94})]
    yield row("trained depth", two, [passes])
    yield row("trained depth", passes, two)
    unknown = [passes, a_run(CLEARS, seed=123, scalars={"accuracy": None})]
    yield row("trained depth", two, unknown)
    moved = a_run(CLEARS, scalars={"blocks_trained": 4.0})
    part = a_run(CLEARS, scalars={"blocks_trained": 1.0})
    yield row("trained depth", moved, part)
    yield row("trained part", part, moved)
    yield row("trained part", [moved, changed(part, spec={"seed": 123})], moved)  # the least of the seeds
    yield row("trained depth", a_run(CLEARS, scalars={"blocks_trained": None}), moved)
    yield row("passes without depth", under, passes)


def rows_of_verdicts() -> Iterator[Row]:
    passes = a_run(CLEARS)
    two = [passes, a_run(CLEARS, seed=123)]
    yield row("diverged", a_run(verdict="fail", status="diverged"), a_run(verdict="fail"))
    yield row("failed", a_run(verdict="fail", status="failed"), a_run(verdict="fail"))
    missing = a_finding("D2", "not_applicable", sentence="D2 has no figure")
    yield row("incomplete", a_run(missing, verdict="incomplete"), a_run(missing))
    yield row("incomplete", a_run(verdict="incomplete"), a_run(missing, verdict="incomplete"))
    waived = a_finding("D3", "waived", title="depth", state="UNDERCUT", detail="by A. Person")
    yield row("waived", a_run(waived), passes)
    yield row("one seed", passes, two)
    spec = passes.record.spec
    gone = Exclusion("d" * 32, "dfa s9", "tampered", spec=dataclasses.replace(spec, seed=9))
    unknown = dataclasses.replace(gone, spec=None)
    yield row("not judged", passes, passes, excluded=(gone,))
    left_out = [
        OtherRun(str(seed) * 8, changed(passes, spec={"seed": seed}).record.spec, "", "complete", True)
        for seed in (8, 9)
    ]
    for others in (left_out[:1], left_out):
        yield row("left out", passes, passes, given={"left_out": others})
    yield row("not judged", passes, passes, excluded=(gone, unknown))


def rows_of_gamma() -> Iterator[Row]:
    own, part = a_run(CLEARS, null("SPECIFIC", "pass")), a_run(CLEARS, null("NOT SPECIFIC", "warn"), **PART)
    warned = a_run(CLEARS, null("SPECIFIC", "pass"), verdict="warn")
    exact = {"sites": {"gamma": 1.0}, "scalars": {"gamma_deep_mean": 1.0}}
    another = a_run(CLEARS, null("SPECIFIC", "pass"), seed=123)
    failed = a_run(CLEARS, null("SPECIFIC", "pass"), seed=123, verdict="fail")
    for spoiled in (part, a_run(CLEARS), warned, a_run(CLEARS, null("SPECIFIC", "pass"), **exact)):
        yield row("aligned by feedback", own, spoiled)
    yield row("aligned by feedback", [own, another], [own, failed])  # a tick is about the method
    yield row("aligned by feedback", [own, another], [own, changed(another, **NO_GAMMA)])
    yield row("gamma not applicable", a_run(**exact), own)
    yield row("no gamma", a_run(**NO_GAMMA), own)
    unmeasured = a_run(CLEARS, sites={"gamma_null_p": []})
    yield row("aligned, null unknown", a_run(CLEARS), own)
    yield row("aligned, null unknown", unmeasured, a_run(CLEARS))
    without = {"card": {"has_feedback": False}}
    three = over_seeds([a_run(CLEARS)])
    yield row("gamma not applicable", three, three, given=without)
    open_null = a_run(CLEARS, verdict="warn")
    for spoiled in (a_run(CLEARS, **exact), open_null):
        yield row("aligned, null unknown", a_run(CLEARS), spoiled)
    for spoiled in (a_run(CLEARS), warned, changed(open_null, **NO_GAMMA)):
        yield row("null unknown", open_null, spoiled)
    passing = null("SPECIFIC", "pass")
    sound = a_run(*SOUND, passing, verdict="warn")
    for spoiled in (part, own, failed, warned, changed(sound, status="diverged"), changed(sound, **exact)):
        yield row("specific", sound, spoiled)
    other = changed(sound, spec={"seed": 123})
    broke_off = a_run(*SOUND, passing, seed=123, status="failed", verdict="incomplete")
    yield row("specific", [sound, other], [sound, broke_off])
    yield row("aligned by feedback", [own, another], [own, other])
    for spoiled in (sound, own, failed, a_run(CLEARS, verdict="warn")):
        yield row("no evidence", warned, spoiled)
    yield from rows_of_specific_sites(part)
    yield from rows_of_gamma_taken_back(own, failed)
    yield from rows_of_gamma_by_site(own, part)


def rows_of_gamma_by_site(own: RunAudit, part: RunAudit) -> Iterator[Row]:
    """Sites and seeds by name, and how several sites were judged together."""
    without_level = a_run(CLEARS, null("SPECIFIC", "pass", threshold=None))
    single = a_run(CLEARS, null("SPECIFIC", "pass"), sites={"gamma_null_p": [0.01, None, None, None, None]})
    yield row("aligned by feedback", own, without_level)
    yield row("aligned by feedback", without_level, own)
    yield row("aligned by feedback", single, own)
    yield row("not specific", part, own)
    nowhere = a_run(CLEARS, null("NOT SPECIFIC", "warn"), sites={"gamma_null_p": [0.5, 0.4, 0.3, 0.2, 0.08]})
    yield row("not specific", nowhere, part)
    # Each by itself four of the five sites keep 5 %; judged together only one does.
    chance = changed(part, sites={"gamma_null_p": [0.01, 0.03, 0.04, 0.04, 0.08]}, conventions={"gamma_null_draws": 99})
    yield row("not specific", chance, part)
    enough = changed(part, conventions={"gamma_null_draws": 99})  # 5 · 1/100 is the level itself
    yield row("not specific", part, enough)
    one_less = changed(part, conventions={"gamma_null_draws": 98})
    yield row("not specific", one_less, enough)
    unequal = [part, changed(enough, spec={"seed": 123})]
    yield row("not specific", unequal, enough)  # the seed of fewest draws
    old = a_run(CLEARS, null("NOT SPECIFIC", "warn", observed=Reading(2 / 21)), sites={"gamma_null_p": None})
    yield row("not specific", old, part)
    uncounted = a_run(CLEARS, null("NOT SPECIFIC", "warn"), **PART, conventions={"gamma_null_draws": None})
    yield row("not specific", uncounted, part)
    two = [part, a_run(CLEARS, null("SPECIFIC", "pass"), seed=123)]
    yield row("not specific", two, [part, changed(two[1], **PART)])
    collapsed = null("SPECIFIC", "warn", guard=GuardReading("gamma", "above", Reading(0.8), 0, mean=0.2))
    yield row("carried by one end", a_run(collapsed), a_run(null("SPECIFIC", "pass")))


def rows_of_reference() -> Iterator[Row]:
    both, floor = a_run(EXPLODED, FLOOR, verdict="fail", **GREW), a_run(FLOOR, verdict="fail")
    noisy = {"scalars": {"fidelity_min": 0.4}}
    yield row("at floor", floor, a_run(reference("OK", "pass")))
    yield row("at floor", floor, both)
    yield row("at floor", both, floor)
    yield row("at floor", floor, a_run(FLOOR, verdict="fail", **noisy))
    at_least, under = (a_run(FLOOR, verdict="fail", scalars={"fidelity_min": one}) for one in (0.99, 0.9899))
    yield row("at floor", at_least, under)  # .99 itself is no noise
    least = [floor, changed(at_least, spec={"seed": 123})]
    yield row("at floor", least, floor)  # the least of the seeds
    grown = a_run(EXPLODED, verdict="fail", scalars={"growth_init_max": 1270.0})
    yield row("exploded", grown, changed(grown, scalars={"growth_init_max": None}))
    yield row("exploded", a_run(EXPLODED, verdict="fail"), both)
    both_limits = dataclasses.replace(EXPLODED, further=(FurtherLimit("growth_init", 40.0),))
    yield row("exploded", dataclasses.replace(grown, findings=(both_limits,)), grown)
    larger = a_run(dataclasses.replace(EXPLODED, observed=Reading(576.0)), seed=123, verdict="fail")
    smaller = a_run(dataclasses.replace(EXPLODED, observed=Reading(413.0)), verdict="fail")
    yield row("exploded", [smaller, larger], larger)
    since = scale("EXPLODED", "fail", crossed="above")
    since = a_run(dataclasses.replace(since, quantity="growth_init", observed=Reading(113.0)), verdict="fail")
    yield row("exploded", since, larger)
    yield row("exploded", [since, larger], since)
    yield from rows_of_explanations(both, floor)
    yield from rows_of_fitted_and_noisy(floor)


def rows_of_fitted_and_noisy(floor: RunAudit) -> Iterator[Row]:
    converged = reference("CONVERGED", "pass", 0.1)
    yield row("converged", a_run(converged), floor)
    yield row("converged", a_run(converged), a_run(converged, status="diverged"))
    yield row("converged", a_run(converged), a_run(converged, **NO_GAMMA))
    yield row("converged", a_run(converged), a_run(converged, sites={"gain": []}))
    noise = a_run(reference("NOISY", "warn"), verdict="warn", sites={"fidelity": 0.4})
    yield row("noisy", noise, a_run(converged))
    yield row("noisy", noise, changed(noise, sites={"fidelity": []}))


def rows_of_states() -> Iterator[Row]:
    clear, near = a_run(reference("OK", "pass")), a_run(reference("OK", "pass", 2.2), sites={"gain": 4e-5})
    yield row("reference clear", clear, near)
    at_ten = a_run(reference("OK", "pass", 10.0))  # ten times its floor, and a gain on its limit: both are clear
    for spoiled in (reference("OK", "pass", 9.9), reference("OK", "pass", 100.0, threshold=None)):
        yield row("reference clear", at_ten, a_run(spoiled))
    gain_on, gain_below = (a_run(reference("OK", "pass"), sites={"gain": gain}) for gain in (0.01, 0.009))
    yield row("reference clear", gain_on, gain_below)
    yield row("reference clear", clear, a_run(reference("OK", "pass"), **NO_GAMMA))
    yield row("reference clear", clear, a_run(reference("OK", "pass"), EXPLODED, verdict="warn"))
    yield row("reference clear", clear, a_run(reference("OK", "pass", 50.0)))
    yield row("reference near its floor", near, clear)
    small = a_run(reference("OK", "pass"), sites={"gain": 4e-5})
    yield row("reference near its floor", small, near)
    no_limit = a_run(reference("OK", "pass", 2.2, threshold=None))
    yield row("reference near its floor", no_limit, near)
    yield row("reference near its floor", a_run(reference("OK", "pass", 2.2)), near)
    yield row("reference near its floor", near, a_run(reference("OK", "pass", 2.2)))
    yield row("reference near its floor", near, a_run(reference("OK", "pass", 2.2, further=()), sites={"gain": 4e-5}))
    yield row("reference near its floor", near, a_run(reference("OK", "pass", 2.2), **NO_GAMMA))
    yield row("reference near its floor", changed(near, sites={"gain": []}), near)
    two = [near, a_run(reference("OK", "pass", 4.4), seed=123, sites={"gain": 4e-5})]
    yield row("reference near its floor", two, near)
    yield from rows_of_scale()
    yield from rows_of_stability()


def rows_of_scale() -> Iterator[Row]:
    both = scale("OK", "pass", further=(FurtherLimit("growth_init", 80.0),))
    stream = {"conventions": {STREAM: RESIDUAL}}
    yield row("keeps scale", a_run(both, **stream), a_run(scale("OK", "pass"), **stream))
    for other in (REPLACED, NORMALISED, None):  # mlp; post-LN; not recorded
        hidden = a_run(both, conventions={STREAM: other})
        yield row("keeps scale", a_run(both, **stream), hidden)
    yield row("keeps scale", a_run(both, conventions={STREAM: NORMALISED}), a_run(both, **stream))
    yield row("keeps scale", a_run(both, conventions={STREAM: REPLACED}), a_run(both, **stream))
    yield row("keeps scale", a_run(scale("OK", "pass")), a_run(both))
    yield row("keeps scale", a_run(scale("OK", "pass")), a_run(EXPLODED, verdict="fail"))
    broken = a_run(scale("OK", "pass"), verdict="fail", status="diverged")
    yield row("keeps scale", a_run(scale("OK", "pass")), broken)
    no_limit = dataclasses.replace(scale("OK", "pass"), threshold=None)
    yield row("keeps scale", a_run(scale("OK", "pass")), a_run(no_limit))
    growth = a_run(scale("OK", "pass"), scalars={"growth_max": None})
    yield row("keeps scale", a_run(scale("OK", "pass")), growth)
    single = a_finding("D3", "pass", quantity="accuracy", state="CLEARS", threshold=2.0)
    moved = dataclasses.replace(single, threshold=-10.0)
    yield row("passes alone", a_run(single), a_run(moved))
    for threshold in (-10.0, 0.0):  # 0 asks for no more than frozen blocks reach
        allows = a_run(dataclasses.replace(single, threshold=threshold))
        yield row("passes alone", allows, a_run(single))
    yield row("passes alone", a_run(single), a_run(CLEARS))


def rows_of_stability() -> Iterator[Row]:
    high, steady = a_run(stability("HIGH", "warn")), a_run(stability("OK", "pass"))
    centred = changed(a_run(stability("HIGH", "warn")), scalars={"gamma_centred_mid": 0.02})
    yield row("stability high", centred, high)
    apart = a_run(stability("CENTRED", "pass"), scalars={"gamma_centred_mid": 0.47})
    yield row("stability low", apart, steady)
    bare = a_run(stability("HIGH", "warn"), **NO_GAMMA)
    yield row("stability high", high, bare)
    yield row("stability high", high, steady)
    exploded = a_run(stability("HIGH", "warn"), EXPLODED, verdict="fail")
    one_without = [exploded, changed(exploded, spec={"seed": 123}, **NO_GAMMA)]
    yield row("stability high", one_without, one_without[1])  # that one seed has no Γ hides no other's
    yield row("stability high", bare, high)
    yield row("stability high", high, changed(high, scalars={"stability_mid": None}))
    yield row("stability low", steady, high)
    yield row("stability low", steady, changed(steady, scalars={"stability_mid": None}))
    yield row("stability low", steady, changed(steady, **NO_GAMMA))
    at_limit = changed(steady, sites={"stability": 0.3})
    yield row("stability low", changed(steady, sites={"stability": [0.5, 0.1, 0.1, 0.1, 0.1]}), at_limit)
    for outcome, key in (("pass", "other passes"), ("warn", "other warns"), ("fail", "other fails")):
        expected = a_run(a_finding("Z", outcome, quantity="rho", state="ODD"), verdict="fail")
        yield row(key, expected, a_run(a_finding("Z", "skipped", quantity="rho", state="ODD"), verdict="fail"))


def rows_of_evidence() -> Iterator[Row]:
    """What prevents every other claim: a manifest mismatch, a method or code that is another."""
    recorded = a_run(CLEARS)
    mismatch = Integrity("mismatch", ("accuracy: logged 0.9, recomputed 0.8",))
    forged = with_record(recorded, integrity=mismatch)
    yield row("differs from its seal", forged, recorded)
    yield row("trained depth", recorded, forged)
    for key, rule, outcome, state in (
        ("method fails", METHOD, "fail", "FAILED"),
        ("method not measured", METHOD, "warn", "STATED"),
        ("adopted", ADOPTED, "warn", "STATED"),
        ("other warns", MEASURING, "warn", "PARTLY RECOMPUTED"),
        ("other warns", REPETITIONS, "warn", CONTRADICTED),
        ("superseded", DUPLICATE, "warn", "SUPERSEDED"),
        ("other code", CODE, "not_applicable", "OTHER"),
    ):
        found = a_finding(rule, outcome, quantity=rule, observed=Reading(None, "why"), state=state)
        yield row(key, a_run(CLEARS, found), recorded)
        if key in ("method fails", "other code"):  # these void every other claim
            yield row("trained depth", recorded, a_run(CLEARS, found))
    beats = a_run(CLEARS, verdict="warn")
    for rule, state in ((MEASURING, UNDECIDED_HERE), (MEASURING, NOT_MEASURED), (REPETITIONS, CONTRADICTED)):
        unconfirmed = a_run(CLEARS, a_finding(rule, "warn", quantity=rule, state=state), verdict="warn")
        yield row("beats frozen", beats, unconfirmed)
    unchecked = a_run(
        CLEARS, a_finding(METHOD, "warn", quantity=METHOD, observed=Reading(None, "no audit checked dfa"))
    )
    conformance = Conformance("unchecked", ("a user-supplied loop trained it",))
    own_loop = with_record(unchecked, conformance=conformance)
    yield row("method not measured", own_loop, unchecked)


def rows_of_stated_controls() -> Iterator[Row]:
    """What is claimed where the author states the accuracy of the frozen control."""
    recorded = a_run(CLEARS)
    stated = depth("STATED", "warn", 10.0, None, stated=True)
    typed, trained = (depth("UNDECIDED", "warn", 3.5, (-2.2, 9.2), stated=typed_in) for typed_in in (True, False))
    yield row("undecided", a_run(typed, verdict="warn"), a_run(trained, verdict="warn"))
    yield row("stated", a_run(stated), recorded)
    doubted = dataclasses.replace(stated, reference_run_id="f" * 32)
    yield row("stated", a_run(stated), a_run(doubted))
    yield row("stated", a_run(doubted), a_run(stated))
    open_ = dataclasses.replace(typed, reference_run_id="f" * 32)
    yield row("undecided", a_run(open_, verdict="warn"), a_run(typed, verdict="warn"))


SUSPICIONS = {
    **{"near backpropagation": CREDIT, "answers looked up": NETWORK, "test in train": DATA, "own task": TASK},
    **{"another model": WEIGHTS, "trains otherwise": TRAINING},
}


def rows_of_suspicions() -> Iterator[Row]:
    """What forbids a claim although every metric passes: no rule, no answers and no depth that are the method's own."""
    recorded = a_run(CLEARS)
    for key, rule in SUSPICIONS.items():
        found = a_finding(rule, "warn", quantity=rule, observed=Reading(None, "why"), state="STATE")
        yield row(key, a_run(CLEARS, found), recorded)
    guessing = a_run(depth("AT CHANCE", "fail", 3.0, (2.5, 3.5)), verdict="fail")
    yield row("at chance", guessing, recorded)
    alone = a_run(depth("LAST BLOCK", "warn", 10.0, (8.0, 12.0)), verdict="warn")
    yield row("last block", alone, recorded)
    over_it = a_run(depth("CLEARS", "pass", 10.0, (8.0, 12.0), reference_run_id="l" * 32))
    yield row("trained depth", over_it, recorded)


def rows_of_adopted_runs() -> Iterator[Row]:
    """Of weights that were trained elsewhere nothing may be claimed that training did, regardless of the findings."""
    elsewhere = {"spec": {"weights": "ab" * 32}}
    trained = a_run(*SOUND, null("SPECIFIC", "pass"), verdict="warn")
    alone = a_run(depth("CLEARS", "pass", 10.0, None))
    yield row("beats frozen", trained, changed(trained, **elsewhere))
    yield row("specific", trained, changed(trained, **elsewhere))
    yield row("passes alone", alone, changed(alone, **elsewhere))
