"""The tables of a reporting form: metrics by seed and site, their findings, and reasons for N/A."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fa_registry.metrics import (
    AGGREGATES,
    DEVIATIONS,
    DIAGNOSTICS,
    FURTHER,
    SHOWN_MEMBERS,
    SITE_TABLES,
    SPREAD,
    TABLES,
    Known,
    Metric,
    families,
    metric_named,
    metrics_of_report,
    other_metrics,
    symbol_of,
)
from fa_registry.protocol.grouping import Group
from fa_registry.protocol.replay_summary import as_logged
from fa_registry.provenance import is_commit
from fa_registry.records import AuditReport, RunAudit, RunRecord, RunSpec
from fa_registry.records.manifest_checks import OWN_LOOP
from fa_registry.records.runs import pairs
from fa_registry.reporting.labels import group_label
from fa_registry.reporting.report_values import Values, site_row
from fa_registry.reporting.text.filters import num
from fa_registry.reporting.view_models import (
    CardLine,
    Cell,
    Entry,
    EntryValue,
    Estimate,
    Row,
    Table,
)

PER_RUN = "One number per run"
OF_MAPS = (
    f"where the state is a map, this table compares sums over its positions; the row {symbol_of('gamma_flat')} of the table "
    "Credit and its null compares flattened maps, the usual convention for convolutions"
)


def site_tables(runs: Sequence[RunAudit], report: AuditReport) -> tuple[Table[Row[Cell]], ...]:
    """Return the tables of metrics by site, without empty tables.

    The tables are: scale and reference, credit and null, perturbation, other metrics.
    """
    card_metrics = metrics_of_report(report)
    measured = (name for run in runs for name in run.record.measurements.sites)
    standard_tables = [(title, [metric_named(name, card_metrics) for name in names]) for title, names in SITE_TABLES]
    tables = (*standard_tables, (FURTHER, other_metrics(measured, card_metrics)))
    built_tables = (_site_table(title, quantities, runs, report) for title, quantities in tables)
    return tuple(table for table in built_tables if table.rows)


def scalar_table(runs: Sequence[RunAudit], report: AuditReport) -> Table[Row[Cell]]:
    """Return the table of metrics with one number per run, such as stability_mid and the weight drift."""
    card_metrics = metrics_of_report(report)
    measured = dict.fromkeys(name for run in runs for name in run.record.measurements.scalars)
    quantities = [metric_named(name, card_metrics) for name in TABLES["run_scalars"] if name in measured]
    quantities += [*other_metrics(measured, card_metrics), *_members(runs, card_metrics)]
    rows = tuple(
        Row(metric.name, tuple(_cell(run, metric) for run in runs), metric.symbol, metric.words)
        for metric in quantities
    )
    names = [quantity.name for quantity in quantities]
    notes = _notes((row.symbol, cell) for row in rows for cell in row.cells)
    return Table(PER_RUN, _seeds(runs), rows, notes, _cards(names, report), _measured(names, runs))


def gamma_table(runs: Sequence[RunAudit], exact: Sequence[int], informative: bool = True) -> Table[Row[Cell]]:
    """Return the table of Γ, with sites as rows and seeds as columns.

    Args:
        runs: One run per seed.
        exact: The sites where Γ is exact by construction.
        informative: True for the table of all other sites, False for the table of the exact sites.
    """
    columns = _seeds(runs)
    sites = [site for site in range(sites_of(runs)) if (site not in exact) == informative]
    rows = tuple(Row(str(site), tuple(_cell(run, metric_named("gamma"), site) for run in runs)) for site in sites)
    notes = _notes((name, row.cells[index]) for index, (name, _) in enumerate(columns) for row in rows)
    has_maps = any(reading.value is not None for run in runs for reading in site_row(run.record, "gamma_flat"))
    notes += (OF_MAPS,) if has_maps and rows else ()
    title_suffix = "" if informative else ", exact by construction"
    return Table(f"{symbol_of('gamma')} per site and seed{title_suffix}", columns, rows, notes)


def sites_of(runs: Sequence[RunAudit]) -> int:
    """Return the number of sites for which the runs recorded Γ, including N/A."""
    return max((len(site_row(run.record, "gamma")) for run in runs), default=0)


def _seeds(runs: Sequence[RunAudit]) -> tuple[tuple[str, str], ...]:
    return tuple((f"seed {run.record.spec.seed}", run.record.run_id) for run in runs)


def first_fires(runs: Sequence[RunAudit]) -> tuple[Row[str], ...]:
    """Return the epochs at which each rule first fired, one per seed, without rules that never fired."""
    rules = {finding.rule: finding.title for run in runs for finding in run.findings if finding.first_fire is not None}
    return tuple(Row(rule, tuple(_epoch(run, rule) for run in runs), words=title) for rule, title in rules.items())


def _epoch(run: RunAudit, rule: str) -> str:
    epochs = [finding.first_fire for finding in run.findings if finding.rule == rule]
    return "never" if not epochs or epochs[0] is None else f"epoch {epochs[0]}{as_logged(run.record)}"


def _site_table(
    title: str, quantities: Iterable[Metric], runs: Sequence[RunAudit], report: AuditReport
) -> Table[Row[Cell]]:
    visible_metrics = [metric for metric in quantities if _is_shown(metric, runs)]
    sites = max((len(site_row(run.record, metric.name)) for metric in visible_metrics for run in runs), default=0)
    groups = tuple(
        Row(metric.name, (), metric.symbol, metric.words, rows=tuple(_seed_row(metric, run, sites) for run in runs))
        for metric in visible_metrics
    )
    notes = _notes((group.symbol, cell) for group in groups for row in group.rows for cell in row.cells)
    names = [metric.name for metric in visible_metrics]
    columns = tuple((f"site {site}", "") for site in range(sites))
    return Table(title, columns, groups, notes, _cards(names, report), _measured(names, runs))


def _is_shown(quantity: Metric, runs: Sequence[RunAudit]) -> bool:
    lines = [site_row(run.record, quantity.name) for run in runs]
    if quantity.valued:
        return any(reading.value is not None for line in lines for reading in line)
    return quantity.always or any(lines)


def _seed_row(quantity: Metric, run: RunAudit, sites: int) -> Row[Cell]:
    cells = tuple(_cell(run, quantity, site) for site in range(sites))
    return Row(str(run.record.spec.seed), cells, run_ids=(run.record.run_id,))


def _cell(run: RunAudit, metric: Metric, site: int | None = None) -> Cell:
    """Return a metric at a site with the finding about it; a site of None means the whole run."""
    about = (one for one in run.findings if one.quantity == metric.name and one.site == site and one.state)
    finding = next(about, None)
    deviation = None
    if site is not None and metric.name in DEVIATIONS:
        deviation = Values().value(run, replace(metric, name=DEVIATIONS[metric.name]), site)
    deviation = deviation if deviation and deviation.reading.value is not None else None
    judged = (finding.state, finding.outcome) if finding else ("", "")
    return Cell(Values().value(run, metric, site), *judged, deviation)


def _members(runs: Sequence[RunAudit], card_metrics: Known) -> Iterator[Metric]:
    """Yield the metrics with the largest values in each family.

    The names of all metrics of a family have the same prefix.
    """
    for family in (metric.family for metric in families(card_metrics)):
        largest: dict[str, float] = {}
        for run in runs:
            for name, reading in run.record.measurements.scalars.items():
                if name.startswith(family) and reading.value is not None:
                    largest[name] = max(reading.value, largest.get(name, reading.value))
        largest_names = sorted(largest, key=lambda name: (-largest[name], name))[:SHOWN_MEMBERS]
        yield from (metric_named(name, card_metrics) for name in largest_names)


def _cards(names: Sequence[str], report: AuditReport) -> tuple[CardLine, ...]:
    lines = []
    for card in (card for key, card in report.cards.items() if key.startswith(DIAGNOSTICS)):
        quantities = [str(quantity) for quantity in card.get("quantities", ())]
        families = tuple(quantity.removesuffix("*") for quantity in quantities if quantity.endswith("/*"))
        if any(name in quantities or name.startswith(families) for name in names):
            lines.append(CardLine(*(str(card.get(field, "")) for field in ("symbol", "line", "cannot_tell"))))
    return tuple(lines)


def _measured(names: Sequence[str], runs: Sequence[RunAudit]) -> str:
    """Return a text that states how these metrics were measured.

    The text contains what the runs recorded. The cards of diagnostics describe only the present code.
    """
    texts = {}
    for run in runs:
        named = ((name, name.rpartition("_")[0]) for name in run.record.measurements.conventions)
        about = [name for name, prefix in named if prefix and any(f"{one}_".startswith(f"{prefix}_") for one in names)]
        conventions = {name: run.record.measurements.conventions[name] for name in about}
        texts |= {description(conventions): None} if conventions else {}
    return "; ".join(texts)


def _notes(cells: Iterable[tuple[str, Cell]]) -> tuple[str, ...]:
    reasons = ((name, cell.number.reading.reason) for name, cell in cells)
    return tuple(dict.fromkeys(f"{name}: {reason}" for name, reason in reasons if reason))


def aggregates(runs: Sequence[RunAudit]) -> Iterator[Row[Estimate]]:
    """Yield Γ for every aggregation over sites and samples, and the spread of Γ over these aggregations."""
    for name in (*AGGREGATES, SPREAD):
        quantity = metric_named(name)
        yield Row(name, (Values().estimate(runs, quantity),), words=quantity.words)


NOT_RECORDED = "not recorded"
DECLARED = {  # field of a method's card → the entry's text if the field is true
    "needs_autograd": ("Autograd", "this method's credit rule is allowed to call autograd on the network"),
    "may_reach_bp": (
        "Backpropagation",
        "this method's credit can become equal to that of backpropagation while the feedback learns",
    ),
}


def identification(group: Group, report: AuditReport) -> tuple[Entry, ...]:
    """Return the entries of the first section of a reporting form, in order."""
    records = [run.record for run in group.runs]
    first = records[0].spec
    method = card(report, "methods", first.method)
    return (
        entry("Method", group_label(group)),
        entry("Setting", group.setting),
        entry("Rule", description(method.get("rule"))),
        entry("Source", description(method.get("citation"))),
        *_architecture(records, report),
        *_data(records, report),
        entry("Seeds", ", ".join(str(record.spec.seed) for record in records)),
        entry("Feedback", description(method.get("feedback"))),
        *([entry("Prediction", method["prediction"])] if method.get("prediction") else []),
        *(entry(term, text) for name, (term, text) in DECLARED.items() if method.get(name)),
        *_anchor_steps(method.get("anchor_steps", ""), first.method_options),
        each("Feedback file", records, _feedback),
        entry("Recipe", _recipe(first, method.get("credit_scale", ""))),
        each("Hardware", records, lambda record: description(record.provenance.get("hardware"))),
        each("Threads", records, lambda record: description(record.provenance.get("threads"))),
        each("Versions", records, _versions),
        each("Commit", records, _commit),
        *_statement("Commit of fa_registry", records, _commit_of_package),
        *_statement("Code", records, _code),
        *_statement("Conformance", records, _conformance),
        *_statement("Resumed", records, _resumed),
        *_statement("Adopted", records, _adopted),
        *_statement("Loss", records, _loss),
        each("Eval batch", records, _eval_batch),
        each("Measured", records, lambda record: description(record.measurements.conventions)),
    )


def _architecture(records: Sequence[RunRecord], report: AuditReport) -> Iterator[Entry]:
    spec = records[0].spec
    line = card(report, "architectures", spec.architecture).get("line")
    yield entry("Architecture", f"{spec.architecture}: {line}" if line else spec.architecture)
    yield entry("Architecture options", pairs(spec.architecture_options).replace(",", ", ") or "the defaults")
    terminal = spec.architecture_options.get("terminal_ln")
    kind = "no, an RMSNorm" if spec.architecture_options.get("norm") == "rms" else "yes"
    yield entry("LayerNorm before the head", NOT_RECORDED if terminal is None else kind if terminal else "no")
    yield each("Parameters", records, lambda record: description(record.provenance.get("parameters")))


def _data(records: Sequence[RunRecord], report: AuditReport) -> Iterator[Entry]:
    name = records[0].spec.dataset
    data = card(report, "datasets", name)
    yield entry("Data set", f"{name}: {data['line']}" if data.get("line") else name)
    for term in ("source", "licence", "splits", "normalisation", "augmentation"):
        if data.get(term):
            yield entry(f"Data {term}", description(data[term]))
    yield each("Data digest", records, lambda record: description(record.provenance.get("dataset_digest")))


def card(report: AuditReport, family: str, name: str) -> Mapping[str, Any]:
    """Return the card of a plug-in of the kind `family`, such as `methods`, or an empty mapping."""
    return report.cards.get(f"{family}/{name}", {})


def entry(term: str, text: str) -> Entry:
    return Entry(term, (EntryValue(text),))


def each(term: str, records: Sequence[RunRecord], describe: Callable[[RunRecord], str]) -> Entry:
    """Return an entry with one value if all runs agree, else with every value and the ids of its runs."""
    runs_by_text: dict[str, list[str]] = {}
    for record in records:
        runs_by_text.setdefault(describe(record), []).append(record.run_id)
    if len(runs_by_text) == 1:
        return entry(term, next(iter(runs_by_text)))
    return Entry(term, tuple(EntryValue(text, tuple(ids)) for text, ids in runs_by_text.items()))


def description(value: Any) -> str:
    """Return a recorded value as text: `key value · key value` for a mapping, 1,000 for an integer."""
    if value is None or value == "" or value == {} or value == ():
        return NOT_RECORDED
    if isinstance(value, Mapping):
        return " · ".join(f"{key} {description(item)}" for key, item in value.items() if item not in (None, ""))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return num(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(description(item) for item in value)
    return str(value)


def _feedback(record: RunRecord) -> str:
    feedback = record.feedback
    if not feedback.get("sha256"):
        return "none saved"
    tensors = feedback.get("tensors") or {}
    shapes = "; ".join(f"{name} {tuple(shape)}" for name, shape in sorted(tensors.items()))
    origin = f"{feedback.get('distribution', NOT_RECORDED)} · seed {feedback.get('seed', NOT_RECORDED)}"
    return f"sha256 {feedback['sha256']} · {origin} · {shapes}"


def _recipe(spec: RunSpec, credit_scale: str) -> str:
    if spec.is_tracked:
        return f"as in the user's training loop · epochs {spec.epochs} · device {spec.device_class}"
    recipe = spec.recipe
    scale = f" (ε in units of the {credit_scale} loss)" if credit_scale and recipe.credit_norm != "none" else ""
    text = (
        f"{recipe.optimizer}, learning rate {recipe.learning_rate:g}, weight decay {recipe.weight_decay:g}, "
        f"{recipe.schedule} schedule, batch {recipe.batch_size}, credit norm {recipe.credit_norm}{scale}, "
        f"{spec.epochs} epochs, {spec.precision} on {spec.device_class}"
    )
    text = ", ".join([text, *(f"{name} {value}" for name, value in recipe.further.items())])
    text += f", residual penalty λ = {spec.penalty:g}" if spec.penalty else ", no residual penalty"
    return f"{text}, embedding penalty λ_0 = {spec.penalty_embedding:g}" if spec.penalty_embedding else text


def _versions(record: RunRecord) -> str:
    versions = {name: record.provenance.get(name) for name in ("fa_registry", "python")}
    versions |= record.provenance.get("versions") or {}
    return description({name: value for name, value in versions.items() if value})


def _commit(record: RunRecord) -> str:
    """Return the commit of the code that trained the run: of the user's script, or of this package."""
    loop = record.provenance.get(OWN_LOOP)
    return f"{commit_in(loop)}: script {loop.get('script')}" if loop else commit_in(record.provenance)


