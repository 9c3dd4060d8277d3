"""Claims are sentences; each claim says which statement about a method is allowed or forbidden.

This module identifies a finding by its metric and state, because an edition may give any name to its rules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fa_registry.errors import join_names, pluralise
from fa_registry.metrics import HEADLINE_GAMMA, SUBJECTS, Headline, headline_of, label_of, metric_named, subject_of
from fa_registry.protocol.credit import carried_text, is_exact
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
    speaks_for_nothing,
)
from fa_registry.protocol.last_block import STATE as LAST_BLOCK
from fa_registry.protocol.rule_evaluation import AT_CHANCE, UNDECIDED
from fa_registry.protocol.verdict import is_intact
from fa_registry.records import (
    NORMALISED,
    REPETITIONS,
    RESIDUAL,
    STREAM,
    Exclusion,
    Finding,
    OtherRun,
    Reading,
    RunAudit,
)
from fa_registry.reporting.claims_depth import cleared_text, depth_claims, is_above_frozen, sampled
from fa_registry.reporting.claims_gamma import THE_GRADIENT, gamma_claims
from fa_registry.reporting.claims_reference import (
    AT_FLOOR,
    EXPLODED,
    GAIN,
    GAMMA,
    GRADIENTS,
    HIGH,
    NOISY,
    NOT_SPECIFIC,
    TOO_SMALL,
    UNDERCUT,
    WEIGHT,
    author_stated_runs,
    claim,
    has_gamma,
    listed,
    observed_text,
    passes,
    reference_claims,
    scale_text,
    value_range,
    with_state,
)
from fa_registry.reporting.report_values import SINCE, last_site, scalar_metric, site_row
from fa_registry.reporting.text.filters import compact, num
from fa_registry.reporting.view_models import Claim

UNCONFIRMED = ((MEASURING, UNDECIDED_HERE), (MEASURING, NOT_MEASURED), (REPETITIONS, CONTRADICTED))
SHOWN = 6  # largest number of left-out runs in a claim
NO_EVIDENCE = "The metrics do not match the files recorded with the run, so no claim about this run is allowed"
# The published protocol states that it finds failures but does not prove their absence.
CAVEAT = "A pass rules out only the defects that the rules know"


def claims(
    runs: Sequence[RunAudit],
    excluded: Sequence[Exclusion] = (),
    has_all_runs: bool = True,
    card: Mapping[str, Any] = MappingProxyType({}),
    left_out: Sequence[OtherRun] = (),
) -> tuple[Claim, ...]:
    """Return the claims about the runs of one method in one setting.

    Args:
        runs: The judged runs. Controls are ignored, so the result is empty for a control.
        excluded: The runs of the method that were not judged.
        has_all_runs: Whether `runs` contains every run of the method that is in the report. If true, a single run means that the
            method has only one seed.
        card: The card of the method. Γ does not apply if the credit is exact at every site, if the card has no reference for Γ, or
            if the method has no feedback.
        left_out: The complete runs of the method and its frozen controls that the audit left out. If there is one, nothing may be
            claimed.
    """
    judged = [_without_gamma(run) if is_exact(card) else run for run in runs if run.record.spec.control == "none"]
    if not judged:
        return ()
    intact = [run for run in judged if is_intact(run.record)]
    broken = [run for run in judged if not is_intact(run.record)]
    reported = [run for run in intact if not speaks_for_nothing(run.findings)]
    candidates = (
        *([left_out_claim(left_out)] if left_out else []),
        *([claim("differs from its seal", NO_EVIDENCE, broken)] if broken else []),
        *_evidence_claims(intact),
        *(_claims(reported, has_all_runs, card) if reported else ()),
        *([exclusion_claim(excluded)] if excluded else []),
    )
    # A claim is about the method, so a claim is allowed only if every judged seed supports the claim.
    judged_ids = {run.record.run_id for run in judged}
    trained_here = not any(run.record.spec.weights for run in judged)
    may_claim = trained_here and not any(map(_is_unconfirmed, judged))
    # The code that trained an adopted run is not known, so no claim about its training is allowed.
    earned = (
        candidate
        for candidate in candidates
        if (candidate.kind != "may" or (may_claim and not left_out and judged_ids <= set(candidate.run_ids)))
        and (trained_here or candidate.key != "passes alone")
    )
    return tuple(sorted((_with_seeds(one, judged) for one in earned), key=lambda one: WEIGHT[one.key]))


def _is_unconfirmed(run: RunAudit) -> bool:
    """Return whether the audit could not confirm the run's result, so that nothing may be claimed."""
    return any(finding.outcome == "warn" and (finding.rule, finding.state) in UNCONFIRMED for finding in run.findings)


