"""The commands bundle and import, and the verification of a bundle."""

from __future__ import annotations

import importlib.metadata
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fa_registry import jsonio, process_ownership
from fa_registry.audits.options import AuditSource, BundleChecks
from fa_registry.audits.proof import check_pages, is_same_release, outcome_of, rendered_again
from fa_registry.audits.publication import verdict_text
from fa_registry.audits.reports import existing, newest_report, recorded_report
from fa_registry.audits.second_judgement import check_verdicts
from fa_registry.audits.selection import previous_seed_sets
from fa_registry.audits.verify import Verification, verify_report, verify_runs
from fa_registry.bundles.archive import Manifest, checked_target, pack, signed, signer, unpack
from fa_registry.bundles.contents import RUNS, collect_files, open_bundle
from fa_registry.errors import IntegrityError, InvalidFields, RegistryError, UsageError, pluralise
from fa_registry.evidence.exclusions import RemeasuredRun
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.remeasure import checked_measuring, remeasure_all
from fa_registry.protocol.integrity import compare_records
from fa_registry.protocol.replay_summary import proof_level
from fa_registry.records import AuditReport, EditionReference, Integrity, RunAudit, RunRecord, Verdict
from fa_registry.reporting.results import Result, TableResult
from fa_registry.studies.options import RunSelector
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.lease import LeaseHolder, heartbeat_tag
from fa_registry.tracking.memory import MemoryTracker
from fa_registry.tracking.models import add_final_weights
from fa_registry.tracking.reader import NEEDED, check_files, check_manifest, read_recorded
from fa_registry.tracking.stores import open_tracker

BUNDLE = ".zip"  # suffix of a bundle; any other file is an audit.json
LICENCE = re.compile(r"[A-Za-z0-9.\-]{1,64}")  # an SPDX identifier


@dataclass(frozen=True, repr=False)
class BundleResult(Result):
    """A bundle that was written; `runs` is the number of its runs, and `size` its size in bytes."""

    path: Path
    sha256: str
    runs: int
    size: int
    signed: bool

    def lines(self) -> Iterator[str]:
        yield f"{self.path}: {pluralise(self.runs, 'run')}, {self.size / 2**20:.1f} MiB, SHA-256 {self.sha256}"
        yield f"next: fa-registry verify {self.path}" + ("" if self.signed else "; to sign the bundle, add --sign KEY")


def make_bundle(
    study: str, out: str = "", light: bool = False, sign: str = "", licence: str = "", store: str = ""
) -> BundleResult:
    """Write a bundle with the newest audit of a study; see `api.bundle`."""
    if licence and not LICENCE.fullmatch(licence):
        raise InvalidFields("bundle", [f"licence: expected an SPDX identifier such as CC-BY-4.0, found {licence!r}"])
    tracker = open_tracker(store, create=False)
    audit, report = newest_report(tracker, AuditSource(study))
    study = audit.tags.get(schema.TAG_STUDY, study)
    path = Path(out or f"{study}.fa.zip")
    target = checked_target(path)  # before the files are collected, which may take minutes
    version = importlib.metadata.version("fa_registry")
    facts = {"study": study, "audit": audit.run_id, "light": light, "made_by": version}
    with process_ownership.temp_dir("fa_registry-bundle-") as folder:
        collect_files(tracker, report, audit, light, licence, folder)
        pack(folder, target, facts, partial(signed, key=Path(sign)) if sign else None)
    return BundleResult(path, jsonio.file_digest(target), len(report.runs), target.stat().st_size, bool(sign))


def verify_bundle(path: Path, measuring: RemeasureOptions, checks: BundleChecks) -> list[Verification]:
    """Check a bundle; no store and no internet connection is needed.

    Args:
        measuring: How to recompute the metrics.
        checks: The public key of the expected signer (if empty, any signer is accepted), and whether to recompute no metrics.

    Returns:
        Three outcomes for the file, the newly rendered pages and the recomputed verdicts, then one outcome per run. The metrics
            of a run are recomputed if the bundle contains the tensors of the run.

    Raises:
        IntegrityError: The file was changed after it was written, or its signature is invalid.
    """
    problems: list[str] = []
    measuring = checked_measuring(measuring, problems)
    if problems:
        raise InvalidFields("verify", problems)
    with process_ownership.temp_dir("fa_registry-bundle-") as folder:
        manifest, signature = unpack(path, folder)
        signer_text = signer(manifest, signature, checks.key)
        tracker, audit, runs = open_bundle(folder)
        report = recorded_report(tracker, audit.run_id, f"fa-registry audit --study {manifest.study}")
        interim_analyses, _ = previous_seed_sets([judged.record for judged in report.runs], runs)
        verdicts = outcome_of(lambda: check_verdicts(report, is_same_release(audit), interim_analyses))
        text = f"{len(manifest.files)} files are unchanged since the bundle was written; {signer_text}"
        files_outcome = Integrity("verified", (text,))
        return [
            Verification("", f"the bundle, {path.name}", files_outcome, dict(manifest.sizes)),
            Verification("", "the pages", outcome_of(lambda: _pages(tracker, audit, report))),
            Verification("", "the verdicts", verdicts),
            *_runs(folder, runs, report.runs, manifest, None if checks.quick else measuring),
        ]


