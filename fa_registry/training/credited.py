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
from fa_registry.records import Measurements, Reading, RunSpec
from fa_registry.training.bench import FIRST_CREDITED
from fa_registry.training.task import build_network


def without_input_site(measurements: Measurements, spec: RunSpec) -> Measurements:
    """Leave out site 0 of a run whose release counted it although it is the input; other runs are returned as they are.

    A run whose architecture or data set is not installed is returned as it is, too.
    """
    if FIRST_CREDITED in measurements.conventions and measurements.conventions[FIRST_CREDITED] != 0:
        return measurements
    try:
        first = build_network(spec, datasets.get(spec.dataset).card).first_credited
    except RegistryError:
        return measurements
    return left_out(measurements) if first else measurements


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