def _with_seeds(one: Claim, judged: Sequence[RunAudit]) -> Claim:
    """Return the claim with the seeds to which it applies, if these are not all judged seeds."""
    seeds = [str(run.record.spec.seed) for run in judged if run.record.run_id in one.run_ids]
    if not seeds or len(seeds) == len(judged) or one.key == "not judged":
        return one
    return dataclasses.replace(
        one, text=f"{one.text[:-1]} (in {len(seeds)} of {len(judged)} seeds: {', '.join(seeds)})."
    )


def gamma_answer(runs: Sequence[RunAudit], cards: Mapping[str, Any], left_out: Sequence[OtherRun] = ()) -> str:
    """Return the kind of the claim about Γ, or an empty string if there is no such claim.

    The kind is `partly` if Γ may be claimed at some sites and may not be claimed at other sites. The runs are the judged runs of
    one method in one setting.
    """
    card = cards.get(f"methods/{runs[0].record.spec.method}", {})
    found = claims(runs, card=card, left_out=left_out)
    kinds = [one.kind for one in found if one.topic == GAMMA]
    if found and not kinds and not is_exact(card) and any(map(has_gamma, runs)):
        return "open" if left_out else "not"  # a claim that invalidates all metrics
    return "partly" if {"may", "not"} <= {*kinds} else next(iter(kinds), "")


def _claims(runs: Sequence[RunAudit], has_all_runs: bool, card: Mapping[str, Any]) -> Iterator[Claim]:
    yield from _state_claims(runs)
    yield from reference_claims(runs)
    yield from gamma_claims(runs, card.get("gamma_reference") != "none", card.get("has_feedback", True))
    yield from _pass_claims(runs) if all(map(passes, runs)) else depth_claims(runs)
    yield from _waiver_claims(runs)
    yield from state_claims([run for run in runs if run.record.status == "complete"])
    if has_all_runs and len(runs) == 1:
        text = "There is only one seed, so there is no interval, and this form does not allow a ranking against another method"
        yield claim("one seed", text, runs)


def _pass_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """Yield a claim if all seeds pass. The claim contains the margin over the frozen control."""
    if not all(map(is_above_frozen, runs)):
        symbol, better = _symbol(runs), _headline(runs).better
        text = f"Every rule of the verdict passes, but none of these rules requires {better} than frozen random blocks reach"
        text = f"{text}. The {symbol} must not be credited to the training of the blocks"
        yield claim("passes without depth", text, runs)
        yield from depth_claims(runs)
        return
    (key, trained_part), symbol = _trained_blocks(runs), _symbol(runs)
    yield claim(
        key,
        f"Depth helps: the {symbol} may be reported as that of {trained_part}{cleared_text(runs)}{sampled(runs)}. {CAVEAT}",
        runs,
    )


def _headline(runs: Sequence[RunAudit]) -> Headline:
    return headline_of(runs[0].record.measurements)


def _symbol(runs: Sequence[RunAudit]) -> str:
    return _headline(runs).symbol


def _trained_blocks(runs: Sequence[RunAudit]) -> tuple[str, str]:
    counts = [
        (scalar_metric(run.record, "blocks_trained").value, len(site_row(run.record, "h_norm")) - 1) for run in runs
    ]
    if any(moved is None for moved, _ in counts):
        return "trained depth", "a network with trained blocks; it is not known how many blocks the training changed"
    moved, blocks = min(counts, key=lambda pair: pair[0] / max(pair[1], 1))
    if moved >= blocks:
        return "trained depth", f"a network with trained blocks; the training changed {moved:.0f} of {blocks} blocks"
    return (
        "trained part",
        f"a network in which the training changed only {moved:.0f} of {blocks} blocks, and not as the {_symbol(runs)} of a network "
        "whose blocks are all trained",
    )


