"""The figure by site shows what its numbers say, the same whenever it is drawn."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.reporting.pages.comparison import compared_sites, layer_figure, layer_numbers


def test_it_shows_the_geometric_mean_of_g_and_the_mean_of_gamma(rich):
    chosen = [one for one in groups(rich) if one.method in ("bp", "dfa")]
    frame = layer_numbers(chosen)
    runs = chosen[0].runs
    rows = [run.record.measurements.sites for run in runs]
    first = frame[(frame["method"] == "bp") & (frame["site"] == 0)].set_index("panel")["value"]
    product = 1.0
    for row in rows:
        product *= row["g_norm_mean_ce"][0].value
    assert first["g"] == pytest.approx(product ** (1 / len(rows)))
    assert first["gamma"] == pytest.approx(sum(row["gamma"][0].value for row in rows) / len(rows))


def test_the_same_bytes_twice_and_words_for_who_cannot_see_it(rich):
    chosen = list(groups(rich))
    sites = compared_sites(chosen, {})
    ((uri, words),) = layer_figure(chosen, sites)
    assert layer_figure(chosen, sites) == ((uri, words),) and uri.startswith("data:image/png;base64,")
    assert all(f"of {one.method} from" in words for one in chosen)


def test_where_credit_is_exact_is_known_of_gamma_and_of_the_methods_that_say_so(rich):
    bp, dfa = (one for one in groups(rich) if one.method in ("bp", "dfa"))
    cards = {"methods/bp": {"exact_sites": "all"}, "methods/dfa": {"exact_sites": "last"}}
    gamma, *others = compared_sites([bp, dfa], cards)
    sites = len(gamma.rows)
    assert gamma.exact == (tuple(range(sites)), (sites - 1,)) and all(one.exact == ((), ()) for one in others)
    assert compared_sites([bp], {})[0].exact == ((),)


def test_runs_that_measured_no_site_have_no_figure(report, judged):
    record = report.runs[0].record
    bare = dataclasses.replace(record, measurements=dataclasses.replace(record.measurements, sites={}))
    chosen = list(groups(judged([bare])))
    assert compared_sites(chosen, {}) == () and layer_figure(chosen, ()) == ()
