"""The map of every site at every epoch: titles, colours, shared cells, and what fits on a page."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import Reading, Series, SiteSeries
from fa_registry.reporting.figures import heat_maps
from fa_registry.reporting.figures.heat_maps import BY_SITE, EXACT, NO_NUMBER, STEPS, heat_numbers, layer_map
from fa_registry.reporting.figures.page import setting_figures
from fa_registry.reporting.text import filters
from tests.helpers.pictures import blank_pictures
from tests.reporting.page import Page, section, written
from tests.reporting.page_figures.sample_runs import EPOCHS, broken, followed
from tests.reporting.report_changes import with_record, with_runs


@pytest.fixture(autouse=True)
def undrawn():
    with blank_pictures():
        yield


def map_of(report, cards=None):
    return layer_map(groups(report), report.cards if cards is None else cards)[0]


def count_cells(found):
    return sum(len(cells) for panel in found.panels for seeds in panel.methods for cells in seeds)


def cells(panel, method, seed):
    """(column, row) → the cell that covers it."""
    return {(cell.x + step, cell.y): cell for cell in panel.methods[method][seed] for step in range(cell.width)}


def test_a_cell_has_the_value_of_its_run_and_a_mean_that_of_the_data_frame(report):
    ordered = groups(followed(report))
    found = map_of(followed(report))
    assert found.methods == ("bp", "dfa") and found.seeds == ("mean of seeds", "seed 42", "seed 123")
    assert [panel.title.split(",")[0] for panel in found.panels] == ["Growth", "Reference gradient", "Γ"]
    growth = found.panels[0]
    assert growth.epochs == EPOCHS and growth.sites == (1, 2, 3, 4)  # site 0 has no block before it
    run = next(group for group in ordered if group.method == "bp").runs[0]
    value = run.record.by_site["growth"].sites[2][3].value
    last = cells(growth, 0, 1)[3, 2]  # the last site is at the top
    assert last.title.startswith("site 2,") and last.title.endswith(f" {filters.num(value)}")
    mean = heat_numbers(BY_SITE[0], ordered, {}).query("method == 'bp' and site == 4 and epoch == 10")["value"].iloc[0]
    assert filters.num(mean) in cells(growth, 0, 0)[1, 0].title


def test_colours_are_those_of_the_scale_and_the_limit_is_in_the_bar(report):
    growth, gradient, gamma = map_of(followed(report)).panels
    for panel in (growth, gradient, gamma):
        colours = {colour for _, _, colour in panel.colours}
        shown = {cell.fill for seeds in panel.methods for cells in seeds for cell in cells}
        assert shown <= colours | {EXACT, NO_NUMBER} and panel.colours[0][0] == 0
        assert sum(width for _, width, _ in panel.colours) == 324 == panel.ticks[-1][0]
    assert "limit 50" in [text for _, text in growth.ticks]
    assert [text for _, text in gamma.ticks][1] == "0" and len(gamma.colours) == 2 * STEPS + 1  # linear, around 0


def test_exact_sites_and_missing_numbers_have_a_colour_and_a_sentence_of_their_own(report):
    *_, gamma = map_of(
        followed(report), cards={"methods/bp": {"exact_sites": "all"}, "methods/dfa": {"exact_sites": "last"}}
    ).panels
    (bp,) = gamma.methods[0][0]
    assert (bp.width, bp.height, bp.fill) == (4, 5, EXACT) and bp.title.startswith("bp: Γ = 1")
    last = cells(gamma, 1, 1)[0, 0]
    assert (last.width, last.fill) == (4, EXACT) and last.title.startswith("site 4: Γ =")
    first = report.runs[0].record.run_id
    scene = with_runs(
        followed(report),
        lambda run: with_record(run, by_site={"growth": broken()}) if run.record.run_id == first else run,
    )
    grey = cells(map_of(scene).panels[0], 0, 1)[3, 0]
    assert (grey.x, grey.width, grey.fill) == (1, 3, NO_NUMBER) and grey.title.endswith(": not finite (inf)")
    unmeasured = with_runs(
        followed(report),
        lambda run: (
            with_record(run, by_site={"growth": run.record.by_site["growth"]})
            if run.record.spec.method == "bp"
            else run
        ),
    )
    for seed in range(3):  # never called exact where the card does not say so
        (absent,) = map_of(unmeasured, cards={}).panels[2].methods[0][seed]
        assert absent.fill == NO_NUMBER and absent.title.startswith("bp: not measured")
    lone = dataclasses.replace(followed(report), runs=followed(report).runs[1:])  # bp without seed 42
    (absent,) = map_of(lone).panels[0].methods[0][1]
    assert absent.fill == NO_NUMBER and absent.title.startswith("bp: no run")


def test_an_exact_site_does_not_set_the_colours_of_the_other_sites(report):
    def ends(last: float) -> list[str]:
        levels = [0.1, 0.1, 0.1, 0.1, last]
        gamma = SiteSeries(EPOCHS, tuple(Series([Reading(level)] * len(EPOCHS)) for level in levels))
        cards = {"methods/bp": {"exact_sites": "all"}, "methods/dfa": {"exact_sites": "last"}}
        return [text for _, text in map_of(followed(report, gamma=gamma), cards=cards).panels[2].ticks]

    assert ends(1.0) == ends(0.1)  # with the site's Γ = 1 in the scale, 0.1 and −0.1 would look alike


def test_epochs_of_one_colour_share_a_cell(report):
    rows = (Series([Reading(1.0), Reading(1.03), Reading(40.0), Reading(60.0)]),) * 5
    found = map_of(followed(report, growth=SiteSeries(EPOCHS, rows)))
    cells = [(cell.x, cell.width, *cell.title.split(": ")) for cell in found.panels[0].methods[1][1][:3]]
    assert [(x, width, value) for x, width, _, value in cells] == [
        (0, 2, "1.00 to 1.03"),
        (2, 1, "40.0"),
        (3, 1, "60.0"),
    ]
    assert [place.removeprefix("site 4, ") for _, _, place, _ in cells] == ["epochs 0 to 10", "epoch 20", "epoch 30"]


def test_a_large_map_has_only_means_and_a_larger_one_is_replaced_by_its_heat_maps(report, monkeypatch):
    scene = followed(report)
    whole = map_of(scene)
    monkeypatch.setattr(heat_maps, "MOST_CELLS", count_cells(whole) - 1)
    means = map_of(scene)
    assert means.seeds == ("mean of seeds",) and count_cells(means) < count_cells(whole)
    (part,) = setting_figures(groups(scene), scene.cards).shown
    assert not set(part.heat_maps) & set(part.drawn)
    monkeypatch.setattr(heat_maps, "MOST_CELLS", count_cells(means) - 1)
    (part,) = setting_figures(groups(scene), scene.cards).shown
    assert part.map is None and part.drawn[-3:] == part.heat_maps and map_of(report) is None


def test_the_page_switches_by_css_and_shows_every_title_without_a_script(report, tmp_path):
    scene = followed(report)
    text = written(scene, tmp_path)["index.html"]
    figures, page = section(text, "figures"), Page(text)
    found = map_of(scene)
    inputs = [attributes for tag, attributes in page.attributes if tag == "input"]
    assert [(one["name"], one["value"]) for one in inputs] == [
        *(("map1-method", str(index)) for index in range(2)),
        *(("map1-seeds", str(index)) for index in range(3)),
    ]
    assert [one["value"] for one in inputs if "checked" in one] == [str(found.opened), "0"]
    trained = [group for group in groups(scene) if not group.control]
    worst = max(trained, key=lambda group: (group.verdict.outcome == "fail", len(group.verdict.flags)))
    assert found.methods[found.opened] == worst.method
    style = text[text.index("<style>") : text.index("</style>")]
    for rule in ('.map:has([name$=method][value="1"]:checked) .m1', '.map:has([name$=seeds][value="2"]:checked) .s2'):
        assert f"{rule} {{ display: inline; }}" in style
    titles = [cell.title for panel in found.panels for seeds in panel.methods for cells in seeds for cell in cells]
    assert figures.count("<title>") == len(titles) and all(f"<title>{title}</title>" in figures for title in titles)
    assert "script" not in page.tags and figures.count("The numbers: ") == 3
