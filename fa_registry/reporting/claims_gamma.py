"""Claims about Γ: whether Γ exists, what it means, and at which sites it is specific to the feedback."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fa_registry.metrics import HEADLINE_GAMMA, SUBJECTS, over_seeds
from fa_registry.protocol.answer_intervals import sample_interval
from fa_registry.protocol.evidence_rules import TITLES
from fa_registry.records import Finding, RunAudit
from fa_registry.reporting.claims_reference import (
    AT_FLOOR,
    EXPLODED,
    GAMMA,
    NOISY,
    NOT_SPECIFIC,
    TOO_SMALL,
    UNDERCUT,
    claim,
    finding_with,
    has_gamma,
    is_gradient,
    listed,
    passes,
    value_range,
    with_state,
)
from fa_registry.reporting.labels import join_with_and
from fa_registry.reporting.report_values import scalar_metric, site_row
from fa_registry.reporting.text.filters import KINDS, between
from fa_registry.reporting.view_models import Claim
from fa_registry.statistics import CONFIDENCE, LEAST_SEEDS, holm, level_text
from fa_registry.statistics.over_seeds import OverSeeds

SPECIFIC = "SPECIFIC"
JUDGED = (SPECIFIC, NOT_SPECIFIC, TOO_SMALL)
ALIGNED = "may be interpreted as alignment with the gradient at each site"
NO_EVIDENCE = "is the cosine of credit and gradient; by itself, it does not show that the credit is useful"
AGAINST = "against the gradient"
FROM_TRAINING = "specific to the feedback used in training"
NOT_SHOWN = "it is not shown that this alignment comes from the feedback used in training"
NO_FEEDBACK = (
    "a claim about alignment does not apply: the method has no feedback state, so no fresh draw tests the alignment"
)
THE_GRADIENT = f"the credit is the gradient itself at every site, so {GAMMA} = 1 is not evidence of alignment"


@dataclass(frozen=True)
class Sites:
    """Sites of a run that have a Γ and a p-value, grouped by whether Γ is above the null.

    Args:
        above: Sites whose Γ is above the null.
        reached: The other sites: too many fresh draws of the feedback give a Γ that is at least as large as the measured Γ.
    """

    above: tuple[int, ...]
    reached: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.above) + len(self.reached)


def gamma_claims(runs: Sequence[RunAudit], has_reference: bool = True, has_feedback: bool = True) -> Iterator[Claim]:
    """Yield one claim about the runs with Γ, and claims about the runs without Γ.

    Args:
        has_reference: Whether the card of the method names a direction with which Γ compares the credit.
        has_feedback: Whether the card of the method declares a feedback state.
    """
    for reason, without_gamma in _grouped((run for run in runs if not has_gamma(run)), _absence).items():
        if reason == THE_GRADIENT or not has_reference:
            yield claim("gamma not applicable", f"{GAMMA} does not apply: {reason}", without_gamma)
        else:
            yield claim("no gamma", f"There is no metric of alignment: {reason}", without_gamma)
    with_gamma = [run for run in runs if has_gamma(run)]
    by_site = tuple(_site_claims(runs, with_gamma)) if with_gamma else ()
    yield from by_site
    if with_gamma and not by_site and (answer := _answer(runs, with_gamma, has_feedback)):
        yield claim(*answer, with_gamma)


def _is_sound(run: RunAudit) -> bool:
    """Return whether the run is complete and passes D1, D2 and D3, and whether no evidence is missing."""
    outcomes = [
        {finding.outcome for finding in run.findings if finding.quantity in SUBJECTS[subject]}
        for subject in ("scale", "reference", "depth")
    ]
    is_proven = not any(one.rule in TITLES and one.outcome in ("warn", "fail") for one in run.findings)
    return run.record.status == "complete" and is_proven and all(found == {"pass"} for found in outcomes)


def _site_claims(runs: Sequence[RunAudit], with_gamma: Sequence[RunAudit]) -> Iterator[Claim]:
    """Yield one claim about the sites where Γ is specific, and one claim about the other sites.

    Readers may quote the first claim as credit alignment. Therefore, both claims need a method that passes D1, D2 and D3 in every
    seed, and a Γ that is not too small. Otherwise, no claim is yielded, and `_answer` says both in one unsupported claim.
    """
    sites = {run.record.run_id: _sites(run) for run in with_gamma}
    failing = [run for run in with_state(with_gamma, NOT_SPECIFIC) if sites[run.record.run_id].reached]
    common = sorted(set.intersection(*(set(by_seed.above) for by_seed in sites.values())))
    is_open = _sign_claim(with_gamma) or _size_claim(with_gamma)
    if not failing or not common or not all(map(_is_sound, runs)) or is_open:
        return
    holm_text = _multiplicity([(sites[run.record.run_id], [run]) for run in with_gamma])
    text = f"{GAMMA} at {listed('site', common)} is {FROM_TRAINING}: fresh feedback gives a smaller {GAMMA}{holm_text}"
    yield claim("specific", text, with_gamma)
    groups = _grouped(failing, lambda run: sites[run.record.run_id])
    where = " and ".join(
        f"at {listed('site', by_seed.reached)}{_of_seeds(several, failing)} ({_reached(several, by_seed)})"
        for by_seed, several in groups.items()
    )
    yield claim("not specific", f"{GAMMA} {where} is not {FROM_TRAINING}", failing)


def _answer(runs: Sequence[RunAudit], with_gamma: Sequence[RunAudit], has_feedback: bool) -> tuple[str, str] | None:
    """Return (key, text) of the claim about Γ; the text must be true for the worst seed of `runs`."""
    complete = [run for run in with_gamma if run.record.status == "complete"]
    reason = _taken_back(runs)
    null_text = _null_text(complete, not reason, all(map(_allows_comparison, runs)))
    rest = f". {null_text}" if null_text else ""
    if reason:
        gamma = value_range(with_gamma, lambda run: scalar_metric(run.record, HEADLINE_GAMMA), "cos")
        if " to " in gamma:
            mean = KINDS["cos"](_gamma_over_seeds(with_gamma).mean.value)
            gamma = f"{mean} ({gamma} over {len(with_gamma)} seeds)"
        gamma += f", {AGAINST}," if _is_negative(with_gamma) else ""
        unproven = _grouped((run for run in complete if _no_null(run)), _no_null)
        no_null = "; ".join(f"{text}{_of_seeds(several, with_gamma)}" for text, several in unproven.items())
        more = "".join((f"; also, {NOT_SHOWN} ({no_null})" if no_null else "", rest))
        return "not aligned", f"{GAMMA} = {gamma} is no evidence of useful credit: {reason}{more}"
    if len(complete) < len(with_gamma):
        return None  # a run that broke off has a separate claim
    gamma_text = _size(with_gamma)
    failing = with_state(with_gamma, NOT_SPECIFIC)
    if verdict := _sign_claim(with_gamma) or (not failing and _size_claim(with_gamma)):
        key, text = verdict
        return key, f"{gamma_text} {text}{rest}"
    if failing:
        return "not specific", f"{gamma_text} is not {FROM_TRAINING} at every site{rest}"
    unproven = [run for run in with_gamma if run not in with_state(with_gamma, SPECIFIC)]
    passing = all(map(passes, with_gamma))
    if not unproven:
        if passing:
            return "aligned by feedback", f"{gamma_text} {ALIGNED}, for the feedback used in training only{rest}"
        if all(map(_is_sound, runs)):
            return "specific", f"{gamma_text} is {FROM_TRAINING}{rest}"
        return "no evidence", f"{gamma_text} {NO_EVIDENCE}{rest}"
    reasons = "; ".join(filter(None, dict.fromkeys(map(_no_null, unproven))))
    not_shown = f"{NOT_SHOWN} ({reasons})" if reasons else NOT_SHOWN
    if passing and not has_feedback:
        return "gamma not applicable", f"{gamma_text} is measured, but {NO_FEEDBACK}"
    if passing:
        return "aligned, null unknown", f"{gamma_text} {ALIGNED}; {not_shown}"
    return "null unknown", f"{gamma_text} {NO_EVIDENCE}, and {not_shown}"


def _size(runs: Sequence[RunAudit]) -> str:
    """Return the mean Γ over sites 1..L: `Γ = .16, 95 % interval .15 to .17 over 3 seeds,`."""
    gamma, ends = _gamma_over_seeds(runs), _interval(runs)
    interval = f", {level_text(CONFIDENCE)} interval {between(ends, 'cos')} over {gamma.n} seeds," if ends else ""
    return f"{GAMMA} = {KINDS['cos'](gamma.mean.value)}{interval}"


def _is_negative(runs: Sequence[RunAudit]) -> bool:
    """Return whether Γ is negative in every seed."""
    return all(scalar_metric(run.record, HEADLINE_GAMMA).value < 0 for run in runs)


def _sign_claim(runs: Sequence[RunAudit]) -> tuple[str, str] | None:
    """Return (key, text) if there are too few seeds, or if Γ is negative; otherwise None."""
    count, least = len({run.record.spec.seed for run in runs}), _least_of(runs)
    if count < LEAST_SEEDS:
        subject = "one seed does" if count == 1 else f"{count} seeds do"
        question = (
            "the credit is aligned with the gradient" if least is None else f"{GAMMA} exceeds {KINDS['cos'](least)}"
        )
        sign = f"points {AGAINST} in every seed, but" if _is_negative(runs) else "is open:"
        return "gamma undecided", f"{sign} {subject} not decide whether {question}"
    interval = _interval(runs)
    if interval and interval[1] < 0:
        return "against the gradient", f"points {AGAINST}: a step along the credit increases the loss"
    return None


def _size_claim(runs: Sequence[RunAudit]) -> tuple[str, str] | None:
    """Return (key, text) if the interval of Γ is not above the smallest Γ that counts, otherwise None."""
    gamma, least = _gamma_over_seeds(runs), _least_of(runs)
    low, high = _interval(runs) or (gamma.mean.value, gamma.mean.value)
    if least is None or low >= least:
        return None
    minimum_text = f"{KINDS['cos'](least)}, the smallest {GAMMA} that counts as alignment"
    if high < least:
        return "too small", f"is below {minimum_text}"
    return "gamma undecided", f"is open: its interval contains {minimum_text}"


def _least_of(runs: Sequence[RunAudit]) -> float | None:
    """Return the smallest Γ that counts as alignment, or None if no rule limits Γ."""
    limits = [limit for run in runs for finding in run.findings if (limit := _least_gamma(finding)) is not None]
    return max(limits, default=None)


def _gamma_over_seeds(runs: Sequence[RunAudit]) -> OverSeeds:
    readings = ((run.record.spec.seed, scalar_metric(run.record, HEADLINE_GAMMA)) for run in runs)
    return over_seeds(readings, HEADLINE_GAMMA)


def _interval(runs: Sequence[RunAudit]) -> tuple[float, float] | None:
    """Return the 95 % interval of Γ over seeds, and over samples if every run recorded their cosines."""
    return sample_interval([run.record for run in runs], HEADLINE_GAMMA) or _gamma_over_seeds(runs).interval


def _least_gamma(finding: Finding) -> float | None:
    """Return the smallest Γ that the rule accepts, or None if the rule does not limit Γ."""
    if finding.quantity == HEADLINE_GAMMA and finding.crossed == "below":
        return finding.threshold
    further = finding.further if finding.quantity == "gamma_null_p" else ()
    return next((condition.threshold for condition in further if condition.quantity == HEADLINE_GAMMA), None)


def _taken_back(runs: Sequence[RunAudit]) -> str:
    """Return the reasons why Γ of this method is not evidence of alignment, or "".

    Possible reasons are a failed verdict, an exploded stream, and a reference gradient that is noisy or at its floor.
    """
    exploded = with_state(runs, EXPLODED, quantities=SUBJECTS["scale"])
    undercut = with_state(runs, UNDERCUT, quantities=SUBJECTS["depth"])
    floor, noisy = (with_state(runs, state, quantities=SUBJECTS["reference"]) for state in (AT_FLOOR, NOISY))
    failed = [run for run in runs if run.verdict.outcome == "fail"]
    if not (failed or exploded or floor or noisy):
        return ""
    causes = (
        ("training diverged", [run for run in runs if run.record.status == "diverged"]),
        ("the stream explodes", exploded),
        ("the reference gradient is at its floor", floor),
        ("the reference gradient is numerical noise", noisy),
        ("the trained blocks do not beat frozen random blocks by the required margin", undercut),
    )
    reported = [(text, touched) for text, touched in causes if touched]
    reported = reported or [(f"its verdict is {failed[0].verdict.label}", failed)]
    texts = [f"{description}{_of_seeds(touched, runs)}" for description, touched in reported]
    return join_with_and(texts)


def _of_seeds(touched: Sequence[RunAudit], runs: Sequence[RunAudit]) -> str:
    return f" ({_seeds(touched)})" if len(touched) < len(runs) else ""


def _seeds(runs: Sequence[RunAudit]) -> str:
    return listed("seed", [run.record.spec.seed for run in runs])


def _grouped(runs: Iterable[RunAudit], reason: Callable) -> dict:
    groups: dict = {}
    for run in runs:
        groups.setdefault(reason(run), []).append(run)
    return groups


def _absence(run: RunAudit) -> str:
    return THE_GRADIENT if is_gradient(run) else scalar_metric(run.record, HEADLINE_GAMMA).reason


def _no_null(run: RunAudit) -> str:
    """Return the reason why the run has no null (Γ of fresh draws of the feedback), or ""."""
    row = site_row(run.record, "gamma_null_p")
    if any(reading.value is not None for reading in row):
        return ""
    return "; ".join(dict.fromkeys(reading.reason for reading in row)) or "no fresh draws of feedback were measured"


def _level(run: RunAudit) -> float | None:
    """Return the level of the p-value at each site, or None if the run is not judged by p-values."""
    finding = finding_with(run, *JUDGED)
    if finding is None or finding.quantity == "gamma_null_p":
        return finding.threshold if finding else None
    return next((limit.threshold for limit in finding.further if limit.quantity == "gamma_null_p"), None)


def _sites(run: RunAudit) -> Sites:
    """Return the sites that are above their null, and the sites that are not.

    Several sites of one run are tested. There are two cases:

    - If every p-value is at most the level, all sites are above their null. This case needs no correction, because no site is
      selected (intersection-union test: Berger 1982, Technometrics 24, 295).
    - Otherwise, Holm's procedure decides.

    Hochberg's step-up procedure (1988, Biometrika 75, 800) rejects at least the same hypotheses. Therefore, the level is valid for
    all sites together if the ranks of the sites are positively dependent. Ranks from the same fresh draws are positively dependent.
    """
    level = _level(run)
    gammas, ranks = site_row(run.record, "gamma"), site_row(run.record, "gamma_null_p")
    p_by_site = {
        site: rank.value
        for site, (gamma, rank) in enumerate(zip(gammas, ranks, strict=False))
        if gamma.value is not None and rank.value is not None
    }
    if level is None or not p_by_site:
        return Sites((), ())
    adjusted = dict(zip(p_by_site, holm(p_by_site.values()), strict=True))
    above = adjusted if max(p_by_site.values()) <= level else [site for site, p in adjusted.items() if p <= level]
    return Sites(tuple(above), tuple(site for site in p_by_site if site not in above))


def _null_text(complete_runs: Sequence[RunAudit], with_failing_sites: bool, is_allowed: bool) -> str:
    """Return a sentence about the sites whose Γ exceeds the Γ of fresh draws, or "".

    The sentence lists the other sites only if `with_failing_sites` is true. If `is_allowed` is true, the comparison may be reported
    although Γ may not be claimed.
    """
    # The groups also depend on the state, because seeds without ranks all have the same (empty) set of sites.
    groups = _grouped(with_state(complete_runs, *JUDGED), lambda run: (bool(with_state([run], SPECIFIC)), _sites(run)))
    if not groups:
        return ""
    name_seeds = len(groups) > 1 or len(next(iter(groups.values()))) < len(complete_runs)
    reported = [
        _where_above(sites, runs, with_failing_sites) + (f" in {_seeds(runs)}" if name_seeds else "")
        for (_, sites), runs in groups.items()
    ]
    ranked = [(sites, runs) for (_, sites), runs in groups.items() if sites.count]
    is_reportable = is_allowed and not with_failing_sites and any(sites.above for sites, _ in ranked)
    start = f"Only this comparison may be reported: {GAMMA}" if is_reportable else f"This {GAMMA}"
    return f"{start} exceeds the {GAMMA} of fresh feedback {'; '.join(reported)}{_multiplicity(ranked)}"


def _allows_comparison(run: RunAudit) -> bool:
    """Return whether the comparison of Γ with fresh feedback may be reported.

    Findings about the scale, the depth and the null of Γ allow it. Any other finding that does not pass forbids it.
    """
    allowed = {*SUBJECTS["scale"], *SUBJECTS["depth"], "gamma_null_p"}
    others = [one for one in run.findings if one.quantity not in allowed and one.outcome not in ("pass", "skipped")]
    is_explained = bool(with_state([run], EXPLODED, UNDERCUT)) or run.verdict.outcome != "fail"
    is_open = any(one.gating or one.outcome != "not_applicable" for one in others)
    return is_explained and not is_open and run.record.status == "complete"


def _where_above(sites: Sites, runs: Sequence[RunAudit], with_failing_sites: bool) -> str:
    """Return a text that lists the sites above their null and, if wanted, the sites not above their null.

    Example: `at sites 0 to 2, not at site 3 (23 of 99 fresh draws reach this Γ)`.
    """
    if not sites.reached and (sites.count or with_state(runs, SPECIFIC)):
        return f"at all {sites.count} tested sites" if sites.count > 1 else "at every site that counts"
    reached_text = f"({_reached(runs, sites)})"
    if not sites.count:
        return f"at fewer than all sites that count {reached_text}"
    above = f"at {listed('site', sites.above)}" if sites.above else "at no site"
    if not with_failing_sites:
        return above
    if not sites.above:
        return f"{above} {reached_text}"
    return f"{above}, not at {listed('site', sites.reached)} {reached_text}"


def _multiplicity(ranked: Sequence[tuple[Sites, Sequence[RunAudit]]]) -> str:
    if not ranked:
        return ""
    max_sites = max(sites.count for sites, _ in ranked)
    limit = _level(ranked[0][1][0])
    level = f"{100 * limit:.3g} %"
    if max_sites == 1:
        return f" (one site tested, {level})"
    runs_reached = [run for sites, runs in ranked if sites.reached for run in runs]
    if not runs_reached:
        return f" (each at {level})"
    draws = min(filter(None, map(_draws, runs_reached)), default=None)
    is_too_few = draws is not None and max_sites / (draws + 1) > limit
    draws_note = f"; {draws} fresh draws are too few to distinguish one of {max_sites} sites" if is_too_few else ""
    return f" (Holm over {max_sites} sites, {level}{draws_note})"


def _draws(run: RunAudit) -> int | None:
    return run.record.measurements.conventions.get("gamma_null_draws")


def _reached(runs: Sequence[RunAudit], sites: Sites) -> str:
    draws = set(map(_draws, runs))
    ranks = [site_row(run.record, "gamma_null_p")[site].value for run in runs for site in sites.reached]
    observed_values = (finding_with(run, *JUDGED).observed.value for run in runs)
    ranks = ranks or [value for value in observed_values if value is not None]
    return count_draws_reaching(ranks, draws.pop() if len(draws) == 1 else None)


def count_draws_reaching(ranks: Sequence[float], draws: int | None) -> str:
    """Return a text with the number of fresh draws that reach the observed Γ.

    Args:
        ranks: One or more p-values; for several p-values, the text contains a range of numbers.
        draws: The recorded number of draws of the null.

    Returns:
        For example `1 of 20 fresh draws reach this Γ`; the text has no count if `draws` is None.
    """
    if draws is None or not ranks:
        return f"the record does not state how many fresh draws reach this {GAMMA}"
    low, high = (round(rank * (draws + 1)) - 1 for rank in (min(ranks), max(ranks)))
    count = f"{low}" if low == high else f"between {low} and {high}"
    return f"{count} of {draws} fresh draws reach this {GAMMA}"
