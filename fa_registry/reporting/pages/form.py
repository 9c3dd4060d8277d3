"""The reporting form of one method in one setting."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from fa_registry import bundled_files
from fa_registry.errors import UsageError
from fa_registry.metrics import HEADLINE_GAMMA, SUBJECTS, TABLES, Metric, headline_of, metric_named, table
from fa_registry.protocol.credit import exact_sites
from fa_registry.protocol.grouping import Group
from fa_registry.protocol.replay_summary import nonce_text, series_label
from fa_registry.provenance import is_commit
from fa_registry.records import AuditReport, EditionReference, Exclusion, RunAudit, RunRecord, Verdict
from fa_registry.records.manifest_checks import OWN_LOOP
from fa_registry.reporting.citations import Bibliography, bibliography
from fa_registry.reporting.claims import claims
from fa_registry.reporting.claims_depth import Sampling, sampling
from fa_registry.reporting.figure_models import PageFigure
from fa_registry.reporting.labels import command, control_of, group_label, train_line
from fa_registry.reporting.pages.form_tables import (
    aggregates,
    card,
    commit_in,
    description,
    first_fires,
    gamma_table,
    identification,
    scalar_table,
    site_tables,
    sites_of,
)
from fa_registry.reporting.pages.form_tiles import Tile, answers
from fa_registry.reporting.pages.published_values import ReproductionTable, reproduction_table
from fa_registry.reporting.pitfalls import Pitfall, pitfalls
from fa_registry.reporting.report_index import EvidenceRow, Sources, evidence
from fa_registry.reporting.report_values import (
    Values,
    control_rows,
    control_text,
    finding_rows,
    seed_row,
    text_entropies,
)
from fa_registry.reporting.view_models import (
    Blank,
    Cell,
    Claim,
    ControlRow,
    Difference,
    Entry,
    Estimate,
    FindingRow,
    JudgedBy,
    Link,
    Number,
    Row,
    SeedRow,
    Table,
)

PROMPTS = {  # key of a blank: its title, and the question to the author
    "motivation": ("Motivation", "Why this method, in this setting? What was expected before the runs?"),
    "claim": ("Claim wording", "The sentence that the paper will print. It must not exceed the claims above."),
    "limitations": ("Known limitations", "What these runs cannot show."),
}
EXACT = {
    "all": "every site",
    "last": "the last site L (the last block is trained as with backpropagation, so depth utility is measured against the "
    "control ladder_1, which trains only this block)",
    "none": "none",
}


def form_context(
    group: Group,
    link: Link,
    sources: Sources,
    blank_texts: Mapping[str, str] = MappingProxyType({}),
    figures: Mapping[str, PageFigure] = MappingProxyType({}),
) -> FormContext:
    """Return the template variables of the reporting form of one group: a method in a setting.

    The mapping `blank_texts` is: name of a blank → text that the author wrote into an earlier form; `figures` is: topic of a tile
    → its figure.
    """
    report, label, setting = sources.report, group_label(group), group.setting
    # the form shows metrics with one number per run in a separate table
    columns = tuple(column for column in sources.columns if column.name not in TABLES["run_scalars"])
    headline = headline_of(group.runs[0].record.measurements)
    estimates = {
        name: sources.values.estimate(group.runs, metric_named(name, sources.known))
        for name in table("form", [headline])
    }
    method = card(report, "methods", group.runs[0].record.spec.method)
    exact = exact_sites(method, sites_of(group.runs))
    compared = sources.compared(group, link.href)
    supervised = sources.deep_supervision(group) if method.get("local_heads") else []
    opinions = _opinions(group, compared.verdicts, sources)
    excluded = sources.excluded(group)
    controls = control_rows(group.runs, sources.values)
    judged = (run for _, runs in sources.judgements_of(group) for run in runs)
    answer, tiles = answers(group, sources, figures)
    return FormContext(
        title=f"{label} — {setting}",
        method=label,
        setting=setting,
        edition=report.edition,
        verdict=group.verdict,
        replays=sources.replays(group),
        nonce=nonce_text(report.replay),
        series_label=series_label([run.record.integrity for run in group.runs]),
        opinions=opinions,
        differences=compared.why,
        columns=columns,
        seeds=tuple(seed_row(run, sources.values, columns) for run in group.runs),
        duplicates=tuple(seed_row(run, sources.values, ()) for run in group.duplicates),
        controls=controls,
        control_state=control_text(controls),
        identification=identification(group, report),
        evidence=evidence(group.runs, excluded),
        equations=description(method.get("equations")),
        deviations=tuple(method.get("deviations", ())),
        headline=headline.metric,
        accuracy=estimates[headline.name],
        sampling=sampling(group.runs),
        text_entropies=text_entropies(group.runs),
        frozen=estimates[headline.frozen],
        margin=estimates[headline.margin],
        frozen_scale=sources.values.frozen_scale(group.runs),
        shallow=sources.values.estimate(sources.shallow(group), headline.metric),
        deep_supervision=sources.values.estimate(supervised, headline.metric),
        over_deep_supervision=sources.values.margin_over(group.runs, supervised),
        depth=tuple(_depth(opinions[0].findings, group.runs)),
        gamma=estimates[HEADLINE_GAMMA],
        aggregates=tuple(aggregates(group.runs)),
        gamma_sites=gamma_table(group.runs, exact),
        gamma_exact=gamma_table(group.runs, exact, informative=False),
        exact_sites=EXACT.get(str(method.get("exact_sites")), "unknown, because the method has no card"),
        diagnostics=site_tables(group.runs, report),
        scalars=scalar_table(group.runs, report),
        first_fires=first_fires(group.runs),
        findings=opinions[0].findings,
        answer=answer,
        tiles=tiles,
        claims=claims(group.runs, excluded, card=method, left_out=sources.left_out(group)),
        excluded=excluded,
        pitfalls=pitfalls(group, sources),
        reproduction=reproduction_table(report.reproduction, [run.record.run_id for run in group.runs]),
        completing=completion_commands(group.runs, excluded, report),
        commands=lines(group.runs, report, sources.values),
        bibliography=bibliography(group.runs, [finding for run in judged for finding in run.findings], report),
        blanks=blanks(blank_texts),
    )


def _opinions(group: Group, verdicts: Sequence[Verdict], sources: Sources) -> tuple[JudgedBy, ...]:
    judgements, label = sources.judgements_of(group), group_label(group)
    rows = (finding_rows(runs, label, group.setting, sources.known) for _, runs in judgements)
    return tuple(map(JudgedBy, sources.editions, verdicts, rows))


def _depth(findings: Sequence[FindingRow], runs: Sequence[RunAudit]) -> Iterator[FindingRow]:
    rules = {finding.rule for run in runs for finding in run.findings if finding.quantity in SUBJECTS["depth"]}
    return (row for row in findings if row.rule in rules and row.state)


def blanks(blank_texts: Mapping[str, str]) -> tuple[Blank, ...]:
    """Return the blanks of the form, which only the author can fill, with the texts of an earlier form.

    The mapping is: name of a blank → text of the author. Blanks that the present template does not define are kept if they contain
    a text.
    """
    standard_blanks = [Blank(key, title, prompt, blank_texts.get(key, "")) for key, (title, prompt) in PROMPTS.items()]
    older = ((key, text) for key, text in blank_texts.items() if key not in PROMPTS and text)
    return (*standard_blanks, *(Blank(key, key, "Kept from an earlier form.", text) for key, text in older))


@dataclass(frozen=True)
class FormContext:
    """form.md.j2 and form.html.j2: reporting form of a method in a setting."""

    title: str
    """method and setting"""
    method: str
    """the method's label"""
    setting: str
    """the setting's readable name"""
    edition: EditionReference
    """the edition (set of rules) that judged the runs"""
    verdict: Verdict
    """verdict on all seeds together, with its level of proof"""
    replays: str
    """how many trainings the audit replayed, and the levels of proof of the controls"""
    nonce: str
    """sentence on a typed nonce and on earlier audits of the runs; empty if this audit drew a nonce and is the first one"""
    series_label: str
    """number of values that the author stated and the audit did not recompute (curves, epochs of first fire, training
    values); empty if there are no such values"""
    opinions: tuple[JudgedBy, ...]
    """every edition with its verdict on all seeds together, and its judgements; the leading edition is first"""
    differences: tuple[Difference, ...]
    """the subjects that the editions judge differently, with the findings of each edition"""
    columns: tuple[Metric, ...]
    """the numeric columns of the table of seeds"""
    seeds: tuple[SeedRow, ...]
    """one row per seed: run, status, verdict and headline numbers"""
    duplicates: tuple[SeedRow, ...]
    """further runs of the seeds in this form; only the newest complete run of a seed counts"""
    controls: tuple[ControlRow, ...]
    """the frozen control of each seed: its run, integrity and checks, and the reason if it is not proven to be frozen"""
    control_state: str
    """level of proof of the frozen controls, such as `control started`, or the reason why a control is not proven to be frozen"""
    identification: tuple[Entry, ...]
    """what was run: method, architecture, data, recipe, machine"""
    evidence: tuple[EvidenceRow, ...]
    """comparisons with the recorded digests, one line per subject: how many runs agree, differ or could not be compared"""
    equations: str
    """the equations that the method implements, from its card"""
    deviations: tuple[str, ...]
    """numbered deviations from the source, according to the method's card"""
    headline: Metric
    """declaration of the task's main metric: symbol, label, number format"""
    accuracy: Estimate
    """the main metric over seeds, on the whole test set; for classification, it is the accuracy, in the unit of the
    main metric"""
    sampling: Sampling | None
    """Wilson's 95 % interval of the accuracy, from the size of the test set; none if this size is unknown; in fractions of 1"""
    text_entropies: tuple[Row[Number], ...]
    """unigram and bigram entropy of the training text, to compare a loss per token with; empty for other tasks"""
    frozen: Estimate
    """the main metric of the frozen controls; a control is paired with the run of the same seed, in the unit of the
    main metric"""
    margin: Estimate
    """margin of the runs over the frozen controls with the same seeds; positive if the runs are better; in percentage
    points, or nats"""
    frozen_scale: Estimate
    """factor by which the blocks of the frozen controls change the length of the stream, ‖h_L‖/‖h_0‖"""
    shallow: Estimate
    """the main metric of the controls without blocks (shallow) with the same seeds"""
    deep_supervision: Estimate
    """for a method with local heads, the main metric of the controls deep_supervision with the same seeds, which bp trains with
    the same heads"""
    over_deep_supervision: Estimate
    """margin of the runs over the controls deep_supervision, paired by seed; in percentage points, or nats"""
    depth: tuple[FindingRow, ...]
    """the leading edition's findings on the margin over the frozen control, in percentage points, or nats"""
    gamma: Estimate
    """the headline Γ, gamma_deep_mean, a cosine"""
    aggregates: tuple[Row[Estimate], ...]
    """Γ with each aggregation, and the spread of these values"""
    gamma_sites: Table[Row[Cell]]
    """Γ of every seed at the sites where the credit is not exact by construction; always shown"""
    gamma_exact: Table[Row[Cell]]
    """Γ of every seed at the sites where the credit is exact by construction; collapsed on the page"""
    exact_sites: str
    """sites whose credit equals the gradient by construction, so Γ = 1 is no evidence there"""
    diagnostics: tuple[Table[Row[Cell]], ...]
    """every metric by seed and site"""
    scalars: Table[Row[Cell]]
    """the metrics with one number per run, such as stability and drift"""
    first_fires: tuple[Row[str], ...]
    """for each rule and seed, the epoch at which the rule first fired"""
    findings: tuple[FindingRow, ...]
    """every rule's judgement; seeds with the same judgement are grouped"""
    excluded: tuple[Exclusion, ...]
    """selected runs of this method in this setting that were not judged, with the reasons; shown next to the headline"""
    answer: str
    """what training the blocks did, and whether Γ may be claimed, in at most two sentences; empty without claims"""
    tiles: tuple[Tile, ...]
    """the answers for Γ, depth and scale, each with its value, requirement and small figure (HTML)"""
    claims: tuple[Claim, ...]
    """the claims that the runs support, and the claims that they do not support"""
    pitfalls: tuple[Pitfall, ...]
    """the checklist of known pitfalls; the answer to each item, with the evidence from the records"""
    reproduction: ReproductionTable | None
    """the published values with which these runs were compared; none if the study has no reference.toml"""
    completing: tuple[str, ...]
    """the command lines that train the missing runs and repeat the audit; none if no run is missing (shell)"""
    commands: tuple[str, ...]
    """the command lines that retrain these runs and their frozen controls from their commits, and audit these runs (shell)"""
    bibliography: Bibliography
    """citations of everything used: method, architecture, data, diagnostics whose metrics were judged, editions, this
    software (BibTeX)"""
    blanks: tuple[Blank, ...]
    """texts that only the author can write, kept when the form is rendered again (Markdown)"""


