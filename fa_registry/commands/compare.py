"""The compare verb: methods or runs side by side, judged alike, on the terminal and as a page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fa_registry.commands.audit import AuditRequest, Terms, build_report
from fa_registry.commands.contenders import Operand, check_unambiguous, columns, in_setting, needed, operands
from fa_registry.commands.editions import checked_request
from fa_registry.commands.selection import Selection, select
from fa_registry.commands.stores import open_tracker
from fa_registry.errors import InvalidFields, NothingSelected
from fa_registry.protocol.rules import Edition
from fa_registry.records import Exclusion
from fa_registry.reporting.build_compare import compare_context
from fa_registry.reporting.compare_parts import CompareContext
from fa_registry.reporting.render_compare import render_comparison
from fa_registry.reporting.user_templates import template_problems
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker

NOT_INTACT = 3
WHOLE_STORE = "the newest run of every specification in the store"


@dataclass(frozen=True)
class CompareRequest:
    """What to compare. operands: method labels and run ids. At most one of study, experiment, run_ids; none: the store.

    setting: words of a setting's name, where the methods ran in several. recompute: measure every run again first;
    otherwise the logged figures count, whose files are checked by their digests. Waivers do not apply.
    """

    operands: tuple[str, ...]
    study: str = ""
    experiment: str = ""
    run_ids: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    setting: str = ""
    edition: str = ""
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    recompute: bool = False
    jobs: str | int = 0
    out: str = "reports"
    templates: str = ""
    store: str = ""
    data_root: str = ""


@dataclass(frozen=True)
class CompareResult:
    """exit_code: 0, or 3 where a run is not intact."""

    context: CompareContext
    page: Path
    exit_code: int


def run_compare(request: CompareRequest) -> CompareResult:
    """Read and judge what is compared, and write compare.html to `out`."""
    edition, processes = _checked(request)
    tracker = open_tracker(request.store, create=False)
    selection = _pool(tracker, request)
    pool = in_setting(selection.runs, request.setting) if request.setting else selection.runs
    found = operands(request.operands, pool)
    if not (request.study or request.experiment or request.run_ids):
        check_unambiguous(found)
    narrowed = dataclasses.replace(
        selection,
        runs=tuple(needed(found, pool)),
        excluded=tuple(one for one in selection.excluded if _concerns(one, found)),
        remarks=(),  # they are of the whole selection
    )
    gathering = AuditRequest(trust_logged=not request.recompute, data_root=request.data_root)
    report, tampered = build_report(tracker, narrowed, Terms((edition,), (), processes), gathering)
    context = compare_context(report, columns(report, found))
    page = render_comparison(context, Path(request.out), Path(request.templates) if request.templates else None)
    return CompareResult(context, page, NOT_INTACT if tampered else 0)


def _checked(request: CompareRequest) -> tuple[Edition, int]:
    """Refuse what cannot end well before the store is opened; every wrong field is named."""
    problems: list[str] = []
    if len(request.operands) < 2:
        found = ", ".join(request.operands) or "none"
        problems.append(f"operands: expected two or more methods or runs, found {found}")
    if request.templates:
        problems += template_problems(Path(request.templates))
    editions, processes = checked_request(request, (), problems)
    if problems:
        raise InvalidFields("compare", problems)
    return editions[0], processes


def _pool(tracker: Tracker, request: CompareRequest) -> Selection:
    """The runs among which the operands are looked up."""
    if request.study or request.experiment or request.run_ids:
        return select(tracker, request.study, request.experiment, request.run_ids, request.overrides)
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
