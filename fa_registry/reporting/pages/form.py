"""From one group of runs to its reporting form, and from one run to its note."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fa_registry import bundled_files
from fa_registry.errors import UsageError
from fa_registry.metrics import HEADLINE_GAMMA, NEIGHBOUR_CONTROL, RUN_SCALARS, SUBJECTS, quantity_of
from fa_registry.protocol.credit import exact_sites, is_exact
from fa_registry.protocol.grouping import Group
from fa_registry.protocol.replayed import series_label
from fa_registry.protocol.verdict import combine_verdicts
from fa_registry.provenance import NOT_A_CHECKOUT
from fa_registry.records import AuditReport, EditionReference, Exclusion, RunAudit, RunRecord, Verdict
from fa_registry.reporting.citations import Bibliography, bibliography
from fa_registry.reporting.claims import claims
from fa_registry.reporting.claims_depth import Sampling, sampling
from fa_registry.reporting.labels import command, control_of, group_label, train_line
from fa_registry.reporting.pages import reproduction
from fa_registry.reporting.pages.form_tables import (
    NOT_RECORDED,
    UNKNOWN,
    aggregates,
    card,
    description,
    first_fires,
    gamma_table,
    identification,
    scalar_table,
    sealed_code,
    site_tables,
    sites_of,
)
from fa_registry.reporting.pages.reproduction import ReproductionTable
from fa_registry.reporting.pitfalls import Pitfall, pitfalls
from fa_registry.reporting.report_index import EvidenceRow, Sources, evidence
from fa_registry.reporting.report_values import (
    Frozen,
    control_rows,
    control_text,
    figure_estimate,
    finding_rows,
    seed_row,
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
    FirstFire,
    JudgedBy,
    Link,
    MetricSummary,
    Row,
    RowGroup,
    SeedRow,
    Table,
    documented,
)

PROMPTS = {  # key of a blank: its title, and what a person is asked
    "motivation": ("Motivation", "Why this method, in this setting? What was expected before the runs?"),
    "claim": ("Claim wording", "The sentence the paper will print, within the claims above."),
    "limitations": ("Known limitations", "What these runs cannot show."),
}
EXACT = {
    "all": "every site",
    "last": "the last site L (the last block then trains as under backpropagation: depth utility is measured against that block "
    "trained alone, the control ladder_1)",
    "none": "none",
}


def form_context(group: Group, link: Link, sources: Sources, written: Mapping[str, str]) -> FormContext:
    """The form of one group. written: what people filled into its blanks before."""
    report, label, setting = sources.report, group_label(group), group.setting
    # those of one number a run have their own table
    columns = tuple(column for column in sources.columns if column.name not in RUN_SCALARS)
    headline = {
        name: figure_estimate(group.runs, quantity_of(name), sources.frozen)
        for name in ("accuracy", *NEIGHBOUR_CONTROL, HEADLINE_GAMMA)
    }
    method = card(report, "methods", group.runs[0].record.spec.method)
    exact = exact_sites(method, sites_of(group.runs))
    findings = finding_rows(group.runs, label, setting, sources.known)
    compared = sources.compared(group, link.href)
    others = sources.others(group)
    excluded = sources.excluded(group)
    controls = control_rows(group.runs, sources.frozen)
    judged = (run for runs in (group.runs, *(runs for _, runs in others)) for run in runs)
    return FormContext(
        title=f"{label} — {setting}",
        method=label,
        setting=setting,
        edition=report.edition,
        verdict=group.verdict,
        proof=link.proof,
        series_label=series_label([run.record.integrity for run in group.runs]),
        opinions=tuple(zip(sources.editions, compared.verdicts, strict=True)),
        differences=compared.why,
        columns=columns,
        seeds=tuple(seed_row(run, sources.frozen, columns, sources.known) for run in group.runs),
        duplicates=tuple(seed_row(run, sources.frozen, (), sources.known) for run in group.duplicates),
        controls=controls,
        control_state=control_text(controls),
        identification=identification(group, report),
        evidence=evidence(group.runs, excluded),
        equations=description(method.get("equations")),
        deviations=tuple(method.get("deviations", ())),
        accuracy=headline["accuracy"],
        sampling=sampling(group.runs),
        frozen=headline["frozen_accuracy"],
        margin=headline["margin_pp"],
        depth=tuple(_depth(findings, group.runs)),
        gamma=headline[HEADLINE_GAMMA],
        aggregates=tuple(aggregates(group.runs)),
        gamma_sites=gamma_table(group.runs, exact),
        gamma_exact=gamma_table(group.runs, exact, counted=False),
        exact_sites=EXACT.get(str(method.get("exact_sites")), NOT_RECORDED),
        diagnostics=site_tables(group.runs, report),
        scalars=scalar_table(group.runs, report),
        first_fires=first_fires(group.runs),
        findings=findings,
        others=tuple(_judged_by(*other, label, setting, sources) for other in others),
        claims=claims(group.runs, excluded, exact=is_exact(method)),
        excluded=excluded,
        pitfalls=pitfalls(group, sources),
        reproduction=reproduction.table(report.reproduction, [run.record.run_id for run in group.runs]),
        completing=completion_commands(group.runs, excluded, report),
        commands=lines(group.runs, report, sources.frozen),
        bibliography=bibliography(group.runs, [finding for run in judged for finding in run.findings], report),
        blanks=blanks(written),
    )


def _judged_by(
    edition: EditionReference, runs: Sequence[RunAudit], label: str, setting: str, sources: Sources
) -> JudgedBy:
    findings = finding_rows(runs, label, setting, sources.known)
    return JudgedBy(edition, combine_verdicts(run.verdict for run in runs), findings)


def _depth(findings: Sequence[FindingRow], runs: Sequence[RunAudit]) -> Iterator[FindingRow]:
    """What is said of the margin over frozen, to stand beside it: once for all seeds where the rule judges over them."""
    rules = {finding.rule for run in runs for finding in run.findings if finding.quantity in SUBJECTS["depth"]}
    return (row for row in findings if row.rule in rules and row.state)


def blanks(written: Mapping[str, str]) -> tuple[Blank, ...]:
    """The form's blanks with what is in them, and those an older template had, so that no one's words are dropped."""
    known = [Blank(key, title, prompt, written.get(key, "")) for key, (title, prompt) in PROMPTS.items()]
    older = ((key, text) for key, text in written.items() if key not in PROMPTS and text)
    return (*known, *(Blank(key, key, "Kept from an earlier form.", text) for key, text in older))


@dataclass(frozen=True)
class FormContext:
    """form.html.j2, form.md.j2 and form.tex.j2: the reporting form of one method in one setting."""

    title: str = documented("method and setting", "text")
    method: str = documented("the method's label", "text")
    setting: str = documented("the setting's readable name", "text")
    edition: EditionReference = documented("which rules judged", "record")
    verdict: Verdict = documented("of all seeds together", "record")
    proof: str = documented("what the audit's replays prove of the training", "text")
    series_label: str = documented(
        "how far curves, first fires and training values are the author's word; empty where all were recomputed", "text"
    )
    opinions: tuple[tuple[EditionReference, Verdict], ...] = documented(
        "every edition with its verdict of all seeds together, the leading one first", "record"
    )
    differences: tuple[Difference, ...] = documented("where the editions differ, and by which findings", "text")
    columns: tuple[MetricSummary, ...] = documented(
        "the columns of numbers of the table of every seed", "see each quantity"
    )
    seeds: tuple[SeedRow, ...] = documented(
        "one row a seed: run, status, verdict and headline numbers", "see each column"
    )
    duplicates: tuple[SeedRow, ...] = documented(
        "further runs of the same seeds: the newest complete run of a seed counts, and these do not", "runs"
    )
    controls: tuple[ControlRow, ...] = documented(
        "the frozen control of each seed: its run, its integrity, what was checked, why it is not proven", "runs"
    )
    control_state: str = documented("`control verified`, or why a frozen control is not proven", "text")
    identification: tuple[Entry, ...] = documented("method, architecture, data, recipe, machine: what was run", "text")
    evidence: tuple[EvidenceRow, ...] = documented(
        "what was held against what is sealed with the runs, one line a subject: how many agree, differ, were not possible",
        "runs",
    )
    equations: str = documented("the equations implemented, from the method's card", "text")
    deviations: tuple[str, ...] = documented("numbered deviations from the source, from the card", "text")
    accuracy: Estimate = documented("test accuracy over seeds, whole test set", "fraction")
    sampling: Sampling | None = documented(
        "what the size of the test set leaves open of the accuracy: Wilson's 95 % interval; none where the size is not known",
        "fraction",
    )
    frozen: Estimate = documented("the frozen controls' accuracy, paired by seed", "fraction")
    margin: Estimate = documented("accuracy − frozen accuracy, paired by seed", "percentage points")
    depth: tuple[FindingRow, ...] = documented("what the leading edition says of that margin", "percentage points")
    gamma: Estimate = documented("Γ by its named aggregation, gamma_deep_mean", "cosine")
    aggregates: tuple[MetricSummary, ...] = documented("Γ by every aggregation, and their spread", "cosine")
    gamma_sites: Table[Row[Cell]] = documented("Γ of every seed and site that counts, always shown", "cosine")
    gamma_exact: Table[Row[Cell]] = documented("the same of the sites that are exact by construction, folded", "cosine")
    exact_sites: str = documented("sites whose credit is exact by construction, so that Γ = 1 says nothing", "text")
    diagnostics: tuple[Table[RowGroup[Cell]], ...] = documented(
        "every site quantity by seed and site", "see each quantity"
    )
    scalars: Table[Row[Cell]] = documented("what a run has one number of: stability, drift, …", "see each quantity")
    first_fires: tuple[FirstFire, ...] = documented("the epoch at which a rule first fired, seed by seed", "epoch")
    findings: tuple[FindingRow, ...] = documented(
        "every rule's judgement, seeds judged alike together", "see `required`"
    )
    others: tuple[JudgedBy, ...] = documented("what every further edition says, rule by rule", "see `required`")
    excluded: tuple[Exclusion, ...] = documented(
        "selected runs of this method in this setting that were not judged, and why: they stand beside the headline",
        "runs",
    )
    claims: tuple[Claim, ...] = documented("what may be claimed and what must be walked back", "text")
    pitfalls: tuple[Pitfall, ...] = documented(
        "the checklist of known pitfalls, each answered from the records with its evidence", "text"
    )
    reproduction: ReproductionTable | None = documented(
        "the published figures these runs were compared with; none where the study has no reference.toml",
        "see each figure",
    )
    completing: tuple[str, ...] = documented(
        "the lines that train what is missing and audit again; none where nothing is missing", "shell"
    )
    commands: tuple[str, ...] = documented(
        "the lines that train these runs and their frozen controls from their commits again, and audit them", "shell"
    )
    bibliography: Bibliography = documented(
        "citations of exactly what was used: method, architecture, data, diagnostics that judged, editions, this software",
        "BibTeX",
    )
    blanks: tuple[Blank, ...] = documented("what only a person can fill, kept over renderings", "Markdown")


# What only a person can fill in: marked blanks of the Markdown form, carried over when it is rendered again.


OPENING = re.compile(r"<!-- fa:blank ([\w-]+) -->")
CLOSING = "<!-- /fa:blank -->"
WHOLE = re.compile(r"<!-- fa:blank ([\w-]+) -->\n?(.*?)\n?<!-- /fa:blank -->", re.DOTALL)


def read_blanks(form: Path) -> dict[str, str]:
    """What people wrote into an existing form. Raises UsageError where it cannot be told: their text would be lost."""
    if not form.is_file():
        return {}
    try:
        return _written(form.read_text(encoding="utf-8"), str(form))
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{form}: its blanks cannot be kept: expected UTF-8, found {error.reason} at byte {error.start}; "
            "save it as UTF-8 or move the file away"
        ) from error


def check_blanks_kept(written: Mapping[str, str], page: str, form: Path) -> None:
    """Raise UsageError unless the new page of `form` holds every word that people wrote, so that it may replace the old."""
    kept = _written(page, f"{form} as it would be written anew") if any(written.values()) else {}
    lost = [key for key, text in written.items() if text and kept.get(key) != text]
    if lost:
        raise UsageError(
            f"{form}: what people wrote into {', '.join(lost)} would be lost: expected it in its blank of the new page; "
            "let the template form.md.j2 write every one of `blanks` with its markers, or move the file away"
        )


def _written(text: str, subject: str) -> dict[str, str]:
    """The blanks of a form by name; UsageError unless every opening marker has the next closing one for itself."""
    opened, closed = OPENING.findall(text), text.count(CLOSING)
    blanks_found = WHOLE.findall(text)
    once = len(set(opened)) == len(opened) == closed
    if (
        not once
        or [name for name, _ in blanks_found] != opened
        or any(OPENING.search(body) for _, body in blanks_found)
    ):
        raise UsageError(
            f"{subject}: its blanks cannot be kept: expected every '<!-- fa:blank NAME -->' once and closed by one "
            f"'{CLOSING}', found {', '.join(opened) or 'none'} opened and {closed} times closed; "
            "mend the markers or move the file away"
        )
    return {name: body.strip("\n") for name, body in blanks_found}


# How to reproduce a form: the checkout, a line for every run and its frozen control, and the audit. Read from the records.


def lines(runs: Sequence[RunAudit], report: AuditReport, frozen: Frozen) -> tuple[str, ...]:
    """Lines for a POSIX shell, in their order; a # says what a line cannot give again."""
    controls = dict.fromkeys(run.frozen_run_id for run in runs if run.frozen_run_id)
    records = [run.record for run in runs] + [frozen.runs[run_id] for run_id in controls if run_id in frozen.runs]
    by_checkout: dict[str, list[RunRecord]] = {}
    for record in records:
        by_checkout.setdefault(_checkout(record), []).append(record)
    packages = dict.fromkeys(line for record in records for line in _packages(record))
    trained = [line for checkout, held in by_checkout.items() for line in (checkout, *map(_training, held))]
    absent = [f"# frozen control {run_id}: not part of this report" for run_id in controls if run_id not in frozen.runs]
    return (*packages, *trained, *absent, _audit(report))


