"""The analyses on the page: what answers, what is left out and why, and no number without its run."""

from __future__ import annotations

import dataclasses
import io
import math
import sys
from functools import partial

import matplotlib
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fa_registry.analyses import CATALOG, AnalysisCell, AnalysisColumn, AnalysisTable, answers_of, ranked
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Reading, Recipe
from fa_registry.reporting.figures.analyses import (
    analysis_figure,
    analysis_numbers,
    figure_module,
    figure_of,
    table_numbers,
)
from fa_registry.reporting.figures.canvas import LIMIT
from fa_registry.reporting.figures.frames import named
from fa_registry.reporting.pages import analyses as module
from fa_registry.reporting.pages.analyses import page_analyses
from tests.analyses.builders import OURS, SEEDS, analysed, controlled, frozen, report_of, run
from tests.reporting.page import Page, section, text_of, written

EDITION = load_edition("2026-12")


def pages_of(report):
    return page_analyses(answers_of(report), report)


def sweep():
    return [run("dfa", seed, spec={"penalty": strength}) for seed in (1, 2) for strength in (0.0, 0.01)]


def test_the_first_page_has_those_with_a_rank_in_its_order():
    ranks = [analyser.rank for analyser in ranked()]
    assert ranks == sorted(set(ranks)) and ranks[0] > 0
    assert not CATALOG.get("aggregation").rank


def test_a_sweep_two_networks_and_ladder_controls_are_shown():
    runs = [*sweep(), run("dfa", 1, spec={"control": "ladder_1"}), run("dfa", 1, spec={"architecture": "cnn"})]
    report = report_of(controlled(*runs), EDITION)
    names = {one.name for one in answers_of(report).found}
    assert {"penalty", "cross-architecture", "ladder"} <= names


def test_an_edition_that_cannot_be_read_again_leaves_all_out_and_says_so(rich):
    unknown = dataclasses.replace(rich, edition=dataclasses.replace(rich.edition, name="/gone/mine.toml"))
    other = dataclasses.replace(rich, edition=dataclasses.replace(rich.edition, digest="0" * 64))
    for report, text in (
        (unknown, "cannot be read by this installation"),
        (other, "is not the edition of this audit (sha256 000000000000…)"),
    ):
        page = pages_of(report)
        assert page.shown == () and len(page.left_out) == len(ranked())
        assert all(text in why for _, why in page.left_out)


def test_thresholds_changed_on_the_command_line_are_judged_by_again():
    report = report_of(controlled(*sweep()), OURS)
    assert report.edition.overrides and pages_of(report).shown


def test_controls_alone_have_nothing_to_say():
    report = report_of(controlled(), EDITION)
    page = pages_of(report)
    assert page.shown == () and len(page.left_out) == len(ranked()) and all(why for _, why in page.left_out)
    empty = dataclasses.replace(report, runs=())
    assert pages_of(empty).shown == ()


def test_cells_are_text_and_numbers_with_their_runs(rich):
    by_name = {one.name: one for one in pages_of(rich).shown}
    first = by_name["first-fire"]
    assert first.setting == rich.runs[0].record.setting and "setting" not in [column.name for column in first.columns]
    cells = [cell for row in first.rows.shown for cell in row.cells]
    never = next(cell for cell in cells if cell.text == "never")
    assert never.reading.value is None and never.reading.reason
    ids = {run.record.run_id for run in rich.runs}
    assert all(row.run_ids and set(row.run_ids) <= ids for row in first.rows.shown)
    assert first.figure.drawn.uri.startswith("data:image/png;base64,")


def test_the_page_holds_tables_and_figures(rich_pages):
    page = Page(section(rich_pages["index.html"], "analyses"))
    assert page.tags.count("img") == page.tags.count("table") == 3


