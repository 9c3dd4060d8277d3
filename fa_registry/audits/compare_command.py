"""The compare command: judge methods or runs by the same rules and write one page."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fa_registry.audits.audit_command import build_report, checked_judging, is_intact
from fa_registry.audits.options import JudgingOptions, ReportOutput
from fa_registry.audits.selection import Selection, select_runs
from fa_registry.errors import IntegrityError, InvalidFields, NothingSelected, UsageError, unknown_name_text
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.protocol.grouping import Group, groups
from fa_registry.records import FROZEN_LONG, AuditReport, Exclusion, RunAudit
from fa_registry.reporting.labels import group_label
from fa_registry.reporting.notebook import COMPARISON
from fa_registry.reporting.pages.comparison import CompareContext, compare_context
from fa_registry.reporting.render import render_comparison
from fa_registry.studies.options import RunSelector, StoreLocation
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import check_kind
from fa_registry.tracking.run_state import RunState
from fa_registry.tracking.stores import in_browser, open_tracker

if TYPE_CHECKING:
    import pandas as pd

WHOLE_STORE = "the newest run of every specification in the store"
# At least four characters, because the method names `dfa` and `fa` are hexadecimal numbers too.
RUN_ID = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True)
class Operand:
    """One method or one run to compare.

    The user gives a method by its label and a run by the first characters of its id.

    Attributes:
        typed: The operand, as the user typed it.
        label: Label of the method without options, as in the tag of its runs.
        runs: All runs of the method, or only the given run.
    """

    typed: str
    label: str
    is_run: bool
    runs: tuple[StoredRun, ...]


@dataclass(frozen=True, repr=False)
class CompareResult:
    """Result of `run_compare`.

    Attributes:
        context: Content of the page.
        exit_code: 0 if all runs passed their integrity checks, otherwise 3.
        in_mlflow: Address of the MLflow page that compares one run per operand, or an empty string if the store has no pages.
    """

    context: CompareContext
    page: Path
    exit_code: int
    in_mlflow: str = ""
    store: str = ""

    def _repr_html_(self) -> str:
        return COMPARISON.html(self.context)

    def __repr__(self) -> str:
        return f"CompareResult({self.context.title!r}, exit_code={self.exit_code}, page={str(self.page)!r})"

    def __str__(self) -> str:
        return f"{COMPARISON.text(self.context)}\npage: {self.page}"

    def frame(self) -> pd.DataFrame:
        """Return a pandas frame with one row per setting, metric and compared method or run."""
        import pandas as pd  # not needed to compare runs

        rows = [
            {
                "setting": part.setting,
                "metric": metric.name,
                "compared": column.method,
                "mean": estimate.mean.reading.value,
                "low": estimate.low.value,
                "high": estimate.high.value,
                "n": estimate.n,
            }
            for part, _ in self.context.parts
            for metric in part.metrics
            for column in part.columns
            for estimate in [column.estimates[metric.name]]
        ]
        return pd.DataFrame(rows)


def run_compare(
    texts: Sequence[str],
    selector: RunSelector,
    setting: str,
    judging: JudgingOptions,
    measuring: RemeasureOptions,
    location: StoreLocation,
    pages: ReportOutput,
) -> CompareResult:
    """Judge methods or runs by one edition, without waivers, and write compare.html.

    Args:
        texts: The operands, that is, the method labels or run ids to compare.
        selector: Runs among which the operands are searched. If empty, these are the newest finished runs of all specifications.
        setting: Part of the names of the settings to compare; required if `selector` is empty and the operands were trained
            in several settings.

    Raises:
        InvalidFields: Arguments are invalid; the error lists all of them.
        UsageError: The operands and `setting` do not determine one setting.
    """
    problems: list[str] = []
    if len(texts) < 2:
        problems.append(f"operands: expected two or more methods or runs, found {', '.join(texts) or 'none'}")
    editions, measuring = checked_judging(selector, judging, measuring, pages, problems)
    if problems:
        raise InvalidFields("compare", problems)
    tracker = open_tracker(location.store, create=False)
    selection = _pool(tracker, selector)
    pool = filter_by_setting(selection.runs, setting) if setting else selection.runs
    check_kinds(tracker, texts, pool)
    compared = parse_operands(texts, pool)
    if not selector.ways:
        check_unambiguous(compared)
    narrowed = dataclasses.replace(
        selection,
        runs=tuple(needed(compared, pool)),
        excluded=tuple(excluded for excluded in selection.excluded if _concerns(excluded, compared)),
        remarks=(),  # the remarks are about all selected runs, not only the compared runs
    )
    report = build_report(tracker, narrowed, editions, measuring, location.root)
    columns = comparison_columns(report, compared)
    context = compare_context(report, columns)
    page = render_comparison(context, Path(pages.out), pages.own_templates)
    in_mlflow = in_browser(tracker.uri, tracker.comparison(example_runs(columns)))
    return CompareResult(context, page, 0 if is_intact(report) else IntegrityError.exit_code, in_mlflow, tracker.uri)


def check_kinds(tracker: Tracker, texts: Iterable[str], pool: Sequence[StoredRun]) -> None:
    """Raise UsageError if an operand is the id of a run that is no training run, for example of an audit."""
    for text in filter(RUN_ID.fullmatch, texts):
        if not any(run.run_id.startswith(text) for run in pool):
            for run in tracker.search({}, start=text):
                check_kind(tracker, run)


def parse_operands(texts: Sequence[str], pool: Sequence[StoredRun]) -> list[Operand]:
    """Return the methods or runs that the user typed, each with its runs from `pool`.

    Raises:
        InvalidFields: Operands are unknown, ambiguous or overlapping; the error lists all of them.
    """
    problems: list[str] = []
    operands = [operand for text in texts if (operand := _operand(text, pool, problems))]
    problems += _twice(operands)
    if problems:
        raise InvalidFields("compare", problems)
    return operands


def _twice(operands: Sequence[Operand]) -> Iterable[str]:
    for index, operand in enumerate(operands):
        for previous in operands[:index]:
            shared_ids = {run.run_id for run in operand.runs} & {run.run_id for run in previous.runs}
            if operand.typed == previous.typed or (shared_ids and operand.is_run and previous.is_run):
                yield f"{operand.typed}: the same as {previous.typed}; expected different methods or runs"
            elif shared_ids and operand.is_run != previous.is_run:
                yield f"{operand.typed}: this operand and {previous.typed} contain the same run; expected only methods or only runs"


def _operand(text: str, pool: Sequence[StoredRun], problems: list[str]) -> Operand | None:
    label = text.partition(" (")[0]
    runs = tuple(run for run in pool if run.tags.get(schema.TAG_METHOD) == label)
    if runs:
        return Operand(text, label, False, runs)
    candidates = pool if RUN_ID.fullmatch(text) else ()
    by_id = tuple(run for run in candidates if run.run_id.startswith(text))
    # as in `show`, an imported run is also found by the id that it had in its bundle
    by_id = by_id or tuple(run for run in candidates if run.tags.get(schema.TAG_IMPORTED_ID, "").startswith(text))
    if len(by_id) == 1:
        return Operand(text, by_id[0].tags.get(schema.TAG_METHOD, ""), True, by_id)
    if by_id:
        ids = ", ".join(run.run_id for run in by_id[:5])
        problems.append(f"{text}: {len(by_id)} run ids begin with these characters ({ids}); give more characters")
    else:
        labels = {run.tags.get(schema.TAG_METHOD, "") for run in pool}
        problems.append(f"{text}: {unknown_name_text('method or run', text, labels)}")
    return None


def _pool(tracker: Tracker, selector: RunSelector) -> Selection:
    """Return the runs among which the operands are searched."""
    if selector.ways:
        return select_runs(tracker, selector)
    newest = {}
    for run in tracker.search({schema.TAG_KIND: "run"}):  # newest first
        if RunState(run).is_finished:
            newest.setdefault(run.tags.get(schema.TAG_SPEC), run)
    if not newest:
        raise NothingSelected(f"no finished run in {tracker.uri}; `fa-registry study` trains runs")
    return Selection(tuple(newest.values())[::-1], (), WHOLE_STORE)


def _concerns(excluded: Exclusion, compared: Sequence[Operand]) -> bool:
    """Return whether an excluded run belongs to one of the compared methods."""
    # without a readable specification, the run's tag gives the method
    label = excluded.spec.method_label if excluded.spec else excluded.method
    return any(label == operand.label for operand in compared)


SHOWN = 8  # characters of a run's id in its label
CONTROLS = ("frozen", FROZEN_LONG, "shallow", "bp ladder 1")  # labels of the controls on which a verdict may depend


def needed(compared: Sequence[Operand], pool: Sequence[StoredRun]) -> list[StoredRun]:
    """Return the runs of the operands, other seeds of the same methods, and their controls."""
    # other seeds are needed because a rule may use the mean over seeds
    labels_and_settings = {
        (label, _setting(run)) for operand in compared for run in operand.runs for label in (operand.label, *CONTROLS)
    }
    return [run for run in pool if (run.tags.get(schema.TAG_METHOD, ""), _setting(run)) in labels_and_settings]


def check_unambiguous(compared: Sequence[Operand]) -> None:
    """Raise UsageError with the possible settings if the operands do not determine the settings.

    The settings are determined if exactly one setting contains all operands, or if each operand was trained in only one
    setting.
    """
    settings_by_operand = [dict.fromkeys(map(_setting, operand.runs)) for operand in compared]
    first, *others = settings_by_operand
    shared = [setting for setting in first if all(setting in other for other in others)]
    if len(shared) == 1 or all(len(settings) == 1 for settings in settings_by_operand):
        return
    listed_settings = shared or list(dict.fromkeys(setting for settings in settings_by_operand for setting in settings))
    explanation = "Settings with all operands" if shared else "No setting has all operands. Settings with some operands"
    lines = "".join(f"\n  - {setting}" for setting in listed_settings)
    raise UsageError(
        f"compare: the runs of {', '.join(operand.typed for operand in compared)} are in several settings; "
        f"choose one setting with --setting, --study, --experiment or --run. {explanation}:{lines}"
    )


def filter_by_setting(pool: Sequence[StoredRun], text: str) -> list[StoredRun]:
    """Return the runs in settings whose name contains `text`.

    Raises:
        UsageError: No run matches.
    """
    matches = [run for run in pool if text in _setting(run)]
    if not matches:
        raise UsageError(f"compare: {unknown_name_text('setting', text, {_setting(run) for run in pool})}")
    return matches


def comparison_columns(report: AuditReport, compared: Sequence[Operand]) -> list[Group]:
    """Return the groups of judged runs to compare, in the order of the operands.

    An operand that is a single run gives a group that contains only this run.

    Raises:
        InvalidFields: No run of an operand could be judged.
        IntegrityError: No run of an operand could be judged because a file was changed.
    """
    judged = groups(report)
    gaps = {excluded.run_id: excluded for excluded in report.excluded}
    columns, problems, is_changed = [], [], False
    for operand in compared:
        operand_columns = _columns(operand, judged)
        columns += operand_columns
        if not operand_columns:
            gap = gaps.get(operand.runs[0].run_id)
            variants = [group_label(group) for group in judged if group.method == operand.label]
            reason = gap.reason if gap else unknown_name_text("variant", operand.typed, variants)
            problems.append(f"{operand.typed}: {reason}")
            is_changed |= bool(gap) and gap.kind == "integrity"
    if is_changed:
        raise IntegrityError("\n".join(problems))
    if problems:
        raise InvalidFields("compare", problems)
    return columns


def example_runs(columns: Sequence[Group]) -> list[str]:
    """Return one run id per group; if all groups have a seed in common, the runs have this seed."""
    # if the seeds are equal, MLflow's page shows only differences between methods
    by_seed = [{run.record.spec.seed: run.record.run_id for run in group.runs} for group in columns]
    shared = next((seed for seed in by_seed[0] if all(seed in runs for runs in by_seed)), None)
    return [runs.get(shared) or next(iter(runs.values())) for runs in by_seed]


def _columns(operand: Operand, judged: Sequence[Group]) -> list[Group]:
    if operand.is_run:
        run_id = operand.runs[0].run_id
        return [_alone(group, run) for group in judged for run in group.every_run if run.record.run_id == run_id]
    exact = [group for group in judged if group_label(group) == operand.typed.replace(", ", ",")]
    variants = [group for group in judged if group.method == operand.typed]
    return exact if "(" in operand.typed else variants


def _alone(group: Group, run: RunAudit) -> Group:
    method = f"{group.method} s{run.record.spec.seed} {run.record.run_id[:SHOWN]}"
    return dataclasses.replace(group, method=method, runs=(run,), verdict=run.verdict, duplicates=())


def _setting(run: StoredRun) -> str:
    return run.tags.get(schema.TAG_SETTING, "")
