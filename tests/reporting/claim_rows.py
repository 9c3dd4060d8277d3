"""Rows of the table of claims: runs that support a sentence, and the same runs with one change that withdraws it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from fa_registry.metrics import label_of
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
    FIDELITY,
    FLOOR,
    FROZEN,
    GAIN,
    GREW,
    LARGEST,
    NO_GAMMA,
    PART,
    SINCE,
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
from tests.reporting.report_changes import changed
from tests.reporting.sample_reports import a_finding


def rows_of_passing() -> Iterator[Row]:
    passes = a_run(CLEARS)
    under = a_run(depth("CLEARS", "pass", -5.5, (-6.0, -5.0), -10.0))
    whole = (
        "The method passes: its accuracy may be reported as the accuracy of a network with trained blocks",
        ". Passing does not certify the method: the rules detect only known defects of a comparison in this "
        "setting, and no other defects",
    )
    for text in whole:
        yield row("trained depth", text, passes, under)
        yield row("trained depth", text, passes, a_run(CLEARS, verdict="warn"))
        yield row("trained depth", text, passes, a_run())  # nothing compared it with frozen blocks
        yield row("trained depth", text, passes, [passes, a_run(CLEARS, seed=123, verdict="warn")])
        yield row("trained depth", text, passes, [passes, a_run(seed=123)])
    at_one = (
        ". The accuracy is 93.0\u00a0%, for one seed, with a 95 % interval of 89.9\u00a0% to 95.2\u00a0% "
        "from the sampling of 360 test samples only (Wilson)"
    )
    yield row("trained depth", at_one, passes, a_run(CLEARS, conventions={"test_samples": None}))
    two = [passes, a_run(CLEARS, seed=123, scalars={"accuracy": 0.94})]
    yield row(
        "trained depth", "95 % interval of 87.1\u00a0% to 99.9\u00a0% over 2 seeds, and an interval", two, [passes]
    )
    yield row("trained depth", "for one seed, with a 95 % interval of ", passes, two)
    unknown = [passes, a_run(CLEARS, seed=123, scalars={"accuracy": None})]
    yield row("trained depth", " from the sampling of ", two, unknown)
    moved = a_run(CLEARS, scalars={"blocks_trained": 4.0})
    part = a_run(CLEARS, scalars={"blocks_trained": 1.0})
    all_moved, some = (
        "a network with trained blocks; the training changed 4 of 4 blocks",
        "a network in which the training changed only 1 of 4 blocks, and not as the accuracy of a network whose blocks are all "
        "trained",
    )
    yield row("trained depth", all_moved, moved, part)
    yield row("trained part", some, part, moved)
    yield row("trained part", some, [moved, changed(part, spec={"seed": 123})], moved)  # the least of the seeds
    unmeasured = "a network with trained blocks; it is not known how many blocks the training changed"
    yield row("trained depth", unmeasured, a_run(CLEARS, scalars={"blocks_trained": None}), moved)
    no_depth = (
        "Every rule of the verdict passes, but none of these rules requires more accuracy than frozen random "
        "blocks reach. The accuracy must not be credited to the training of the blocks"
    )
    yield row("passes without depth", no_depth, under, passes)


def rows_of_verdicts() -> Iterator[Row]:
    passes = a_run(CLEARS)
    two = [passes, a_run(CLEARS, seed=123)]
    broken = "Training diverged. The metrics describe a broken run, so they support no claim about the method"
    yield row("diverged", broken, a_run(verdict="fail", status="diverged"), a_run(verdict="fail"))
    yield row(
        "failed",
        "The run broke off, so no claim about this run is allowed",
        a_run(verdict="fail", status="failed"),
        a_run(verdict="fail"),
    )
    missing = a_finding("D2", "not_applicable", sentence="D2 has no figure")
    yield row(
        "incomplete",
        "The protocol could not be completed (D2 has no figure)",
        a_run(missing, verdict="incomplete"),
        a_run(missing),
    )
    yield row("incomplete", "a rule was not judged", a_run(verdict="incomplete"), a_run(missing, verdict="incomplete"))
    waived = a_finding("D3", "waived", title="depth", state="UNDERCUT", detail="by A. Person")
    yield row(
        "waived",
        "D3 depth (UNDERCUT) is waived. The finding remains valid, but it does not count in the verdict: by A. Person",
        a_run(waived),
        passes,
    )
    seeds = (
        "There is only one seed, so there is no interval, and this form does not allow a ranking against another method"
    )
    yield row("one seed", seeds, passes, two)
    spec = passes.record.spec
    gone = Exclusion("d" * 32, "dfa s9", "tampered", spec=dataclasses.replace(spec, seed=9))
    unknown = dataclasses.replace(gone, spec=None)
    text = (
        "One selected run was not judged (seed 9). No claim is allowed about this run. "
        "All other claims are about the judged seeds only"
    )
    yield row("not judged", text, passes, passes, excluded=(gone,))
    many = "2 selected runs were not judged (seed 9, 1 without a known seed). No claim is allowed about these runs"
    left_out = [
        OtherRun(str(seed) * 8, changed(passes, spec={"seed": seed}).record.spec, "", "complete", True)
        for seed in (8, 9)
    ]
    rest = "no claim is allowed from a selection of the runs; audit all of them"
    one = "1 complete run of this method and setting is not in this audit"
    two = "2 complete runs of this method and setting are not in this audit"
    for text, others in ((one, left_out[:1]), (two, left_out), (rest, left_out)):
        yield row("left out", text, passes, passes, given={"left_out": others})
    yield row("not judged", many, passes, passes, excluded=(gone, unknown))


def rows_of_gamma() -> Iterator[Row]:
    own, part = a_run(CLEARS, null("SPECIFIC", "pass")), a_run(CLEARS, null("NOT SPECIFIC", "warn"), **PART)
    warned = a_run(CLEARS, null("SPECIFIC", "pass"), verdict="warn")
    exact = {"sites": {"gamma": 1.0}, "scalars": {"gamma_deep_mean": 1.0}}
    another = a_run(CLEARS, null("SPECIFIC", "pass"), seed=123)
    failed = a_run(CLEARS, null("SPECIFIC", "pass"), seed=123, verdict="fail")
    both = aligned = (
        "over 3 seeds, may be interpreted as alignment with the gradient at each site, for the feedback used in training only. "
    )
    for spoiled in (part, a_run(CLEARS), warned, a_run(CLEARS, null("SPECIFIC", "pass"), **exact)):
        yield row("aligned by feedback", aligned, own, spoiled)
    yield row("aligned by feedback", both, [own, another], [own, failed])  # a tick is about the method
    yield row("aligned by feedback", both, [own, another], [own, changed(another, **NO_GAMMA)])
    gradient = "the credit is the gradient itself at every site, so Γ = 1 is not evidence of alignment"
    yield row("gamma not applicable", f"Γ does not apply: {gradient}", a_run(**exact), own)
    yield row("no gamma", "There is no metric of alignment: taken away", a_run(**NO_GAMMA), own)
    unknown = (
        "over 3 seeds, may be interpreted as alignment with the gradient at each site; it is not shown that this alignment comes "
        "from the feedback used in training"
    )
    unmeasured = a_run(CLEARS, sites={"gamma_null_p": []})
    yield row("aligned, null unknown", unknown, a_run(CLEARS), own)
    yield row("aligned, null unknown", " (no fresh draws of feedback were measured)", unmeasured, a_run(CLEARS))
    without = {"card": {"has_feedback": False}}
    no_state = (
        " is measured, but a claim about alignment does not apply: the method has no feedback state, so no fresh draw tests "
        "the alignment"
    )
    three = over_seeds([a_run(CLEARS)])
    yield row("gamma not applicable", no_state, three, three, given=without)
    open_null = a_run(CLEARS, verdict="warn")
    for spoiled in (a_run(CLEARS, **exact), open_null):
        yield row("aligned, null unknown", unknown, a_run(CLEARS), spoiled)
    measured = (
        "over 3 seeds, is the cosine of credit and gradient; by itself, it does not show that the credit is useful, and it is not "
        "shown that"
    )
    for spoiled in (a_run(CLEARS), warned, changed(open_null, **NO_GAMMA)):
        yield row("null unknown", measured, open_null, spoiled)
    specific, passing = "over 3 seeds, is specific to the feedback used in training. ", null("SPECIFIC", "pass")
    sound = a_run(*SOUND, passing, verdict="warn")
    for spoiled in (part, own, failed, warned, changed(sound, status="diverged"), changed(sound, **exact)):
        yield row("specific", specific, sound, spoiled)
    other = changed(sound, spec={"seed": 123})
    broke_off = a_run(*SOUND, passing, seed=123, status="failed", verdict="incomplete")
    yield row("specific", "is specific to the feedback used in training. ", [sound, other], [sound, broke_off])
    yield row("aligned by feedback", both, [own, another], [own, other])
    measured = "by itself, it does not show that the credit is useful. This Γ exceeds"
    for spoiled in (sound, own, failed, a_run(CLEARS, verdict="warn")):
        yield row("no evidence", measured, warned, spoiled)
    yield from rows_of_specific_sites(part)
    yield from rows_of_gamma_taken_back(own, failed)
    yield from rows_of_gamma_by_site(own, part)


def rows_of_gamma_by_site(own: RunAudit, part: RunAudit) -> Iterator[Row]:
    """Sites and seeds by name, and how several sites were judged together."""
    every = ". This Γ exceeds the Γ of fresh feedback at all 5 tested sites (each at 5 %)"
    without_level = a_run(CLEARS, null("SPECIFIC", "pass", threshold=None))
    single = a_run(CLEARS, null("SPECIFIC", "pass"), sites={"gamma_null_p": [0.01, None, None, None, None]})
    yield row("aligned by feedback", every, own, without_level)
    yield row("aligned by feedback", "of fresh feedback at every site that counts.", without_level, own)
    yield row("aligned by feedback", "at every site that counts (one site tested, 5 %)", single, own)
    back = (
        "over 3 seeds, is not specific to the feedback used in training at every site. This Γ "
        "exceeds the Γ of fresh feedback at sites 0 to 3, not at site 4 (1 of 20 fresh draws reach this Γ) "
        "(Holm over 5 sites, 5 %"
    )
    yield row("not specific", back, part, own)
    nowhere = a_run(CLEARS, null("NOT SPECIFIC", "warn"), sites={"gamma_null_p": [0.5, 0.4, 0.3, 0.2, 0.08]})
    yield row(
        "not specific", "fresh feedback at no site (between 1 and 9 of 20 fresh draws reach this Γ)", nowhere, part
    )
    # Each by itself four of the five sites keep 5 %; judged together only one does.
    chance = changed(part, sites={"gamma_null_p": [0.01, 0.03, 0.04, 0.04, 0.08]}, conventions={"gamma_null_draws": 99})
    yield row("not specific", "at site 0, not at sites 1 to 4 (between 2 and 7 of 99 fresh", chance, part)
    few = "; 20 fresh draws are too few to distinguish one of 5 sites"
    enough = changed(part, conventions={"gamma_null_draws": 99})  # 5 · 1/100 is the level itself
    yield row("not specific", few, part, enough)
    one_less = changed(part, conventions={"gamma_null_draws": 98})
    yield row("not specific", " draws are too few to distinguish one of 5 sites", one_less, enough)
    unequal = [part, changed(enough, spec={"seed": 123})]
    yield row("not specific", few, unequal, enough)  # the seed of fewest draws
    old = a_run(CLEARS, null("NOT SPECIFIC", "warn", observed=Reading(2 / 21)), sites={"gamma_null_p": None})
    yield row("not specific", "fresh feedback at fewer than all sites that count (1 of 20 fresh", old, part)
    uncounted = a_run(CLEARS, null("NOT SPECIFIC", "warn"), **PART, conventions={"gamma_null_draws": None})
    yield row("not specific", "site 4 (the record does not state how many fresh draws reach this Γ)", uncounted, part)
    apart = "at sites 0 to 3, not at site 4 (1 of 20 fresh draws reach this Γ) in seeds 42, 456; at all 5 tested sites in seed 123"
    two = [part, a_run(CLEARS, null("SPECIFIC", "pass"), seed=123)]
    yield row("not specific", apart, two, [part, changed(two[1], **PART)])
    collapsed = null("SPECIFIC", "warn", guard=GuardReading("gamma", "above", Reading(0.8), 0, mean=0.2))
    expected = "The mean Γ does not represent the whole network: without site 0, the mean gamma over all counted sites, +0.2000"
    yield row("carried by one end", expected, a_run(collapsed), a_run(null("SPECIFIC", "pass")))


def rows_of_reference() -> Iterator[Row]:
    both, floor = a_run(EXPLODED, FLOOR, verdict="fail", **GREW), a_run(FLOOR, verdict="fail")
    noisy = {"scalars": {"fidelity_min": 0.4}}
    yield row("at floor", "the reference gradient is at its floor", floor, a_run(reference("OK", "pass")))
    yield row(
        "at floor", "No credit may be judged with this reference gradient: the reference gradient is", floor, both
    )
    yield row("at floor", "the stream explodes and the reference gradient is at its floor", both, floor)
    exact = f"; the gradient is tiny but exact, with {FIDELITY} of at least 0.999999"
    yield row("at floor", exact, floor, a_run(FLOOR, verdict="fail", **noisy))
    at_least, under = (a_run(FLOOR, verdict="fail", scalars={"fidelity_min": one}) for one in (0.99, 0.9899))
    yield row("at floor", "; the gradient is tiny but exact", at_least, under)  # .99 itself is no noise
    least = [floor, changed(at_least, spec={"seed": 123})]
    yield row("at floor", f"{FIDELITY} of at least 0.990000", least, floor)  # the least of the seeds
    alone = "so norms and gradients cannot be compared with those of a healthy network"
    grown = a_run(EXPLODED, verdict="fail", scalars={"growth_init_max": 1270.0})
    yield row("exploded", f"; the {SINCE} is 1,270", grown, changed(grown, scalars={"growth_init_max": None}))
    yield row("exploded", alone, a_run(EXPLODED, verdict="fail"), both)
    both_limits = dataclasses.replace(EXPLODED, further=(FurtherLimit("growth_init", 40.0),))
    yield row(
        "exploded", f"; the {SINCE} is 1,270 (limit 40)", dataclasses.replace(grown, findings=(both_limits,)), grown
    )
    larger = a_run(dataclasses.replace(EXPLODED, observed=Reading(576.0)), seed=123, verdict="fail")
    smaller = a_run(dataclasses.replace(EXPLODED, observed=Reading(413.0)), verdict="fail")
    by = "One block multiplies ‖h‖ by 413 to 576 (limit 50), so norms"
    yield row("exploded", by, [smaller, larger], larger)
    since = scale("EXPLODED", "fail", crossed="above")
    since = a_run(dataclasses.replace(since, quantity="growth_init", observed=Reading(113.0)), verdict="fail")
    text = f"The {SINCE} is 113 (limit 50), {alone}; the {LARGEST} in one block is 1.37"
    yield row("exploded", text, since, larger)
    yield row("exploded", f"The stream explodes, {alone}; the {LARGEST}", [since, larger], since)
    yield from rows_of_explanations(both, floor)
    yield from rows_of_fitted_and_noisy(floor)


def rows_of_fitted_and_noisy(floor: RunAudit) -> Iterator[Row]:
    fitted = (
        f"gradient is small because the network has fitted its task, not because the network collapsed: the {GAIN} is healthy "
        "(0.300 of the output error reaches the last site); the small size is no reason to reject Γ"
    )
    converged = reference("CONVERGED", "pass", 0.1)
    yield row("converged", fitted, a_run(converged), floor)
    yield row("converged", fitted, a_run(converged), a_run(converged, status="diverged"))
    yield row("converged", "; the small size is no reason to reject Γ", a_run(converged), a_run(converged, **NO_GAMMA))
    yield row(
        "converged",
        " of the output error reaches the last site)",
        a_run(converged),
        a_run(converged, sites={"gain": []}),
    )
    noise = a_run(reference("NOISY", "warn"), verdict="warn", sites={"fidelity": 0.4})
    text = (
        "The reference gradient is numerical noise: single and double precision compute different directions (cosine 0.400000), "
        "and a cosine with noise does not show alignment"
    )
    yield row("noisy", text, noise, a_run(converged))
    yield row("noisy", " (cosine ", noise, changed(noise, sites={"fidelity": []}))


def rows_of_states() -> Iterator[Row]:
    clear, near = a_run(reference("OK", "pass")), a_run(reference("OK", "pass", 2.2), sites={"gain": 4e-5})
    scaled = "is well above its floor, so Γ compares the credit with a gradient of meaningful size"
    yield row("reference clear", f"The reference gradient {scaled}", clear, near)
    at_ten = a_run(reference("OK", "pass", 10.0))  # ten times its floor, and a gain on its limit: both are clear
    for spoiled in (reference("OK", "pass", 9.9), reference("OK", "pass", 100.0, threshold=None)):
        yield row("reference clear", scaled, at_ten, a_run(spoiled))
    gain_on, gain_below = (a_run(reference("OK", "pass"), sites={"gain": gain}) for gain in (0.01, 0.009))
    yield row("reference clear", scaled, gain_on, gain_below)
    yield row("reference clear", scaled, clear, a_run(reference("OK", "pass"), **NO_GAMMA))
    yield row("reference clear", scaled, clear, a_run(reference("OK", "pass"), EXPLODED, verdict="warn"))
    times = f" size, {label_of('g_norm_mean_ce_L')} 7.81×10⁻⁴, 100 times its floor; the {GAIN} is 3.00×10⁻¹"
    yield row("reference clear", times, clear, a_run(reference("OK", "pass", 50.0)))
    above = "The reference gradient is only 2.2 times its floor, and its gain"
    yield row("reference near its floor", above, near, clear)
    small = a_run(reference("OK", "pass"), sites={"gain": 4e-5})
    share = f"is 100 times its floor, but its {GAIN} (4.00×10⁻⁵) is 250 times below the healthy 0.01"
    yield row("reference near its floor", share, small, near)
    no_limit = a_run(reference("OK", "pass", 2.2, threshold=None))
    yield row("reference near its floor", f"The reference gradient is above its floor, and its {GAIN}", no_limit, near)
    yield row("reference near its floor", f"and its {GAIN} is 3.00×10⁻¹", a_run(reference("OK", "pass", 2.2)), near)
    low = f", and its {GAIN} (4.00×10⁻⁵) is 250 times below the healthy 0.01"
    yield row("reference near its floor", low, near, a_run(reference("OK", "pass", 2.2)))
    yield row(
        "reference near its floor", low, near, a_run(reference("OK", "pass", 2.2, further=()), sites={"gain": 4e-5})
    )
    gone = "; Γ compares the credit with a gradient that has nearly vanished"
    yield row("reference near its floor", gone, near, a_run(reference("OK", "pass", 2.2), **NO_GAMMA))
    yield row("reference near its floor", f"and its {GAIN} is not known", changed(near, sites={"gain": []}), near)
    two = [near, a_run(reference("OK", "pass", 4.4), seed=123, sites={"gain": 4e-5})]
    yield row("reference near its floor", "only 2.2 to 4.4 times its floor", two, near)
    yield from rows_of_scale()
    yield from rows_of_stability()


def rows_of_scale() -> Iterator[Row]:
    both = scale("OK", "pass", further=(FurtherLimit("growth_init", 80.0),))
    keeps = (
        "The residual stream keeps its scale within the limit of 50 from block to block, and within 80 since initialisation, so "
        "norms and gradients of the blocks can be compared"
    )
    stream = {"conventions": {STREAM: RESIDUAL}}
    yield row("keeps scale", keeps, a_run(both, **stream), a_run(scale("OK", "pass"), **stream))
    for other in (REPLACED, NORMALISED, None):  # mlp; post-LN; not recorded
        hidden = a_run(both, conventions={STREAM: other})
        yield row("keeps scale", "The residual stream keeps its scale", a_run(both, **stream), hidden)
    norm = "A norm ends each block and hides the scale of the stream, so ‖h‖ does not show whether the scale is kept"
    yield row("keeps scale", norm, a_run(both, conventions={STREAM: NORMALISED}), a_run(both, **stream))
    stays = "‖h‖ stays within the limit of 50 from block to block"
    yield row("keeps scale", stays, a_run(both, conventions={STREAM: REPLACED}), a_run(both, **stream))
    keeps = "; this edition does not judge the growth since initialisation"
    yield row("keeps scale", keeps, a_run(scale("OK", "pass")), a_run(both))
    yield row("keeps scale", keeps, a_run(scale("OK", "pass")), a_run(EXPLODED, verdict="fail"))
    broken = a_run(scale("OK", "pass"), verdict="fail", status="diverged")
    yield row("keeps scale", keeps, a_run(scale("OK", "pass")), broken)
    no_limit = dataclasses.replace(scale("OK", "pass"), threshold=None)
    yield row("keeps scale", " within the limit of 50", a_run(scale("OK", "pass")), a_run(no_limit))
    growth = a_run(scale("OK", "pass"), scalars={"growth_max": None})
    yield row("keeps scale", f"; the {LARGEST} in one block is ", a_run(scale("OK", "pass")), growth)
    single = a_finding("D3", "pass", quantity="accuracy", state="CLEARS", threshold=2.0)
    moved = dataclasses.replace(single, threshold=-10.0)
    tail = ". This rule judges each seed separately, uses no interval and supports no claim over seeds"
    yield row(
        "passes alone",
        f"The trained blocks beat frozen random blocks by the margin that D3 requires{tail}",
        a_run(single),
        a_run(moved),
    )
    for threshold in (-10.0, 0.0):  # 0 asks for no more than frozen blocks reach
        allows = a_run(dataclasses.replace(single, threshold=threshold))
        yield row(
            "passes alone", "are not worse than frozen random blocks by more than D3 allows", allows, a_run(single)
        )
    yield row("passes alone", tail, a_run(single), a_run(CLEARS))


def rows_of_stability() -> Iterator[Row]:
    high, steady = a_run(stability("HIGH", "warn")), a_run(stability("OK", "pass"))
    shared = (
        "Γ must not be interpreted as specific to each batch, because gradients of disjoint batches have the same direction at the "
        "middle site, mean cosine 0.100. The credit may be aligned only with it"
    )
    centred = changed(a_run(stability("HIGH", "warn")), scalars={"gamma_centred_mid": 0.02})
    yield row("stability high", ". Without this direction, Γ is 0.020", centred, high)
    apart = a_run(stability("CENTRED", "pass"), scalars={"gamma_centred_mid": 0.47})
    text = (
        "At the middle site, gradients of disjoint batches share a direction (mean cosine 0.100), but Γ does not rest on it: "
        "without the batch means, Γ is 0.470"
    )
    yield row("stability low", text, apart, steady)
    bare = a_run(stability("HIGH", "warn"), **NO_GAMMA)
    yield row("stability high", shared, high, bare)
    yield row("stability high", shared, high, steady)
    exploded = a_run(stability("HIGH", "warn"), EXPLODED, verdict="fail")
    one_without = [exploded, changed(exploded, spec={"seed": 123}, **NO_GAMMA)]
    yield row("stability high", shared, one_without, one_without[1])  # that one seed has no Γ hides no other's
    yield row(
        "stability high",
        "The gradients are not evidence that is specific to each batch, because gradients of disjoint batches",
        bare,
        high,
    )
    yield row("stability high", ", mean cosine ", high, changed(high, scalars={"stability_mid": None}))
    none = (
        "At the middle site, which the rule judges, the gradients that Γ compares with do not share one "
        "direction over the batches (mean cosine 0.100)"
    )
    yield row("stability low", none, steady, high)
    yield row("stability low", " (mean cosine ", steady, changed(steady, scalars={"stability_mid": None}))
    yield row("stability low", " that Γ compares with", steady, changed(steady, **NO_GAMMA))
    elsewhere = "; the mean cosine is above the limit of 0.3 at site 0 (seed 42)"
    at_limit = changed(steady, sites={"stability": 0.3})
    yield row("stability low", elsewhere, changed(steady, sites={"stability": [0.5, 0.1, 0.1, 0.1, 0.1]}), at_limit)
    for outcome, key, text in (
        ("pass", "other passes", "The requirement of Z a rule is met (ODD): Z: required"),
        ("warn", "other warns", "No conclusion may be based on ρ (ODD): Z: required"),
        ("fail", "other fails", "No claim may be based on ρ (ODD): Z: required"),
    ):
        expected = a_run(a_finding("Z", outcome, quantity="rho", state="ODD"), verdict="fail")
        yield row(key, text, expected, a_run(a_finding("Z", "skipped", quantity="rho", state="ODD"), verdict="fail"))


def rows_of_evidence() -> Iterator[Row]:
    """What prevents every other claim: a manifest mismatch, a method or code that is another."""
    sealed = a_run(CLEARS)
    mismatch = Integrity("mismatch", ("accuracy: logged 0.9, recomputed 0.8",))
    forged = dataclasses.replace(sealed, record=dataclasses.replace(sealed.record, integrity=mismatch))
    yield row(
        "differs from its seal",
        "do not match the files recorded with the run, so no claim about this run",
        forged,
        sealed,
    )
    yield row("trained depth", "its accuracy may be reported", sealed, forged)
    for key, rule, outcome, state, text in (
        ("method fails", METHOD, "fail", "FAILED", "No claim about a method with this name is allowed: why"),
        ("method not measured", METHOD, "warn", "STATED", "The code of the method was not checked: why"),
        ("adopted", ADOPTED, "warn", "STATED", "the feedback used in training is allowed for these weights: why"),
        (
            "other warns",
            MEASURING,
            "warn",
            "PARTLY RECOMPUTED",
            "based on metrics that the audit could not confirm: why",
        ),
        ("other warns", REPETITIONS, "warn", CONTRADICTED, "The accuracy of this specification is not one number: why"),
        ("superseded", DUPLICATE, "warn", "SUPERSEDED", "metrics of this run are no evidence about the method: why"),
        (
            "other code",
            CODE,
            "not_applicable",
            "OTHER",
            "about the metrics of this run is allowed, because the metrics could not be recomputed: why",
        ),
    ):
        found = a_finding(rule, outcome, quantity=rule, observed=Reading(None, "why"), state=state)
        yield row(key, text, a_run(CLEARS, found), sealed)
        if key in ("method fails", "other code"):  # these void every other claim
            yield row("trained depth", "its accuracy may be reported", sealed, a_run(CLEARS, found))
    beats = a_run(CLEARS, verdict="warn")
    for rule, state in ((MEASURING, UNDECIDED_HERE), (MEASURING, NOT_MEASURED), (REPETITIONS, CONTRADICTED)):
        unconfirmed = a_run(CLEARS, a_finding(rule, "warn", quantity=rule, state=state), verdict="warn")
        yield row("beats frozen", "The trained blocks beat frozen random blocks", beats, unconfirmed)
    unchecked = a_run(
        CLEARS, a_finding(METHOD, "warn", quantity=METHOD, observed=Reading(None, "no audit checked dfa"))
    )
    conformance = Conformance("unchecked", ("a user-supplied loop trained it",))
    own_loop = dataclasses.replace(unchecked, record=dataclasses.replace(unchecked.record, conformance=conformance))
    text = "The code of the method was not checked: a user-supplied loop trained it"
    yield row("method not measured", text, own_loop, unchecked)


def rows_of_stated_controls() -> Iterator[Row]:
    """What is claimed where the author states the accuracy of the frozen control."""
    sealed = a_run(CLEARS)
    stated = depth("STATED", "warn", 10.0, None, stated=True)
    typed, trained = (depth("UNDECIDED", "warn", 3.5, (-2.2, 9.2), stated=typed_in) for typed_in in (True, False))
    text = f"; the {FROZEN} is stated by the author, not measured here"
    yield row("undecided", text, a_run(typed, verdict="warn"), a_run(trained, verdict="warn"))
    yield row(
        "stated", f"The accuracy of the trained blocks is above a {FROZEN} stated by the author", a_run(stated), sealed
    )
    yield row("stated", "requires, with each seed judged separately", a_run(stated), sealed)
    doubted = dataclasses.replace(stated, reference_run_id="f" * 32)
    for text, one, other in (
        (f"The accuracy of the trained blocks is above a {FROZEN} stated by the author", stated, doubted),
        ("same setting, trained by fa_registry for each seed, would decide the comparison", stated, doubted),
        ("is above the accuracy of a frozen control that is not proven to be frozen", doubted, stated),
        ("same setting, proven to be frozen for each seed by the audit, would decide the comparison", doubted, stated),
    ):
        yield row("stated", text, a_run(one), a_run(other))
    open_ = dataclasses.replace(typed, reference_run_id="f" * 32)
    text = "; the frozen control is not proven to be frozen, so its accuracy counts only as stated by the author"
    yield row("undecided", text, a_run(open_, verdict="warn"), a_run(typed, verdict="warn"))


def rows_of_suspicions() -> Iterator[Row]:
    """What forbids a claim although every metric passes: no rule, no answers and no depth that are the method's own."""
    sealed = a_run(CLEARS)
    for key, rule, text in (
        (
            "near backpropagation",
            CREDIT,
            "The accuracy may be claimed only for backpropagation, and not for another credit rule: why",
        ),
        ("answers looked up", NETWORK, "The accuracy must not be claimed for a network that classifies images: why"),
        ("test in train", DATA, "The accuracy must not be claimed for images that were not used in training: why"),
        ("own task", TASK, "The accuracy must not be compared with that of a built-in task: why"),
        ("another model", WEIGHTS, "The accuracy and the other metrics may belong to two different models: why"),
        ("trains otherwise", TRAINING, "The accuracy must not be claimed for blocks that only credits train: why"),
    ):
        found = a_finding(rule, "warn", quantity=rule, observed=Reading(None, "why"), state="STATE")
        yield row(key, text, a_run(CLEARS, found), sealed)
    guessing = a_run(depth("AT CHANCE", "fail", 3.0, (2.5, 3.5)), verdict="fail")
    nothing = "The accuracy does not exceed chance, so no learning may be claimed, regardless of the comparison with frozen blocks"
    yield row("at chance", nothing, guessing, sealed)
    alone = a_run(depth("LAST BLOCK", "warn", 10.0, (8.0, 12.0)), verdict="warn")
    for text in (
        "However, the last block learns from the exact gradient, so its training is possibly the only cause",
        "and depth utility of the other blocks must not be claimed. The control ladder_1 by bp, which trains only the last block",
    ):
        yield row("last block", text, alone, sealed)
    over_it = a_run(depth("CLEARS", "pass", 10.0, (8.0, 12.0), reference_run_id="l" * 32))
    beaten = "were compared with the accuracy of the control that trains only its last block (ladder_1), because the last block"
    yield row("trained depth", f"{beaten} learns from the exact gradient", over_it, sealed)


def rows_of_adopted_runs() -> Iterator[Row]:
    """Of weights that were trained elsewhere nothing may be claimed that training did, regardless of the findings."""
    elsewhere = {"spec": {"weights": "ab" * 32}}
    trained = a_run(*SOUND, null("SPECIFIC", "pass"), verdict="warn")
    alone = a_run(depth("CLEARS", "pass", 10.0, None))
    yield row("beats frozen", "beat frozen random blocks", trained, changed(trained, **elsewhere))
    yield row("specific", "is specific to the feedback used in training", trained, changed(trained, **elsewhere))
    yield row("passes alone", "beat frozen random blocks by the margin that", alone, changed(alone, **elsewhere))
