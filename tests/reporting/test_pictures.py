"""A figure on a page can be read without seeing it."""

from __future__ import annotations

import base64
import dataclasses

from fa_registry.protocol.grouping import groups
from fa_registry.reporting.pictures import setting_figures


def test_every_figure_has_words_numbers_and_its_own_bytes(report):
    (part,) = setting_figures(groups(report))
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
    captions = {picture.title: picture.caption for picture in setting_figures(groups(report))[0].pictures}
    assert "the limit of D1, 50." in captions["Largest growth per block"]
    assert "the limit of D2, 10⁻⁷." in captions["Reference gradient"]
    assert "A cross marks" in captions["Scale of the stream"] and "A cross marks" not in captions["Test accuracy"]
    assert "the band is the range of the frozen controls" in captions["Test accuracy"]


def test_settings_without_trajectories_have_no_figures(report):
    runs = tuple(dataclasses.replace(run, record=dataclasses.replace(run.record, trajectory={})) for run in report.runs)
    assert setting_figures(groups(dataclasses.replace(report, runs=runs))) == ()