def test_a_long_table_says_how_much_of_it_is_shown(rich, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    text = text_of(section(written(rich, tmp_path)["index.html"], "analyses"))
    assert "the first 2 of" in text and "fa-registry analyse first-fire" in text


@pytest.mark.long
def test_foreign_names_stay_text(tmp_path):
    report = report_of(controlled(run("<b>x</b>", 1), run("{{7*7}}", 1), run("dfa", 1)), EDITION)
    text = section(written(report, tmp_path, drawn=True)["index.html"], "analyses")
    assert "<b>x</b>" not in text and "49" not in text_of(text).split()


NAMES = sorted(one.name for one in CATALOG.built_in().values())
long = partial(pytest.param, marks=pytest.mark.long)  # drawn by the same lines as another one
LINES = {"growth_max": (1.0, 2.0, 60.0), "h_L": (1.0, 5.0, 80.0), "g_norm_mean_ce_L": (1e-3, 1e-3, 1e-4)}  # by epoch


def demo():
    runs = [run("bp", seed, growth=2.0 + seed / 500, accuracy=0.95, lines=LINES) for seed in SEEDS]
    runs += [run("fa", seed, growth=900.0 + seed, sites={"gamma": (0.4, 0.1, 1.0)}, lines=LINES) for seed in SEEDS]
    for strength in (0.0, 1e-4, 1e-2):
        runs += [
            run(
                "dfa",
                seed,
                accuracy=0.4 + strength,
                growth=70.0,
                lines=LINES,
                spec={"penalty": strength},
                gamma=0.1 + seed / 1e4,
            )
            for seed in SEEDS
        ]
    for seed in SEEDS:  # a second recipe
        runs.append(run("bp", seed, growth=3.0, growth_init_max=5.0, spec={"recipe": Recipe(learning_rate=1.0)}))
    return controlled(*runs, run("sb", 42, status="diverged", growth=math.inf, lines={"h_L": (1.0, math.inf)}))


def drawn(name, records, edition="2026-05"):
    rules = load_edition(edition) if isinstance(edition, str) else edition
    report = report_of(records, rules)
    analysis = CATALOG.get(name.replace("-", "_")).run(report, rules)
    return analysis, report.runs


def pixels(image):
    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB"), dtype=int)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("edition", [long("2026-05"), "2026-12"])
def test_the_same_numbers_give_the_same_small_bytes_without_metadata(name, edition):
    analysis, runs = drawn(name, demo(), edition)
    image = analysis_figure(analysis, runs)
    with matplotlib.rc_context({"lines.linewidth": 9.0, "font.size": 31.0, "figure.facecolor": "blue"}):
        before = dict(matplotlib.rcParams)
        assert analysis_figure(analysis, runs) == image
        assert dict(matplotlib.rcParams) == before
    assert Image.open(io.BytesIO(image)).info == {}
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_shows_its_dataframe_and_nothing_else(name):
    """Drawn from the frame alone; another value in it is another picture."""
    analysis, runs = drawn(name, demo())
    frame = analysis_numbers(analysis, runs)
    assert len(frame), "nothing in demo()"
    assert figure_of(figure_module(name).draw, frame) == analysis_figure(analysis, runs)
    changed = frame.copy()
    if name == "ablation":
        changed.loc[0, "decision"] = "cannot judge"
    else:
        column = "epoch" if name == "first-fire" else "value"
        place = changed[column][changed[column] != 0].dropna().index[-1 if name == "first-fire" else 0]
        changed.loc[place, column] = 1.0 if name == "first-fire" else changed.loc[place, column] * 1.7
    same = figure_of(figure_module(name).draw, changed) == figure_of(figure_module(name).draw, frame)
    assert not same, frame[(frame != changed).any(axis=1)].to_dict("records")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "records",
    [
        [],
        [frozen()],
        [run("dfa")],
        long([run("dfa", growth="lost", g="lost", gain="lost", fidelity="lost", accuracy="lost", gamma="lost")]),
        [run("dfa", growth=math.inf, g=0.0, lines={"growth_max": (math.inf,) * 3, "h_L": (math.inf,)})],
        [run("dfa", 1, growth=1e-300, h_L=1e-300), run("dfa", 1, growth=1e300, h_L=1e300, spec={"penalty": 1e-9})],
        long([run("dfa", 1, accuracy=0.0, gamma=0.0), run("dfa", 1, accuracy=0.0, gamma=0.0, spec={"penalty": 1.0})]),
    ],
    ids=["nothing", "controls", "one run", "no figure", "nothing finite", "the whole range", "zeros"],
)
def test_any_numbers_can_be_drawn(name, records):
    for edition in ("2026-04", "2026-12"):
        analysis, runs = drawn(name, records, edition)
        assert analysis_figure(analysis, runs).startswith(b"\x89PNG")


@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_be_drawn(name):
    odd = "$\\frac{$\u202e<b>" + "x" * 90
    records = [
        dataclasses.replace(one, setting=f"{odd} · {one.spec.epochs}", spec=dataclasses.replace(one.spec, method=odd))
        for one in [
            run("dfa", lines=LINES),
            run("dfa", lines=LINES, spec={"penalty": 0.1}),
            run("dfa", spec={"epochs": 9}),
        ]
    ]
    analysis, runs = drawn(name, records)
    assert pixels(analysis_figure(analysis, runs)).shape[1] == 1008  # as wide as ever


@pytest.mark.parametrize(
    "name",
    ["ablation", "first-fire", *map(long, sorted({*NAMES} - {"ablation", "first-fire", "sensitivity", "penalty"}))],
)
def test_of_very_many_methods_the_first_are_drawn(name):
    records = [run(f"m{index}", growth=1.0 + index, lines=LINES) for index in range(70)]
    if name == "remedies":  # it draws methods if one of them has several recipes
        records.append(run("m0", growth=3.0, spec={"recipe": Recipe(learning_rate=1.0)}))
    analysis, runs = drawn(name, controlled(*records))
    assert analysis_numbers(analysis, runs)["method"].nunique() == len(records)
    assert pixels(analysis_figure(analysis, runs)).shape[0] < 9000


def test_rows_whose_names_are_cut_to_the_same_text_stay_apart():
    names = [f"{'a_very_long_name_of_a_method_' * 3}{place}" for place in range(3)]
    frame = named(pd.DataFrame({"method": names * 2, "setting": ["s"] * 6}))
    assert frame["row"].nunique() == 3 and frame["row"].str.len().max() <= 44
    assert frame["row"].tolist()[:3] == frame["row"].tolist()[3:]


