"""ink_centre, a third-party task of one file with its own main metric: lower is better, in pixels."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from fa_registry import jsonio
from fa_registry.cli import main
from fa_registry.errors import PluginError
from fa_registry.metrics import HEADLINES, declaration, declared_headline, headline_of, own_headline
from fa_registry.records import AuditReport
from fa_registry.tasks.base import TaskCard
from tests.builders import edition_text
from tests.helpers.plugins import installed_member

SOURCE = Path(__file__).resolve().parents[1] / "fixtures" / "third_party_task" / "my_tasks" / "ink_centre.py"
EDITION = edition_text("growth", "growth", 50.0, take="max_over_sites", fired="EXPLODED", clear="OK")
MISS = own_headline("miss", "miss", "distance", unit="cm", direction="lower", digits=2)


def run(*arguments: str):
    from click.testing import CliRunner

    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """Train a method and its frozen control on ink_centre, and audit both; return the folder and the printed texts."""
    folder = tmp_path_factory.mktemp("ink")
    store, data = f"sqlite:///{folder}/store.db", "from ink_centre import DATASET as PLUGIN\n"
    (folder / "growth.toml").write_text(EDITION, encoding="utf-8")
    with (
        installed_member(folder / "task", "tasks", "ink_centre", SOURCE.read_text(encoding="utf-8")),
        installed_member(folder / "data", "datasets", "centred_ink", data),
    ):
        fields = ("--dataset", "centred_ink", "--set", "architecture.d_hidden=16,architecture.num_blocks=2")
        for control, method in (("none", "dfa"), ("frozen", "bp")):
            how = ("--method", method, "--control", control, "--seed", "1", "--epochs", "2", "--store", store)
            trained = run("train", *fields, *how)
            assert trained.exit_code == 0, trained.output
        out, edition = str(folder / "out"), str(folder / "growth.toml")
        judged = run("audit", "--experiment", "fa_registry", "--store", store, "--out", out, "--edition", edition)
        refused = run("audit", "--experiment", "fa_registry", "--store", store, "--out", str(folder / "other"))
        listed = run("list", "runs", "--store", store, "--json")
    return {"out": folder / "out", "audit": judged, "refused": refused, "runs": listed}


@pytest.fixture(scope="module")
def report(audited) -> AuditReport:
    assert audited["audit"].exit_code in (0, 1), audited["audit"].output
    return jsonio.decode(AuditReport, jsonio.read_json(audited["out"] / "audit.json"), "audit.json")


def test_the_record_of_a_run_has_the_declaration_of_its_main_metric(report):
    """The task is not installed here: only the record says what the metric is."""
    for judged in report.runs:
        headline = headline_of(judged.record.measurements)
        assert (headline.name, headline.symbol, headline.unit, headline.sign) == (
            "centre_miss",
            "centre miss",
            "pixels",
            -1,
        )
        assert judged.record.measurements.scalars["centre_miss"].value > 0
        assert len(judged.record.trajectory["centre_miss"]) == 3
        assert judged.record.integrity.state == "verified", judged.record.integrity.details


def test_the_margin_over_the_frozen_control_is_positive_if_the_miss_is_smaller(audited, report):
    values = {
        judged.record.spec.control: judged.record.measurements.scalars["centre_miss"].value for judged in report.runs
    }
    rows = list(csv.DictReader((audited["out"] / "audit.csv").read_text(encoding="utf-8").splitlines()))
    (row,) = (row for row in rows if row["control"] == "none")
    assert float(row["centre_miss"]) == values["none"]
    assert float(row["margin_centre_miss"]) == pytest.approx(values["frozen"] - values["none"], abs=1e-8)
    assert float(row["frozen_centre_miss"]) == values["frozen"]


@pytest.mark.parametrize("pattern", ["index.html", "forms/dfa-*.html", "forms/dfa-*.md"])
def test_the_pages_speak_of_the_tasks_own_metric_only(audited, report, pattern):
    (page,) = audited["out"].glob(pattern)
    text = page.read_text(encoding="utf-8")
    assert "centre miss" in text.casefold()
    assert "pixels" in text or pattern == "index.html"  # figures name the unit there
    assert "frozen centre miss" in text.casefold() or "Margin" in text
    others = ("token_loss", "frozen_accuracy", "loss per token", *(["accuracy"] if "forms" in pattern else []))
    assert not [name for name in others if name in text]


def test_an_edition_that_judges_another_main_metric_is_refused(audited):
    assert audited["refused"].exit_code == 2 and "centre miss" in audited["refused"].output


def test_the_list_of_runs_shows_the_value_of_the_own_metric(audited, report):
    listed = json.loads(audited["runs"].output)
    assert {row["headline"] for row in listed} == {"centre_miss"} and all(row["value"] > 0 for row in listed)


def test_a_declaration_goes_through_the_conventions_unchanged():
    assert declared_headline(declaration(MISS)) == MISS
    assert MISS.difference(2.0, 3.5) == 1.5 and MISS.exceeds(2.0, 3.5) and not MISS.is_share
    assert [declaration(headline) for headline in HEADLINES.values()] == [{}, {}]


@pytest.mark.parametrize(
    "changed",
    [
        {"headline": "accuracy"},
        {"headline": "growth_max"},
        {"headline": 3},
        {"headline_symbol": 1},
        {"headline_direction": "sideways"},
        {"headline_digits": "2"},
        {"headline_digits": 40},
        {"headline_digits": True},
        {"headline_digits": [2]},
        {"headline_colour": "red"},
        {"headline_step": -1.0},
        {"headline_step": True},
    ],
)
def test_a_malformed_declaration_in_a_received_run_declares_nothing(changed):
    assert declared_headline({**declaration(MISS), **changed}) is None


def test_the_name_of_a_recorded_headline_is_the_convention_that_declares_it():
    assert declared_headline({**declaration(MISS), "headline_name": "accuracy"}) == MISS


def test_a_recorded_text_is_one_short_visible_line():
    headline = declared_headline({**declaration(MISS), "headline_symbol": "miss\n\u202e" + "x" * 500})
    assert "\n" not in headline.symbol and "\u202e" not in headline.symbol and len(headline.symbol) == 120


def test_a_card_takes_the_name_of_its_own_headline():
    card = TaskCard("mine", "line", "targets", "loss", "source", own_headline=MISS)
    assert card.headline == "miss" and card.main_metric is MISS
    with pytest.raises(PluginError, match="headline"):
        TaskCard("mine", "line", "targets", "loss", "source", headline="miss")
    with pytest.raises(PluginError, match="own_headline"):  # two main metrics
        TaskCard("mine", "line", "targets", "loss", "source", headline="accuracy", own_headline=MISS)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "accuracy"},
        {"name": "Miss"},
        {"name": "miss_L"},
        {"name": "gamma_miss"},
        {"name": "token_loss"},
        {"name": "pp"},  # its margin would be called margin_pp, as that of the accuracy
        {"direction": ""},
        {"symbol": ""},
        {"unit": "x" * 121},
        {"digits": -1},
        {"digits": True},
        {"step": -0.1},
        {"step": math.inf},
        {"step": math.nan},
    ],
)
def test_a_wrong_declaration_is_refused(fields):
    right = {"name": "miss", "symbol": "miss", "description": "distance", "unit": "cm", "direction": "lower"}
    with pytest.raises(PluginError):
        own_headline(**right | fields)