OPENING = re.compile(r"<!-- fa:blank ([\w-]+) -->")
CLOSING = "<!-- /fa:blank -->"
WHOLE = re.compile(r"<!-- fa:blank ([\w-]+) -->\n?(.*?)\n?<!-- /fa:blank -->", re.DOTALL)


def read_blanks(form: Path) -> dict[str, str]:
    """Return name → text of the blanks of an existing form, or an empty mapping if there is no form.

    Raises:
        UsageError: The blanks cannot be read, so rewriting the form would lose the texts.
    """
    if not form.is_file():
        return {}
    try:
        return _written(form.read_text(encoding="utf-8"), str(form))
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{form}: the texts in its blanks cannot be kept: expected UTF-8, found {error.reason} at byte {error.start}; "
            "save it as UTF-8 or move the file away"
        ) from error


def check_blanks_kept(blank_texts: Mapping[str, str], page: str, form: Path) -> None:
    """Check that a new page contains every text that the author wrote into the replaced form.

    The keys of `blank_texts` are the names of the blanks.

    Raises:
        UsageError: The new page lacks a text.
    """
    kept_texts = _written(page, f"{form} as it would be rewritten") if any(blank_texts.values()) else {}
    lost_keys = [key for key, text in blank_texts.items() if text and kept_texts.get(key) != text]
    if lost_keys:
        raise UsageError(
            f"{form}: the texts that the author wrote into {', '.join(lost_keys)} would be lost: expected these texts in the same "
            "blanks of the new page, found other texts. Change the template form.md.j2 so that it writes every blank with its "
            "markers, or move the file away"
        )


