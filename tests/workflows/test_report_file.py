"""An audit.json read back: what its records hold together, and what reading one needs not."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from fa_registry import jsonio
from fa_registry.errors import InvalidFields
from fa_registry.workflows.reports import load_report
from tests.reporting import scenes


def test_showing_an_old_report_loads_neither_torch_nor_mlflow():
    code = (
        "import sys, fa_registry.workflows.reports, fa_registry.workflows.reports\n"
        "print([name for name in ('torch', 'mlflow') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        (
            lambda judged: judged[:-1],
            r"opinions\[0\]\.judgements: expected the report's runs in their order, found 8 of 9",
        ),
        (lambda judged: judged[::-1], r"opinions\[0\]\.judgements: expected .*, found \w{32} where \w{32} belongs"),
    ],
)
def test_an_opinion_that_is_not_of_the_reports_runs_is_refused(tmp_path, spoilt, words):
    rich = scenes.full_report()
    opinion = dataclasses.replace(rich.opinions[0], judgements=spoilt(rich.opinions[0].judgements))
    path = tmp_path / "audit.json"
    path.write_text(jsonio.pretty(dataclasses.replace(rich, opinions=(opinion, *rich.opinions[1:]))), encoding="utf-8")
    with pytest.raises(InvalidFields, match=words):
        load_report(path)


def test_a_run_that_stands_there_twice_is_refused(tmp_path):
    path, rich = tmp_path / "audit.json", scenes.full_report()
    twice = dataclasses.replace(rich, runs=(*rich.runs, rich.runs[0]), opinions=())
    path.write_text(jsonio.pretty(twice), encoding="utf-8")
    with pytest.raises(InvalidFields, match=r"runs: expected every run once, found \w{32} 2 times"):
        load_report(path)
