"""The values that the pages show. They are read from the records, with the ids of their runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fa_registry.metrics import (
    DEFAULT,
    LAST_SITE,
    NONE,
    Headline,
    Known,
    Metric,
    at_last_site,
    headline_of,
    headlines_of,
    kind_of,
    metric_named,
    metrics_of_report,
    over_seeds,
    subject_of,
    table,
)
from fa_registry.protocol.answer_intervals import sample_interval
from fa_registry.protocol.credit import RANK, carried_text
from fa_registry.protocol.evidence_rules import TITLES, control_doubt
from fa_registry.protocol.paired_runs import common_bigram, common_chance
from fa_registry.protocol.replay_summary import as_logged
from fa_registry.records import RESIDUAL, STREAM, AuditReport, Finding, ProofLevel, Reading, RunAudit, RunRecord
from fa_registry.reporting.text.filters import KINDS, compact
from fa_registry.reporting.view_models import (
    ControlRow,
    Estimate,
    FindingRow,
    Number,
    Row,
    SeedRow,
    SeedStatement,
    SeedValue,
)
from fa_registry.statistics import CONFIDENCE, level_text

BY_AUTHOR = "the {} is stated by the author, so it is not paired by seed"
NOT_PROVEN = "the metrics or training of the frozen control are not proven, so the control is not paired by seed"
UNPROVEN = "the metrics or training of a control are not proven, so the control is not paired by seed"
NO_CONTROL = "no frozen control of the same setting and seed"
OVER_TEST_SET, OVER_SAMPLES = "seeds and test samples", "seeds and the samples of the evaluation batch"
Columns = tuple[Metric, ...]  # columns of a table with one number per run


@dataclass(frozen=True)
class Values:
    """The numbers of runs, and of the frozen controls with which they are compared.

    Args:
        runs: Mapping from run id to record; it contains the frozen controls.
        known: The metrics of the report.
        proofs: Mapping from run id to the level of proof of the verdict.
    """

    runs: Mapping[str, RunRecord] = field(default_factory=dict)
    known: Known = field(default_factory=dict)
    proofs: Mapping[str, ProofLevel] = field(default_factory=dict)

    @classmethod
    def of(cls, report: AuditReport) -> Values:
        proofs = {run.record.run_id: run.verdict.proof for run in report.runs}
        return cls({run.record.run_id: run.record for run in report.runs}, metrics_of_report(report), proofs)

    def frozen(self, run: RunAudit) -> Number:
        """Return the main metric of the run's frozen control, such as its accuracy.

        If there is no control, return the value that the author stated when the run was adopted.
        """
        headline = headline_of(run.record.measurements)
        if run.record.spec.control != "none":
            return Number(Reading(None, f"this run is the {run.record.spec.control} control"), headline.kind, ())
        if run.frozen_doubt and not run.frozen_run_id:
            return Number(Reading(None, run.frozen_doubt), headline.kind, ())
        if not run.frozen_run_id:
            stated = run.record.measurements.scalars.get(headline.frozen, Reading(None, NO_CONTROL))
            return Number(stated, headline.kind, (run.record.run_id,) if stated.value is not None else ())
        reading = Reading(None, "the frozen control is not part of this report")
        if control := self.runs.get(run.frozen_run_id):
            reading = scalar_metric(control, headline.name)
        return Number(reading, headline.kind, (run.frozen_run_id,))

    def frozen_scale(self, runs: Iterable[RunAudit]) -> Estimate:
        """Return how far frozen blocks change the length of the stream.

        This is ‖h_L‖/‖h_0‖ of the frozen controls, as a mean over seeds.
        """
        metric = metric_named("growth")
        controls = [(run.record.spec.seed, self.runs.get(run.frozen_run_id)) for run in runs]
        return seed_estimate(
            metric,
            (
                SeedValue(seed, Number(stream_scale(control), metric.kind, (control.run_id,) if control else ()))
                for seed, control in controls
            ),
        )

    def margin_over(self, runs: Iterable[RunAudit], controls: Iterable[RunAudit]) -> Estimate:
        """Return the margin of runs over given controls, as a mean over the common seeds.

        Runs and controls are paired by seed. If a control is not proven, the mean has no interval.
        """
        by_seed = {control.record.spec.seed: control.record for control in controls}
        pairs = [(run.record, by_seed[seed]) for run in runs if (seed := run.record.spec.seed) in by_seed]
        headline = headline_of(pairs[0][0].measurements) if pairs else DEFAULT
        estimate = seed_estimate(headline.margin_metric, (_paired(headline, *pair) for pair in pairs))
        if estimate.low.value is None or not any(map(_is_unproven, (control for _, control in pairs))):
            return estimate
        reason = Reading(None, UNPROVEN)
        return dataclasses.replace(estimate, low=reason, high=reason)

    def stated(self, run: RunAudit) -> bool:
        """Return whether the main metric of the run's frozen control is known but not verified.

        The metric is not verified if the author stated it, or if the frozen control is not proven to be frozen.
        """
        number = self.frozen(run)
        return number.reading.value is not None and (number.run_ids == (run.record.run_id,) or bool(run.frozen_doubt))

    def margin(self, run: RunAudit) -> Number:
        """Return the margin over the frozen control, with the formula of the rules of an edition."""
        headline = headline_of(run.record.measurements)
        observed, frozen = scalar_metric(run.record, headline.name), self.frozen(run)
        run_ids = (run.record.run_id, *frozen.run_ids)
        for reading in (frozen.reading, observed):
            if reading.value is None:
                return Number(reading, headline.margin_kind, run_ids)
        margin = headline.difference(observed.value, frozen.reading.value)
        return Number(Reading(margin), headline.margin_kind, run_ids)

    def value(self, run: RunAudit, metric: Metric, site: int | None = None) -> Number:
        """Return the number of a run at one site, or in a table with one number per run.

        Without a site, a metric by site has no number. For a metric with the name `NAME_L`, the number is the value of the metric
        `NAME` at the last site. The frozen accuracy and the margin depend on the frozen control of the run.
        """
        record = run.record
        if site is not None:
            row = site_row(record, metric.name)
            absent = f"site {site} was not measured" if row else f"{metric.name} was not measured"
            reading = row[site] if site < len(row) else Reading(None, absent)
        elif metric.compared_with_control:
            headline = headline_of(record.measurements)
            if metric.name in (headline.frozen, headline.margin):
                return self.frozen(run) if metric.name == headline.frozen else self.margin(run)
            reading = Reading(None, f"the task of this run has no {metric.label}")
        elif metric.name in record.measurements.sites:
            last = f"{metric.name}{LAST_SITE} is the value at the last site"
            reading = Reading(None, f"{metric.name} is measured by site: {last}")
        else:
            base = "" if metric.name in record.measurements.scalars else at_last_site(metric.name, self.known)
            reading = last_site(record, base) if base else scalar_metric(record, metric.name)
        return Number(reading, metric.kind, (record.run_id,))

    def estimate(self, runs: Iterable[RunAudit], metric: Metric, site: int | None = None) -> Estimate:
        """Return the mean over seeds of a metric, at one site or in a table with one number per run.

        If the metric depends on a frozen accuracy that is not verified, the mean has no interval, because an unverified accuracy is
        not paired by seed. In this case, the only interval is that of the rule that judges the margin.
        """
        runs = list(runs)
        estimate = seed_estimate(
            metric, (SeedValue(run.record.spec.seed, self.value(run, metric, site)) for run in runs)
        )
        if (
            site is None
            and estimate.low.value is not None
            and (ends := sample_interval([run.record for run in runs], metric.name))
        ):
            over = OVER_TEST_SET if metric.name == headline_of(runs[0].record.measurements).name else OVER_SAMPLES
            return dataclasses.replace(estimate, low=Reading(ends[0]), high=Reading(ends[1]), over=over)
        stated = [run for run in runs if metric.compared_with_control and self.stated(run)]
        if estimate.low.value is None or not stated:
            return estimate
        reason = Reading(None, NOT_PROVEN if stated[0].frozen_doubt else _by_author(stated[0]))
        return dataclasses.replace(estimate, low=reason, high=reason)


def _paired(headline: Headline, record: RunRecord, control: RunRecord) -> SeedValue:
    """Return the margin of a run over its control."""
    readings = [scalar_metric(one, headline.name) for one in (record, control)]
    reading = next((one for one in readings if one.value is None), None) or Reading(
        headline.difference(*(one.value for one in readings))
    )
    return SeedValue(record.spec.seed, Number(reading, headline.margin_kind, (record.run_id, control.run_id)))


def _is_unproven(control: RunRecord) -> bool:
    """Return whether a control is not proven; without a recomputation, its logged metrics count."""
    return bool(control_doubt(control, trusts_logged=control.integrity.state == "trusted"))


def scalar_metric(record: RunRecord, name: str) -> Reading:
    """Return a metric with one number per run, or N/A if the run did not measure it."""
    return record.measurements.scalars.get(name, Reading(None, f"{name} was not measured"))


def text_entropies(runs: Sequence[RunAudit]) -> tuple[Row[Number], ...]:
    """Return the unigram and the bigram entropy of the training text.

    The result is empty if the runs predict no tokens, or were trained on different texts.
    """
    records = [run.record for run in runs]
    bigram, kind = common_bigram(records), headline_of(records[0].measurements).kind
    if math.isnan(bigram):
        return ()
    entropies = (("unigram entropy of the training text (chance)", common_chance(records)), ("bigram entropy", bigram))
    run_ids = tuple(record.run_id for record in records)
    return tuple(Row(name, (Number(Reading.of(value), kind, run_ids),)) for name, value in entropies)


def stream_scale(control: RunRecord | None) -> Reading:
    """Return ‖h_L‖/‖h_0‖ of a control, or N/A if it has no residual stream whose length the norms show."""
    if control is None:
        return Reading(None, "the frozen control is not part of this report")
    stream, row = control.measurements.conventions.get(STREAM), site_row(control, "h_norm")
    if stream != RESIDUAL:
        return Reading(None, f"the states form no residual stream, but one that is {stream or 'not recorded'}")
    if not row or row[0].value is None or row[-1].value is None:
        return next((one for one in row if one.value is None), Reading(None, "h_norm was not measured"))
    return Reading.of(row[-1].value / row[0].value) if row[0].value else Reading(None, "the first state is 0")


def site_row(record: RunRecord, name: str) -> Sequence[Reading]:
    return record.measurements.sites.get(name, ())


def last_site(record: RunRecord, name: str) -> Reading:
    """Return the value of a metric at site L, or N/A if the run did not measure it."""
    row = site_row(record, name)
    return row[-1] if row else Reading(None, f"{name} was not measured")


def audit_columns(runs: Sequence[RunAudit], names: Sequence[str] = (), card_metrics: Known = NONE) -> Columns:
    """Return the metrics of a table, in the order of `names`.

    By default, the names are those of the table `audit`. An optional metric is included only if at least one run measured it. The
    metrics of the report are `card_metrics`.
    """
    measured = {name for run in runs for name in (*run.record.measurements.scalars, *run.record.measurements.sites)}
    names = names or table("audit", headlines_of(run.record for run in runs))
    quantities = (metric_named(name, card_metrics) for name in names)
    return tuple(
        metric
        for metric in quantities
        if metric.always or metric.name in measured or at_last_site(metric.name, card_metrics) in measured
    )


def seed_row(run: RunAudit, values: Values, columns: Columns) -> SeedRow:
    """Return one run with its number in each column."""
    record = run.record
    return SeedRow(
        method=record.spec.label,
        seed=record.spec.seed,
        run_id=record.run_id,
        name=record.name,
        status=record.status,
        verdict=run.verdict,
        integrity=record.integrity.state,
        numbers={column.name: values.value(run, column) for column in columns},
    )


def seed_estimate(quantity: Metric, values: Iterable[SeedValue]) -> Estimate:
    """Return the mean of a metric over seeds (one number each) with its interval and its run ids."""
    rows = tuple(values)
    summary = over_seeds(((row.seed, row.number.reading) for row in rows), quantity.name, quantity.mean)
    rows_not_finite = [row for row in rows if row.number.reading.not_finite]
    rows_with_value = [row for row in rows if row.number.reading.value is not None]
    ids = dict.fromkeys(run_id for row in rows_not_finite or rows_with_value or rows for run_id in row.number.run_ids)
    mean = Number(summary.mean, quantity.kind, tuple(ids))
    return Estimate(
        quantity.kind, rows, summary.n, mean, summary.std, summary.low, summary.high, average=summary.average
    )


def _by_author(run: RunAudit) -> str:
    return BY_AUTHOR.format(headline_of(run.record.measurements).frozen_metric.label)


def control_rows(runs: Iterable[RunAudit], values: Values) -> tuple[ControlRow, ...]:
    """Return the state of each run's frozen control; runs that are controls are ignored."""
    return tuple(_control_row(run, values) for run in runs if run.record.spec.control == "none")


