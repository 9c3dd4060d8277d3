"""Conversion of a study.toml to specifications.

A study is a grid of methods, architectures, data sets, seeds, penalties and options. The study includes the necessary controls,
which are runs to compare with, such as runs with frozen blocks. This module also defines the fields of the file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Annotated, Any, Literal, get_args

from fa_registry import jsonio
from fa_registry.errors import InvalidFields, Problem, unknown_name_text
from fa_registry.field_types import Converted, Filled, Text
from fa_registry.jsonio import TomlFile
from fa_registry.records import DEEP_SUPERVISION, FROZEN_LONG, LONGER, RunSpec
from fa_registry.records.runs import OF_CREDIT
from fa_registry.studies.study_files import StudyVariant, find, parse_variant
from fa_registry.studies.study_files import names as names
from fa_registry.studies.study_keys import KeyCorrection
from fa_registry.text_safety import name_problem
from fa_registry.training.controls import depth, ladder
from fa_registry.training.kept_states import AUTO, asked_states
from fa_registry.training.specs import NAMES, RECIPE_FIELDS, parse_spec

Control = Literal["frozen", "frozen_long", "shallow", "ladder", "deep_supervision"]
CONTROLS = get_args(Control)
RecipeField = Literal["epochs", "precision", *RECIPE_FIELDS]
TABLES = {"recipe": get_args(RecipeField), "controls": CONTROLS}  # tables of the file; tables of a grid have priority
AXES = {
    "methods": "method",
    "architectures": "architecture",
    "datasets": "dataset",
    "seeds": "seed",
    "penalties": "penalty",
    "penalties_embedding": "penalty_embedding",
    "epochs": "epochs",
}
MOST_RUNS = 100_000  # largest number of runs of a file; their expansion takes ten seconds
FIXED = ("method_options", "architecture_options")


@dataclass(frozen=True)
class Grid:
    """Table [[grid]] of a study.toml.

    Every combination of the values in its lists is trained.
    """

    methods: tuple[str, ...] = ()
    """names, as `fa-registry list methods` shows them"""
    architectures: tuple[str, ...] = ()
    """names, as `fa-registry list architectures` shows them"""
    datasets: tuple[str, ...] = ()
    """names, as `fa-registry list datasets` shows them"""
    seeds: tuple[int, ...] = ()
    """whole numbers from 0. Runs with the same seed are paired, because they share initial weights and the order of the data"""
    penalties: tuple[float, ...] = ()
    """strengths λ ≥ 0 of the residual penalty; without this list, runs have no penalty"""
    penalties_embedding: tuple[float, ...] = ()
    """strengths λ_0 ≥ 0 of the penalty on the embedding's output; each is combined with each value of `penalties`"""
    epochs: tuple[int, ...] = ()
    """replaces the recipe's epochs"""
    method_options: Mapping[str, Any] = field(default_factory=dict)
    """options for every method of this grid, see `fa-registry info NAME`; a list of values makes one variant per value:
    `{ sigma = [1, 2] }`"""
    architecture_options: Mapping[str, Any] = field(default_factory=dict)
    """options for every architecture of this grid; a list of values makes one setting per value"""
    recipe: Mapping[RecipeField, Any] = field(default_factory=dict)
    """differences from the study's recipe; a list of values makes one setting per value: `{ learning_rate = [1e-3, 3e-3] }`"""
    controls: Mapping[Control, bool] = field(default_factory=dict)
    """differences from the study's controls"""
    name: str = ""
    """label of the setting on pages, for example `main`; if the grid has several settings, their options follow the label:
    `main d_hidden=16`"""


def _visible_name(name: str) -> str:
    if problem := name_problem(name):
        raise ValueError(problem)
    return name


@dataclass(frozen=True)
class StudyTable:
    """Contents of a study.toml."""

    name: Annotated[Text, Converted(_visible_name)]
    """name of the study, which selects its runs in `fa-registry audit --study NAME`"""
    title: Text
    """title in lists and on pages, one line"""
    edition: Text
    """edition that judges the runs: a name from `fa-registry list editions`, or the path of an edition file"""
    grid: Filled[Grid]
    """one or several tables that describe the runs; a run that occurs in several tables is trained once"""
    cost: str = ""
    """the expected cost, as text"""
    recipe: Mapping[RecipeField, Any] = field(default_factory=dict)
    """recipe of every grid. A grid may replace fields of this recipe. A list of values makes one setting per value"""
    controls: Mapping[Control, bool] = field(default_factory=dict)
    """controls that are trained for every setting; `frozen` is true by default. `frozen_long` is the frozen control with twice the
    epochs of its setting. `deep_supervision` is trained for the settings of methods with local heads, such as mono_forward"""
    keep_states: Annotated[int | str, Converted(asked_states)] = AUTO
    """number of training states to store per run, or `all`. From each state, an audit can replay the next epoch on any machine.
    `auto` stores 3 states if these need at most 5 % of the disk space of the run. Set this field for results that will be published
    """
    waivers: str = ""
    """path of the file with the waivers, relative to study.toml; the pages of an audit name this path"""


