"""The checklist of pitfalls (protocol.md §5), answered from the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fa_registry.metrics import AGGREGATES, VALIDATION, headline_of
from fa_registry.protocol.credit import exact_sites, is_exact
from fa_registry.protocol.grouping import Group, describe_difference
from fa_registry.protocol.integrity import difference_text
from fa_registry.protocol.paired_runs import whole
from fa_registry.protocol.verdict import is_intact
from fa_registry.records import (
    WRONG_GRADIENT,
    AuditReport,
    OtherRun,
    Reading,
    RunAudit,
    RunSpec,
    SelectionSummary,
    objection_in,
)
from fa_registry.reporting.claims_gamma import count_draws_reaching
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.report_values import NO_CONTROL, scalar_metric, site_row
from fa_registry.reporting.text.filters import at_least, compact, cos, num, pct, sci

AVOIDED, VIOLATED, UNKNOWN, NOT_APPLICABLE = "avoided", "violated", "unknown", "not applicable"
WORST_FIRST = (VIOLATED, UNKNOWN, AVOIDED, NOT_APPLICABLE)
NO_EVIDENCE = "the metrics do not match the files recorded with the run, so the metrics are no evidence"
TRUSTED = "the metrics were logged, but not recomputed: audit without --trust-logged to check them"
EXACT = "the credit equals the gradient at every site by construction"
NEAR = 10.0  # largest factor between the measured and the predicted effect of a step that counts as agreement
FAR = 1e6  # an L₋₁ norm differs from the L₂ norms by more than this factor
CLAMP = 1e-8  # default eps of the usual library cosine, which replaces every norm below eps by eps
HEADROOM = 100.0  # smallest safe ratio of a median norm to the clamp, because half of the samples are below the median
UNDERFLOW = 6e-8  # smallest positive number of fp16 (subnormal: 2⁻²⁴)
LEVEL = 0.05  # level of the rank p-value, as in rule D4 of edition 2026-12
HALF = 0.5  # a site that contributes more than this share of the mean dominates, as in the guard of rule D4
SHOWN = 5  # maximum number of methods in an answer
Answered = tuple[str, str]  # an outcome, and the evidence or the reason why there is none


@dataclass(frozen=True)
class Answer:
    """An answer to one item of the checklist, for the runs that have this answer.

    Args:
        outcome: One of the words in the constant WORST_FIRST.
        evidence: The values on which the answer is based, or the reason why there is no evidence.
    """

    outcome: str
    evidence: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class Pitfall:
    """One item of the checklist and its answers. The worst answer is first.

    Args:
        number: Number of the item in protocol.md.
        title: Description of the pitfall.
        lint: Lint rule that finds the pitfall in code; empty if there is no such rule.
    """

    number: int
    title: str
    lint: str
    answers: tuple[Answer, ...]

    @property
    def outcome(self) -> str:
        """The worst outcome of all runs."""
        return self.answers[0].outcome


@dataclass(frozen=True)
class PitfallContext:
    """The data that an item of the checklist needs to answer for one run.

    The group contains the runs of the same method in the same setting. The sources are the report and its indexes.
    """

    run: RunAudit
    group: Sequence[RunAudit]
    sources: Sources

    @property
    def spec(self) -> RunSpec:
        return self.run.record.spec

    @property
    def card(self) -> dict[str, object]:
        """Card of the method, or an empty mapping if the report has no such card."""
        return dict(self.sources.report.cards.get(f"methods/{self.spec.method}", {}))

    @property
    def verified(self) -> bool:
        return self.run.record.integrity.state == "verified"

    @property
    def not_recomputed(self) -> str:
        """A text on why the metrics were not recomputed."""
        integrity = self.run.record.integrity
        if integrity.state != "unverifiable" or not integrity.details:
            return TRUSTED
        return f"the metrics were not recomputed: {'; '.join(integrity.details)}"

    def row(self, name: str) -> Sequence[Reading]:
        return site_row(self.run.record, name)

    def scalar(self, name: str) -> Reading:
        return scalar_metric(self.run.record, name)

    def convention(self, name: str) -> object:
        """Return a recorded value that states how metrics were measured; None if it was not recorded."""
        return self.run.record.measurements.conventions.get(name)

    def mismatch(self, *families: str) -> str:
        """Return a text about logged metrics that the audit could not reproduce, or "" if there are none.

        The families are prefixes of the names of metrics: `gamma` includes gamma_null_p. Without prefixes, all metrics count.
        """
        differences = self.run.record.integrity.differences
        return "; ".join(
            difference_text([figure for figure in differences if figure.quantity.startswith(families or "")])
        )


Question = Callable[[PitfallContext], Answered]


def known_sites(*rows: Sequence[Reading]) -> Iterator[tuple[int, tuple[float, ...]]]:
    """Yield (site, one value per row) for every site at which all rows have a value."""
    for site, readings in enumerate(zip(*rows, strict=False)):
        if all(reading.value is not None for reading in readings):
            yield site, tuple(reading.value for reading in readings)


def absence(name: str, row: Iterable[Reading]) -> str:
    """Return the reasons why a metric has no value at any site."""
    reasons = dict.fromkeys(reading.reason for reading in row if reading.reason)
    return f"{name}: {'; '.join(reasons)}" if reasons else f"{name} was not measured"


def norm_of_samples(context: PitfallContext) -> Answered:
    """Answer item 1 of the checklist: is each norm the L₂ norm of one sample, not `tensor.norm(-1)`?"""
    if mismatch := context.mismatch("h_norm", "g_norm", "growth", "gain", "h_L", "g_L"):
        return VIOLATED, f"recomputed with one L₂ norm per sample, the metrics differ: {mismatch}"
    if context.verified:
        return AVOIDED, "recomputed from the checkpoint with one L₂ norm per sample: the metrics agree"
    ratios = list(_step_ratios(context))
    if not ratios:
        no_step = "the run recorded no step along the gradient with which the norms could be checked"
        return UNKNOWN, f"{context.not_recomputed}; {no_step}"
    by_fit = sorted(ratios, key=lambda pair: _off(pair[1]))
    (site, ratio), (farthest, worst) = by_fit[0], by_fit[-1]
    evidence = f"a step along the gradient changes the loss by {num(ratio, 2)} times the value that ‖h‖·‖g‖ predicts at site {site}"
    if len(by_fit) > 1:
        evidence = f"{evidence}, which fits best, and {num(worst, 2)} times at site {farthest}, which fits worst"
    if _off(ratio) <= NEAR:
        return AVOIDED, f"{evidence}, as expected with one L₂ norm per sample"
    if _off(ratio) >= FAR:
        return VIOLATED, f"{evidence}: these are not L₂ norms of samples"
    return UNKNOWN, f"{evidence}, which is inconclusive; {context.not_recomputed}"


def _step_ratios(context: PitfallContext) -> Iterator[tuple[int, float]]:
    """Yield (site, measured change of the loss divided by its prediction).

    The step η‖h_l‖ along −g_l is predicted to change the loss by η‖h_l‖‖g_l‖, so to first order the ratio is near 1.
    """
    step = context.convention("nudge_step")
    if step:
        for site, (change, hidden, gradient) in known_sites(*map(context.row, ("nudge_bp", "h_norm", "g_norm"))):
            if change < 0 < hidden * gradient:
                yield site, -change / (step * hidden * gradient)


def _off(ratio: float) -> float:
    """Return the factor by which a ratio differs from 1; example: 2 for the ratios 0.5 and 2."""
    return max(ratio, 1 / ratio)


def unclamped_cosine(context: PitfallContext) -> Answered:
    """Answer item 2 of the checklist: is the cosine computed without a clamp of the norms at eps = 1e-8?"""
    if mismatch := context.mismatch("gamma"):
        return VIOLATED, f"recomputed in float64 without a clamp, Γ differs: {mismatch}"
    if context.verified:
        return AVOIDED, "recomputed in float64 without a clamp: the metrics agree"
    credit = [
        (site, ratio * norm) for site, (ratio, norm) in known_sites(context.row("norm_ratio"), context.row("g_norm"))
    ]
    gradient = [(site, norm) for site, (norm,) in known_sites(context.row("g_norm_mean_ce"))]
    if not gradient or not credit:
        name = "norm_ratio" if gradient else "g_norm_mean_ce"
        return UNKNOWN, f"{context.not_recomputed}; {absence(name, context.row('norm_ratio'))}"
    site, smallest_norm = min((*credit, *gradient), key=lambda pair: pair[1])
    evidence = f"the smallest median norm of a vector in a cosine is {sci(smallest_norm)}, at site {site}"
    if smallest_norm >= CLAMP * HEADROOM:
        return AVOIDED, f"{evidence}, far above {compact(CLAMP)}: a clamp would not have changed the median cosine"
    return UNKNOWN, f"{evidence}, where a clamp at {compact(CLAMP)} would change Γ; {context.not_recomputed}"


def no_underflow(context: PitfallContext) -> Answered:
    """Answer item 3 of the checklist: are the gradients free of underflow in fp16?"""
    precision = context.spec.precision
    if precision in ("fp32", "fp64", "bf16"):
        fidelity = context.scalar("fidelity_min").value
        if fidelity is None:
            return AVOIDED, f"trained in {precision}, whose smallest numbers are far below {compact(UNDERFLOW)}"
        cosine = f"its gradient has a cosine of at least {at_least(fidelity)} with that of float64"
        return AVOIDED, f"trained in {precision}; {cosine}"
    smallest = min((norm for _, (norm,) in known_sites(context.row("g_norm_mean_ce"))), default=None)
    if smallest is not None and smallest < UNDERFLOW:
        return VIOLATED, f"trained in {precision} with a gradient of {sci(smallest)}, below {compact(UNDERFLOW)}"
    return UNKNOWN, f"trained in {precision}: the run did not record which gradients underflowed"


def own_feedback(context: PitfallContext) -> Answered:
    """Answer item 4: is Γ specific to the feedback used in training?

    The pitfall is a Γ that is not larger than Γ with newly drawn random feedback.
    """
    if is_exact(context.card):
        return NOT_APPLICABLE, EXACT
    ranks = list(known_sites(context.row("gamma_null_p")))
    if not ranks:
        return UNKNOWN, absence("gamma_null_p", context.row("gamma_null_p"))
    site, (worst,) = max(ranks, key=lambda pair: pair[1])
    draws = context.convention("gamma_null_draws")
    evidence = (
        f"compared with {draws or 'the'} fresh draws of the feedback, the largest p-value of {len(ranks)} sites is {num(worst)}, "
        f"at site {site}"
    )
    if worst <= LEVEL:
        return AVOIDED, f"{evidence}: Γ is specific to this feedback"
    return VIOLATED, f"{evidence}: {count_draws_reaching([worst], draws)}; not significant at level {compact(LEVEL)}"


def every_aggregation(context: PitfallContext) -> Answered:
    """Answer item 5 of the checklist: does the report show Γ for every aggregation?"""
    if is_exact(context.card):
        return NOT_APPLICABLE, EXACT
    values = [reading.value for reading in map(context.scalar, AGGREGATES)]
    present = [value for value in values if value is not None]
    if not present:
        return UNKNOWN, context.scalar("gamma_deep_mean").reason or "only gamma_deep_mean was recorded"
    if len(present) < len(values):
        count = f"{len(present)} of {len(values)} aggregations are recorded"
        return VIOLATED, f"{count}: the effect of the choice of aggregation is not known"
    low, high = min(present), max(present)
    shown = f"from {cos(low)} to {cos(high)}, a spread of {cos(high - low)}"
    return AVOIDED, f"all {len(values)} aggregations of Γ are shown: {shown}"


def no_single_site(context: PitfallContext) -> Answered:
    """Answer item 6 of the checklist: is the headline Γ not dominated by a single site?

    The headline Γ is the mean over sites 1..L. The answer also mentions the mean that includes site 0.
    """
    if is_exact(context.card):
        return NOT_APPLICABLE, EXACT
    exact = exact_sites(context.card, len(context.row("gamma")))
    all_pairs = [(site, value) for site, value in _gammas(context) if site not in exact]
    pairs = [(site, value) for site, value in all_pairs if site > 0]
    if len(pairs) < 2:
        count = f"Γ has a value at {len(pairs)} of the sites 1..L that are not exact by construction"
        return UNKNOWN, f"{count}, but leaving one site out needs at least 2 such values"
    site, share = _carried(pairs)
    mean = sum(value for _, value in pairs) / len(pairs)
    evidence = (
        f"leaving out site {site} changes gamma_deep_mean, which is {cos(mean)} over {len(pairs)} sites, "
        f"by {pct(share, 0)} of its value"
    )
    if share > HALF:
        return VIOLATED, f"{evidence}: this site dominates the mean"
    first, of_all = _carried(all_pairs)
    if of_all <= HALF:
        return AVOIDED, f"{evidence}, and no other site changes this mean more"
    return AVOIDED, (
        f"{evidence}, and no other site changes this mean more. With site 0, as in gamma_all_mean_mean, site {first} "
        f"dominates the mean ({pct(of_all, 0)} of its value)"
    )


def _carried(gammas: Sequence[tuple[int, float]]) -> tuple[int, float]:
    """Find the site whose removal changes the mean Γ most. Return this site and the relative change."""
    mean = sum(value for _, value in gammas) / len(gammas)
    changes = [(abs((mean * len(gammas) - value) / (len(gammas) - 1) - mean), site) for site, value in gammas]
    change, site = max(changes)
    return site, change / abs(mean) if mean else float(change > 0)


def _gammas(context: PitfallContext) -> list[tuple[int, float]]:
    return [(site, value) for site, (value,) in known_sites(context.row("gamma"))]


def saved_feedback(context: PitfallContext) -> Answered:
    """Answer item 7: was the feedback saved, or is Γ N/A?

    The pitfall is to report 1.0, or the cosine of the credit with itself.
    """
    if objection := objection_in(context.run.record.measurements):
        return VIOLATED if objection.kind == WRONG_GRADIENT else UNKNOWN, objection
    if context.run.record.feedback.get("sha256"):
        return AVOIDED, "the feedback state was saved with its SHA-256, and Γ is computed with it"
    if not context.card:
        return (
            UNKNOWN,
            f"the report has no card of {context.spec.method}, which states whether the method has feedback to save",
        )
    if not context.card.get("has_feedback"):
        return NOT_APPLICABLE, "according to its card, the method has no feedback state"
    gammas = _gammas(context)
    if gammas:
        return VIOLATED, f"no feedback state was saved, yet Γ has a value at {len(gammas)} sites"
    return AVOIDED, f"no feedback state was saved, and Γ is N/A: {absence('gamma', context.row('gamma'))}"


def per_sample_gradients(context: PitfallContext) -> Answered:
    """Answer item 8 of the checklist: are gradients of samples and gradients of the mean loss kept apart?"""
    samples = context.convention("g_norm_mean_ce_samples")
    pairs = list(known_sites(context.row("g_norm"), context.row("g_norm_mean_ce")))
    reduction = context.convention("gradient_reduction")
    if not pairs:
        return UNKNOWN, "‖g_l‖ per sample or ‖g_l‖ of the mean loss was not measured: the reported norm is unknown"
    if samples is None or reduction is None:
        return UNKNOWN, "the run did not record how its gradients were reduced"
    wrong_sites = [
        site for site, (sample_norm, mean) in pairs if abs(sample_norm - samples * mean) > 1e-4 * abs(sample_norm)
    ]
    if reduction == "sum" and not wrong_sites:
        return AVOIDED, (
            f"‖g_l‖ per sample and ‖g_l‖ of the mean loss are recorded; at every site they differ by the factor "
            f"{samples}, as expected for a mean over {samples} samples"
        )
    if wrong_sites:
        norms = f"at site {wrong_sites[0]} ‖g_l‖ per sample and ‖g_l‖ of the mean loss"
        return VIOLATED, f"{norms} do not differ by the factor {samples}, which is the number of samples"
    return VIOLATED, f"gradients were reduced by {reduction}: the per-sample values depend on the batch"


def metric_of_test_set(context: PitfallContext) -> Answered:
    """Answer item 9 of the checklist: was the main metric measured on the whole test set?

    The pitfall is a metric that was measured only on the eval batch. If the accuracy was measured on n samples, accuracy × n is a
    whole number. Therefore an accuracy can show on which samples it was measured. A loss cannot show this.
    """
    headline = headline_of(context.run.record.measurements)
    metric, is_share = context.scalar(headline.name), headline.is_share
    counts = [context.convention(name) for name in ("test_samples", "eval_samples")]
    if metric.value is None:
        return UNKNOWN, f"{headline.symbol}: {metric.reason}"
    if not all(counts):
        return UNKNOWN, "the run did not record the sizes of its test set and eval batch"
    test, batch = counts
    correct, by_batch = (metric.value * count for count in (test, batch))
    if is_share and not whole(correct):
        return VIOLATED, (
            f"{num(metric.value, 6)} does not correspond to a whole number of correct samples out of {num(test)} test samples"
        )
    if test == batch:
        return AVOIDED, f"the eval batch is the whole test set of {num(test)} samples"
    if is_share and not whole(by_batch):
        return AVOIDED, (
            f"{num(round(correct))} of {num(test)} test samples are correct; in an eval batch of {batch}, "
            "this share is no whole number of samples"
        )
    if context.verified:
        correct_text = f": {num(round(correct))} are correct" if is_share else ""
        return AVOIDED, f"recomputed on all {num(test)} test samples{correct_text}"
    if not is_share:
        unknown_size = f"the {headline.symbol} does not show on how many samples it was measured"
        return UNKNOWN, f"{unknown_size}; {context.not_recomputed}"
    return UNKNOWN, (
        f"{num(metric.value, 4)} corresponds to a whole number of correct samples for the test set ({num(test)} samples) "
        f"and for the eval batch ({batch} samples); {context.not_recomputed}"
    )


def own_control(context: PitfallContext) -> Answered:
    """Answer item 10 of the checklist: do run and frozen control have equal setting, seed and data?

    If the author only states the main metric of the frozen control, the answer is a violation, because setting, seed and data of
    the frozen control are not recorded.
    """
    control = context.sources.values.runs.get(context.run.frozen_run_id)
    if control is not None:
        run = context.run.record
        pairs = {
            "setting": (run.spec.setting.identity, control.spec.setting.identity),
            "seed": (run.spec.seed, control.spec.seed),
            "data digest": tuple(record.provenance.get("dataset_digest") for record in (run, control)),
            "control": (control.spec.control, "frozen"),
        }
        differing = [name for name, (run_value, control_value) in pairs.items() if run_value != control_value]
        if differing:
            return VIOLATED, f"the frozen control {control.run_id[:8]} differs from the run in {', '.join(differing)}"
        if context.run.frozen_doubt:
            doubt = f"is not proven to be frozen: {context.run.frozen_doubt}"
            return UNKNOWN, f"the frozen control {control.run_id[:8]} {doubt}"
        return AVOIDED, "the run's frozen control has the same setting, seed and data"
    if context.run.frozen_run_id:
        return UNKNOWN, f"the frozen control {context.run.frozen_run_id[:8]} is not part of this report"
    headline = headline_of(context.run.record.measurements)
    if context.scalar(headline.frozen).value is not None:
        stated = f"the frozen {headline.symbol} is stated by the author"
        return VIOLATED, f"{stated}: setting, seed and data are not recorded"
    return UNKNOWN, context.run.frozen_doubt or NO_CONTROL


def same_seeds(context: PitfallContext) -> Answered:
    """Answer item 11: do all methods of a setting have the same seeds, chosen before the training?"""
    method_seeds = {run.record.spec.seed for run in context.group}
    text = ", ".join(map(str, sorted(method_seeds)))
    seeds_by_label = context.sources.seeds_of_methods.get(context.spec.setting.identity, {})
    differing = [label for label, seeds in seeds_by_label.items() if seeds != method_seeds]
    if differing:
        more_text = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
        others = f"other seeds for {', '.join(differing[:SHOWN])}{more_text} in the same setting"
        return VIOLATED, f"seeds {text} here, but {others}"
    return _nothing_left_out(context, text)


def _nothing_left_out(context: PitfallContext, seeds: str) -> Answered:
    """Return the answer on whether the audit includes all trained runs."""
    report = context.sources.report
    choice = report.choice
    if choice is None:
        selected = f"seeds {seeds}; runs were selected by {report.selection}"
        return UNKNOWN, f"{selected}, and it is not known whether other runs were left out: no store was searched"
    by_hand = f"--seeds {choice.asked['seeds']} was given" if "seeds" in choice.asked else ""
    passed_over, mentioned = _in_the_store(context, choice.unaudited)
    hidden, tried = _tried_neighbour(context)
    passed_over, mentioned = [*passed_over, *hidden], [*mentioned, *tried]
    if passed_over:
        prefix = f"{by_hand}, and the" if by_hand else "the"
        return VIOLATED, f"seeds {seeds}: {prefix} store has runs that are not in this report: {'; '.join(passed_over)}"
    not_audited = "; ".join((*mentioned, *_left_out(report, choice)))
    if by_hand and choice.others:
        return VIOLATED, f"seeds {seeds}: {by_hand}, while {not_audited}"
    gaps = "; ".join(
        part for part in (by_hand and f"{by_hand} instead of the seeds of the study's file", not_audited) if part
    )
    if gaps:
        return UNKNOWN, f"seeds {seeds} for every method of the setting, but {gaps}"
    return (
        AVOIDED,
        f"seeds {seeds} for every method of the setting, as in {report.selection}; no run is left out: "
        "the store was searched for all runs of these methods, including deleted runs",
    )


def _left_out(report: AuditReport, choice: SelectionSummary) -> Iterator[str]:
    if choice.others:
        yield f"runs of study {choice.study} that were not audited, because their specifications are different: {choice.others}"
    if report.excluded:
        yield f"selected runs that were not judged: {len(report.excluded)}"


def _in_the_store(context: PitfallContext, other_runs: Sequence[OtherRun]) -> tuple[list[str], list[str]]:
    """Return two lists of texts about runs in the store that are not in the report.

    Only runs of the method and its frozen controls are listed. The first list contains the omitted runs. The second list contains
    all other runs, for example older runs of the same seed and unfinished runs.

    A finished run counts as omitted if the report has no run with this seed, or only an older run with this seed. For a frozen
    control, there is a further condition: the method was trained with the seed of the control.
    """
    group, setting = context.spec.seeds, context.spec.setting.identity
    method_runs = [other for other in other_runs if other.spec.seeds == group]
    controls = [
        other for other in other_runs if other.spec.control == "frozen" and other.spec.setting.identity == setting
    ]
    judged_seeds = context.sources.judged_seeds.get(group, frozenset())
    paired = judged_seeds | {other.spec.seed for other in method_runs}
    control_seeds = context.sources.control_seeds.get(setting, frozenset())
    passed_over, mentioned = [], []
    for other in (*method_runs, *controls):
        seeds = control_seeds if other.spec.control == "frozen" else judged_seeds
        # the paired differences of the method contain only controls with a seed of the method
        counts = other.spec.control != "frozen" or other.spec.seed in paired
        is_passed_over = other.finished and counts and (other.spec.seed not in seeds or other.newer)
        (passed_over if is_passed_over else mentioned).append(_other(other, other.spec.seed in seeds))
    return passed_over, mentioned


def _tried_neighbour(context: PitfallContext) -> tuple[list[str], list[str]]:
    """Return two lists of texts about runs whose settings differ by at most 1 %.

    The first list contains the omitted runs. A finished run counts as omitted if the report contains neither this run nor another
    run of the method with the same seed. The second list contains the remaining runs.
    """
    judged_seeds = context.sources.judged_seeds.get(context.spec.seeds, frozenset())
    judged = context.sources.judgements[0]
    hidden, tried = [], []
    for other, differing in context.sources.near_runs.get(context.spec.seeds, ()):
        counts = other.finished and other.run_id not in judged and other.spec.seed not in judged_seeds
        line = f"the method was also trained with {describe_difference(differing)}: {_other(other, False)}"
        (hidden if counts else tried).append(line)
    return hidden, [*tried[:SHOWN], *([f"{len(tried) - SHOWN} more such runs"] if len(tried) > SHOWN else [])]


def _other(other: OtherRun, is_repeat: bool) -> str:
    """Return a text such as `seed 3 of dfa, complete, deleted in MLflow (run 1a2b3c4d)` about a run."""
    trial = f"{'a newer' if other.newer else 'an older'} run of " if is_repeat else ""
    deleted_text = ", deleted in MLflow" if other.deleted else ""
    return f"{trial}seed {other.spec.seed} of {other.spec.label}, {other.status}{deleted_text} (run {other.run_id[:8]})"


def eval_mode(context: PitfallContext) -> Answered:
    """Answer item 12 of the checklist: were BatchNorm and dropout in eval mode during the measurement?"""
    if mismatch := context.mismatch():
        return VIOLATED, f"recomputed in eval mode, the metrics differ: {mismatch}"
    if context.verified:
        return AVOIDED, "recomputed in eval mode: the metrics agree"
    return UNKNOWN, context.not_recomputed


def chosen_on_validation(context: PitfallContext) -> Answered:
    """Answer item 13 of the checklist: were λ, rates and epochs chosen without the test set?

    Only a run with validation samples has this item. Each run of the report that differs from this run only in these fields and
    in the seed is an alternative. Alternatives with validation samples could be compared on them. An alternative without them
    can only have been compared on the test set.
    """
    share, specs = context.spec.recipe.validation, [group.runs[0].record.spec for group in context.sources.groups]
    others = {spec.seeds: spec for spec in specs if _alternative(spec) == _alternative(context.spec)}
    others.pop(context.spec.seeds, None)
    blind = [spec.label for spec in others.values() if not spec.recipe.validation]
    reading = context.scalar(f"{headline_of(context.run.record.measurements).name}{VALIDATION}")
    if reading.value is None:
        return UNKNOWN, reading.reason or "the metric of the validation samples is not recorded"
    if blind:
        names = ", ".join(blind[:SHOWN])
        return UNKNOWN, f"runs with another λ, rate or number of epochs have no validation samples: {names}"
    text = f"{num(reading.value, 4)} on validation samples, a share of {share:g} of the training data that was not trained on"
    if (epoch := context.run.record.provenance.get("selected_epoch")) is not None:
        text += f"; they selected the state after epoch {epoch} of {context.spec.epochs}"
    more = f"{len(others)} other combinations of λ, rates and epochs in this report have such samples too"
    return AVOIDED, f"{text}; {more}"


def _alternative(spec: RunSpec) -> RunSpec:
    """Return the specification without seed, validation, λ, rates and epochs."""
    rates = {"learning_rate": 0.0, "rate_embedding": 1.0, "rate_blocks": 1.0, "rate_head": 1.0}
    recipe = replace(spec.recipe, **rates, validation=0.0, select="last")
    return replace(spec.unpenalised, seed=0, epochs=0, weights="", recipe=recipe)


# (title with {} for the main metric, lint rule, function that answers for one run), in the order of protocol.md
QUESTIONS: tuple[tuple[str, str, Question], ...] = (
    ("norm(-1), the L₋₁ norm of the whole tensor, used instead of the norm of each sample", "FA001", norm_of_samples),
    ("a cosine clamped at 1e-8, which is too small if a norm is below 1e-8", "FA002", unclamped_cosine),
    ("gradients below 6e-8 that underflow in fp16", "FA003", no_underflow),
    ("Γ no larger than with fresh draws of the feedback", "FA004", own_feedback),
    ("Γ with only one aggregation, although Γ depends on this choice", "", every_aggregation),
    ("a mean Γ that a single layer dominates", "FA006", no_single_site),
    (
        "a Γ, such as 1.0, although the feedback was not saved or the reference is not the gradient",
        "FA007",
        saved_feedback,
    ),
    ("per-sample and mean-reduced gradients confused", "FA008", per_sample_gradients),
    ("{} of the eval batch instead of the test set", "FA009", metric_of_test_set),
    ("frozen control of another setting, or a frozen {} stated by hand", "FA010", own_control),
    ("seeds chosen after the fact or differing between methods", "FA011", same_seeds),
    ("BatchNorm or dropout in training mode while measuring", "FA012", eval_mode),
)

# asked only of runs with validation samples
OF_VALIDATION = ("λ, learning rates or epochs chosen on the test set", "", chosen_on_validation)


def pitfalls(group: Group, sources: Sources) -> tuple[Pitfall, ...]:
    """Return all items of the checklist for the runs of one method in one setting."""
    contexts = [PitfallContext(run, group.runs, sources) for run in group.runs]
    questions = (*QUESTIONS, *([OF_VALIDATION] if contexts[0].spec.recipe.validation else []))
    symbol = headline_of(group.runs[0].record.measurements).symbol
    return tuple(
        Pitfall(number, title.format(symbol), lint, _answers(contexts, question))
        for number, (title, lint, question) in enumerate(questions, 1)
    )


def _answers(contexts: Sequence[PitfallContext], question: Question) -> tuple[Answer, ...]:
    run_ids: dict[Answered, list[str]] = {}
    for context in contexts:
        answered = question(context)
        if answered[0] != VIOLATED and not is_intact(context.run.record):
            answered = UNKNOWN, NO_EVIDENCE
        run_ids.setdefault(answered, []).append(context.run.record.run_id)
    answers = [Answer(outcome, evidence, tuple(ids)) for (outcome, evidence), ids in run_ids.items()]
    return tuple(sorted(answers, key=lambda answer: WORST_FIRST.index(answer.outcome)))
