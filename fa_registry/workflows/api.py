"""The commands of the command line as functions: same names and options; results are objects.

They are `fa_registry.train`, `study`, `audit`, `compare`, `verify` and `report`. None of them prints or ends the
process. The progress messages of the command line go to Python's `logging` as INFO of the logger `fa_registry`. Every
error is a `fa_registry.RegistryError`, whose `exit_code` is the command line's.

Arguments that several functions share:
    study, experiment, run_ids: choose the runs; give one of the three. A study is the name of a built-in one, a
        study.toml or its folder. A run is given by its id or the first characters of the id.
    epochs, seeds, device, data, scale: replace the study's values, when runs are trained and when they are chosen.
    edition: the rules to judge by [the study's]: a name or a .toml file.
    thresholds: {rule: number}, replaces thresholds of the edition.
    jobs: number of parallel processes; 0: chosen for the machine.
    out: folder of the pages.
    templates: folder of your templates.
    store: tracking URI [MLFLOW_TRACKING_URI, else sqlite:///mlflow.db].
    data_root: folder of data sets that need files.
An argument that accepts several names accepts `"a,b"`, `["a", "b"]` or a single name.
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

Several = str | Iterable[Any]  # names or numbers, see requests.listed


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
    """Train one configuration and log it as one run, unless the store has a finished run of it.

    Args:
        control: none, frozen, shallow or ladder_K.
        settings: recipe fields and options by name, {"learning_rate": 0.1, "architecture.d_hidden": 128}.
        study: study that the run is tagged as a part of.
        stop_on: rules of `edition` that end the run when they fire.
        experiment: experiment of the run.
        checkpoint_every: epochs between kept weights, including the initial ones [0: only the last weights are kept].
        keep_states: number of training states to keep; an audit replays the next epoch from each.
        points: points per metric in the store's tables [0: one per epoch]; series.parquet always has all of them.
        force: train again.
        keep_trained: keep a run that other code has trained.
        executor: name of the executor. "side_by_side" trains in this process, where a debugger can step into a rule [a
            separate process if third-party code runs, else this process].
        silence: seconds without an epoch after which a run in a separate process counts as hung and is ended; 0: never.
        lease: seconds without a heartbeat after which a run of another machine counts as abandoned. A run that another
            process trains is waited for.

    Returns:
        The run's id, its status and, if it was trained now, its headline metrics.

    Raises:
        InvalidFields: names everything that is wrong, before anything is written.
        RegistryError: training failed.

    >>> fa_registry.train(method="dfa", seed=7, epochs=3, settings={"architecture.d_hidden": 128}).status
    'complete'
    """
    from fa_registry.tracking.writer import RetentionOptions
    from fa_registry.workflows.training import run_train

    own = {"method": method, "architecture": architecture, "dataset": dataset, "seed": seed, "epochs": epochs}
    own |= {"penalty": penalty, "control": control, "device": device}
    asked = {"study": study, "edition": edition, "stop_on": ",".join(as_list(stop_on)), "executor": executor}
    asked |= {"force": force, "keep_trained": keep_trained, "silence": silence, "lease": lease}
    place, keep = StoreLocation(store, experiment, data_root), RetentionOptions(checkpoint_every, points, keep_states)
    return run_train(spec_fields(own, settings or {}), place, threads=threads, keep=keep, **asked)


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
    """Train every run of a study that the store does not have yet; wait for runs that others train.

    Args:
        name: name of the study.
        stop_on, experiment, checkpoint_every, points, force, keep_trained, silence, lease: as for `train`.
        keep_states: replaces the study's value [0: the study's].
        executor: runs the jobs; a name in the group `fa_registry.executors` [local: one process per run; on a GPU
            side_by_side if all code is built in]. `ray` and `submitit` use a cluster.
        address: address of the cluster.
        cpus_per_run, gpus_per_run, memory: resources of one run on the cluster; memory as "4GiB".
        dry_run: train nothing and return the Plan.
        no_probe: with dry_run, time no training step.

    Returns:
        The run ids by outcome, and the errors of failed runs, which are not raised.

    Raises:
        InvalidFields: names everything that is wrong, before anything is written.

    >>> fa_registry.study("digits", epochs=3, seeds=[42]).exit_code
    0
    """
    asked = {"jobs": jobs, "edition": edition, "stop_on": ",".join(as_list(stop_on)), "executor": executor}
    asked |= {"force": force, "keep_trained": keep_trained}
    asked["cluster"] = Cluster(address, cpus_per_run, gpus_per_run, memory)
    chosen = RunSelector(name, overrides=overrides(epochs, seeds, device, data, scale))
    place = StoreLocation(store, experiment, data_root)
    if dry_run:
        from fa_registry.workflows.dry_run import plan_study

        return plan_study(chosen, place, **asked, probing=not no_probe, keep_states=keep_states)
    from fa_registry.tracking.writer import RetentionOptions
    from fa_registry.workflows.study import run_study

    return run_study(
        chosen,
        place,
        **asked,
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
    """Train the runs of a study that no other worker trains, until none is left.

    Any number of workers may run, on any number of machines. The arguments are those of `study`, which also waits for
    the other workers and writes the study's own run.

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
    """Recompute and judge runs, write the pages, and log the audit in the runs' experiment.

    Args:
        editions: several editions, side by side, instead of `edition`.
        waivers: file of findings that do not count [the file that the study names].
        strict: judge as the published code does, by edition 2026-05:strict: FAIL if any rule fires.
        trust_logged: judge the logged metrics without recomputing them.
        replay: `auto` retrains one run of every group and every frozen control to the end and replays 8 steps of the
            others; `all` retrains every run; a number replays that many steps of every run; `off` replays nothing.
        nonce: repeats the choice of an earlier audit [a new random one].
        factories: `package.module:function` that builds the model of a user-supplied loop; only these may be imported.
        executor, address, cpus_per_run, gpus_per_run, memory: where runs are recomputed, as for `study` [this machine].

    Returns:
        The report (`report.runs` with findings and verdicts), its pages, the audit's own run, and `exit_code` (0: none
            fails, 1: some fail, 3: incomplete or not intact).

    Raises:
        InvalidFields: names everything that is wrong.
        NothingSelected: no finished run is chosen.
        StoreError: the store cannot be used.

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
    """Compare methods (all their seeds) or single runs, judged by the same rules, and write compare.html.

    Args:
        operands: two or more methods as an audit names them, or first characters of run ids. They are searched in the
            chosen runs, else in the whole store.
        setting: part of a setting's name, if the methods ran in several settings.
        recompute: recompute the runs first.

    Returns:
        The content of the page (`context`: the columns, what differs, the paired differences), the page, and
            `exit_code` (3: a run is not intact).

    Raises:
        InvalidFields: names everything that is wrong.
        UsageError: the setting is ambiguous.
        IntegrityError, StoreError: a run or the store cannot be used.

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
    """Recompute runs from their artifacts, compare an audit.json with the store, or check a bundle.

    Args:
        report_file: the audit.json or the bundle; give a study or runs instead to recompute them.
        key: the public key that must have signed the bundle.
        replay, nonce, factories: as for `audit`.

    Returns:
        One outcome per run, whose `integrity.state` is verified, mismatch or unverifiable. For a report, its own
            outcome comes first.

    Raises:
        UsageError: not exactly one of report_file, study and run_ids is given.
        InvalidFields, NothingSelected, StoreError: as for `audit`.

    >>> all(found.integrity.state == "verified" for found in fa_registry.verify(study="digits"))
    True
    """
    from fa_registry.workflows.verify import run_verify

    chosen = RunSelector(study, "", as_list(run_ids), overrides(epochs, seeds, device, data, scale))
    measuring = RemeasureOptions(jobs=jobs, replay=replay, device=device, factories=as_list(factories), nonce=nonce)
    return run_verify(str(report_file), chosen, measuring, store, key)