def _control_row(run: RunAudit, values: Values) -> ControlRow:
    control, state, doubt = values.runs.get(run.frozen_run_id), "absent", run.frozen_doubt
    if doubt:
        state = "stated" if run.frozen_run_id else "several"
    elif values.stated(run):
        state, doubt = "stated", _by_author(run)
    elif run.frozen_run_id:
        state = values.proofs[run.frozen_run_id] if control else "not part of this report"
        if any("control at chance" in finding.undecided for finding in run.findings):
            state = "at chance"
    else:
        doubt = NO_CONTROL
    checks = control.integrity.checks if control else ()
    return ControlRow(
        seed=run.record.spec.seed,
        run_id=run.frozen_run_id,
        state=state,
        doubt=doubt,
        integrity=control.integrity.state if control else "",
        checks=tuple((check.subject, check.outcome) for check in checks),
    )


def control_text(rows: Sequence[ControlRow]) -> str:
    """Return the states of frozen controls: `control stated (seed 2): its metrics are unverifiable`."""
    by_state: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        by_state.setdefault((row.state, row.doubt), []).append(row.seed)
    parts = []
    for (state, doubt), seeds in sorted(by_state.items(), key=lambda item: not item[0][1]):
        of = f" (seed {', '.join(map(str, seeds))})" if len(by_state) > 1 else ""
        parts.append(f"control {state}{of}{f': {doubt}' if doubt else ''}")
    return "; ".join(parts)


