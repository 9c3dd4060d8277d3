"""Python functions with the names and options of the commands.

Each function returns an object. No function prints text or ends the process. The logger `fa_registry` logs progress messages at
level INFO. Every error is a `fa_registry.RegistryError`; its attribute `exit_code` is the exit code of the command. If
arguments are invalid, a function raises InvalidFields before it writes anything. This error lists all invalid arguments.

The options are declared in `studies.options`; `help` of a function describes them. An argument for several names accepts
`"a,b"`, `["a", "b"]` or a single name.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from fa_registry.audits.options import (
    AuditSource,
    BundleChecks,
    BundleOptions,
    ComparisonOptions,
    JudgingOptions,
    ReportOutput,
    ReportPages,
    SignerOptions,
)
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.option_table import takes_options
from fa_registry.reporting.results import ResultList
from fa_registry.studies.options import (
    ExecutorOptions,
    PlanOptions,
    RunSelector,
    SpecOptions,
    StoreLocation,
    StudyOverrides,
    TrainingOptions,
)

if TYPE_CHECKING:
    from fa_registry.audits.audit_command import AuditResult
    from fa_registry.audits.compare_command import CompareResult
    from fa_registry.audits.verify import Verification
    from fa_registry.bundles.exchange import BundleResult, ImportResult
    from fa_registry.inspection.forget import ForgettableRun
    from fa_registry.studies.dry_run import Plan
    from fa_registry.studies.single_run import TrainResult
    from fa_registry.studies.study_command import StudyResult


@takes_options(execution="executor")
def train(
    spec: SpecOptions, training: TrainingOptions, execution: ExecutorOptions, location: StoreLocation
) -> TrainResult:
    """Train one configuration and log it as one run.

    If the store already contains a finished run of this configuration, return that run. If another process trains this
    configuration, wait for the run of that process.

    By default, third-party code runs in a separate process, and built-in code runs in this process. With the executor
    `side_by_side`, all code runs in this process, so a debugger can step into the code of a method.

    Returns:
        The id and the status of the run, and the headline metrics if this call trained the run.

    Raises:
        InvalidFields: Arguments are invalid.
        RegistryError: Training failed.

    >>> fa_registry.train(method="dfa", seed=7, epochs=3, settings={"architecture.d_hidden": 128}).status
    'complete'
    """
    from fa_registry.studies.single_run import run_train

    return run_train(spec, location, training, execution.executor)


@takes_options()
def study(
    name: str = "digits",
    *,
    execution: ExecutorOptions,
    overrides: StudyOverrides,
    training: TrainingOptions,
    location: StoreLocation,
    plan: PlanOptions,
) -> StudyResult | Plan:
    """Train the missing runs of a study, and wait for runs that other workers train.

    Args:
        name: Name of a built-in study, or the path of a study.toml or of its folder.

    Returns:
        A StudyResult with the run ids by outcome and the errors of failed runs, or a Plan if `dry_run` is True. The errors of
            failed runs are not raised.

    Raises:
        InvalidFields: Arguments are invalid.

    >>> fa_registry.study("digits", epochs=3, seeds=[42]).exit_code
    0
    """
    selector = RunSelector(name, overrides=overrides.by_name)
    if plan.dry_run:
        from fa_registry.studies.dry_run import plan_study

        return plan_study(selector, location, training, execution)
    from fa_registry.studies.study_command import run_study

    return run_study(selector, location, training, execution)


@takes_options()
def work(
    name: str = "digits",
    *,
    execution: ExecutorOptions,
    overrides: StudyOverrides,
    training: TrainingOptions,
    location: StoreLocation,
) -> StudyResult:
    """Train those runs of a study that no other worker is training.

    The function returns when every run is finished or is trained by another worker. Several workers on several machines may
    call `work` for the same study. All arguments have the same meaning as in `study`. Unlike `work`, `study` also waits for other
    workers and logs a run for the study itself.

    >>> fa_registry.work("digits", epochs=3, seeds=[42]).exit_code
    0
    """
    from fa_registry.studies.study_command import run_study

    return run_study(RunSelector(name, overrides=overrides.by_name), location, training, execution, joins=True)


@takes_options(location="store data_root")
def audit(
    selector: RunSelector,
    judging: JudgingOptions,
    measuring: RemeasureOptions,
    pages: ReportOutput,
    location: StoreLocation,
) -> AuditResult:
    """Recompute and judge runs, write the pages, and log the audit as a run.

    The audit's run is logged in the experiment of the judged runs.

    Returns:
        The report, the paths of its pages, the id of the audit's run, and `exit_code`. `report.runs` contains the findings and
            verdicts. The exit code is 0 if no run fails, 1 if a run fails, and 3 if a run is incomplete or fails its integrity
            check, or if complete runs of the judged methods and settings are left out.

    Raises:
        InvalidFields: Arguments are invalid.
        NothingSelected: The arguments select no finished run.
        StoreError: The store cannot be used.

    >>> result = fa_registry.audit(study="digits", edition="2026-12")
    >>> {run.record.name: run.verdict.label for run in result.report.runs}
    {'bp · resmlp-256x4 · digits · 100 epochs · s42': 'PASS', …}
    """
    from fa_registry.audits.audit_command import run_audit

    return run_audit(selector, judging, measuring, location, pages)


@takes_options(judging="edition thresholds", location="store data_root")
def compare(
    *operands: str,
    selector: RunSelector,
    judging: JudgingOptions,
    comparing: ComparisonOptions,
    pages: ReportOutput,
    location: StoreLocation,
) -> CompareResult:
    """Compare methods or single runs by the same rules, and write compare.html.

    If an operand is a method, the comparison uses the runs with all seeds of the method.

    Args:
        operands: Two or more method labels or run ids. The first characters of a run id are enough. The operands are searched
            in the selected runs, or in all runs of the store if no runs are selected.

    Returns:
        The content of the page (`context`), the path of the page, and `exit_code`. The exit code is 3 if a run fails
            its integrity check, otherwise 0.

    Raises:
        InvalidFields: Arguments are invalid.
        UsageError: The methods were trained in several settings, and `setting` does not select one of these settings.
        IntegrityError, StoreError: A run or the store cannot be used.

    >>> fa_registry.compare("dfa", "bp", study="digits").page
    PosixPath('reports/compare.html')
    """
    from fa_registry.audits.compare_command import run_compare

    return run_compare(operands, selector, comparing.setting, judging, comparing.measuring, location, pages)


@takes_options(
    selector="study run_ids epochs seeds data scale settings device",
    measuring="replay replay_budget nonce factories jobs",
    location="store",
)
def verify(
    report_file: str | Path = "",
    *,
    selector: RunSelector,
    measuring: RemeasureOptions,
    checks: BundleChecks,
    location: StoreLocation,
) -> list[Verification]:
    """Recompute metrics of runs, compare an audit.json with the store, or check a bundle.

    The metrics are recomputed from the artifacts of the runs.

    Args:
        report_file: Path of an audit.json or of a bundle. To recompute runs, give `study` or `run_ids` instead.

    Returns:
        One outcome per run. The `integrity.state` of an outcome is verified, mismatch or unverifiable; for a run of a bundle that
            was checked with `quick`, it is trusted. For an audit.json, the first
            outcome is that of the report itself.

    Raises:
        UsageError: None or several of report_file, study and run_ids were given.
        InvalidFields, NothingSelected, StoreError: The same as in `audit`.

    >>> all(found.integrity.state == "verified" for found in fa_registry.verify(study="digits"))
    True
    """
    from fa_registry.bundles.exchange import run_verify

    outcomes = run_verify(str(report_file), selector, measuring, location.store, checks)
    counts = Counter(outcome.integrity.state for outcome in outcomes)
    return ResultList(outcomes, ", ".join(f"{count} {state}" for state, count in counts.items()))


@takes_options("study out", location="store")
def bundle(content: BundleOptions, location: StoreLocation) -> BundleResult:
    """Write the newest audit of a study and the audited runs into one file.

    A second bundle of the same audit has the same bytes.

    Returns:
        The `path` of the bundle, its `sha256`, the number of `runs`, and its `size` in bytes.

    Raises:
        UsageError: The study has no audit.
        IntegrityError: A file differs from its recorded digest.

    >>> fa_registry.verify(fa_registry.bundle("digits").path)[0].integrity.state
    'verified'
    """
    from fa_registry.bundles.exchange import make_bundle

    return make_bundle(**vars(content), store=location.store)


@takes_options(location="store experiment")
def import_bundle(path: str | Path, *, signer: SignerOptions, location: StoreLocation) -> ImportResult:
    """Import the runs of a bundle, except runs that the store already contains.

    An imported run has the specification and the files of the original run.

    Args:
        path: Path of the bundle.

    Returns:
        Two mappings, `runs` and `present`: run id in the bundle → run id in the store. `runs` contains the imported runs;
            `present` contains the runs that were already in the store.

    Raises:
        IntegrityError: The bundle was changed after it was written.
        UsageError: The bundle contains no tensors.
        StoreError: The store cannot be used.

    >>> fa_registry.import_bundle("digits.fa.zip").runs
    {'3f2a…': '90ab…', …}
    """
    from fa_registry.bundles.exchange import import_into

    return import_into(str(path), location.experiment, location.store, signer.key)


@takes_options(location="store")
def report(
    report_file: str | Path = "", *, source: AuditSource, pages: ReportPages, location: StoreLocation
) -> list[Path]:
    """Render the pages of an audit again; equal audits give equal bytes.

    Args:
        report_file: Path of an audit.json. The default is reports/audit.json.

    Returns:
        The paths of the written pages.

    Raises:
        UsageError: The file or the audit does not exist.
        InvalidFields: The file is not a report, or the table has unknown columns.
        IntegrityError: The report in the store differs from its recorded digest.

    >>> fa_registry.report("before/audit.json", out="again")
    ResultList(24 files in again)
    """
    from fa_registry.audits.reports import run_report

    files = run_report(str(report_file), source, pages, location.store)
    return ResultList(files, f"{len(files)} files in {pages.out}")


@takes_options(location="store")
def forget(*run_ids: str, location: StoreLocation) -> list[ForgettableRun]:
    """Move failed or unwanted runs to MLflow's bin, without a prompt.

    If one of the runs must be kept, no run is moved. Later audits list the moved runs as deleted. `mlflow gc` removes runs in
    the bin permanently.

    Args:
        run_ids: Run ids, or the first characters of run ids.

    Returns:
        A description of each run. The attribute `restore` of a description is the command that restores the run.

    Raises:
        InvalidFields: Some runs must be kept; the error lists all of them. A run must be kept if it is still training, is an
            audit, is registered as a model, or is a study with runs.

    >>> [run.status for run in fa_registry.forget("4f1c0a2b")]
    ['failed']
    """
    from fa_registry.inspection.forget import run_forget

    return ResultList(run_forget(run_ids, location.store), f"runs moved to MLflow's bin: {len(run_ids)}")