def _written(text: str, subject: str) -> dict[str, str]:
    """Return a mapping from the name of each blank of a form to its text.

    Raises:
        UsageError: The markers of the blanks are repeated, nested or not closed.
    """
    opened, closed = OPENING.findall(text), text.count(CLOSING)
    blanks_found = WHOLE.findall(text)
    once = len(set(opened)) == len(opened) == closed and [name for name, _ in blanks_found] == opened
    if not once or any(OPENING.search(body) for _, body in blanks_found):
        raise UsageError(
            f"{subject}: the texts in its blanks cannot be kept: expected every '<!-- fa:blank NAME -->' exactly once, "
            f"followed by one '{CLOSING}', found the opening markers of {', '.join(opened) or 'none'} and {closed} closing "
            "markers; repair the markers or move the file away"
        )
    return {name: body.strip("\n") for name, body in blanks_found}


def lines(runs: Sequence[RunAudit], report: AuditReport, values: Values) -> tuple[str, ...]:
    """Return the shell commands (POSIX) that reproduce the runs and the audit.

    Everything that no command can reproduce is listed in a comment (#).
    """
    controls = dict.fromkeys(run.frozen_run_id for run in runs if run.frozen_run_id)
    records = [run.record for run in runs] + [values.runs[run_id] for run_id in controls if run_id in values.runs]
    by_checkout: dict[str, list[RunRecord]] = {}
    for record in records:
        by_checkout.setdefault(_checkout(record), []).append(record)
    packages = dict.fromkeys(line for record in records for line in _packages(record))
    trained = []
    for checkout, checkout_records in by_checkout.items():
        trained.append(checkout)
        for record in checkout_records:
            note = "  # the frozen control" if record.spec.control == "frozen" else ""
            trained.append(f"{command(record.spec)}{note}")
    absent = [f"# frozen control {run_id}: not part of this report" for run_id in controls if run_id not in values.runs]
    return (*packages, *trained, *absent, _audit(report))


