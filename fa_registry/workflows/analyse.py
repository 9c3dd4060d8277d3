"""The analyse verb: judge many runs once, ask questions of all of them, write the answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fa_registry import jsonio
from fa_registry.analyses import CATALOG, Analyser, Analysis
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.protocol.rules import Edition
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.analyses import analysis_png, table_numbers
from fa_registry.workflows.audit import LoadedTerms, build_report
from fa_registry.workflows.editions import checked_terms
from fa_registry.workflows.evidence import checked_measuring
from fa_registry.workflows.requests import LOGGED, Chosen, Measuring, Pages, Place, Terms, checked_pages
from fa_registry.workflows.selection import select
from fa_registry.workflows.stores import open_tracker

ALL = "all"
NOT_INTACT = 3


@dataclass(frozen=True)
class AnalyseRequest:
    """What to ask of which runs. name: one analysis, or `all`. chosen: of one way only.

    Waivers do not apply: an analysis asks what the rules say. One edition judges.
    """

    name: str
    chosen: Chosen
    terms: Terms = Terms()
    measuring: Measuring = LOGGED
    place: Place = Place()
    pages: Pages = Pages("reports/analyses")


@dataclass(frozen=True)
class AnalyseResult:
    """files: what was written, the JSON of each analysis first. exit_code: 0, or 3 where a run is not intact."""

    analyses: tuple[Analysis, ...]
    files: tuple[Path, ...]
    exit_code: int


def run_analyse(request: AnalyseRequest) -> AnalyseResult:
    """Read and judge the selected runs, answer, and write JSON, CSV and PNG to `out`."""
    analysers, edition, measuring = _checked(request)
    tracker = open_tracker(request.place.store, create=False)
    selection = select(tracker, request.chosen)
    report, tampered = build_report(tracker, selection, LoadedTerms((edition,)), measuring, request.place.data_root)
    out = Path(request.pages.out)
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


def _checked(request: AnalyseRequest) -> tuple[list[Analyser], Edition, Measuring]:
    """Refuse what cannot end well before the store is opened; every wrong field is named."""
    problems: list[str] = []
    wanted = request.name.replace("_", "-")
    known = names()
    if wanted not in (ALL, *known):
        problems.append(f"name: {UnknownName('analysis', request.name, [*known, ALL])}")
    checked_pages(request.pages, problems)
    measuring = checked_measuring(request.measuring, problems)
    editions = checked_terms(request.chosen, request.terms, problems)
    if problems:
        raise InvalidFields("analyse", problems)
    chosen = known if wanted == ALL else [wanted]
    return [CATALOG.get(name.replace("-", "_")) for name in chosen], editions[0], measuring


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
