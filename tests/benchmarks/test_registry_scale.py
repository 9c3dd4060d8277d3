"""The made-up registry looks like a logged one, and the scale benchmark measures and says what it found."""

from __future__ import annotations

import dataclasses
from itertools import islice

import pytest

from benchmarks.registry_scale import INDEX_TARGET, SIZES, Scale, _judged, measure, measure_sizes, scale_lines
from benchmarks.synthetic import EPOCHS, ROUND, registry, specs, wide
from fa_registry import jsonio
from fa_registry.quantities import DECLARED, SITE_TABLES
from fa_registry.records import RunRecord
from fa_registry.reporting.render import _index
from fa_registry.reporting.sources import Sources
from fa_registry.reporting.text.environment import Pages

MADE = Scale(
    records=125,
    settings=17,
    forms=25,
    judging=0.5,
    rendering=3.0,
    cpu=3.0,
    peak=200.0,
    index_bytes=900_000,
    bytes_written=8_000_000,
)


def test_a_round_is_125_runs_of_ten_methods_in_17_settings():
    found = list(islice(specs(), ROUND))
    assert len({spec.identity for spec in found}) == len(found) == 125
    assert len({spec.setting.identity for spec in found}) == 17
    assert len({(spec.method_label) for spec in found}) == 10
    assert len({spec.identity for spec in islice(specs(), 3 * ROUND)}) == 3 * ROUND


def test_the_same_seed_makes_the_same_runs_and_they_are_real_records():
    first, again = list(registry(3)), list(registry(3))
    assert first == again != list(registry(3, seed=1))
    assert jsonio.decode(RunRecord, jsonio.encode(first[0])) == first[0]
    assert {len(row) for row in first[0].trajectory.values()} == {EPOCHS + 1}
    assert len(first[0].trajectory) == 12


def test_a_run_has_every_quantity_a_form_knows():
    known = DECLARED
    shown = {name for _, names in SITE_TABLES for name in names if not known[name].valued}
    assert shown <= set(next(registry(1)).measurements.sites)


def test_an_audit_of_125_runs_in_17_settings_is_a_page_of_less_than_a_megabyte():
    found = measure(ROUND)
    assert (found.records, found.settings, found.forms) == (125, 17, 25)
    assert 500_000 < found.index_bytes <= INDEX_TARGET < found.bytes_written
    assert found.cpu > 0 and found.peak > 1


def test_120_runs_of_one_setting_show_their_figures_on_a_page_of_less_than_a_megabyte():
    report = _judged(list(wide()))
    sources = Sources.of(report)
    assert len(report.runs) == 120 and len({run.record.setting for run in report.runs}) == 1
    page = _index(sources, Pages())
    assert 600_000 < len(page.encode()) <= INDEX_TARGET
    figures = page[page.index('id="figures"') : page.index('id="findings"')]
    assert (
        figures.count("<img ") == 6
        and "No setting's figures fit" not in figures
        and "Drawn for the first" not in figures
    )


def test_each_size_has_a_process_of_its_own():
    (found,) = measure_sizes([3])
    assert found.records == 3 and found.milliseconds_a_record > 0


def test_every_target_is_said_met_or_missed():
    text = "\n".join(scale_lines([MADE, dataclasses.replace(MADE, records=250, cpu=7.0)]))
    assert "125 runs, 17 settings, 25 forms: 24.00 ms of CPU a record" in text
    assert text.count(": met (") == 4 and "MISSED" not in text and "time a record, 250 / 125, ≤ 1.2: met (1.17)" in text


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"cpu": 5.1}, "125 runs ≤ 5 s of CPU: MISSED (5.1 s)"),
        ({"index_bytes": 1_000_001}, "index of 125 runs ≤ 1,000,000 bytes: MISSED (1,000,001)"),
        ({"peak": 1025.0}, "peak memory ≤ 1024 MiB: MISSED (1025 MiB)"),
    ],
)
def test_a_missed_target_is_said(change, line):
    assert line in "\n".join(scale_lines([dataclasses.replace(MADE, **change)]))
    slow = dataclasses.replace(MADE, records=250, cpu=7.5)
    assert "≤ 1.2: MISSED (1.25)" in "\n".join(scale_lines([MADE, slow]))


def test_the_first_size_is_the_one_the_targets_are_about():
    assert SIZES[0] == ROUND and list(SIZES) == sorted(SIZES)
