"""The verbs of the command line as functions: the same names, the same options, and what they find as an object.

They are `fa_registry.train`, `study`, `audit`, `compare`, `verify` and `report`. None of them prints or ends the process. What
the command line says while it works goes to Python's `logging` as INFO of the logger `fa_registry`; every error is a
`fa_registry.RegistryError`, whose `exit_code` is the command line's.

Arguments that several of them take:
    study, experiment, run_ids: which runs; one of the three. A study is a shipped one's name, or a study.toml or its folder;
        a run is named by its id or the id's beginning.
    epochs, seeds, device, data, scale: instead of the study's own, when runs are trained and when they are chosen.
    edition, thresholds: the rules to judge by [the study's], a name or a .toml; {rule: number} instead of its own.
    jobs: how many at a time; 0: what suits the machine.
    out, templates: folder of the pages; folder of your own templates.
    store, data_root: tracking URI [MLFLOW_TRACKING_URI, else sqlite:///mlflow.db]; folder of data sets that need files.
Where several names are taken, `"a,b"`, `["a", "b"]` and one alone are the same.
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
    """Train one configuration and log it as one run, unless the store holds a finished run of it.

    settings: recipe fields and options by name, {"learning_rate": 0.1, "architecture.d_hidden": 128}. study: of which the run
    is tagged as a part. control: none, frozen, shallow or ladder_K. stop_on: rules of `edition` that end the run where they fire.
    experiment: for the run. checkpoint_every: epochs between kept weights, the initial ones among them [0: the last alone].
    keep_states: how many states are kept that an audit replays the next epoch from. points: of each metric in the store's tables,
    0: one an epoch; series.parquet has them all. force: train again.
    keep_trained: a run that other code has trained stays. executor: who runs it, "side_by_side" for this process, where a debugger
    can look into a rule [a process of its own where other packages' code is run, else this one]. silence: seconds without an
    epoch after which a run in a process of its own counts as hung and is ended, 0: never. lease: seconds without a sign of life
    after which a run of another machine counts as left; one that another process trains is waited for.

    Returns the run's id, its status and, where it was trained now, its headline figures.
    Raises InvalidFields that names all that is wrong, before anything is written; RegistryError where training breaks.

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
    """Train every run of a study that the store does not hold yet; what another process trains meanwhile is waited for.

    name: of the study. stop_on, experiment, checkpoint_every, points, force, keep_trained, silence, lease: as for `train`.
    keep_states: instead of the study's own [0: the study's].
    executor: who runs the jobs, a name in the group `fa_registry.executors` [local, a process a run; on a GPU side_by_side, if all
    code is ours]; of a cluster, `ray` or `submitit`, with its address, and what one run takes there (memory as "4GiB").
    dry_run: train nothing and return the Plan; no_probe: which then times no step.

    Returns the run ids by what became of them, and the errors of those that failed, which is not raised.
    Raises InvalidFields that names all that is wrong, before anything is written.

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
    """Train what nobody else trains of a study, until nothing of it is left: one worker of any number, on any number of machines.

    Everything as for `study`, which waits for the others, and writes a run of the study's own.

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
    """Recompute and judge runs, write the pages, and log the audit beside its runs.

    editions: several side by side instead of `edition`. waivers: file of findings that shall not count [the file that the
    study names]. strict: judge as the published code does, FAIL if any rule fires, by edition 2026-05:strict.
    trust_logged: judge logged figures without measuring again. replay: `auto` trains one run of every group and every
    frozen control again to the end and takes 8 steps of the others, `all` trains every run again, a number takes so many steps of
    every run, `off` none. nonce: repeats an audit's choice [a new random one]. factories: `package.module:function` of models of
    others' own loops, which may be imported then.
    executor, with what a cluster is asked for: who measures again, as for `study` [this machine].

    Returns the report (`report.runs` with findings and verdicts), its pages, the audit's own run, and `exit_code` (0: none
    fails, 1: some fail, 3: incomplete or not intact).
    Raises InvalidFields that names all that is wrong, NothingSelected where no finished run is chosen, StoreError.

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
    """Put methods (all their seeds) or single runs side by side, judged alike, and write compare.html.

    operands: two or more methods as an audit names them, or beginnings of run ids; looked up in the runs that are chosen, else
    in the whole store. setting: words of a setting's name, where the methods ran in several. recompute: measure again first.

    Returns what the page shows (`context`: the columns, what differs, the paired differences), the page, and `exit_code` (3: a
    run is not intact).
    Raises InvalidFields that names all that is wrong, UsageError where the setting is ambiguous, IntegrityError, StoreError.

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
    """Recompute runs from their artifacts, check that an old audit.json matches the store, or hold a bundle against itself.

    report_file: the audit.json or the bundle; or a study or runs instead. key: the public key that must have signed a bundle.
    replay, nonce, factories: as for `audit`.

    Returns one outcome a run, whose `integrity.state` is verified, mismatch or unverifiable; of a report first its own.
    Raises UsageError unless exactly one thing is asked for, InvalidFields, NothingSelected, StoreError.

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
    """The newest audit of a study with its runs in one file that proves itself; the same store gives the same bytes.

    out: the file [STUDY.fa.zip]. light: without tensors. sign: a PEM file with a private Ed25519 key. licence: an SPDX identifier.

    Returns its `path`, `sha256`, and how many `runs` and bytes it has.
    Raises UsageError where the study was never audited, IntegrityError where a file is not the one that was recorded.

    >>> fa_registry.verify(fa_registry.bundle("digits").path)[0].integrity.state
    'verified'
    """
    from fa_registry.workflows.bundle import make_bundle

    return make_bundle(study, out, light, sign, licence, store)


def import_bundle(path: str | Path, *, experiment: str = "", key: str = "", store: str = "") -> ImportResult:
    """Put the runs of a bundle into a store, under the same specifications and with the same sealed files; once.

    Returns `runs` and `present`: id in the bundle → id in the store, of those put there now, and of those that were there.
    Raises IntegrityError where the bundle is not as it was packed, UsageError where it holds no tensors, StoreError.

    >>> fa_registry.import_bundle("digits.fa.zip").runs
    {'3f2a…': '90ab…', …}
    """
    from fa_registry.workflows.bundle import import_into

    return import_into(str(path), experiment, store, key)


def report(
    report_file: str | Path = "", *, study: str = "", out: str = "reports", templates: str = "", store: str = ""
) -> list[Path]:
    """Render the pages of an audit again: same records, same bytes.

    report_file: an audit.json [reports/audit.json]; study: its newest audit in the store instead.

    Returns the paths that were written.
    Raises UsageError where there is no such file or no such audit, InvalidFields where the file is no report, IntegrityError
    where the store holds another than was recorded.

    >>> fa_registry.report("before/audit.json", out="again")
    [PosixPath('again/index.html'), …]
    """
    from fa_registry.workflows.reports import run_report

    return run_report(str(report_file), study, ReportOutput(out, templates), store)


def forget(*run_ids: str, store: str = "") -> list[ForgettableRun]:
    """Put failed or mistaken runs into MLflow's bin, without asking; all of them or none.

    run_ids: ids, or their first characters. An audit still lists these runs as deleted; `mlflow gc` deletes them for ever.

    Returns what each run was, with the command that brings it back as `restore`.
    Raises InvalidFields that names every run that must stay: at work, an audit, a registered model's, or a study's with runs.

    >>> [run.status for run in fa_registry.forget("4f1c0a2b")]
    ['failed']
    """
    from fa_registry.workflows.forget import run_forget

    return run_forget(run_ids, store)
