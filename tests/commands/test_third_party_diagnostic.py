"""A diagnostic that another package brings, in one file: measured, stored, charted, verified and on every page.

The package knows nothing about it.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from fa_registry.studies.executors import local, side_by_side
from fa_registry.tracking.base import Point
from fa_registry.tracking.stores import open_tracker
from tests.commands.conftest import call, leave_out_figures, write_study
from tests.helpers.pictures import blank_pictures
from tests.helpers.plugins import installed_member
from tests.helpers.stores import copy_store, working_in

pytestmark = pytest.mark.long

# ℓ_1 of a state by its ℓ_2, so that the expected text of the pages is known without a computation: 1 + the site, and 7 at the end.
SOURCE = """
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured
from fa_registry.metrics import Metric
from fa_registry.records import Reading


class Strange(Diagnostic):
    card = DiagnosticCard(
        name="strange",
        symbol="S",
        line="how strange a state <is>",
        quantities=(
            Metric("strange", "σ", "strangeness & of a state", "num", where="site"),
            Metric("strange_end", "Σ", "strangeness at the end", "pct", where="epoch"),
            "strange_named",
            "strange_of/*",
        ),
        unit="strangs",
        range="any",
        cannot_tell="anything familiar",
        source="a third party",
    )

    def measure(self, observation):
        sites = tuple(Reading(1000.0 + site) for site in range(observation.sites))
        scalars = {"strange_end": Reading(0.0625), "strange_named": Reading(4321.0), "strange_of/w": Reading(77.5)}
        return Measured({"strange": sites}, scalars)


PLUGIN = Strange()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory, empty_store) -> tuple[Path, str]:
    """Its study, its audit, which recomputes, and a comparison, in one folder; what the last printed."""
    folder = tmp_path_factory.mktemp("strange")
    shutil.copy(empty_store, folder)
    write_study(folder)
    package = installed_member(tmp_path_factory.mktemp("site"), "diagnostics", "strange", SOURCE)
    with working_in(folder), package, blank_pictures() as patch:
        leave_out_figures(patch)
        patch.setattr(local, "PLUGIN", side_by_side.PLUGIN)
        for command in (
            ("study", "tiny", "--jobs", "1", "--device", "cpu"),
            ("audit", "--study", "tiny", "--jobs", "1"),
        ):
            result = call(*command)
            assert result.exit_code in (0, 1), result.output
        compared = call("compare", "dfa", "bp", "--study", "tiny")
        assert compared.exit_code == 0, compared.output
    return folder, compared.output


@pytest.fixture
def pages(made, tmp_path, monkeypatch):
    """In a copy of that folder, without the package: name of the page → its text."""
    folder, printed = made
    copy_store(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    files = {path.name: path.read_text("utf-8") for path in Path("reports").rglob("*.*") if path.suffix != ".pdf"}
    form = next(name for name in files if name.startswith("dfa") and name.endswith(".html"))
    return {**files, "form": files[form], "form.md": files[form.replace(".html", ".md")], "terminal": printed}


def test_its_text_and_values_are_where_the_builtin_ones_are(pages):
    table = pages["form.md"].partition("### Further metrics")[2].partition("\n### ")[0]
    assert all(word in table for word in ("σ", "strangeness &amp;", "1,000", "1,002"))
    assert "how strange a" in table and "anything familiar" in table  # what its card says
    scalars = pages["form.md"].partition("### One number per run")[2].partition("\n### ")[0]
    assert all(word in scalars for word in ("Σ", "strangeness", "6.2", "4,321", "77.5"))
    assert "strangeness &amp;" in pages["form"]

    compared = pages["compare.html"]
    assert "σ, strangeness &amp;" in compared and "Σ <small>strangeness" in compared
    assert "Σ" in pages["terminal"] and "strange_named" in pages["terminal"]

    rows = list(csv.DictReader(pages["audit.csv"].splitlines()))
    assert {"strange_end", "strange_named"} <= set(rows[0]) and list(rows[0])[-1] == "reasons"
    assert {(row["strange_end"], row["strange_named"]) for row in rows} == {("0.0625", "4321.0")}

    again = call("report", "reports/audit.json", "--out", "elsewhere")  # where the package is not installed
    assert again.exit_code == 0, again.output
    forms = {path.name: path.read_text("utf-8") for path in Path("elsewhere", "forms").glob("*.md")}
    assert forms and all(pages[name] == text for name, text in forms.items())
    card = json.loads(pages["audit.json"])["cards"]["diagnostics/strange"]
    assert card["quantities"] == ["strange", "strange_end", "strange_named", "strange_of/*"]


def test_every_run_holds_it_verified_and_has_its_charts(pages):
    judged = json.loads(pages["audit.json"])["runs"]
    assert judged and {run["record"]["integrity"]["state"] for run in judged} == {"verified"}
    tracker = open_tracker()
    for run in judged:
        record = run["record"]
        sites = [1000.0 + site for site in range(3)]
        assert record["measurements"]["sites"]["strange"] == sites
        shown = tracker.get(record["run_id"]).metrics
        charted = {key: value for key, value in shown.items() if key.startswith("strange")}
        by_site = {f"strange/site_{site:02d}": value for site, value in enumerate(sites)}
        assert charted == {**by_site, "strange_end": 0.0625, "strange_named": 4321.0}


def test_a_chart_that_is_not_what_was_recorded_is_a_mismatch_wherever_it_is_audited(pages):
    changed = {}
    for key, run in zip(("strange/site_01", "strange_end"), json.loads(pages["audit.json"])["runs"], strict=False):
        run_id = run["record"]["run_id"]
        open_tracker().log(run_id, [Point(key, 5.0, run["record"]["spec"]["epochs"])])
        changed[run_id] = f"metric {key}"
    found = call("audit", "--study", "tiny", "--trust-logged", "--json")  # the package is gone
    reasons = {one["run_id"]: one["reason"] for one in json.loads(found.stdout)["report"]["excluded"]}
    assert reasons.keys() == changed.keys() and all(text in reasons[run_id] for run_id, text in changed.items())
