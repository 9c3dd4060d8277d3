"""The commands of the command line as functions with the same names and options, which return objects.

No function prints or ends the process. Progress messages are logged by the logger `fa_registry` at level INFO. Every
error is a `fa_registry.RegistryError`; its `exit_code` is the exit code of the command. If arguments are invalid, every
function raises InvalidFields, which lists all of them, before it writes anything.

Arguments that several functions share (the default is in brackets):
    study, experiment, run_ids: choose the runs; give one of the three. A study is the name of a built-in study, a
        study.toml or its folder. A run is given by its id or by the first characters of the id. For training and
        importing, `experiment` is the experiment in which runs are logged.
    epochs, seeds, device, data, scale: replace the study's values, for training and for choosing runs.
    edition: the rules to judge by, as a name or a .toml file [the study's edition].
    thresholds: {rule: number}, replaces thresholds of the edition.
    jobs: number of parallel processes; 0: chosen for the machine.
    out: folder to which the pages are written.
    templates: folder of user templates.
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
    """Train one configuration and log it as one run, unless the store has its finished run.

    If another process trains the same configuration, wait for that run.

    Args:
        control: none, frozen, shallow or ladder_K.
        settings: recipe fields and options by name, {"learning_rate": 0.1, "architecture.d_hidden": 128}.
        study: name of the study in the run's tags.
        stop_on: rules of `edition`; the run ends when one of these rules fires.
        checkpoint_every: number of epochs between kept weights, from the initial weights on; 0: only the last weights.
        keep_states: number of training states to keep; from each, an audit can replay the next epoch.
        points: number of points per metric in the store's tables; 0: one per epoch. series.parquet has every epoch.
        force: train even if the store has a finished run.
        keep_trained: keep a finished run that was trained with other code.
        executor: name of the executor [a separate process for third-party code, else this process]. "side_by_side"
            trains in this process, where a debugger can step into a rule.
        silence: a run in a separate process is ended if it completes no epoch in this number of seconds; 0: never.
        lease: a run on another machine counts as abandoned if it has no heartbeat for this number of seconds.

    Returns:
        The run's id, its status and, if it was trained now, its headline metrics.

    Raises:
        InvalidFields: arguments are invalid.
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
    """Train the runs of a study that the store does not have, and wait for runs of other workers.

    Args:
        stop_on, checkpoint_every, points, force, keep_trained, silence, lease: as for `train`.
        keep_states: as for `train` [0: the study's value].
        executor: a name in the entry-point group `fa_registry.executors` [local: one process per run; on a GPU
            side_by_side if all code is built-in]. `ray` and `submitit` use the cluster at `address`.
        cpus_per_run, gpus_per_run, memory: resources of one run on the cluster; memory as "4GiB".
        dry_run: train nothing and return the Plan.
        no_probe: with dry_run, do not time a training step.

    Returns:
        The run ids by outcome, and the errors of failed runs. These errors are not raised.

    Raises:
        InvalidFields: arguments are invalid.

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
    """Train the runs of a study that no other worker trains, until no such run remains.

    Many workers may run on many machines. The arguments are as for `study`. Unlike `work`, `study` also waits for other
    workers and logs a run for the study itself.

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
        editions: several editions to judge by, instead of `edition`.
        waivers: file with documented exceptions [the file that the study names].
        strict: judge as the published code does, by edition 2026-05:strict. A run fails if any rule fires.
        trust_logged: judge the logged metrics without recomputing them.
        replay: `auto` retrains one run of every group and every frozen control to the end, and replays 8 steps of the
            other runs; `all` retrains every run; a number replays this number of steps of every run; `off`: no replay.
        nonce: hexadecimal digits from an earlier audit; the same digits choose the same runs [new random digits].
        factories: `package.module:function` of each trusted function that builds the model of a user-supplied loop.
        executor, address, cpus_per_run, gpus_per_run, memory: where runs are recomputed, as for `study` [this machine].

    Returns:
        The report (`report.runs` with findings and verdicts), its pages, the audit's own run, and `exit_code` (0: no
            run fails, 1: some runs fail, 3: a run is incomplete or not intact).

    Raises:
        InvalidFields: arguments are invalid.
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
    """Compare methods (all their seeds) or single runs by the same rules, and write compare.html.

    Args:
        operands: two or more method labels or first characters of run ids, searched in the chosen runs [all runs].
        setting: part of a setting's name; needed if the methods ran in several settings.
        recompute: recompute the metrics of the runs first.

    Returns:
        The content of the page (`context`), the path of the page, and `exit_code` (3: a run is not intact).

    Raises:
        InvalidFields: arguments are invalid.
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
        report_file: path of the audit.json or of the bundle. To recompute runs, give `study` or `run_ids` instead.
        key: public key of the expected signer of the bundle.
        replay, nonce, factories: as for `audit`.

    Returns:
        One outcome per run; its `integrity.state` is verified, mismatch or unverifiable. For an audit.json, the first
            outcome is about the report itself.

    Raises:
        UsageError: expected exactly one of report_file, study and run_ids.
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
    """Write the newest audit of a study and its runs into one file; the same store gives the same bytes.

    Args:
        out: path of the file [STUDY.fa.zip].
        light: omit the tensors. Then `verify` cannot recompute metrics.
        sign: path of a PEM file with a private Ed25519 key.
        licence: an SPDX identifier.

    Returns:
        The bundle's `path`, `sha256`, number of `runs` and `size` in bytes.

    Raises:
        UsageError: the study was never audited.
        IntegrityError: a file differs from its recorded digest.

    >>> fa_registry.verify(fa_registry.bundle("digits").path)[0].integrity.state
    'verified'
    """
    from fa_registry.workflows.bundle import make_bundle

    return make_bundle(study, out, light, sign, licence, store)


def import_bundle(path: str | Path, *, experiment: str = "", key: str = "", store: str = "") -> ImportResult:
    """Import the runs of a bundle that the store does not have, with the same specifications and files.

    Returns:
        `runs` and `present`: id in the bundle → id in the store. `runs` are imported now; `present` were in the store.

    Raises:
        IntegrityError: the bundle was changed after it was packed.
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
        report_file: path of an audit.json [reports/audit.json].
        study: render the newest audit of this study in the store instead.

    Returns:
        The paths of the written pages.

    Raises:
        UsageError: the file or the audit does not exist.
        InvalidFields: the file is not a report.
        IntegrityError: the store's report differs from its recorded digest.

    >>> fa_registry.report("before/audit.json", out="again")
    [PosixPath('again/index.html'), …]
    """
    from fa_registry.workflows.reports import run_report

    return run_report(str(report_file), study, ReportOutput(out, templates), store)


def forget(*run_ids: str, store: str = "") -> list[ForgettableRun]:
    """Move failed or mistaken runs to MLflow's bin, without a prompt.

    Either all runs are moved or none. An audit still lists these runs as deleted. `mlflow gc` removes them permanently.

    Args:
        run_ids: ids, or their first characters.

    Returns:
        A description of each run; its `restore` is the command that restores the run.

    Raises:
        InvalidFields: lists every run that must be kept: a run that is still training, an audit, the run of a
            registered model, or a study with runs.

    >>> [run.status for run in fa_registry.forget("4f1c0a2b")]
    ['failed']
    """
    from fa_registry.workflows.forget import run_forget

    return run_forget(run_ids, store)