NO_FIELDS = ("seeds", "data", "scale", "settings")  # overrides that are not fields of a spec
PENALTIES = ("penalty", "penalty_embedding")
SETTABLE = (*RECIPE_FIELDS, "precision", *PENALTIES)  # names in the override `settings`, in addition to options


@dataclass(frozen=True)
class GridCell:
    """One combination of the values of a grid.

    Attributes:
        fields: fields of the specification, as input of `parse_spec`.
        controls: names of the controls that this run needs.
        name: label of the setting.
    """

    fields: Mapping[str, Any]
    controls: tuple[str, ...]
    name: str = ""


def cells(
    raw: Mapping[str, Any], grid: Mapping[str, Any], overrides: Mapping[str, Any], variant: StudyVariant
) -> Iterator[GridCell]:
    """Yield all combinations of the values of a grid.

    Args:
        raw: contents of a study.toml. None replaces each value of a wrong type, here and in `grid`.
        grid: one of its grids.
        overrides: values that replace those of the file.
        variant: study variant whose data set and epochs are applied.
    """
    given = {name: value for name, value in grid.items() if value is not None}
    axes = {field: grid[axis] if axis in given else [None] for axis, field in AXES.items() if axis in grid}
    if "seeds" in overrides:
        axes["seed"] = overrides["seeds"]
    if "epochs" in overrides:
        axes["epochs"] = [overrides["epochs"]]
    recipe, controls = ({**(raw.get(name) or {}), **given.get(name, {})} for name in TABLES)
    field_overrides = {name: value for name, value in overrides.items() if name not in NO_FIELDS}
    fields = {**recipe, **field_overrides, **{name: given.get(name, {}) for name in FIXED}}
    settings = overrides.get("settings", {})
    _apply_settings(settings, fields, axes)
    control_names = tuple(control for control in CONTROLS if {"frozen": True, **controls}.get(control))
    for values in product(*axes.values()):
        cell = {**fields, **dict(zip(axes, values, strict=True))}
        _apply_options(settings, cell)
        for swept, text in _swept(cell, grid):
            name = f"{given['name']} {text}".strip() if given.get("name") else ""
            yield GridCell(_of_variant(swept, variant), control_names, name)


def _apply_settings(settings: Mapping[str, Any], fields: dict[str, Any], axes: dict[str, Any]) -> None:
    """Replace values of recipe and penalties by those in `settings`; the study uses each value of a list."""
    for name, value in settings.items():
        if name in PENALTIES:
            axes[name] = value if isinstance(value, list) else [value]
        elif name in SETTABLE:
            fields[name] = value


def _apply_options(settings: Mapping[str, Any], cell: dict[str, Any]) -> None:
    """Replace the options in `settings` that the method or network of the cell has."""
    for name, value in settings.items():
        plugin_kind, _, option = name.partition(".")
        if (key := f"{plugin_kind}_options") in FIXED and option in _options_of(plugin_kind, cell.get(plugin_kind)):
            cell[key] = {**cell[key], option: value}