def test_a_setting_is_named_by_what_tells_it_apart():
    settings = ["resmlp-64x4 · digits · 9 epochs", "resmlp-64x4 · digits · 12 epochs"]
    assert named(pd.DataFrame({"method": ["bp"] * 2, "setting": settings}))["row"].tolist() == [
        "bp · 9 epochs",
        "bp · 12 epochs",
    ]
    assert named(pd.DataFrame({"method": ["bp"], "setting": settings[:1]}))["row"].tolist() == ["bp"]


def test_the_dataframe_of_sensitivity_has_range_and_values():
    analysis, runs = drawn("sensitivity", controlled(run("bp", growth=4.0), run("fa", growth=700.0)))
    frame = analysis_numbers(analysis, runs)
    d1 = frame[frame["rule"] == "D1"].set_index("kind")["value"]
    assert (d1["low"], d1["high"], d1["threshold"]) == (4.0, 700.0, 50.0)
    assert sorted(frame[(frame["rule"] == "D1") & (frame["kind"] == "value")]["value"]) == [4.0, 700.0]
    assert (frame["value"].isna() == (frame["reason"] != "")).all()


@pytest.mark.long
def test_every_method_has_its_dots_in_every_strip():
    frame = analysis_numbers(*drawn("sensitivity", controlled(run("bp", growth=4.0), run("fa", growth=700.0))))
    whole = figure_of(figure_module("sensitivity").draw, frame)
    for place in frame[frame["kind"] == "value"].index:
        moved = frame.copy()
        moved.loc[place, "value"] *= 1.5
        assert figure_of(figure_module("sensitivity").draw, moved) != whole, frame.loc[place].to_dict()


def test_the_threshold_line_keeps_its_colour():
    image = pixels(analysis_figure(*drawn("sensitivity", demo())))
    red = np.array([int(LIMIT[place : place + 2], 16) for place in (1, 3, 5)])
    assert (np.abs(image - red).sum(axis=2) < 24).sum() > 50


def test_the_dataframe_of_penalty_follows_every_run_by_epoch():
    analysis, runs = drawn("penalty", demo())
    frame = analysis_numbers(analysis, runs)
    epochs = frame[(frame["panel"] == "epochs") & (frame["penalty"] == 1e-2) & (frame["seed"] == 123)]
    assert epochs["value"].tolist() == list(LINES["h_L"]) and epochs["epoch"].tolist() == [0, 1, 2]
    means = frame[(frame["panel"] == "accuracy") & (frame["penalty"] == 1e-2)]
    assert means["value"].tolist() == pytest.approx([0.41]) and set(frame["method"]) == {"dfa"}


def test_an_analysis_from_elsewhere_brings_its_own_figure(monkeypatch):
    analysis, runs = drawn("penalty", demo())
    theirs = {
        "figure": dataclasses.replace(
            CATALOG.get("penalty"), name="theirs", figure="tests.reporting.analysis_figures.theirs"
        ),
        "none": dataclasses.replace(CATALOG.get("penalty"), name="theirs", figure=""),
    }
    for kind, analyser in theirs.items():
        monkeypatch.setattr(CATALOG, "get", lambda name, found=analyser: found)
        image = analysis_figure(dataclasses.replace(analysis, name="theirs"), runs)
        assert (image is None) == (kind == "none")
        assert kind == "none" or (pixels(image) == (255, 0, 0)).all(axis=2).mean() > 0.9


def test_a_table_becomes_columns_without_loss():
    columns = (
        AnalysisColumn("name", "words"),
        AnalysisColumn("value", "number", "unit", "num"),
        AnalysisColumn("count", "how many", kind="count"),
    )
    number = AnalysisCell(Reading(1.5), interval=(1.0, 2.0), n=2, run_ids=("r1",))
    rows = (
        {"name": AnalysisCell(text="a", run_ids=("r1", "r2")), "value": number, "count": AnalysisCell(Reading(3.0))},
        {
            "name": AnalysisCell(text='=b,"c"'),
            "value": AnalysisCell(Reading(None, "lost")),
            "count": AnalysisCell(Reading(0.0), text="none"),
        },
    )
    frame = table_numbers(AnalysisTable("t", "T", columns, rows))
    extras = [f"value_{extra}" for extra in ("reason", "low", "high", "n", "runs")]
    assert list(frame) == ["name", "name_runs", "value", *extras, "count", "count_words"]
    again = pd.read_csv(io.StringIO(frame.to_csv(index=False)), keep_default_na=False)
    assert again["name"].tolist() == ["a", '=b,"c"'] and again["value_reason"].tolist() == ["", "lost"]
    assert frame["value"].isna().tolist() == [False, True] and frame["name_runs"].tolist() == ["r1 r2", ""]


def test_the_numbers_of_no_run_are_an_empty_frame():
    for name in NAMES:
        assert len(analysis_numbers(analysed(name, []), ())) == 0
