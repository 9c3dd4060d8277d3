"""Python functions with the names and options of the commands.

Each function returns an object. No function prints or ends the process. The logger `fa_registry` logs progress messages at
level INFO. Every error is a `fa_registry.RegistryError`; its attribute `exit_code` is the exit code of the command. If
arguments are invalid, a function raises InvalidFields before it writes anything. This error lists all invalid arguments.

Several functions share these arguments (defaults in brackets):
    study, experiment, run_ids: The runs to use. Give exactly one of the three. `study` is the name of a built-in study, the
        path of a study.toml, or the folder of a study.toml. `run_ids` contains ids or the first characters of ids. In
        functions that train or import runs, `experiment` is the experiment to which new runs are logged.
    epochs, seeds, device, data, scale: Values that replace those of the study, for training and for selecting runs.
    edition: The rules for judging: the name of an edition or the path of a .toml file [the study's edition].
    thresholds: Mapping from a rule to a number that replaces the threshold of this rule in the edition.
    jobs: Number of parallel processes; 0: chosen for the machine.
    out: Folder for the pages.
    templates: Folder of user templates.
    store: Tracking URI [$MLFLOW_TRACKING_URI if it is set, otherwise sqlite:///mlflow.db].
    data_root: Folder of data sets that need files.
An argument for several names accepts `"a,b"`, `["a", "b"]` or a single name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fa_registry.process_ownership import LEASE
from fa_registry.studies.executors.base import SILENCE
from fa_registry.tracking.base import MOST_POINTS
from fa_registry.workflows.options import (
    Cluster,
    JudgingOptions,
    RemeasureOptions,
    ReportOutput,
    RunSelector,
    StoreLocation,
    as_list,
    overrides,
    spec_fields,
)

if TYPE_CHECKING:
    from fa_registry.workflows.audit import AuditResult
    from fa_registry.workflows.bundle import BundleResult, ImportResult
    from fa_registry.workflows.compare import CompareResult
    from fa_registry.workflows.dry_run import Plan
    from fa_registry.workflows.forget import ForgettableRun
    from fa_registry.workflows.study import StudyResult
    from fa_registry.workflows.training import TrainResult
    from fa_registry.workflows.verify import Verification

Several = str | Iterable[Any]  # names or numbers, converted by `as_list`


def train(
    *,
    method: str = "",
    architecture: str = "resmlp",
    dataset: str = "digits",
    seed: int | str = "",
    epochs: int | str = 100,
    penalty: float | str = 0,
    control: str = "none",
    settings: Mapping[str, Any] | None = None,
    device: str = "auto",
    study: str = "",
    threads: int = 1,
    edition: str = "",
    stop_on: Several = (),
    experiment: str = "",
    checkpoint_every: int = 0,
    keep_states: int = 0,
    points: int = MOST_POINTS,
    data_root: str = "",
    store: str = "",
    force: bool = False,
    keep_trained: bool = False,
    executor: str = "",
    silence: int | str = SILENCE,
    lease: int | str = LEASE,
) -> TrainResult:
    """Train one configuration and log it as one run.

    If the store already contains a finished run of this configuration, return that run. If another process trains this
    configuration, wait for the run of that process. The module docstring of `api` describes the shared arguments.

    Args:
        penalty: λ of the residual penalty.
        control: `none`, `frozen`, `shallow` or `ladder_K`, which trains K blocks.
        settings: Recipe fields and options by name, for example {"learning_rate": 0.1, "architecture.d_hidden": 128}.
        study: Name of the study in the run's tags.
        threads: Number of CPU threads.
        stop_on: Rules of `edition`. The run ends when one of these rules fires.
        checkpoint_every: Number of epochs between stored weights, starting with the initial weights; 0: only the last weights.
        keep_states: Number of training states to store. An audit can replay one epoch from each state.
        points: Number of points per metric in the store's tables; 0: one point per epoch. The file series.parquet contains all
            epochs.
        force: Whether to train even if the store contains a finished run.
        keep_trained: Whether to keep a finished run although other code than the installed code trained this run.
        executor: Name of the executor. By default, third-party code runs in a separate process and built-in code in this
            process. With "side_by_side", all code runs in this process, so a debugger can step into a rule.
        silence: Maximum time in seconds without a completed epoch. After this time, a separate process is ended; 0: never.
        lease: Maximum time in seconds without a heartbeat. After this time, a run on another machine counts as abandoned.

    Returns:
        The id and the status of the run, and the headline metrics if this call trained the run.

    Raises:
        InvalidFields: Arguments are invalid.
        RegistryError: Training failed.

    >>> fa_registry.train(method="dfa", seed=7, epochs=3, settings={"architecture.d_hidden": 128}).status
    'complete'
    """
    from fa_registry.tracking.writer import RetentionOptions
    from fa_registry.workflows.training import run_train

    fields = {"method": method, "architecture": architecture, "dataset": dataset, "seed": seed, "epochs": epochs}
    fields |= {"penalty": penalty, "control": control, "device": device}
    options = {"study": study, "edition": edition, "stop_on": ",".join(as_list(stop_on)), "executor": executor}
    options |= {"force": force, "keep_trained": keep_trained, "silence": silence, "lease": lease}
    location, keep = (
        StoreLocation(store, experiment, data_root),
        RetentionOptions(checkpoint_every, points, keep_states),
    )
    return run_train(spec_fields(fields, settings or {}), location, threads=threads, keep=keep, **options)


def study(
    name: str = "digits",
    *,
    jobs: int | str = 0,
    epochs: int | str = "",
    seeds: Several = (),
    data: str = "",
    scale: float | str = "",
    device: str = "auto",
    edition: str = "",
    stop_on: Several = (),
    experiment: str = "",
    checkpoint_every: int = 0,
    keep_states: int = 0,
    points: int = MOST_POINTS,
    data_root: str = "",
    store: str = "",
    force: bool = False,
    keep_trained: bool = False,
    dry_run: bool = False,
    no_probe: bool = False,
    executor: str = "",
    address: str = "",
    cpus_per_run: float | str = 1,
    gpus_per_run: float | str = "",
    memory: str = "",
    silence: int | str = SILENCE,
    lease: int | str = LEASE,
) -> StudyResult | Plan:
    """Train the missing runs of a study, and wait for runs that other workers train.

    The module docstring of `api` describes the shared arguments.

    Args:
        stop_on, checkpoint_every, points, force, keep_trained, silence, lease: The same as in `train`.
        keep_states: The same as in `train`; 0: the value in the study.
        executor: Name of an executor in the entry-point group `fa_registry.executors`. `ray` and `submitit` use the cluster at
            `address`. The default is `local`, which starts one process per run. The default on a GPU is `side_by_side` if all
            code is built-in.
        cpus_per_run, gpus_per_run: CPUs and share of one GPU that each run reserves on the cluster.
        memory: Memory that each run reserves on the cluster, for example "4GiB".
        dry_run: Whether to train nothing and return the plan.
        no_probe: Whether to omit the estimated times from the plan. If True, no training step is timed.

    Returns:
        A StudyResult with the run ids by outcome and the errors of failed runs, or a Plan if `dry_run` is True. The errors of
            failed runs are not raised.

    Raises:
        InvalidFields: Arguments are invalid.

    >>> fa_registry.study("digits", epochs=3, seeds=[42]).exit_code
    0
    """
    options = {"jobs": jobs, "edition": edition, "stop_on": ",".join(as_list(stop_on)), "executor": executor}
    options |= {"force": force, "keep_trained": keep_trained}
    options["cluster"] = Cluster(address, cpus_per_run, gpus_per_run, memory)
    selector = RunSelector(name, overrides=overrides(epochs, seeds, device, data, scale))
    location = StoreLocation(store, experiment, data_root)
    if dry_run:
        from fa_registry.workflows.dry_run import plan_study

        return plan_study(selector, location, **options, probing=not no_probe, keep_states=keep_states)
    from fa_registry.tracking.writer import RetentionOptions
    from fa_registry.workflows.study import run_study

    return run_study(
        selector,
        location,
        **options,
        keep=RetentionOptions(checkpoint_every, points, keep_states),
        silence=silence,
        lease=lease,
    )


def work(
    name: str = "digits",
    *,
    jobs: int | str = 0,
    epochs: int | str = "",
    seeds: Several = (),
    data: str = "",
    scale: float | str = "",
    device: str = "auto",
    edition: str = "",
    stop_on: Several = (),
    experiment: str = "",
    checkpoint_every: int = 0,
    keep_states: int = 0,
    points: int = MOST_POINTS,
    data_root: str = "",
    store: str = "",
    force: bool = False,
    keep_trained: bool = False,
    executor: str = "",
    address: str = "",
    cpus_per_run: float | str = 1,
    gpus_per_run: float | str = "",
    memory: str = "",
    silence: int | str = SILENCE,
    lease: int | str = LEASE,
) -> StudyResult:
    """Train those runs of a study that no other worker trains.

    The function returns when no such run remains. Several workers on several machines may call `work` for the same study. All
    arguments have the same meaning as in `study`. Unlike `work`, `study` also waits for other workers and logs a run for the
    study itself.

    >>> fa_registry.work("digits", epochs=3, seeds=[42]).exit_code
    0
    """
    from fa_registry.tracking.writer import RetentionOptions
    from fa_registry.workflows.study import run_study

    return run_study(
        RunSelector(name, overrides=overrides(epochs, seeds, device, data, scale)),
        StoreLocation(store, experiment, data_root),
        jobs=jobs,
        edition=edition,
        stop_on=",".join(as_list(stop_on)),
        keep=RetentionOptions(checkpoint_every, points, keep_states),
        force=force,
        keep_trained=keep_trained,
        executor=executor,
        silence=silence,
        lease=lease,
        joins=True,
        cluster=Cluster(address, cpus_per_run, gpus_per_run, memory),
    )


def audit(
    *,
    study: str = "",
    run_ids: Several = (),
    experiment: str = "",
    edition: str = "",
    editions: Several = (),
    thresholds: Mapping[str, float] | None = None,
    waivers: str = "",
    strict: bool = False,
    trust_logged: bool = False,
    replay: int | str = "auto",
    nonce: str = "",
    factories: Several = (),
    jobs: int | str = 0,
    epochs: int | str = "",
    seeds: Several = (),
    data: str = "",
    scale: float | str = "",
    device: str = "auto",
    executor: str = "",
    address: str = "",
    cpus_per_run: float | str = 1,
    gpus_per_run: float | str = "",
    memory: str = "",
    out: str = "reports",
    templates: str = "",
    data_root: str = "",
    store: str = "",
) -> AuditResult:
    """Recompute and judge runs, write the pages, and log the audit as a run.

    The audit's run is logged in the experiment of the judged runs. The module docstring of `api` describes the shared arguments.

    Args:
        editions: Several editions to judge by, instead of `edition`.
        waivers: Path of a file with documented exceptions. The default is the file that the study names.
        strict: Whether to judge like the published code, by edition 2026-05:strict. In this edition, a run fails if any rule
            fires.
        trust_logged: Whether to judge the logged metrics without recomputing the metrics.
        replay: Amount of training to repeat. `auto` retrains one run of every group and every frozen control to the end, and
            replays 8 steps of each other run. `all` retrains every run. A number replays this number of steps of every run.
            `off` replays nothing.
        nonce: Hexadecimal digits that an earlier audit reported. With equal digits, `auto` chooses the same runs. By default,
            the digits are random.
        factories: Names `package.module:function` of trusted functions. Each function builds the model of a user-supplied
            training loop.
        executor, address, cpus_per_run, gpus_per_run, memory: Where runs are recomputed, with the same meaning as in `study`.
            The default is this machine.

    Returns:
        The report, the paths of its pages, the id of the audit's run, and `exit_code`. `report.runs` contains the findings and
            verdicts. The exit code is 0 if no run fails and 1 if a run fails. It is 3 if a run is incomplete or fails its
            integrity check.

    Raises:
        InvalidFields: Arguments are invalid.
        NothingSelected: The arguments select no finished run.
        StoreError: The store cannot be used.

    >>> result = fa_registry.audit(study="digits", edition="2026-12")
    >>> {run.record.name: run.verdict.label for run in result.report.runs}
    {'bp · resmlp-256x4 · digits · 100 epochs · s42': 'PASS', …}
    """
    from fa_registry.workflows.audit import run_audit

    cluster = Cluster(address, cpus_per_run, gpus_per_run, memory)
    return run_audit(
        RunSelector(study, experiment, as_list(run_ids), overrides(epochs, seeds, device, data, scale)),
        JudgingOptions(edition, as_list(editions), thresholds or {}, waivers, strict),
        RemeasureOptions(trust_logged, jobs, replay, device, executor, cluster, as_list(factories), nonce),
        StoreLocation(store, data_root=data_root),
        ReportOutput(out, templates),
    )


def compare(
    *operands: str,
    study: str = "",
    run_ids: Several = (),
    experiment: str = "",
    edition: str = "",
    thresholds: Mapping[str, float] | None = None,
    recompute: bool = False,
    jobs: int | str = 0,
    epochs: int | str = "",
    seeds: Several = (),
    data: str = "",
    scale: float | str = "",
    device: str = "auto",
    setting: str = "",
    out: str = "reports",
    templates: str = "",
    data_root: str = "",
    store: str = "",
) -> CompareResult:
    """Compare methods or single runs by the same rules, and write compare.html.

    A method is compared with all its seeds. The module docstring of `api` describes the shared arguments.

    Args:
        operands: Two or more method labels or run ids. The first characters of a run id are enough. The operands are searched
            in the selected runs, or in all runs of the store if no runs are selected.
        setting: Part of the name of a setting. This argument is required if the methods were trained in several settings.
        recompute: Whether to recompute the metrics of the runs first.

    Returns:
        The content of the page (`context`), the path of the page, and `exit_code`. The exit code is 3 if a run fails
            its integrity check, otherwise 0.

    Raises:
        InvalidFields: Arguments are invalid.
        UsageError: The methods were trained in several settings and `setting` does not select one.
        IntegrityError, StoreError: A run or the store cannot be used.

    >>> fa_registry.compare("dfa", "bp", study="digits").page
    PosixPath('reports/compare.html')
    """
    from fa_registry.workflows.compare import run_compare

    return run_compare(
        operands,
        RunSelector(study, experiment, as_list(run_ids), overrides(epochs, seeds, device, data, scale)),
        setting,
        JudgingOptions(edition, thresholds=thresholds or {}),
        RemeasureOptions(not recompute, jobs, device=device),
        StoreLocation(store, data_root=data_root),
        ReportOutput(out, templates),
    )


def verify(
    report_file: str | Path = "",
    *,
    study: str = "",
    run_ids: Several = (),
    epochs: int | str = "",
    seeds: Several = (),
    data: str = "",
    scale: float | str = "",
    device: str = "auto",
    replay: int | str = "auto",
    nonce: str = "",
    factories: Several = (),
    jobs: int | str = 0,
    key: str = "",
    store: str = "",
) -> list[Verification]:
    """Recompute runs, compare an audit.json with the store, or check a bundle.

    Metrics are recomputed from the artifacts of the runs. The module docstring of `api` describes the shared arguments.

    Args:
        report_file: Path of an audit.json or of a bundle. To recompute runs, give `study` or `run_ids` instead.
        key: Path of the public key of the expected signer of the bundle.
        replay, nonce, factories: The same as in `audit`.

    Returns:
        One outcome per run. `integrity.state` of an outcome is verified, mismatch or unverifiable. For an audit.json, the first
            outcome is about the report itself.

    Raises:
        UsageError: Not exactly one of report_file, study and run_ids was given.
        InvalidFields, NothingSelected, StoreError: The same as in `audit`.

    >>> all(found.integrity.state == "verified" for found in fa_registry.verify(study="digits"))
    True
    """
    from fa_registry.workflows.verify import run_verify

    selector = RunSelector(study, "", as_list(run_ids), overrides(epochs, seeds, device, data, scale))
    measuring = RemeasureOptions(jobs=jobs, replay=replay, device=device, factories=as_list(factories), nonce=nonce)
    return run_verify(str(report_file), selector, measuring, store, key)


def bundle(
    study: str, out: str = "", *, light: bool = False, sign: str = "", licence: str = "", store: str = ""
) -> BundleResult:
    """Write the newest audit of a study and the audited runs into one file.

    The same store gives the same bytes.

    Args:
        out: Path of the file. The default is STUDY.fa.zip in the current folder.
        light: Whether to omit all tensors. Without the tensors, `verify` cannot recompute metrics.
        sign: Path of a PEM file with a private Ed25519 key.
        licence: SPDX identifier of the licence.
        store: Tracking URI. The default is $MLFLOW_TRACKING_URI, or sqlite:///mlflow.db if the variable is not set.

    Returns:
        The `path` of the bundle, its `sha256`, the number of `runs`, and its `size` in bytes.

    Raises:
        UsageError: The study has no audit.
        IntegrityError: A file differs from its recorded digest.

    >>> fa_registry.verify(fa_registry.bundle("digits").path)[0].integrity.state
    'verified'
    """
    from fa_registry.workflows.bundle import make_bundle

    return make_bundle(study, out, light, sign, licence, store)


def import_bundle(path: str | Path, *, experiment: str = "", key: str = "", store: str = "") -> ImportResult:
    """Import the runs of a bundle that the store does not contain.

    An imported run has the specification and the files of the original run.

    Args:
        path: Path of the bundle.
        experiment: Experiment to which the runs are logged.
        key: Path of the public key of the expected signer.
        store: Tracking URI. The default is $MLFLOW_TRACKING_URI, or sqlite:///mlflow.db if the variable is not set.

    Returns:
        The mappings `runs` and `present` from run ids in the bundle to run ids in the store. `runs` contains the imported runs;
            `present` contains the runs that were already in the store.

    Raises:
        IntegrityError: The bundle was changed after it was written.
        UsageError: The bundle contains no tensors.
        StoreError: The store cannot be used.

    >>> fa_registry.import_bundle("digits.fa.zip").runs
    {'3f2a…': '90ab…', …}
    """
    from fa_registry.workflows.bundle import import_into

    return import_into(str(path), experiment, store, key)


def report(
    report_file: str | Path = "", *, study: str = "", out: str = "reports", templates: str = "", store: str = ""
) -> list[Path]:
    """Render the pages of an audit again; the same records give the same bytes.

    Args:
        report_file: Path of an audit.json. The default is reports/audit.json.
        study: Name of a study. Its newest audit in the store is rendered instead of `report_file`.
        out: Folder for the pages.
        templates: Folder of user templates.
        store: Tracking URI. The default is $MLFLOW_TRACKING_URI, or sqlite:///mlflow.db if the variable is not set.

    Returns:
        The paths of the written pages.

    Raises:
        UsageError: The file or the audit does not exist.
        InvalidFields: The file is not a report.
        IntegrityError: The report in the store differs from its recorded digest.

    >>> fa_registry.report("before/audit.json", out="again")
    [PosixPath('again/index.html'), …]
    """
    from fa_registry.workflows.reports import run_report

    return run_report(str(report_file), study, ReportOutput(out, templates), store)


def forget(*run_ids: str, store: str = "") -> list[ForgettableRun]:
    """Move failed or mistaken runs to MLflow's bin, without a prompt.

    Either all runs are moved or none. Later audits list the moved runs as deleted. `mlflow gc` removes runs in the bin
    permanently.

    Args:
        run_ids: Run ids, or the first characters of run ids.
        store: Tracking URI. The default is $MLFLOW_TRACKING_URI, or sqlite:///mlflow.db if the variable is not set.

    Returns:
        A description of each run. Its attribute `restore` is the command that restores the run.

    Raises:
        InvalidFields: Some runs must be kept; the error lists all of them. A run must be kept if it is still training, is an
            audit, is registered as a model, or is a study with runs.

    >>> [run.status for run in fa_registry.forget("4f1c0a2b")]
    ['failed']
    """
    from fa_registry.workflows.forget import run_forget

    return run_forget(run_ids, store)