MOST_COMPLETING = 12  # maximum number of training commands; further runs are only counted


def completion_commands(
    runs: Sequence[RunAudit], excluded: Sequence[Exclusion], report: AuditReport
) -> tuple[str, ...]:
    """Return the commands that train the missing runs and repeat the audit, or () if no run is missing.

    If the runs belong to a study, the command of the study trains all runs that the store lacks. If a finished run must be trained
    again, the command for this run has the option --force. Training does not help if the metrics of a run cannot be recomputed, for
    example because its data are not available. For such a run, the result contains a comment with the reason.
    """
    broken = [_comment(run.frozen_doubt) for run in runs if run.frozen_doubt and not run.frozen_run_id]
    broken += [_comment(f"no command repairs {one.name}: {one.reason}") for one in excluded if one.kind == "broken"]
    excluded = [exclusion for exclusion in excluded if exclusion.kind != "broken"]
    gaps = [run for run in runs if run.verdict.outcome == "incomplete"]
    absent = [exclusion.spec for exclusion in excluded if exclusion.spec and exclusion.kind != "integrity"]
    absent += [control_of(run.record.spec) for run in gaps if not run.frozen_run_id and not run.frozen_doubt]
    retrain_specs = [exclusion.spec for exclusion in excluded if exclusion.spec and exclusion.kind == "integrity"]
    retrain_specs += [run.record.spec for run in gaps if run.frozen_run_id]
    study = report.choice.study if report.choice else ""
    training = [train_line(spec, study) for spec in absent]
    if (absent or not all(exclusion.spec for exclusion in excluded)) and (options := _chosen(report)):
        training = [_remarked(f"fa-registry study {' '.join(options)}", [_whose_file(study)])]
    training = list(dict.fromkeys([*training, *(train_line(spec, study, force=True) for spec in retrain_specs)]))
    audit = [_audit(report)] if training else []
    training += broken
    remaining = len(training) - MOST_COMPLETING
    overflow_note = [f"# and {remaining} more runs, listed in audit.json"] if remaining > 0 else []
    return (*training[:MOST_COMPLETING], *overflow_note, *audit)


