"""A figure on a page can be read without seeing it."""

from __future__ import annotations

import base64
import dataclasses

from fa_registry.protocol.grouping import groups
from fa_registry.records import Measurements
from fa_registry.reporting.figures.page import LEAST_ROOM, PAGE, room_beside, setting_figures
from fa_registry.reporting.values import Listed


def test_every_figure_has_words_numbers_and_its_own_bytes(report):
    (part,) = setting_figures(groups(report)).shown
    assert [picture.title for picture in part.pictures] == [
        "Scale of the stream",
        "Largest growth per block",
        "Reference gradient",
        "Test accuracy",
    ]
    for picture in part.pictures:
        head, data = picture.uri.split(",", 1)
        assert head == "data:image/png;base64" and base64.b64decode(data).startswith(b"\x89PNG")
        assert "dfa seed 123 from" in picture.alt
        assert len(picture.rows) == len(report.runs) and all(len(row[2]) == len(picture.epochs) for row in picture.rows)


def test_captions_name_the_limit_and_the_cross(report):
    captions = {picture.title: picture.caption for picture in setting_figures(groups(report)).shown[0].pictures}
    assert "the limit of D1, 50." in captions["Largest growth per block"]
    assert "the limit of D2, 10⁻⁷." in captions["Reference gradient"]
    assert "A cross marks" in captions["Scale of the stream"] and "A cross marks" not in captions["Test accuracy"]
    assert "the band is the range of the frozen controls" in captions["Test accuracy"]


def test_settings_without_trajectories_show_the_end_alone_and_without_accuracy_nothing(report):
    runs = tuple(dataclasses.replace(run, record=dataclasses.replace(run.record, trajectory={})) for run in report.runs)
    (part,) = setting_figures(groups(dataclasses.replace(report, runs=runs))).shown
    assert part.pictures == () and [plate.title for plate in part.plates] == ["Accuracy of every seed"]
    bare = [dataclasses.replace(run.record, measurements=Measurements({}, {})) for run in runs]
    runs = tuple(dataclasses.replace(run, record=record) for run, record in zip(runs, bare, strict=True))
    assert setting_figures(groups(dataclasses.replace(report, runs=runs))) == Listed((), 0)


def in_settings(report, count):
    """The report's runs, once in each of `count` settings."""
    runs = []
    for number in range(count):
        for run in report.runs:
            spec = dataclasses.replace(run.record.spec, dataset=f"set {number}")
            record = dataclasses.replace(
                run.record, spec=spec, setting=f"setting {number}", run_id=f"{number}{run.record.run_id}"
            )
            runs.append(dataclasses.replace(run, record=record))
    return groups(dataclasses.replace(report, runs=tuple(runs)))


def test_settings_are_drawn_in_order_until_the_page_is_full(report):
    every = setting_figures(in_settings(report, 3))
    assert (len(every.shown), every.left) == (3, 0)
    room = sum(len(one.uri) for one in (*every.shown[0].pictures, *every.shown[0].plates))
    some = setting_figures(in_settings(report, 3), room=int(2.1 * room))
    assert (some.total, [part.setting for part in some.shown]) == (3, ["setting 0"])  # their tables take room too


def test_a_figure_gives_up_its_numbers_before_it_is_left_out_and_the_first_setting_is_always_drawn(report):
    (whole,) = setting_figures(in_settings(report, 1)).shown
    images = sum(len(one.uri) + len(one.alt.encode()) + 2000 for one in (*whole.pictures, *whole.plates))
    for room, shown in ((images, 1), (0, 1), (int(1.9 * images), 1), (int(2.1 * images), 2)):
        found = setting_figures(in_settings(report, 3), room=room)
        assert (len(found.shown), found.total) == (shown, 3)
        assert [len(found.shown[0].pictures), len(found.shown[0].plates)] == [4, 1]
        assert all(one.uri for one in (*found.shown[0].pictures, *found.shown[0].plates))
    bare = setting_figures(in_settings(report, 3), room=0).shown[0]
    assert not any(one.rows for one in bare.pictures) and not any(one.groups for one in bare.plates) and not bare.full


def test_what_the_rest_of_the_page_takes_the_figures_do_not_get():
    assert room_beside(300_000) == PAGE - 300_000
    assert room_beside(5_000_000) == room_beside(PAGE) == LEAST_ROOM


def test_the_bytes_that_are_counted_are_about_those_that_are_written(report, tmp_path):
    from fa_registry.reporting.figures.page import _bytes
    from fa_registry.reporting.figures.plates import size_of
    from fa_registry.reporting.render import render_report

    page = render_report(report, tmp_path)[0].read_text("utf-8")
    page = page[page.index('<h2 id="figures">') :]
    page = page[: page.index("</section>")]
    written = len(page[page.index("<figure>") : page.rindex("</figure>")].encode())
    (part,) = setting_figures(groups(report), report.cards).shown
    counted = sum(map(_bytes, part.pictures)) + sum(map(size_of, part.plates))
    assert 0.85 < counted / written < 1.15


def test_figures_by_site_get_the_room_that_is_left(report):
    from tests.reporting.page_figures.scenes import followed

    ordered = groups(followed(report))
    (whole,) = setting_figures(ordered, report.cards).shown
    assert whole.full and len(whole.plates) == 3  # accuracy, growth, Γ; no run of this audit has a null
    few = sum(len(one.uri) for one in (*whole.pictures, *whole.plates))
    (part,) = setting_figures(ordered, report.cards, room=few).shown
    assert not part.full and [one.uri for one in part.pictures] == [one.uri for one in whole.pictures]
    assert [one.uri for one in part.plates] == [whole.plates[0].uri]