def _without_gamma(run: RunAudit) -> RunAudit:
    """Return a copy of the run without its headline Γ; Γ of an exact method is always 1, up to rounding."""
    measured = run.record.measurements
    if scalar_metric(run.record, HEADLINE_GAMMA).value is None:
        return run
    scalars = {**measured.scalars, HEADLINE_GAMMA: Reading(None, THE_GRADIENT)}
    record = dataclasses.replace(run.record, measurements=dataclasses.replace(measured, scalars=scalars))
    return dataclasses.replace(run, record=record)


# (rule, outcome) of a finding about the evidence → key and text of its claim
OF_EVIDENCE: Mapping[tuple[str, str], tuple[str, str]] = MappingProxyType(
    {
        (METHOD, "fail"): ("method fails", "No claim about a method with this name is allowed"),
        (METHOD, "warn"): ("method not measured", "The code of the method was not checked"),
        (MEASURING, "warn"): ("other warns", "Metrics that the audit could not confirm support no conclusion"),
        (CREDIT, "warn"): (
            "near backpropagation",
            "The {symbol} may be claimed only for backpropagation, and not for another credit rule",
        ),
        (NETWORK, "warn"): ("answers looked up", "The {symbol} must not be claimed for a network that {task}"),
        (TRAINING, "warn"): ("trains otherwise", "The {symbol} must not be claimed for blocks that only credits train"),
        (WEIGHTS, "warn"): ("another model", "The {symbol} and the other metrics may belong to two different models"),
        (TASK, "warn"): ("own task", "The {symbol} must not be compared with that of a built-in task"),
        (DATA, "warn"): (
            "test in train",
            "The {symbol} must not be claimed for {samples} that were not used in training",
        ),
        (ADOPTED, "warn"): (
            "adopted",
            "No claim about the training of the blocks or the effect of the feedback used in training is allowed for these weights",
        ),
        (DUPLICATE, "warn"): ("superseded", "The metrics of this run are no evidence about the method"),
        (REPETITIONS, "warn"): ("other warns", "The {symbol} of this specification is not one number"),
        (CODE, "not_applicable"): (
            "other code",
            "No claim about the metrics of this run is allowed, because the metrics could not be recomputed",
        ),
    }
)


def _evidence_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    if not runs:
        return
    headline = _headline(runs)
    values = {"symbol": headline.symbol, "task": headline.work, "samples": headline.samples}
    touched: dict[tuple[str, str], list[RunAudit]] = {}
    for run in runs:
        for finding in run.findings:
            if key_and_text := OF_EVIDENCE.get((finding.rule, finding.outcome)):
                key, text = key_and_text[0], key_and_text[1].format_map(values)
                reason = finding.observed.reason
                if key == "method not measured" and run.record.conformance:  # its finding repeats the text
                    reason = "; ".join(run.record.conformance.failures) or reason
                touched.setdefault((key, f"{text}: {reason}"), []).append(run)
    for (key, text), several in touched.items():
        yield claim(key, text, several)


def _state_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    diverged = [run for run in runs if run.record.status == "diverged"]
    failed = [run for run in runs if run.record.status == "failed"]
    incomplete = [run for run in runs if run.verdict.outcome == "incomplete" and run not in failed]
    if diverged:
        text = "Training diverged. The metrics describe a broken run, so they support no claim about the method"
        yield claim("diverged", text, diverged)
    if failed:
        yield claim("failed", "The run broke off, so no claim about this run is allowed", failed)
    if incomplete:
        findings = (finding for run in incomplete for finding in run.findings if finding.gating)
        missing = (finding.sentence for finding in findings if finding.is_missing)
        missing_text = "; ".join(dict.fromkeys(missing))
        text = f"The protocol could not be completed ({missing_text or 'a rule was not judged'})"
        yield claim("incomplete", text, incomplete)


def _waiver_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    waived: dict[tuple[str, str], list[RunAudit]] = {}
    for run in runs:
        for finding in run.findings:
            if finding.outcome == "waived":
                rule_text = f"{finding.rule} {finding.title}{f' ({finding.state_text})' if finding.state else ''}"
                detail = finding.detail + author_stated_runs([run], (finding.quantity,))
                waived.setdefault((rule_text, detail), []).append(run)
    for (rule_text, detail), touched in waived.items():
        text = f"{rule_text} is waived. The finding remains valid, but it does not count in the verdict: {detail}"
        yield claim("waived", text, touched)