MOST_COMPLETING = 12  # lines that train; more runs than that are counted


def completion_commands(
    runs: Sequence[RunAudit], excluded: Sequence[Exclusion], report: AuditReport
) -> tuple[str, ...]:
    """The lines after which nothing is missing: what is not there is trained, then all is audited again. None where nothing is.

    What the store lacks, a study trains by itself. A run that is finished and lacks a figure is trained again, by force.
    No training mends a run that could not be measured again, as where its data are not here: why stands in its place.
    """
    broken = [_comment(run.frozen_doubt) for run in runs if run.frozen_doubt and not run.frozen_run_id]
    broken += [_comment(f"no command mends {one.name}: {one.reason}") for one in excluded if one.kind == "broken"]
    excluded = [one for one in excluded if one.kind != "broken"]
    gaps = [run for run in runs if run.verdict.outcome == "incomplete"]
    absent = [one.spec for one in excluded if one.spec and one.kind != "integrity"]
    absent += [control_of(run.record.spec) for run in gaps if not run.frozen_run_id and not run.frozen_doubt]
    again = [one.spec for one in excluded if one.spec and one.kind == "integrity"]
    again += [run.record.spec for run in gaps if run.frozen_run_id]
    study = report.choice.study if report.choice else ""
    training = [train_line(spec, study) for spec in absent]
    if (absent or not all(one.spec for one in excluded)) and (options := _chosen(report)):
        training = [_remarked(f"fa-registry study {' '.join(options)}", [_whose_file(study)])]
    training = list(dict.fromkeys([*training, *(train_line(spec, study, again=True) for spec in again)]))
    audit = [_audit(report)] if training else []
    training += broken
    left = len(training) - MOST_COMPLETING
    more = [f"# and {left} more runs, which audit.json names"] if left > 0 else []
    return (*training[:MOST_COMPLETING], *more, *audit)