def _wrong_settings(settings: Mapping[str, Any], grids: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """Return a problem for each name that the override `settings` cannot replace."""
    kinds = tuple(key.removesuffix("_options") for key in FIXED)
    known_names = [*SETTABLE]
    for axis, field_name in AXES.items():
        plugins = [plugin for grid in grids for plugin in grid.get(axis) or () if field_name in kinds]
        known_names += dict.fromkeys(f"{field_name}.{name}" for one in plugins for name in _options_of(field_name, one))
    unknown = [name for name in settings if name not in known_names]
    return [Problem(("settings",), unknown_name_text("name", name, known_names)) for name in unknown]


def _swept(cell: Mapping[str, Any], grid: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield pairs (cell, label), one for each combination of the values in lists of options and recipe.

    Example of a label: `d_hidden=16, batch_size=64`.
    """
    lists = dict(_lists(cell, grid))
    for values in product(*lists.values()):
        values_by_table: dict[str, dict[str, Any]] = {}
        for (table_name, name), value in zip(lists, values, strict=True):
            values_by_table.setdefault(table_name, {})[name] = value
        options = {key: {**cell[key], **values_by_table.get(key, {})} for key in FIXED}
        recipe = values_by_table.get("recipe", {})
        of_setting = {**values_by_table.get("architecture_options", {}), **recipe}
        of_setting = {
            name: value for name, value in of_setting.items() if name not in OF_CREDIT
        }  # in the method's label
        yield {**cell, **options, **recipe}, ", ".join(f"{name}={value}" for name, value in of_setting.items())


def _lists(cell: Mapping[str, Any], grid: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], list]]:
    """Yield ((table, field), values) for every list in options and recipe, in the grid's order of tables."""
    for table_name in dict.fromkeys((*grid, "recipe", *FIXED)):
        if table_name == "recipe":
            lists = ((name, value) for name, value in cell.items() if isinstance(value, list))
            yield from (((table_name, name), value) for name, value in lists if name in TABLES[table_name])
        elif table_name in FIXED:
            for name, value in cell[table_name].items():
                if isinstance(value, list) and not _is_a_list(cell, table_name, name):
                    yield (table_name, name), value


def _is_a_list(cell: Mapping[str, Any], table_name: str, option: str) -> bool:
    """Return whether this option takes a list as its value. Otherwise a list contains several values."""
    plugin_kind = table_name.removesuffix("_options")
    declared = _options_of(plugin_kind, cell.get(plugin_kind)).get(option)
    return declared is not None and isinstance(declared.default, (list, tuple))


def _options_of(plugin_kind: str, name: Any) -> Mapping[str, Any]:
    """Return the options that a method or network declares; none if the name is unknown."""
    return NAMES[plugin_kind].describe(name).card.options if name in NAMES[plugin_kind].names() else {}


def _of_variant(fields: dict[str, Any], variant: StudyVariant) -> dict[str, Any]:
    if fields.get("dataset"):
        fields["dataset"] = variant.dataset(fields["dataset"])
    if type(fields.get("epochs")) is int:
        fields["epochs"] = variant.epochs(fields["epochs"])
    return fields


def _control_problems(spec: RunSpec, cell: GridCell) -> Iterator[Problem]:
    """Yield the problems of the controls of a trained specification."""
    if FROZEN_LONG in cell.controls and "frozen" not in cell.controls:
        text = "expected frozen = true, because both controls are compared; found frozen = false"
        yield Problem(("controls", FROZEN_LONG), text)
    if "ladder" in cell.controls and "num_blocks" not in spec.architecture_options:
        text = f"expected an architecture with the option num_blocks, found {spec.architecture!r}"
        yield Problem(("controls", "ladder"), text)


def controls_of(spec: RunSpec, controls: tuple[str, ...]) -> Iterator[RunSpec]:
    """Yield the specifications of the controls of a trained specification.

    The ladder controls train the same method. All other controls train backpropagation without a penalty. A method without local
    heads has no control deep_supervision.
    """
    for control in controls:
        if control == "ladder":
            yield from _depths(spec)
            continue
        if control == DEEP_SUPERVISION and not _has_local_heads(spec.method):
            continue
        fields = {"recipe": spec.recipe.for_controls}
        if control == FROZEN_LONG:
            fields["epochs"] = LONGER * spec.epochs
        yield dataclasses.replace(spec.unpenalised, method="bp", method_options={}, control=control, **fields)


def _has_local_heads(method: str) -> bool:
    """Return whether the blocks of a method learn by local heads, according to its card."""
    return NAMES["method"].describe(method).card.local_heads


def _without_heads(
    trained: list[tuple[RunSpec, GridCell]], grids: Mapping[int, Mapping[str, Any]]
) -> Iterator[Problem]:
    """Yield a problem for each table of controls with deep_supervision for methods without local heads."""
    chosen = {
        ("grid", number, "controls", DEEP_SUPERVISION): grid["methods"]
        for number, grid in grids.items()
        if grid.get("controls", {}).get(DEEP_SUPERVISION)
    }
    of_study = dict.fromkeys(spec.method for spec, cell in trained if DEEP_SUPERVISION in cell.controls)
    for steps, names_in_table in (chosen or {("controls", DEEP_SUPERVISION): of_study}).items():
        if names_in_table and not any(map(_has_local_heads, names_in_table)):
            text = (
                "expected a method with local heads, such as mono_forward, because this control trains the same heads; "
                f"found {', '.join(names_in_table)}"
            )
            yield Problem(steps, text)


def _depths(spec: RunSpec) -> Iterator[RunSpec]:
    """Yield the controls ladder_0 to ladder_{L−1}; ladder_0 trains no block, so it has no penalties."""
    for control in ladder(int(spec.architecture_options["num_blocks"])):
        yield dataclasses.replace(spec if depth(control) else spec.unpenalised, control=control)


@dataclass(frozen=True)
class Study:
    """A study with all its specifications.

    Attributes:
        cost: expected cost, as text.
        specs: specifications of the trained methods, then of the controls, without duplicates.
        `variant`: study variant, i.e. the data set and the number of epochs that differ from the file.
        labels: mapping from the identity of a setting to its labels in the file. A setting can have several labels if the variant
            replaces the data.
        keep_states: number of training states to store per run; see StudyTable.
    """

    name: str
    title: str
    edition: str
    cost: str
    specs: tuple[RunSpec, ...]
    variant: StudyVariant = StudyVariant()
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keep_states: str | int = AUTO

    @property
    def settings(self) -> dict[str, list[RunSpec]]:
        """Mapping from the identity of a setting to its specifications, including controls."""
        specs_of: dict[str, list[RunSpec]] = {}
        for spec in self.specs:
            specs_of.setdefault(spec.setting.identity, []).append(spec)
        return specs_of


def load_study(name: str, overrides: Mapping[str, Any] | None = None) -> Study:
    """Read a study.toml and expand it to specifications; see `expanded`.

    Raises:
        UnknownName: no such study exists.
        InvalidFields: the file is invalid.
    """
    return expanded(read_study(name), overrides or {})


def read_study(name: str) -> TomlFile:
    """Read the study.toml of a study without expanding it.

    Raises:
        UnknownName: no such study exists.
        InvalidFields: the file is not valid TOML.
    """
    path = find(name)
    return jsonio.read_toml(path, f"study {path}")


def expanded(file: TomlFile, overrides: Mapping[str, Any]) -> Study:
    """Expand the contents of a study.toml to specifications.

    Args:
        file: path and contents of the study.toml.
        overrides: `epochs`, `seeds`, `device` and `settings` replace values of the file. If a value in `settings` is a
            list, the study uses each value in the list. `data` and `scale` create a study variant, see study_variants.RULE and
            study_variants.SCALING.

    Raises:
        InvalidFields: the file or the overrides are invalid. The message lists all problems.
    """
    correction = KeyCorrection(file, _names(file.table))
    file, problems = correction.file, correction.problems
    problems += map(file.located, jsonio.try_decode(StudyTable, file.table)[1])
    raw, grids = _valid_tables(file.table)
    nonempty_overrides = {key: value for key, value in overrides.items() if value}
    variant = parse_variant(overrides, problems)
    problems += _wrong_settings(overrides.get("settings") or {}, grids.values())
    by_grid = _trained(file, raw, grids, nonempty_overrides, variant, problems)
    trained = [pair for pairs in by_grid.values() for pair in pairs]
    problems += map(file.located, _reused_names(by_grid, grids))
    problems += [] if problems else map(file.located, _without_heads(trained, grids))
    if problems:
        raise InvalidFields(
            f"study {file.path}", sorted(dict.fromkeys(problems), key=lambda each: (not each.steps, each.line))
        )
    return Study(
        raw["name"],
        raw["title"],
        raw["edition"],
        raw.get("cost", ""),
        _specs(trained),
        variant,
        _labels(trained),
        asked_states(raw.get("keep_states", AUTO)),
    )


def _trained(
    file: TomlFile,
    raw: Mapping[str, Any],
    grids: Mapping[int, Mapping[str, Any]],
    overrides: Mapping[str, Any],
    variant: StudyVariant,
    problems: list[Problem],
) -> dict[int, list[tuple[RunSpec, GridCell]]]:
    """Return the valid specifications of each grid, without controls; append to `problems`."""
    trained: dict[int, list[tuple[RunSpec, GridCell]]] = {}
    remaining_runs = MOST_RUNS
    for number, grid in grids.items():
        reported = [field for axis, field in AXES.items() if axis in grid and _has_wrong_entry(grid[axis])]
        reported += ["epochs"] if raw.get("recipe", {}) is None else []
        grid_cells = list(islice(cells(raw, grid, overrides, variant), remaining_runs + 1))
        remaining_runs -= len(grid_cells)
        if not grid_cells or remaining_runs < 0:
            no_runs = "no runs; every list needs at least one entry"
            text = no_runs if not grid_cells else f"too many runs; the maximum per study is {MOST_RUNS:,}"
            problems.append(file.located(Problem(("grid", number), f"expands to {text}")))
        if remaining_runs < 0:
            break
        trained[number] = []
        for cell in grid_cells:
            try:
                trained[number].append((parse_spec(cell.fields, reported=reported), cell))
                wrong = _control_problems(*trained[number][-1])
            except InvalidFields as error:
                wrong = error.problems
            problems += (_in_file(problem, file, number, grid, overrides) for problem in wrong)
    return trained


def _reused_names(
    trained: Mapping[int, list[tuple[RunSpec, GridCell]]], grids: Mapping[int, Mapping[str, Any]]
) -> Iterator[Problem]:
    """Yield a problem for each grid with the name of an earlier grid that has other settings."""
    first: dict[str, int] = {}
    for number in trained:
        name = grids[number].get("name")
        earlier = first.setdefault(name, number) if name else number
        settings = ({spec.setting.identity for spec, _ in trained[each]} for each in (number, earlier))
        if earlier != number and all(pair := tuple(settings)) and pair[0].isdisjoint(pair[1]):
            yield Problem(
                ("grid", number, "name"),
                f"expected another name than that of grid[{earlier}], which has other settings",
            )


def _valid_tables(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[int, Mapping[str, Any]]]:
    """Return the contents of a study.toml and its grids by number.

    None replaces each unknown field and each value of a wrong type.
    """
    valid = jsonio.valid_part(StudyTable, raw)
    return valid, {number: grid for number, grid in enumerate(valid["grid"] or ()) if grid is not None}


def _has_wrong_entry(entries: list[Any] | None) -> bool:
    return entries is None or None in entries


def _names(table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the keys of each table of a study.toml, as `KeyCorrection` needs them."""
    top, grid = (tuple(field.name for field in dataclasses.fields(kind)) for kind in (StudyTable, Grid))
    names = {"": top, **TABLES, "grid": grid, **{f"grid.{name}": keys for name, keys in TABLES.items()}}
    grids = table.get("grid")
    tables = [each for each in (grids if isinstance(grids, list) else [grids]) if isinstance(each, Mapping)]
    for axis, plugin_kind in AXES.items():
        if (key := f"{plugin_kind}_options") in FIXED:
            plugins = [name for each in tables if isinstance(each.get(axis), list) for name in each[axis]]
            options = (_options_of(plugin_kind, name) for name in plugins if isinstance(name, str))
            names[f"grid.{key}"] = tuple(name for declared in options for name in declared)
    return names


OVERRIDDEN = {"seeds": "seed", "data": "dataset", "scale": "epochs"}  # override → field of a specification


def _in_file(
    problem: Problem, file: TomlFile, number: int, grid: Mapping[str, Any], overrides: Mapping[str, Any]
) -> Problem:
    """Return a problem of a specification as a problem of the file, unless an override is wrong."""
    name, *rest = problem.steps
    option = ".".join((name.removesuffix("_options"), *map(str, rest)))
    if name in {OVERRIDDEN.get(key, key) for key in overrides} or {name, option} & {*overrides.get("settings", ())}:
        return problem
    table, key = (name, *rest) if name in TABLES else ("recipe", name)
    axis = next((axis for axis, field in AXES.items() if field == name), name)
    if key in TABLES[table] and axis not in grid:
        steps = ("grid", number, table, key) if key in (grid.get(table) or ()) else (table, key)
    else:
        steps = ("grid", number, axis, *rest)
    return file.located(Problem(steps, problem.text))


def _specs(trained: list[tuple[RunSpec, GridCell]]) -> tuple[RunSpec, ...]:
    every_control = (control for spec, cell in trained for control in controls_of(spec, cell.controls))
    controls = list(islice(every_control, MOST_RUNS + 1))
    if len(controls) > MOST_RUNS:
        problem = Problem(("controls",), f"expand to too many runs; the maximum per study is {MOST_RUNS:,}")
        raise InvalidFields("study", [problem])
    by_identity = {spec.identity: spec for spec in [*(spec for spec, _ in trained), *controls]}
    return tuple(by_identity.values())


def _labels(trained: list[tuple[RunSpec, GridCell]]) -> dict[str, tuple[str, ...]]:
    names_of: dict[str, dict[str, None]] = {}
    for spec, cell in trained:
        if cell.name:
            names_of.setdefault(spec.setting.identity, {})[cell.name] = None
    return {setting: tuple(names) for setting, names in names_of.items()}