def left_out_claim(left_out: Sequence[OtherRun]) -> Claim:
    """Return the claim about complete runs of the method that the audit left out."""
    names = join_names([f"seed {run.spec.seed} of {run.spec.method_label}" for run in left_out], SHOWN)
    count = f"{pluralise(len(left_out), 'complete run')} of this method and setting"
    where = f"is not in this audit ({names})" if len(left_out) == 1 else f"are not in this audit ({names})"
    rest = "no claim is allowed from a selection of the runs; audit all of them"
    return claim("left out", f"{count} {where}: {rest}", run_ids=[run.run_id for run in left_out])


def exclusion_claim(excluded: Sequence[Exclusion]) -> Claim:
    """Return the claim about the selected runs that were not judged."""
    seeds = [f"seed {exclusion.spec.seed}" for exclusion in excluded if exclusion.spec]
    unknown = len(excluded) - len(seeds)
    seeds_text = ", ".join([*seeds, *([f"{unknown} without a known seed"] if unknown else [])])
    count, them = f"{len(excluded)} selected runs were", "these runs"
    if len(excluded) == 1:
        count, them = "One selected run was", "this run"
    text = f"{count} not judged ({seeds_text}). No claim is allowed about {them}"
    ids = [exclusion.run_id for exclusion in excluded if exclusion.run_id]
    return claim("not judged", f"{text}. All other claims are about the judged seeds only", run_ids=ids)


# Claims from states that no other claim covers. Every finding becomes a sentence, also if an edition renames the state.
SILENT = ("skipped", "waived", "not_applicable", "error")  # waivers and incompleteness have separate claims
CENTRED_MID = "gamma_centred_mid"
CLEAR = 10.0  # gradient norm / floor; at a smaller ratio, the gradient of the next seed may be below the floor
OF_GAMMA = ("reference", "stability")  # subjects whose claims describe the reference gradient of Γ
ELSEWHERE = {  # subject → states that the other modules of claims cover
    "scale": (EXPLODED,),
    "reference": (AT_FLOOR, "CONVERGED", NOISY),
    "depth": (UNDERCUT, UNDECIDED, "STATED", AT_CHANCE, LAST_BLOCK),
    "gamma_null_p": ("SPECIFIC", NOT_SPECIFIC),
    HEADLINE_GAMMA: (TOO_SMALL,),
}


def state_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """Yield a claim for each state of a rule (such as OK) that no other claim covers.

    Each claim is about all runs for which the rule found this state.
    """
    groups: dict[tuple, list[tuple[RunAudit, Finding]]] = {}
    for run in runs:
        for finding in run.findings:
            if finding.outcome not in SILENT and not _reported_elsewhere(finding):
                subject = subject_of(finding.quantity)
                # runs without a Γ, or with a reference near its floor, get another sentence
                variant = (subject in OF_GAMMA and _compares(run), subject == "reference" and _is_clear(run, finding))
                make_text = TEXT.get((subject, observed_text(finding)), _in_general)
                make_text = make_text if _means(make_text, finding) else _in_general
                key = (make_text, observed_text(finding), finding.outcome, finding.rule, variant)
                groups.setdefault(key, []).append((run, finding))
    for (make_text, *_), reported in groups.items():
        touched, findings = [run for run, _ in reported], [reported_finding for _, reported_finding in reported]
        yield claim(*make_text(touched, findings), touched)
    yield from _collapse_claims(runs)


def _reported_elsewhere(finding: Finding) -> bool:
    if (finding.rule, finding.outcome) in OF_EVIDENCE:
        return True
    if observed_text(finding) == "CLEARS":
        return finding.interval is not None  # the margin over seeds has a claim in claims_depth
    return observed_text(finding) in ELSEWHERE.get(subject_of(finding.quantity), ())


def _means(make_text: Callable, finding: Finding) -> bool:
    """Return whether the sentence that `make_text` writes is true for the finding.

    The state of the finding does not determine the answer, for two reasons. First, an edition may use the state OK for values
    above a limit or for values below a limit. Second, the rule may limit the gain instead of the gradient norm. The gain does
    not show how far the gradient is above its floor.
    """
    if make_text is _has_reference and finding.quantity not in GRADIENTS:
        return False
    value, limit = finding.observed.value, finding.threshold
    if make_text not in (_has_reference, _keeps_scale, _low_stability) or value is None or limit is None:
        return True
    return value >= limit if make_text is _has_reference else value <= limit


