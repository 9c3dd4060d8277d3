"""The compare verb: methods or runs side by side, judged alike, on the terminal and as a page."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fa_registry.errors import IntegrityError, InvalidFields, NothingSelected, UsageError, unknown_name_text
from fa_registry.protocol.grouping import Group, groups
from fa_registry.protocol.rules import Edition
from fa_registry.records import AuditReport, Exclusion
from fa_registry.reporting.labels import group_label
from fa_registry.reporting.pages.comparison import CompareContext, compare_context
from fa_registry.reporting.render import render_comparison
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.workflows.audit import LoadedTerms, build_report
from fa_registry.workflows.editions import checked_terms
from fa_registry.workflows.evidence import checked_measuring
from fa_registry.workflows.requests import LOGGED, Chosen, Measuring, Pages, Place, Terms, checked_pages
from fa_registry.workflows.selection import Selection, select
from fa_registry.workflows.stores import open_tracker

NOT_INTACT = 3
WHOLE_STORE = "the newest run of every specification in the store"


def operands(texts: Sequence[str], pool: Sequence[StoredRun]) -> list[Operand]:
    """Every operand looked up among the pool; InvalidFields names all that cannot be."""
    problems: list[str] = []
    found = [_operand(text, pool, problems) for text in texts]
    known = [one for one in found if one]
    problems += _twice(known)
    if problems:
        raise InvalidFields("compare", problems)
    return known


def _twice(found: Sequence[Operand]) -> Iterable[str]:
    for place, one in enumerate(found):
        for other in found[:place]:
            both = {run.run_id for run in one.runs} & {run.run_id for run in other.runs}
            if one.text == other.text or (both and one.is_run == other.is_run and one.is_run):
                yield f"{one.text}: the same as {other.text}; expected things that differ"
            elif both and one.is_run != other.is_run:
                yield f"{one.text}: one of {other.text} is part of the other; compare runs with runs, methods with methods"


def _operand(text: str, pool: Sequence[StoredRun], problems: list[str]) -> Operand | None:
    label = text.partition(" (")[0]
    runs = tuple(run for run in pool if run.tags.get(schema.TAG_METHOD) == label)
    if runs:
        return Operand(text, label, False, runs)
    by_id = tuple(run for run in pool if RUN_ID.fullmatch(text) and run.run_id.startswith(text))
    if len(by_id) == 1:
        return Operand(text, by_id[0].tags.get(schema.TAG_METHOD, ""), True, by_id)
    if by_id:
        ids = ", ".join(run.run_id for run in by_id[:5])
        problems.append(f"{text}: {len(by_id)} runs begin so ({ids}); give more characters of the id")
    else:
        labels = {run.tags.get(schema.TAG_METHOD, "") for run in pool}
        problems.append(f"{text}: {unknown_name_text('method or run', text, labels)}")
    return None


@dataclass(frozen=True)
class Operand:
    """runs: those it stands for; of a run operand the one. label: without options, as the store's tag has it."""

    text: str
    label: str
    is_run: bool
    runs: tuple[StoredRun, ...]


# What the operands of `compare` stand for: methods by their label, runs by the first characters of their id.


# Four characters at least: `dfa` and `fa` are hexadecimal too, and whoever mistypes a method means no run.
RUN_ID = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True)
class CompareRequest:
    """What to compare. operands: method labels and run ids. chosen: of at most one way; of none: the store.

    setting: words of a setting's name, where the methods ran in several. Waivers do not apply, and one edition judges.
    """

    operands: tuple[str, ...]
    chosen: Chosen = Chosen()
    setting: str = ""
    terms: Terms = Terms()
    measuring: Measuring = LOGGED
    place: Place = Place()
    pages: Pages = Pages()


@dataclass(frozen=True)
class CompareResult:
    """exit_code: 0, or 3 where a run is not intact."""

    context: CompareContext
    page: Path
    exit_code: int


def run_compare(request: CompareRequest) -> CompareResult:
    """Read and judge what is compared, and write compare.html to `out`."""
    edition, measuring = _checked(request)
    tracker = open_tracker(request.place.store, create=False)
    selection = _pool(tracker, request.chosen)
    pool = in_setting(selection.runs, request.setting) if request.setting else selection.runs
    found = operands(request.operands, pool)
    if not request.chosen.ways:
        check_unambiguous(found)
    narrowed = dataclasses.replace(
        selection,
        runs=tuple(needed(found, pool)),
        excluded=tuple(one for one in selection.excluded if _concerns(one, found)),
        remarks=(),  # they are of the whole selection
    )
    report, tampered = build_report(tracker, narrowed, LoadedTerms((edition,)), measuring, request.place.data_root)
    context = compare_context(report, columns(report, found))
    page = render_comparison(context, Path(request.pages.out), request.pages.own_templates)
    return CompareResult(context, page, NOT_INTACT if tampered else 0)