def _commit_of_package(record: RunRecord) -> str:
    return commit_in(record.provenance) if OWN_LOOP in record.provenance else ""


def commit_in(fields: Mapping[str, Any]) -> str:
    """Return a recorded commit and the state of its working tree, or why no commit is known."""
    commit, dirty = fields.get("commit"), fields.get("dirty")
    if not is_commit(commit):
        return description(commit)
    return f"{commit} ({'tree unknown' if dirty is None else 'tree was DIRTY' if dirty else 'clean tree'})"


def _code(record: RunRecord) -> str:
    """Return a text on the code that trained the run, or "" for adopted runs."""
    texts = []
    for name, entry in record.provenance.get("code", {}).items() if not record.spec.weights else ():
        plugin, text = name.partition("/")[2], f"version {entry.get('version')}"
        if "digest" in entry:
            release = " ".join(f"{entry.get('package')} {entry.get('version')}".split())
            text = f"of package {release}, source sha256 {entry['digest']}"
        if "digest" in entry or not name.startswith("diagnostics/"):
            texts.append(f"{plugin} {text}")
    return " · ".join(texts)


def _conformance(record: RunRecord) -> str:
    """Return the result of the conformance suite, or "" for a built-in method whose sign is tested."""
    conformance = record.conformance
    if conformance is None:
        return ""
    sign = "sign not tested" if conformance.sign == "not tested" else ""
    if conformance.state == "own":
        return sign
    location = f" on {conformance.architecture}" if conformance.architecture else ""
    return f"{conformance.state}{location}" + "".join(
        f"{mark}{text}" for mark, text in ((", ", sign), (": ", "; ".join(conformance.failures))) if text
    )