def _pages(tracker: MemoryTracker, audit: StoredRun, report: AuditReport) -> Integrity:
    with rendered_again(tracker, audit, report) as out:
        return check_pages(tracker, audit, out)


def _runs(
    folder: Path,
    runs: Sequence[StoredRun],
    judged: Sequence[RunAudit],
    manifest: Manifest,
    measuring: RemeasureOptions | None,
) -> list[Verification]:
    """Check the files of each run, then recompute its metrics if the bundle contains its tensors.

    Without `measuring`, no metric is recomputed.
    """
    tracker = _tracker(folder)
    pairs = list(zip(runs, judged, strict=True))
    file_outcomes = [_compared_files(tracker, run, judged_run.record, manifest) for run, judged_run in pairs]
    if measuring is None:
        unmeasured = Integrity("trusted", ("the files are as recorded; no metric was recomputed (--quick)",))
        is_whole = [outcome.integrity.state == "verified" for outcome in file_outcomes]
        pairs_found = zip(file_outcomes, is_whole, strict=True)
        return [replace(outcome, integrity=unmeasured) if whole else outcome for outcome, whole in pairs_found]
    intact = [run for run, outcome in zip(runs, file_outcomes, strict=True) if outcome.integrity.state == "verified"]
    outcomes = remeasure_all(tracker, intact, measuring, None, partial(_tracker, folder))
    remeasured = {outcome.run.run_id: outcome for outcome in outcomes}
    return [
        _measured(outcome, judged_run.record, remeasured[run.run_id]) if run.run_id in remeasured else outcome
        for (run, judged_run), outcome in zip(pairs, file_outcomes, strict=True)
    ]


def _tracker(folder: Path) -> MemoryTracker:
    return open_bundle(folder)[0]


def _compared_files(tracker: MemoryTracker, run: StoredRun, record: RunRecord, manifest: Manifest) -> Verification:
    """Check that the report judges this run and that the files match their digests.

    If the bundle omits files, the outcome is `trusted`.
    """
    try:
        if run.run_id != record.run_id or run.tags.get(schema.TAG_SPEC) != record.spec.identity:
            raise IntegrityError(
                f"expected run {record.run_id}, which the report judges, found run {run.run_id} in the bundle"
            )
        files = check_manifest(tracker, run, record.digests)
        folder = f"{RUNS}/{run.run_id}"
        included = {name: digest for name, digest in record.digests.items() if f"{folder}/{name}" in manifest.files}
        files |= check_files(tracker, run.run_id, included)
    except RegistryError as error:
        return Verification(run.run_id, run.name, Integrity("mismatch", (str(error),)))
    omitted = len(record.digests) - len(included)
    text = f"the files are as recorded; no metric was recomputed, because the bundle omits {omitted} files (--light)"
    integrity = Integrity("trusted", (text,)) if omitted else Integrity("verified")
    return Verification(run.run_id, run.name, integrity, files)


def _measured(file_outcome: Verification, reported: RunRecord, remeasured: RemeasuredRun) -> Verification:
    if remeasured.record is None:
        state = "mismatch" if remeasured.exclusion.kind == "integrity" else "unverifiable"
        return replace(file_outcome, integrity=Integrity(state, (remeasured.exclusion.reason,)))
    integrity = remeasured.record.integrity
    if integrity.state == "verified":
        comparison = compare_records(reported, remeasured.record)
        integrity = integrity if comparison.state == "verified" else comparison
    proof = proof_level([replace(remeasured.record, integrity=integrity)])
    return replace(file_outcome, integrity=integrity, proof=proof)


@dataclass(frozen=True, repr=False)
class ImportResult(TableResult):
    """Result of `import_into`; two mappings from run id in the bundle to run id in the store.

    Attributes:
        runs: Runs that were imported now.
        present: Runs that were already in the store.
    """

    runs: dict[str, str]
    present: dict[str, str]

    def lines(self) -> Iterator[str]:
        yield f"runs imported: {len(self.runs)}, already in the store: {len(self.present)}"

    def rows(self) -> list[dict[str, str]]:
        named = {"imported": self.runs, "already in the store": self.present}
        return [
            {"run in the bundle": source, "run in the store": run, "outcome": outcome}
            for outcome, runs in named.items()
            for source, run in runs.items()
        ]


