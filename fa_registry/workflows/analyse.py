"""The analyse verb: judge many runs once, ask questions of all of them, write the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fa_registry import jsonio
from fa_registry.analyses import CATALOG, Analyser, Analysis
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.protocol.rules import Edition
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.analyses import analysis_png, table_numbers
from fa_registry.workflows.audit import AuditRequest, Terms, build_report
from fa_registry.workflows.editions import checked_request
from fa_registry.workflows.selection import select
from fa_registry.workflows.stores import open_tracker

ALL = "all"
NOT_INTACT = 3


@dataclass(frozen=True)
class AnalyseRequest:
    """What to ask of which runs. Exactly one of study, experiment, run_ids; name: one analysis, or `all`.

    recompute: measure every run again first; otherwise the logged figures count, whose files are checked by their digests.
    Waivers do not apply: an analysis asks what the rules say. thresholds: of the edition, instead of its own.
    """

    name: str
    study: str = ""
    experiment: str = ""
    run_ids: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    edition: str = ""
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    recompute: bool = False
    jobs: str | int = 0
    out: str = "reports/analyses"
    store: str = ""
    data_root: str = ""


@dataclass(frozen=True)
class AnalyseResult:
    """files: what was written, the JSON of each analysis first. exit_code: 0, or 3 where a run is not intact."""

    analyses: tuple[Analysis, ...]
    files: tuple[Path, ...]
    exit_code: int


def run_analyse(request: AnalyseRequest) -> AnalyseResult:
    """Read and judge the selected runs, answer, and write JSON, CSV and PNG to `out`."""
    analysers, edition, processes = _checked(request)
    tracker = open_tracker(request.store, create=False)
    selection = select(tracker, request.study, request.experiment, request.run_ids, request.overrides)
    gathering = AuditRequest(trust_logged=not request.recompute, data_root=request.data_root)
    report, tampered = build_report(tracker, selection, Terms((edition,), (), processes), gathering)
    out = Path(request.out)
    out.mkdir(parents=True, exist_ok=True)
    analyses, files = [], []
    for analyser in analysers:
        analysis = analyser.run(report, edition)
        analyses.append(analysis)
        files += _write(analysis, report.runs, out)
    return AnalyseResult(tuple(analyses), tuple(files), NOT_INTACT if tampered else 0)


def names() -> list[str]:
    """What can be asked for, as it is typed."""
    return [name.replace("_", "-") for name in CATALOG.names()]


def _checked(request: AnalyseRequest) -> tuple[list[Analyser], Edition, int]:
    """Refuse what cannot end well before the store is opened; every wrong field is named."""
    problems: list[str] = []
    wanted = request.name.replace("_", "-")
    known = names()
    if wanted not in (ALL, *known):
        problems.append(f"name: {UnknownName('analysis', request.name, [*known, ALL])}")
    editions, processes = checked_request(request, (), problems)
    if problems:
        raise InvalidFields("analyse", problems)
    chosen = known if wanted == ALL else [wanted]
    return [CATALOG.get(name.replace("-", "_")) for name in chosen], editions[0], processes


def _write(analysis: Analysis, runs: tuple[RunAudit, ...], out: Path) -> list[Path]:
    """NAME.json (lossless), NAME.csv and NAME-TABLE.csv for the tables behind it, NAME.png."""
    paths = [out / f"{analysis.name}.json"]
    paths[0].write_text(jsonio.pretty(analysis), encoding="utf-8")
    for index, table in enumerate(analysis.tables):
        path = out / (f"{analysis.name}-{table.name}.csv" if index else f"{analysis.name}.csv")
        table_numbers(table).to_csv(path, index=False, lineterminator="\n")
        paths.append(path)
    image = analysis_png(analysis, runs)
    if image:
        paths.append(out / f"{analysis.name}.png")
        paths[-1].write_bytes(image)
    return paths