SEVERITY = ("error", "fail", "warn", "not_applicable", "skipped", "waived", "inapplicable", "pass")


def shown_outcome(finding: Finding) -> str:
    """Return the outcome that pages show; it is `inapplicable` for a rule that does not apply."""
    return "inapplicable" if finding.inapplicable else finding.outcome


def finding_rows(runs: Iterable[RunAudit], method: str, setting: str, card_metrics: Known) -> tuple[FindingRow, ...]:
    """Return the findings of one method in one setting.

    Seeds with the same finding are grouped. Rules that are skipped for a control are omitted.

    Args:
        method: Label of the method.
        setting: Name of the setting.
        card_metrics: The metrics of the report, which define the formats of numbers.
    """
    findings_by_judgement: dict[tuple, list[tuple[int, Finding]]] = {}
    logged: dict[str, str] = {}
    for run in runs:
        logged[run.record.run_id] = as_logged(run.record)
        control = run.record.spec.control != "none"
        for finding in run.findings:
            if not (control and finding.outcome == "skipped"):
                key = (finding.rule, finding.outcome, finding.state, finding.gating, finding.required)
                worded = dataclasses.replace(finding, sentence=rule_sentence(finding, run.record, card_metrics))
                findings_by_judgement.setdefault(key, []).append((run.record.spec.seed, worded))
    return tuple(_row(several, method, setting, card_metrics, logged) for several in findings_by_judgement.values())