def bundle(
    study: str, out: str = "", *, light: bool = False, sign: str = "", licence: str = "", store: str = ""
) -> BundleResult:
    """Write the newest audit of a study and its runs into one file that proves itself.

    The same store gives the same bytes.

    Args:
        out: the file [STUDY.fa.zip].
        light: leave out the tensors.
        sign: a PEM file with a private Ed25519 key.
        licence: an SPDX identifier.

    Returns:
        Its `path`, its `sha256`, its number of `runs` and its size in bytes.

    Raises:
        UsageError: the study was never audited.
        IntegrityError: a file is not the one that was recorded.

    >>> fa_registry.verify(fa_registry.bundle("digits").path)[0].integrity.state
    'verified'
    """
    from fa_registry.workflows.bundle import make_bundle

    return make_bundle(study, out, light, sign, licence, store)


def import_bundle(path: str | Path, *, experiment: str = "", key: str = "", store: str = "") -> ImportResult:
    """Import the runs of a bundle into a store, once, with the same specifications and the same files.

    Returns:
        `runs` and `present`: id in the bundle → id in the store, of the runs imported now and of those that were there
            before.

    Raises:
        IntegrityError: the bundle is not as it was packed.
        UsageError: the bundle has no tensors.
        StoreError: the store cannot be used.

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
        report_file: an audit.json [reports/audit.json].
        study: render the newest audit of this study in the store instead.

    Returns:
        The paths that were written.

    Raises:
        UsageError: there is no such file or no such audit.
        InvalidFields: the file is not a report.
        IntegrityError: the store has another report than the one that was recorded.

    >>> fa_registry.report("before/audit.json", out="again")
    [PosixPath('again/index.html'), …]
    """
    from fa_registry.workflows.reports import run_report

    return run_report(str(report_file), study, ReportOutput(out, templates), store)


def forget(*run_ids: str, store: str = "") -> list[ForgettableRun]:
    """Move failed or mistaken runs into MLflow's bin without a prompt; either all of them or none.

    An audit still lists these runs as deleted. `mlflow gc` deletes them permanently.

    Args:
        run_ids: ids, or their first characters.

    Returns:
        A description of each run; its `restore` is the command that restores the run.

    Raises:
        InvalidFields: names every run that must be kept: a running one, an audit, one of a registered model, or a study
            with runs.

    >>> [run.status for run in fa_registry.forget("4f1c0a2b")]
    ['failed']
    """
    from fa_registry.workflows.forget import run_forget

    return run_forget(run_ids, store)