def _checked(request: CompareRequest) -> tuple[Edition, Measuring]:
    """Refuse what cannot end well before the store is opened; every wrong field is named."""
    problems: list[str] = []
    if len(request.operands) < 2:
        found = ", ".join(request.operands) or "none"
        problems.append(f"operands: expected two or more methods or runs, found {found}")
    checked_pages(request.pages, problems)
    measuring = checked_measuring(request.measuring, problems)
    editions = checked_terms(request.chosen, request.terms, problems)
    if problems:
        raise InvalidFields("compare", problems)
    return editions[0], measuring


def _pool(tracker: Tracker, chosen: Chosen) -> Selection:
    """The runs among which the operands are looked up."""
    if chosen.ways:
        return select(tracker, chosen)
    newest = {}
    for run in tracker.search({schema.TAG_KIND: "run"}):  # newest first
        if run.tags.get(schema.TAG_STATUS) in schema.FINISHED_STATUSES:
            newest.setdefault(run.tags.get(schema.TAG_SPEC), run)
    if not newest:
        raise NothingSelected(f"no finished run in {tracker.uri}; `fa-registry study` trains some")
    return Selection(tuple(newest.values())[::-1], (), WHOLE_STORE)


def _concerns(excluded: Exclusion, found: list[Operand]) -> bool:
    """Whether a run that cannot be judged is of a method that is compared; by its specification, or its tag where that is lost."""
    label = excluded.spec.method_label if excluded.spec else excluded.method
    return any(label == operand.label for operand in found)


SHOWN = 8  # characters of a run's id in its label
FROZEN = "frozen"


def needed(found: Sequence[Operand], pool: Sequence[StoredRun]) -> list[StoredRun]:
    """The operands' runs, the other seeds of a single run (a rule may judge over seeds), and their frozen controls."""
    settings = {_setting(run) for one in found for run in one.runs}
    groups_of = {(one.label, _setting(run)) for one in found for run in one.runs}
    groups_of |= {(FROZEN, setting) for setting in settings}
    return [run for run in pool if (run.tags.get(schema.TAG_METHOD, ""), _setting(run)) in groups_of]


def check_unambiguous(found: Sequence[Operand]) -> None:
    """UsageError with the choices where methods of a whole store ran in several settings."""
    of_each = [dict.fromkeys(map(_setting, one.runs)) for one in found]
    shared = [setting for setting in of_each[0] if all(setting in others for others in of_each)]
    if len(shared) == 1 or all(len(settings) == 1 for settings in of_each):
        return
    named = shared or list(dict.fromkeys(setting for settings in of_each for setting in settings))
    where = "all of them ran" if shared else "none has them all"
    listed = "".join(f"\n  - {setting}" for setting in named)
    raise UsageError(
        f"compare: {', '.join(one.text for one in found)} ran in several settings of this store; "
        f"choose by --setting, --study, --experiment or --run ({where} in these):{listed}"
    )


def in_setting(pool: Sequence[StoredRun], words: str) -> list[StoredRun]:
    """The runs in whose setting's name the words stand; UsageError with the known names where there is none."""
    kept = [run for run in pool if words in _setting(run)]
    if not kept:
        raise UsageError(f"compare: {unknown_name_text('setting', words, {_setting(run) for run in pool})}")
    return kept


def columns(report: AuditReport, found: Sequence[Operand]) -> list[Group]:
    """The groups of the judged runs in the operands' order; a single run as a group of its own, with its own verdict.

    InvalidFields where no run of an operand could be judged, IntegrityError where that is because of a changed file.
    """
    judged = groups(report)
    made = [(one, _columns(one, judged)) for one in found]
    excluded = {one.run_id: one for one in report.excluded}
    missing = [(one, excluded.get(one.runs[0].run_id)) for one, own in made if not own]
    problems = [f"{one.text}: {gone.reason if gone else _options_known(one, judged)}" for one, gone in missing]
    if any(gone and gone.kind == "integrity" for _, gone in missing):
        raise IntegrityError("\n".join(problems))
    if problems:
        raise InvalidFields("compare", problems)
    return [group for _, own in made for group in own]


def _columns(operand: Operand, judged: Sequence[Group]) -> list[Group]:
    if operand.is_run:
        run_id = operand.runs[0].run_id
        return [_alone(group, run_id) for group in judged for run in group.runs if run.record.run_id == run_id]
    exact = [group for group in judged if group_label(group) == operand.text]
    wide = [group for group in judged if group.method == operand.text]
    return exact if "(" in operand.text else wide


def _alone(group: Group, run_id: str) -> Group:
    (run,) = [run for run in group.runs if run.record.run_id == run_id]
    method = f"{group.method} s{run.record.spec.seed} {run_id[:SHOWN]}"
    return dataclasses.replace(group, method=method, runs=(run,), verdict=run.verdict)


def _options_known(operand: Operand, judged: Sequence[Group]) -> str:
    labels = [group_label(group) for group in judged if group.method == operand.label]
    return unknown_name_text("variant", operand.text, labels)


def _setting(run: StoredRun) -> str:
    return run.tags.get(schema.TAG_SETTING, "")