def rule_sentence(finding: Finding, record: RunRecord, card_metrics: Known) -> str:
    """Return the values that a rule compared, their limits and state: `growth 156 (limit 50): exploded`.

    The stored `Finding.sentence` stays as it is, because `verify` compares it. The stored sentence is returned for a margin over
    the frozen control, for a missing value, and if the record does not contain every value that the rule compared.
    """
    if finding.rule in TITLES:
        return f"{finding.title}: {finding.observed.reason or finding.sentence}"
    compared = [(finding.quantity, finding.observed.value, finding.threshold)]
    compared += [
        (further.quantity, _compared_value(further.quantity, record), further.threshold)
        for further in finding.further
        if further.quantity != "gamma"  # the reading of a guard that fired is in the finding
    ]
    if subject_of(finding.quantity) == "depth" or any(None in (value, limit) for _, value, limit in compared):
        return finding.sentence
    first, *others = [_comparison(record, *one, card_metrics) for one in compared]
    state = f": {CLEAR_STATES.get(finding.state, finding.state.lower())}" if finding.state else ""
    guard = [carried_text(finding.guard)] if finding.guard and finding.guard.mean is not None else []
    return f"{finding.rule} {finding.title}: {'; '.join([f'{first}{state}', *others, *guard])}"


CLEAR_STATES = {"OK": "clear"}
PER_BLOCK, SINCE = ("growth", "growth_max"), ("growth_init", "growth_init_max")
# Growth metric → its largest value over the sites
LARGEST = {**dict.fromkeys(PER_BLOCK, PER_BLOCK[1]), **dict.fromkeys(SINCE, SINCE[1])}