def import_into(path: str, experiment: str, store: str, key: str) -> ImportResult:
    """Import the missing runs of a bundle into a store, without the audit; see `api.import_bundle`.

    To continue an interrupted import, call the function again.
    """
    with process_ownership.temp_dir("fa_registry-bundle-") as folder:
        manifest, signature = unpack(existing(path, f"a bundle ({BUNDLE})"), folder)
        signer(manifest, signature, key)
        if manifest.light:
            raise UsageError(
                f"{path}: expected a bundle with weights, found a bundle that was written with --light; bundle the study again "
                "without --light"
            )
        source, audit, runs = open_bundle(folder)
        report = recorded_report(source, audit.run_id, f"fa-registry audit --study {manifest.study}")
        tracker = open_tracker(store, experiment)
        origin = {schema.TAG_IMPORTED: jsonio.digest_of(manifest)}
        verdicts = {judged.record.run_id: _imported_tags(judged.verdict, report.edition) for judged in report.runs}
        imported, present = {}, {}
        for run in runs:
            existing_id = _present(tracker, run)
            if existing_id:
                present[run.run_id] = existing_id
            else:
                imported[run.run_id] = _put(tracker, source, run, origin | verdicts.get(run.run_id, {}))
    return ImportResult(imported, present)


def _imported_tags(verdict: Verdict, edition: EditionReference) -> dict[str, str]:
    return {schema.TAG_IMPORTED_VERDICT: verdict_text(verdict, edition), schema.TAG_IMPORTED_PROOF: verdict.proof}


def _present(tracker: Tracker, run: StoredRun) -> str:
    """Return the id of a finished run in the store with the same specification and files, or ""."""
    tags = {tag: run.tags.get(tag, "") for tag in (schema.TAG_SPEC, schema.TAG_ARTIFACTS)}
    return next((stored.run_id for stored in tracker.search(tags) if stored.state == "FINISHED"), "")


def _put(tracker: Tracker, source: MemoryTracker, run: StoredRun, origin: Mapping[str, str]) -> str:
    """Import one run; set its final status only after all files are uploaded."""
    recorded = read_recorded({name: source.artifact(run.run_id, name) for name in NEEDED})
    check_manifest(source, run, recorded.provenance["digests"])
    check_files(source, run.run_id, recorded.provenance["digests"])
    first_fire = schema.first_fire_tag("")
    tags = {name: text for name, text in run.tags.items() if name in KEPT_TAGS or name.startswith(first_fire)}
    initial_tags = {
        **tags,
        schema.TAG_STATUS: "running",
        schema.TAG_NOTE: schema.NOT_AUDITED,
        schema.TAG_PROCESS: process_ownership.process_tag(),
        **origin,
        schema.TAG_IMPORTED_ID: run.run_id,
        **heartbeat_tag(0, process_ownership.LEASE),
    }
    initial_tags.pop(schema.TAG_ARTIFACTS, None)
    run_id = tracker.create(run.name, initial_tags, schema.params(recorded.spec))
    try:
        with LeaseHolder(tracker, run_id, process_ownership.LEASE):  # sends the heartbeat
            tracker.upload(run_id, source.folder / run.run_id)
            final_tags = {name: tags[name] for name in (schema.TAG_STATUS, schema.TAG_ARTIFACTS) if name in tags}
            now = int(time.time() * 1000)
            points = [replace(point, time=now) for point in recorded.points]
            tracker.log(run_id, points, final_tags)
        tracker.finish(run_id, "FINISHED")
    except BaseException:
        tracker.finish(run_id, "FAILED")
        raise
    headline = schema.headline(tags, {point.key for point in points})
    final_points = [point for point in points if point.step == recorded.final_epoch]
    add_final_weights(tracker, run_id, recorded.spec, headline, final_points)
    return run_id


KEPT_TAGS = frozenset(
    (
        *(schema.TAG_KIND, schema.TAG_SPEC, schema.TAG_STATUS, schema.TAG_ARTIFACTS),
        *(schema.TAG_NOT_FINITE, schema.TAG_SITES, schema.TAG_CODE, schema.TAG_ADOPTED, schema.TAG_FIRST_FIRE_BY),
        schema.TAG_HEADLINE,
        *schema.REPEATED_TAGS,
    )
)


def run_verify(
    report_file: str, selector: RunSelector, measuring: RemeasureOptions, store: str, checks: BundleChecks
) -> list[Verification]:
    """Verify a report, a bundle or selected runs; see `api.verify`."""
    sources = [*(["REPORT"] if report_file else []), *selector.ways]
    if len(sources) != 1:
        raise UsageError(f"expected exactly one of REPORT, --study and --run, found {' and '.join(sources) or 'none'}")
    is_bundle = report_file.endswith(BUNDLE)
    for name, given in (("--key", checks.key), ("--quick", checks.quick)):
        if given and not is_bundle:
            raise UsageError(f"{name} applies only to a bundle, whose name ends with .zip")
    file = existing(report_file, f"{schema.AUDIT_REPORT} or a bundle ({BUNDLE})") if report_file else None
    if is_bundle:
        return verify_bundle(file, measuring, checks)
    return verify_report(file, store) if file else verify_runs(selector, measuring, store)
