"""Output of everything that shows a table, to compare before and after a change.

Write it with `python -m tests.reporting.every_table OUT [NAME…]` on both sides, then compare the folders with `diff -r`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import sys
from pathlib import Path

from fa_registry import jsonio
from fa_registry.analyses import CATALOG
from fa_registry.cli.analyse import analysed
from fa_registry.cli.audit import audited, diffed
from fa_registry.cli.compare import compared
from fa_registry.protocol.grouping import groups
from fa_registry.protocol.reproduction import reproduction
from fa_registry.protocol.rules import load_edition
from fa_registry.records import (
    AuditReport,
    Exclusion,
    Measurements,
    OtherRun,
    Published,
    Reference,
    RuleDifference,
    RunAudit,
    SelectionSummary,
)
from fa_registry.reporting.diff import audit_diff
from fa_registry.reporting.notebook import COMPARISON, WRITERS
from fa_registry.reporting.pages.comparison import compare_context
from fa_registry.reporting.pages.notes import Notes
from fa_registry.reporting.render import render_comparison
from fa_registry.workflows.analyse import AnalyseResult, _write
from fa_registry.workflows.audit import AuditResult
from fa_registry.workflows.compare import CompareResult
from fa_registry.workflows.dataframes import audit_frame
from tests.analyses.builders import controlled, report_of, run
from tests.protocol.reproduction.builders import figure
from tests.reporting import scenes
from tests.reporting.page import written
from tests.reporting.runs import HOSTILE
from tests.reporting.test_golden_forms import an_audit
from tests.reporting.test_reproduction import SETTING

MANY = 100  # runs of an audit whose figures are not drawn


def audits() -> dict[str, AuditReport]:
    """Audits with every state, of older runs, of no run, of many runs, of a sweep, with published values."""
    small = scenes.small_report()
    figures = (
        figure(Published(mean=0.95, std=0.01, n=3), 0.5, setting=SETTING),
        figure(0.1, setting={**SETTING, "dataset": "cifar10"}),
        figure(0.2, method="ep"),
        figure(Published(), setting=SETTING, not_at_hand=HOSTILE),
        figure(0.3, not_measured=HOSTILE, remark=HOSTILE, source=HOSTILE),
        figure(0.8, 0.0001, control="frozen", setting=SETTING),
    )
    published = reproduction(Reference("study", HOSTILE, "d" * 64, figures, (HOSTILE,)), small)
    sweep = [run("dfa", seed, spec={"penalty": strength}) for seed in (1, 2) for strength in (0.0, 0.01)]
    ladder = [run("dfa", 1, spec={"control": "ladder_1"}), run("dfa", 1, spec={"architecture": "cnn"})]
    rich = scenes.full_report()
    specs = [dataclasses.replace(one.record.spec, seed=7) for one in rich.runs[2:5]]
    others = [OtherRun(f"{n}" * 32, spec, HOSTILE, "complete", True, n == 1, n == 2) for n, spec in enumerate(specs)]
    near = [
        dataclasses.replace(
            other, spec=dataclasses.replace(spec, recipe=dataclasses.replace(spec.recipe, learning_rate=rate))
        )
        for other, spec, rate in zip(others, specs, (1.0001e-3, 1.001e-3, 1.002e-3), strict=True)
    ]
    choice = SelectionSummary("digits", unaudited=tuple(others), beside=tuple(near))
    changes = tuple(RuleDifference("D1", f"field {number}", number, HOSTILE) for number in range(70))
    changed = dataclasses.replace(load_edition("2026-11", {"D1": 40.0}).reference, differences=changes)
    return {
        "small": small,
        "changed": dataclasses.replace(rich, edition=changed),
        "many": dataclasses.replace(small, runs=tuple(moved(one, place) for place in range(60) for one in small.runs)),
        "others": dataclasses.replace(rich, choice=choice),
        "rich": rich,
        "golden": an_audit(),
        "empty": dataclasses.replace(small, runs=(), excluded=()),
        "published": dataclasses.replace(small, reproduction=published),
        "bare": dataclasses.replace(rich, runs=tuple(map(bare, rich.runs))),
        "sweep": report_of(controlled(*sweep, *ladder), load_edition("2026-11")),
        "excluded": dataclasses.replace(rich, excluded=(Exclusion("0" * 32, "x", "running"),)),
    }


def moved(judged: RunAudit, place: int) -> RunAudit:
    """The run in another setting."""
    spec = dataclasses.replace(judged.record.spec, dataset=f"set {place}")
    run_id = f"{place}{judged.record.run_id}"
    record = dataclasses.replace(judged.record, spec=spec, setting=f"setting {place}", run_id=run_id)
    frozen_run_id = f"{place}{judged.frozen_run_id}" if judged.frozen_run_id else ""
    return dataclasses.replace(judged, record=record, frozen_run_id=frozen_run_id)


def bare(judged: RunAudit) -> RunAudit:
    """The run without a measurement."""
    record = dataclasses.replace(judged.record, measurements=Measurements({}, {}))
    return dataclasses.replace(judged, record=record)


def printed(show, *arguments) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        show(*arguments)
    return stream.getvalue()


def write_all(report: AuditReport, out: Path) -> None:
    out.mkdir(parents=True)
    written(report, out / "pages", drawn=len(report.runs) < MANY)
    notes = Notes(report)
    texts = {f"note-{one.record.run_id}.md": notes.of_run(one, "form", "audit") for one in report.runs}
    texts |= {"note-audit.md": notes.of_audit("base/", "table")}
    shown = [("report", report), *((one.record.run_id, one) for one in report.runs[:MANY])]
    shown += [(f"{one.record.run_id}-record", one.record) for one in report.runs]
    for name, one in shown:
        texts |= {
            f"notebook-{name}.html": WRITERS[type(one)].html(one),
            f"notebook-{name}.txt": WRITERS[type(one)].text(one),
        }
    frame = audit_frame(report)
    texts |= {
        "frame.csv": frame.to_csv(),
        "frame.json": json.dumps([frame.attrs, frame.dtypes.astype(str).to_dict()], indent=1),
    }
    texts["audit.txt"] = printed(audited, AuditResult(report, (Path("p"),), "id", 0), False)
    if report.runs and len(report.runs) < MANY:
        context = compare_context(report, groups(report))
        render_comparison(context, out / "compare")
        compare = CompareResult(context, Path("compare.html"), 0)
        texts |= {"compare.txt": printed(compared, compare, False), "compare.json": printed(compared, compare, True)}
        texts |= {"compare-notebook.html": COMPARISON.html(context), "compare-notebook.txt": COMPARISON.text(context)}
        half = dataclasses.replace(report, runs=report.runs[1:])
        texts["diff.txt"] = printed(diffed, audit_diff(report, half), ("a", "b"), False)
    with contextlib.suppress(ValueError):
        analyses = [CATALOG.get(name).run(report, load_edition(report.edition.name)) for name in CATALOG.members()]
        for one in analyses:
            (out / "analyses").mkdir(exist_ok=True)
            _write(one, report.runs, out / "analyses")
        texts["analyse.txt"] = printed(analysed, AnalyseResult(tuple(analyses), (), 0), False, True)
        texts["analyse.json"] = jsonio.pretty(analyses)
    for name, text in texts.items():
        (out / name).write_bytes(text.encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "160")
    for name, report in audits().items():
        if name in sys.argv[2:] or not sys.argv[2:]:
            write_all(report, Path(sys.argv[1]) / name)