def _whose_file(study: str) -> str:
    """Return a remark that the path of a user's study.toml is needed, or "" for a built-in study."""
    shipped = {path.parent.name for path in bundled_files.projects().glob("*/study.toml")}
    return "" if study in shipped else f"{study}: replace this name with the path of the study's study.toml"


def _checkout(record: RunRecord) -> str:
    """Return the command that checks out the commit of the run.

    If the commit is not known, return a comment with the version of this package. For a run of a user-supplied loop, return a
    comment with the commit of the user's script.
    """
    if loop := record.provenance.get(OWN_LOOP):
        return _comment(f"script {loop.get('script')}: commit {commit_in(loop)}")
    commit, dirty = record.provenance.get("commit"), record.provenance.get("dirty")
    if not is_commit(commit):
        version = record.provenance.get("fa_registry") or (record.provenance.get("versions") or {}).get("fa_registry")
        return _comment(f"commit: {commit or 'not recorded'}; fa_registry {version or 'of a version not recorded'}")
    line = f"git checkout {shlex.quote(str(commit))}"
    if dirty:
        return f"{line}  # the working tree was DIRTY: the changes after this commit were not recorded"
    return line if dirty is False else f"{line}  # it is not known whether the working tree was clean"


def _packages(record: RunRecord) -> Iterator[str]:
    """Yield the commands that install the third-party packages of a run.

    A comment contains the digest of the source code, because another package with the same version number may contain other code.
    """
    for name, entry in record.provenance.get("code", {}).items():
        if "digest" in entry:
            member = _comment(f"{name}: source sha256 {entry['digest']}")
            release = " ".join(f"{entry.get('package')}=={entry.get('version')}".split())
            yield member if OWN_LOOP in record.provenance else f"pip install {shlex.quote(release)}  {member}"


def _audit(report: AuditReport) -> str:
    editions = [report.edition.name, *(opinion.edition.name for opinion in report.opinions)]
    options, remarks = ["--run RUN"], ["RUN: the id of each run that the lines above created"]
    if study_options := _chosen(report):
        options, remarks = ["--study", *study_options], [_whose_file(report.choice.study)]
    options.append(f"--{'editions' if len(editions) > 1 else 'edition'} {shlex.quote(','.join(editions))}")
    options += [f"--threshold {shlex.quote(f'{name}={value}')}" for name, value in report.edition.overrides.items()]
    if report.waivers:
        options.append("--waivers waivers.toml")
        remarks.append("with the waivers.toml that contains this report's waivers")
    return _remarked(f"fa-registry audit {' '.join(options)}", remarks)


def _chosen(report: AuditReport) -> list[str]:
    choice = report.choice
    if choice is None or not choice.study:
        return []
    options = [f"--{name} {shlex.quote(value.replace(', ', ','))}" for name, value in choice.asked.items()]
    device = [f"--device {shlex.quote(run.record.spec.device_class)}" for run in report.runs[:1]]
    return [shlex.quote(choice.study), *options, *device]


def _remarked(line: str, remarks: Sequence[str]) -> str:
    reported = "; ".join(filter(None, remarks))
    return f"{line}  {_comment(reported)}" if reported else line


def _comment(text: str) -> str:
    """Return a shell comment in one line; a second line would be executed."""
    return f"# {' '.join(text.split())}"


# A link into the folder of the audit's pages. Links within the page (#) or to another host are not matched, and remain valid.
RELATIVE_LINK = re.compile(r"<a\b[^>]*\bhref=\"(?!#|[a-z]+:)[^\"]*\"[^>]*>(.*?)</a>", re.DOTALL)


def inline_assets(page: str) -> str:
    """Return the page with every relative link replaced by the text of the link."""
    return RELATIVE_LINK.sub(r"\1", page)


def placeholder_form(note: str) -> str:
    """Return the page with a note on a run that is no longer judged, which replaces the run's older form."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>NOT JUDGED</title></head>'
        f'<body><main><h1>NOT JUDGED</h1><p style="white-space: pre-wrap">{html.escape(note)}</p></main></body></html>\n'
    )