def _compares(run: RunAudit) -> bool:
    return has_gamma(run) and not with_state([run], EXPLODED, quantities=SUBJECTS["scale"])


def _keeps_scale(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    """Return the tuple (key, text) of the claim that the stream keeps its scale.

    The text names a residual stream only if the network has one, and if no norm hides its scale.
    If the edition limits the growth since initialisation, the text also states that norms and gradients may be compared.
    """
    streams = {run.record.measurements.conventions.get(STREAM) for run in runs}
    if streams == {NORMALISED}:
        text = (
            "A norm ends each block and hides the scale of the stream, so ‖h‖ does not show whether the scale is kept"
        )
        return "keeps scale", f"{text}{scale_text(runs)}"
    subject = "The residual stream keeps its scale" if streams == {RESIDUAL} else "‖h‖ stays"
    limit = findings[0].threshold
    within = f" within the limit of {compact(limit)}" if limit is not None else ""
    init_limits = [condition.threshold for condition in findings[0].further if condition.quantity in SINCE]
    if init_limits:
        since_init = f"within {compact(init_limits[0])} since initialisation"
        text = f"{subject}{within} from block to block, and {since_init}"
        return "keeps scale", f"{text}, so norms and gradients of the blocks can be compared{scale_text(runs)}"
    not_judged = f"this edition does not judge the {label_of('growth_init_max')}"
    text = f"{subject}{within} from block to block; {not_judged}"
    return "keeps scale", f"{text}{scale_text(runs)}"


def _has_reference(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    gradient = value_range(runs, lambda run: last_site(run.record, "g_norm_mean_ce"), "sci")
    gain = value_range(runs, lambda run: last_site(run.record, "gain"), "sci")
    times = [ratio for finding in findings if (ratio := _times_floor(finding)) is not None]
    if _is_clear(runs[0], findings[0]):
        size = f", {label_of('g_norm_mean_ce_L')} {gradient}" if gradient else ""
        factor = f", {_range(times)} times its floor"
        share = f"; the {GAIN} is {gain}" if gain else f"; the {GAIN} is not known"
        scale = f", so {GAMMA} compares the credit with a gradient of meaningful size" if _compares(runs[0]) else ""
        return "reference clear", f"The reference gradient is well above its floor{scale}{size}{factor}{share}"
    gamma_note = f"; {GAMMA} compares the credit with a gradient that has nearly vanished" if _compares(runs[0]) else ""
    near = bool(times) and min(times) < CLEAR
    height = f"{'only ' * near}{_range(times)} times its floor" if times else "above its floor"
    share, limit = f"and its {GAIN} is {gain or 'not known'}", _gain_limit(findings[0])
    gains = [reading.value for run in runs if (reading := last_site(run.record, "gain")).value]
    if gains and limit is not None and max(gains) < limit:
        below = _range([limit / value for value in gains])
        share = f"{'and' if near else 'but'} its {GAIN} ({gain}) is {below} times below the healthy {compact(limit)}"
    return "reference near its floor", f"The reference gradient is {height}, {share}{gamma_note}"


def _is_clear(run: RunAudit, finding: Finding) -> bool:
    times, limit, gain = _times_floor(finding), _gain_limit(finding), last_site(run.record, "gain").value
    has_gain = limit is None or (gain is not None and gain >= limit)
    return times is not None and times >= CLEAR and has_gain


def _gain_limit(finding: Finding) -> float | None:
    return next((condition.threshold for condition in finding.further if condition.quantity == "gain"), None)


def _times_floor(finding: Finding) -> float | None:
    """Return the gradient norm divided by its floor, or None if the norm or the floor is unknown."""
    has_values = finding.quantity in GRADIENTS and finding.observed.value is not None and finding.threshold
    return finding.observed.value / finding.threshold if has_values else None


def _range(values: Sequence[float]) -> str:
    low, high = num(min(values), 2), num(max(values), 2)
    return low if low == high else f"{low} to {high}"


def _clears(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    finding = findings[0]
    text = f"The trained blocks are not worse than frozen random blocks by more than {finding.rule} allows"
    if finding.threshold is not None and finding.threshold > 0:
        text = f"The trained blocks beat frozen random blocks by the margin that {finding.rule} requires"
    text = f"{text}. This rule judges each seed separately, uses no interval and supports no claim over seeds"
    return "passes alone", text


def _high_stability(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    value = value_range(runs, lambda run: scalar_metric(run.record, "stability_mid"), "cos")
    cosine_text = f", mean cosine {value}" if value else ""
    observation = f"gradients of disjoint batches have the same direction at the middle site{cosine_text}"
    if not any(map(has_gamma, runs)):
        text = f"The gradients are not evidence that is specific to each batch, because {observation}"
        return "stability high", text
    centred = value_range(runs, lambda run: scalar_metric(run.record, CENTRED_MID), "cos")
    rest = f"Without this direction, {GAMMA} is {centred}" if centred else "The credit may be aligned only with it"
    return "stability high", f"{GAMMA} must not be interpreted as specific to each batch, because {observation}. {rest}"


def _shared_direction(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    stability, centred = (
        value_range(runs, lambda run, name=name: scalar_metric(run.record, name), "cos")
        for name in ("stability_mid", CENTRED_MID)
    )
    return "stability low", (
        f"At the middle site, gradients of disjoint batches share a direction (mean cosine {stability}), but {GAMMA} does not rest "
        f"on it: without the batch means, {GAMMA} is {centred}"
    )


def _low_stability(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    limit = findings[0].threshold
    value = value_range(runs, lambda run: scalar_metric(run.record, "stability_mid"), "cos")
    cosine_text = f" (mean cosine {value})" if value else ""
    gamma = f" that {GAMMA} compares with" if any(has_gamma(run) for run in runs) else ""
    elsewhere = _sites_above(runs, limit)
    return "stability low", (
        f"At the middle site, which the rule judges, the gradients{gamma} do not share one direction over the batches{cosine_text}"
        + (f"; the mean cosine is above the limit of {compact(limit)} at {elsewhere}" if elsewhere else "")
    )


def _sites_above(runs: Sequence[RunAudit], limit: float | None) -> str:
    """Return the sites whose cross-batch stability is above the limit.

    Example: `site 0 (seed 42); sites 0, 1 (seeds 123, 456)`.
    """
    seeds_by_sites: dict[tuple[int, ...], list[int]] = {}
    for run in runs if limit is not None else ():
        values = [reading.value for reading in site_row(run.record, "stability")]
        if above := tuple(site for site, value in enumerate(values) if value is not None and value > limit):
            seeds_by_sites.setdefault(above, []).append(run.record.spec.seed)
    return "; ".join(f"{listed('site', sites)} ({listed('seed', seeds)})" for sites, seeds in seeds_by_sites.items())


def _in_general(runs: Sequence[RunAudit], findings: Sequence[Finding]) -> tuple[str, str]:
    """Return the tuple (key, text) of a claim that repeats the sentence of the finding."""
    finding = findings[0]
    word = f" ({finding.state_text})" if finding.state else ""
    if finding.outcome == "pass":
        return "other passes", f"The requirement of {finding.rule} {finding.title} is met{word}: {finding.sentence}"
    subject = f"may be based on {metric_named(finding.quantity).label}{word}: {finding.sentence}"
    if finding.outcome == "warn":
        return "other warns", f"No conclusion {subject}"
    return "other fails", f"No claim {subject}"


def _collapse_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """Yield the claims that the first or the last site dominates the mean Γ."""
    runs_by_text: dict[str, list[RunAudit]] = {}
    for run in runs:
        for finding in run.findings:
            guard = None if finding.outcome in SILENT else finding.guard
            if guard and guard.mean is not None:
                runs_by_text.setdefault(carried_text(guard), []).append(run)
    for text, touched in runs_by_text.items():
        yield claim("carried by one end", f"The mean {GAMMA} does not represent the whole network: {text}", touched)


TEXT: dict[tuple[str, str], Callable[[Sequence[RunAudit], Sequence[Finding]], tuple[str, str]]] = {
    ("scale", "OK"): _keeps_scale,
    ("reference", "OK"): _has_reference,
    ("depth", "CLEARS"): _clears,
    ("stability", HIGH): _high_stability,
    ("stability", "CENTRED"): _shared_direction,
    ("stability", "OK"): _low_stability,
}
