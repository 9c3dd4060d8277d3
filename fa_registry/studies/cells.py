"""The cells of a study's grids as loose spec fields, and the controls of what is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from fa_registry.errors import InvalidFields
from fa_registry.records import RunSpec
from fa_registry.studies.fields import AXES, CONTROLS, FIXED, grids, table, wrong_types
from fa_registry.studies.twins import Twin
from fa_registry.training.controls import ladder, rung

NO_FIELDS = ("seeds", "data", "scale")  # overrides that are no field of a spec


@dataclass(frozen=True)
class GridCell:
    """fields: what parse_spec takes. controls: those that its run needs. name: of its setting, as the file calls it."""

    fields: Mapping[str, Any]
    controls: tuple[str, ...]
    name: str = ""


def cells(raw: Mapping[str, Any], overrides: Mapping[str, Any], twin: Twin) -> Iterator[GridCell]:
    """Every cell of every grid that can be expanded. What `wrong_fields` has named already is left out, not named twice."""
    recipe = dict(table(raw, "recipe"))
    if not isinstance(raw.get("recipe", {}), Mapping):
        recipe["epochs"] = 0  # stands in for the unreadable one: nothing of this file is run
    replaced = {name: value for name, value in overrides.items() if name not in NO_FIELDS}
    for index, grid in enumerate(grids(raw)):
        if wrong_types(index, grid):
            continue
        axes = {field: grid[axis] for axis, field in AXES.items() if axis in grid}
        if "seeds" in overrides:
            axes["seed"] = overrides["seeds"]
        if "epochs" in overrides:
            axes["epochs"] = [overrides["epochs"]]
        fixed = {name: grid[name] for name in FIXED if name in grid}
        fields = {**recipe, **table(grid, "recipe"), **replaced, **fixed}
        controls = {"frozen": True, **table(raw, "controls"), **table(grid, "controls")}
        wanted = tuple(control for control in CONTROLS if controls.get(control))
        for values in product(*axes.values()):
            cell = {**fields, **dict(zip(axes, values, strict=True))}
            yield GridCell(_of_twin(cell, twin), wanted, grid.get("name", ""))


def _of_twin(fields: dict[str, Any], twin: Twin) -> dict[str, Any]:
    """The fields on the twin's data and with its epochs; a wrong number of epochs is left for parse_spec to name."""
    if "dataset" in fields:
        fields["dataset"] = twin.dataset(fields["dataset"])
    if type(fields.get("epochs")) is int:
        fields["epochs"] = twin.epochs(fields["epochs"])
    return fields


def controls_of(spec: RunSpec, controls: tuple[str, ...]) -> Iterator[RunSpec]:
    """The controls of one trained spec: by bp, without penalty; the ladder by the method itself."""
    for control in controls:
        if control == "ladder":
            yield from _rungs(spec)
            continue
        recipe = dataclasses.replace(spec.recipe, credit_norm="rms")
        yield dataclasses.replace(spec, method="bp", method_options={}, penalty=0.0, control=control, recipe=recipe)


def _rungs(spec: RunSpec) -> Iterator[RunSpec]:
    """ladder_0 .. ladder_{L−1} of one trained spec. The lowest is without penalty: no block is left to penalise."""
    if "num_blocks" not in spec.architecture_options:
        problem = f"controls.ladder: expected an architecture with the option num_blocks, found {spec.architecture!r}"
        raise InvalidFields("study", [problem])
    for control in ladder(int(spec.architecture_options["num_blocks"])):
        yield dataclasses.replace(spec, control=control, penalty=spec.penalty if rung(control) else 0.0)