def _whose_file(study: str) -> str:
    """A remark where a study did not ship with the package: it is found by its path, and an audit keeps no more than its name."""
    shipped = {path.parent.name for path in bundled_files.projects().glob("*/study.toml")}
    return "" if study in shipped else f"{study}: give the path of the study.toml that has this name"


def _checkout(record: RunRecord) -> str:
    """The commit that the run was trained from, and what it lacks of what was there."""
    commit, dirty = record.provenance.get("commit"), record.provenance.get("dirty")
    if not commit or commit == NOT_A_CHECKOUT or str(commit).startswith(UNKNOWN):
        version = record.provenance.get("fa_registry") or (record.provenance.get("versions") or {}).get("fa_registry")
        return _comment(f"commit: {commit or 'not recorded'}; fa_registry {version or 'of a version not recorded'}")
    line = f"git checkout {shlex.quote(str(commit))}"
    if dirty:
        return f"{line}  # the tree was DIRTY: what was changed after this commit was not recorded"
    return line if dirty is False else f"{line}  # whether the tree was clean is not known"


def _packages(record: RunRecord) -> Iterator[str]:
    """Installing what another package brought to the run. A release by that number may hold other code: hence the digest."""
    for name, entry in sealed_code(record).items():
        if "digest" in entry:
            release = " ".join(f"{entry.get('package')}=={entry.get('version')}".split())
            member = f"{name}: source sha256 {entry['digest']}"
            yield f"pip install {shlex.quote(release)}  {_comment(member)}"


