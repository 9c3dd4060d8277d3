"""Sites that no parameter learns from, in runs of releases that counted them.

A network whose embedding has no parameter (mlp) has its input at site 0. Γ there says nothing of the training, so it is left
out of Γ, of its null and of its aggregates when a run is measured. The functions here do the same to metrics that were logged.
"""

from __future__ import annotations

import dataclasses

from fa_registry import datasets
from fa_registry.diagnostics.gamma import NOT_CREDITED
from fa_registry.diagnostics.gamma import NUMBERS as OF_GAMMA
from fa_registry.diagnostics.gamma_null import NAMES as OF_NULL
from fa_registry.errors import RegistryError
from fa_registry.quantities import AGGREGATES, SPREAD
from fa_registry.records import Measurements, Reading, RunRecord, Series, SiteSeries
from fa_registry.training.bench import FIRST_CREDITED
from fa_registry.training.task import build_network


def without_input_site(record: RunRecord) -> RunRecord:
    """Leave out site 0 of a run where it is the input, for runs of releases that counted it.

    The record of a run whose architecture or data set is not installed is returned as it is.
    """
    try:
        network = build_network(record.spec, datasets.get(record.spec.dataset).card)
    except RegistryError:
        return record
    if not network.first_credited:
        return record
    by_site = {name: _without_first(series) if name == "gamma" else series for name, series in record.by_site.items()}
    return dataclasses.replace(record, measurements=left_out(record.measurements), by_site=by_site)


def _without_first(series: SiteSeries) -> SiteSeries:
    absent = Series([Reading(None, NOT_CREDITED)] * len(series.epochs))
    return dataclasses.replace(series, sites=(absent, *series.sites[1:]))


def left_out(measurements: Measurements) -> Measurements:
    """Replace Γ of site 0 by the reason; the aggregates over all sites are those over sites 1..L then."""
    absent = Reading(None, NOT_CREDITED)
    sites = {
        name: (absent, *row[1:]) if name in (*OF_GAMMA, *OF_NULL) and row else row
        for name, row in measurements.sites.items()
    }
    scalars = dict(measurements.scalars)
    over_all = {name: name.replace("gamma_all_", "gamma_deep_") for name in AGGREGATES if name.startswith("gamma_all_")}
    scalars |= {name: scalars[deep] for name, deep in over_all.items() if name in scalars and deep in scalars}
    known = [scalars[name].value for name in over_all if name in scalars and scalars[name].value is not None]
    if SPREAD in scalars and known:
        scalars[SPREAD] = Reading(max(known) - min(known))
    conventions = {**measurements.conventions, FIRST_CREDITED: 1}
    return dataclasses.replace(measurements, sites=sites, scalars=scalars, conventions=conventions)
