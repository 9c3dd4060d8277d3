"""Published figures on the pages: every one is there, in words, and nothing of it is a tag."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fa_registry import jsonio
from fa_registry.protocol.reproduction import reproduction
from fa_registry.records import AuditReport, Published, Reading, Reference, ReferenceSetting
from fa_registry.reporting.pages.published_values import (
    measured_text,
    published_text,
    quantity_text,
    reproduction_table,
    setting_text,
)
from tests.protocol.reproduction.builders import figure, row, seeds
from tests.reporting.page import of_kind, section, text_of, written
from tests.reporting.runs import HOSTILE

OPTIONS = {"d_hidden": 256, "num_blocks": 4, "residual": True, "terminal_ln": True, "w2_std": 0.01}
SETTING = {"architecture_options": OPTIONS, "epochs": 30}


@pytest.fixture(scope="module")
def with_figures(report) -> AuditReport:
    """The audit of `report` with six published values: tested, not comparable, not at hand, not measured, hostile."""
    figures = (
        figure(Published(mean=0.95, std=0.01, n=3), 0.5, setting=SETTING),
        figure(0.1, setting={**SETTING, "dataset": "cifar10"}),
        figure(0.2, method="ep"),
        figure(Published(), setting=SETTING, not_at_hand=HOSTILE),
        figure(0.3, not_measured=HOSTILE, remark=HOSTILE, source=HOSTILE),
        figure(0.8, 0.0001, control="frozen", setting=SETTING),
    )
    reference = Reference("study", HOSTILE, "d" * 64, figures, (HOSTILE,))
    return dataclasses.replace(report, reproduction=reproduction(reference, report))


@pytest.fixture(scope="module")
def figure_pages(with_figures, tmp_path_factory):
    return written(with_figures, tmp_path_factory.mktemp("reproduction"))


@pytest.mark.parametrize(
    ("published", "text"),
    [
        (Published(value=0.615), "61.5\u00a0%"),
        (Published(mean=0.615, std=0.004, n=3), "61.5\u00a0% ± 0.4\u00a0% (3)"),
        (Published(low=0.255, high=0.261), "25.5\u00a0% to 26.1\u00a0%"),
        (Published(below=0.5), "below 50.0\u00a0%"),
        (Published(above=0.5), "above 50.0\u00a0%"),
        (Published(never=True), "never"),
    ],
)
def test_a_figure_is_written_as_it_was_published(published, text):
    assert published_text(figure(published)) == text


def test_a_value_not_at_hand_is_written_as_such():
    assert published_text(figure(Published(), not_at_hand="why")) == "not at hand"


def test_other_quantities_keep_their_digits():
    assert published_text(figure(Published(values=(8.0, 11.0)), quantity="first_fire", rule="D1")) == "8, 11"
    assert published_text(figure(4.2e-9, quantity="g_norm_mean_ce", site="last")) == "4.2×10⁻⁹"
    at_end = quantity_text(figure(1.0, quantity="g_norm_mean_ce", site="last", epoch=0))
    assert at_end.split(", ") == ["g_norm_mean_ce", "site L", "epoch 0"]
    assert quantity_text(figure(1.0, quantity="rho", site="3")) == "rho, site 3"
    assert quantity_text(figure(1.0, rule="D1")) == "first fire of D1"
    assert setting_text(figure(1.0)).split(" · ") == ["resmlp (d_hidden=16, num_blocks=2)", "digits", "3 epochs"]
    other = dataclasses.replace(figure(1.0), setting=ReferenceSetting("vit", "c", 1))
    assert setting_text(other).split(" · ") == ["vit", "c", "1 epochs"]
    assert setting_text(dataclasses.replace(figure(1.0), setting=None)) == ""


def test_what_was_measured():
    three = figure(Published(mean=0.6, std=0.1, n=3))
    assert measured_text(row(figure(0.6), seeds(0.5, 0.6, 0.7))) == published_text(three)
    assert measured_text(row(figure(0.6), seeds(0.5))) == "50.0\u00a0% (1)"
    assert measured_text(row(figure(0.6), seeds("lost"))) == "N/A"
    assert measured_text(row(figure(0.6, method="ep"), seeds(0.5))) == "—"
    fires = [dataclasses.replace(seed, trajectory={}) for seed in seeds(0.5)]
    never = row(figure(Published(never=True), rule="D1", quantity="first_fire"), fires)
    assert measured_text(never) == "N/A"
    quiet = tuple(dataclasses.replace(one, reading=Reading(None, "no epoch"), never=True) for one in never.measured)
    shown = dataclasses.replace(never, measured=quiet)
    assert measured_text(shown) == "never"


def test_the_table_counts_every_figure_and_puts_what_differs_first(with_figures):
    found = reproduction_table(with_figures.reproduction)
    assert sum(count for _, count in found.counts) == 6 == len(found.tested) + len(found.untested)
    outcomes = [one.outcome for one in (*found.tested, *found.untested)]
    assert outcomes == ["not shown", "reproduced", "not comparable", "not at hand", "not measured", "not measured"]
    assert "the margin: because" in found.tested[0].remarks and "because" not in " ".join(found.untested[0].remarks)
    assert reproduction_table(None) is None


def test_the_index_shows_every_figure(with_figures, figure_pages):
    text = text_of(section(figure_pages["index.html"], "reproduction"))
    found = reproduction_table(with_figures.reproduction)
    assert all(f"{count} {outcome}" in text for outcome, count in found.counts)
    assert all(remark in text for one in (*found.tested, *found.untested) for remark in one.remarks)
    assert "no run of ep" in text and "on cifar10, here digits" in text
    assert "A Paper; table 1" in text and HOSTILE in text


def test_a_form_shows_the_figures_of_its_own_runs(figure_pages):
    for name, text in of_kind(figure_pages, ".html").items():
        if name.startswith("forms/bp"):
            shown = text_of(section(text, "reproduction"))
            assert "± 1.0 % (3)" in shown and "cifar10" in shown and "ep" not in shown.split()
        elif name.startswith("forms/dfa"):
            assert "No published value" in section(text, "reproduction")
    markdown = next(text for name, text in of_kind(figure_pages, ".md").items() if name.startswith("forms/dfa"))
    assert "no published value is" in markdown


def test_third_party_text_is_text(figure_pages):
    shown = (text for name, text in figure_pages.items() if name.endswith((".html", ".md", ".tex")))
    assert not any(HOSTILE in text for text in shown)


def test_the_report_reads_back_as_itself(with_figures, figure_pages):
    again = jsonio.decode(AuditReport, json.loads(figure_pages["audit.json"]))
    assert again == with_figures and len(again.reproduction.rows) == 6