def _compared_value(name: str, record: RunRecord) -> float | None:
    if name == RANK:
        return max(_ranks(record), default=None)
    reading = scalar_metric(record, LARGEST.get(name, name))
    return reading.value if reading.value is not None else last_site(record, name).value


def _ranks(record: RunRecord) -> list[float]:
    """Return the p-values of the sites that have a value of Γ."""
    pairs = zip(site_row(record, "gamma"), site_row(record, RANK), strict=False)
    return [rank.value for gamma, rank in pairs if gamma.value is not None and rank.value is not None]


def _comparison(record: RunRecord, name: str, value: float, limit: float, card_metrics: Known) -> str:
    metric, count = metric_named(name, card_metrics), len(_ranks(record))
    symbol = metric.symbol.replace("_l‖", "_L‖") if subject_of(name) == "reference" else metric.symbol
    if name == RANK and count > 1:
        symbol = f"largest p of {count} sites"
    # four digits, because a value that is close to its limit must not be rounded to the limit
    is_plain = metric.kind in ("num", "sci", "cos", "exact")
    number = compact(float(f"{value:.4g}")) if is_plain else KINDS[metric.kind](value)
    return f"{symbol} {number} ({'floor' if name.startswith('g_') else 'limit'} {compact(limit)})"


def most_severe_first(rows: Iterable[FindingRow]) -> list[FindingRow]:
    """Return the rows sorted by outcome. If outcomes are equal, gating findings are first."""
    return sorted(rows, key=lambda row: (SEVERITY.index(row.outcome), not row.gating))


def _row(
    several: Sequence[tuple[int, Finding]], method: str, setting: str, card_metrics: Known, logged: Mapping[str, str]
) -> FindingRow:
    first = several[0][1]
    same: dict[tuple, list[tuple[int, Finding]]] = {}
    for seed, finding in several:
        fired = None if finding.first_fire is None else f"{finding.first_fire}{logged.get(finding.run_id, '')}"
        text = (finding.sentence, finding.observed, finding.interval, finding.site, fired, finding.detail)
        same.setdefault(text, []).append((seed, finding))
    return FindingRow(
        rule=first.rule,
        title=first.title,
        outcome=shown_outcome(first),
        state=first.state_text,
        gating=first.gating,
        required=first.required,
        method=method,
        setting=setting,
        said=tuple(_statement(findings, card_metrics, fired) for (*_, fired, _), findings in same.items()),
        limit=first.limit or first.required,
        under="p-value" if first.quantity == RANK else metric_named(first.quantity, card_metrics).under,
    )


def _statement(same: Sequence[tuple[int, Finding]], card_metrics: Known, fired: str | None) -> SeedStatement:
    first, over_long = same[0][1], same[0][1].over_frozen_long
    run_ids = tuple(finding.run_id for _, finding in same)
    kind = kind_of(first.quantity, card_metrics)
    references = dict.fromkeys(finding.reference_run_id for _, finding in same if finding.reference_run_id)
    return SeedStatement(
        seeds=tuple(seed for seed, _ in same),
        run_ids=run_ids,
        sentence=first.sentence,
        observed=Number(first.observed, kind, run_ids),
        interval=first.interval,
        site="" if first.site is None else f"site {first.site}",
        epoch="" if fired is None else f"first fires at epoch {fired}",
        reference_run_ids=tuple(references),
        detail=first.detail,
        level=level_text(first.confidence or CONFIDENCE),
        test=first.test,
        error_shares=first.error_shares,
        basis=first.basis,
        over_frozen_long=over_long and Number(Reading(over_long.mean), kind, run_ids),
        frozen_long_interval=over_long and over_long.interval,
    )