def _statement(term: str, records: Sequence[RunRecord], describe: Callable[[RunRecord], str]) -> Iterator[Entry]:
    """Apply `describe` to each run and yield an entry with the texts; skip an entry without text."""
    values = tuple(value for value in each(term, records, describe).values if value.text)
    if values:
        yield Entry(term, values)


def _anchor_steps(text: str, options: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield an entry about anchor steps, if the method's card describes such steps."""
    if text:
        yield entry("Anchor steps", f"anchor_every = {options.get('anchor_every', NOT_RECORDED)}: {description(text)}")


def _resumed(record: RunRecord) -> str:
    epoch = record.provenance.get("resumed_from") or 0
    return f"resumed after epoch {epoch}" if epoch > 0 else ""


def _adopted(record: RunRecord) -> str:
    origin = record.provenance.get("origin")
    return description(origin) if origin else ""


def _loss(record: RunRecord) -> str:
    """Return the loss that the author of a user-supplied loop named, or ""."""
    loop = record.provenance.get(OWN_LOOP, {})
    function = f" {loop['loss_function']}" if "loss_function" in loop else ""
    return f"{loop['loss']}{function}, as named by the author of the loop" if "loss" in loop else ""


def _eval_batch(record: RunRecord) -> str:
    """Return the number and the index range of the measured test samples as text."""
    indices = record.provenance.get("eval_indices")
    if not indices:
        return NOT_RECORDED
    lowest, highest = min(indices), max(indices)
    if len(indices) == 1:
        return f"1 sample, index {lowest}"
    is_range = len(set(indices)) == highest - lowest + 1
    return f"{num(len(indices))} samples, indices {'' if is_range else 'between '}{lowest} {'to' if is_range else 'and'} {highest}"