def _training(record: RunRecord) -> str:
    line = command(record.spec)
    return f"{line}  # the frozen control" if record.spec.control == "frozen" else line


def _audit(report: AuditReport) -> str:
    """The line that judges again: the study where one was audited, else the runs that the lines above have made."""
    editions = [report.edition.name, *(opinion.edition.name for opinion in report.opinions)]
    chosen, remarks = _chosen(report), []
    options = ["--study", *chosen] if chosen else []
    if not options:
        options, remarks = ["--run RUN"], ["RUN: the id of each run that the lines above have made"]
    options.append(f"--{'editions' if len(editions) > 1 else 'edition'} {shlex.quote(','.join(editions))}")
    options += [f"--threshold {shlex.quote(f'{name}={value}')}" for name, value in report.edition.overrides.items()]
    if report.choice and chosen:
        remarks.append(_whose_file(report.choice.study))
    if report.waivers:
        options.append("--waivers waivers.toml")
        remarks.append("with the waivers.toml whose waivers this report names")
    return _remarked(f"fa-registry audit {' '.join(options)}", remarks)


def _chosen(report: AuditReport) -> list[str]:
    """The study and what chose its runs, as options follow its name; none where no study was audited."""
    choice = report.choice
    if choice is None or not choice.study:
        return []
    asked = [f"--{name} {shlex.quote(value.replace(', ', ','))}" for name, value in choice.asked.items()]
    device = [f"--device {shlex.quote(run.record.spec.device_class)}" for run in report.runs[:1]]
    return [shlex.quote(choice.study), *asked, *device]


def _remarked(line: str, remarks: Sequence[str]) -> str:
    reported = "; ".join(filter(None, remarks))
    return f"{line}  {_comment(reported)}" if reported else line


def _comment(text: str) -> str:
    """On one line, whatever the words are: they are foreign, and what follows a line end would be run."""
    return f"# {' '.join(text.split())}"


# A form as it lies beside a single run, away from the audit it belongs to.


# A link into the folder of the audit's pages. One into the page itself (#) or to another host still leads somewhere.
RELATIVE_LINK = re.compile(r"<a\b[^>]*\bhref=\"(?!#|[a-z]+:)[^\"]*\"[^>]*>(.*?)</a>", re.DOTALL)


def inline_assets(page: str) -> str:
    """The HTML `page` with every link to a neighbouring file turned into its words, for its neighbours are not there."""
    return RELATIVE_LINK.sub(r"\1", page)


def placeholder_form(note: str) -> str:
    """A page for a run that has an older audit's form among its files and is not judged any more. note: shown as it is."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>NOT JUDGED</title></head>'
        f'<body><main><h1>NOT JUDGED</h1><p style="white-space: pre-wrap">{html.escape(note)}</p></main></body></html>\n'
    )
