"""Parse and check the fields of a run specification, and format its name.

All types are checked here. MLflow passes the parameters of an entry point as text and does not check them (for example
`epochs=notafloat`). A run's name is, for example, `dfa+pen λ=0.01 · resmlp-256x4 · digits · s42`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from fa_registry import tasks
from fa_registry.errors import InvalidFields, Problem, UnknownName, closest_name, shortened, unknown_name_text
from fa_registry.field_types import Converted, Limits
from fa_registry.jsonio import parse_fields
from fa_registry.methods._card import SAMPLE_TASKS
from fa_registry.plugin_registry import Description
from fa_registry.records import DEEP_SUPERVISION, FROZEN_LONG, LONGER, Option, Recipe, RunSpec, Scalar
from fa_registry.records.manifest_checks import BatchSize
from fa_registry.records.runs import BEST_VALIDATION, MOST, OF_CREDIT, plain, validation_count
from fa_registry.training import controls, device_names
from fa_registry.training.device_names import PRECISIONS, obstacle
from fa_registry.training.spec_plugins import NAMES, SpecPlugins, find_plugins, task_problems, with_defaults

Number = Annotated[float, Limits(ge=0, le=MOST[float])]


def _known(kind: str, name: str) -> str:
    """Return the name of a plug-in in its only spelling, or raise UnknownName."""
    if kind == "dataset":
        return SpecPlugins("", "", name).card.name
    NAMES[kind].location(name)
    return name


TYPES = {  # field of a specification → its type
    **{kind: Annotated[str, Converted(partial(_known, kind))] for kind in NAMES},
    "seed": Annotated[int, Limits(f"a whole number from 0 to {2**63 - 1:,}", ge=0, lt=2**63)],
    # a record has one reading of every headline metric for each epoch, measured or not
    "epochs": Annotated[int, Limits(ge=0, le=100_000)],
    "batch_size": BatchSize,
    **dict.fromkeys(("penalty", "penalty_embedding", "learning_rate", "weight_decay"), Number),
    "precision": Literal[PRECISIONS],
    "optimizer": Literal["adamw", "sgd"],
    "schedule": Literal["cosine", "constant", "step"],
    "credit_norm": Literal["rms", "none"],
    **dict.fromkeys(("clip_credit", "clip_gradient"), Number),
    **dict.fromkeys(("momentum", "beta1", "beta2"), Annotated[float, Limits("a number from 0 to below 1", ge=0, lt=1)]),
    "adam_eps": Annotated[float, Limits(gt=0, le=1)],
    **dict.fromkeys(("warmup_epochs", "step_epochs"), Annotated[int, Limits(ge=0, le=100_000)]),
    "step_factor": Annotated[float, Limits(gt=0, lt=1)],
    "validation": Annotated[float, Limits("a share from 0 to below 1", ge=0, lt=1)],
    "select": Literal["last", BEST_VALIDATION],
    **dict.fromkeys(("rate_embedding", "rate_blocks", "rate_head"), Annotated[float, Limits(gt=0, le=MOST[float])]),
    **dict.fromkeys(("method_options", "architecture_options"), Mapping[str, Any]),
    "control": Annotated[str, Converted(controls.control_name)],
    "device": Annotated[Any, Converted(lambda name: device_names.resolve(str(name)))],  # also a torch.device
}
RECIPE_FIELDS = tuple(field.name for field in dataclasses.fields(Recipe))
NEEDS = {  # field of a recipe → the field and its value without which it has no effect
    "momentum": ("optimizer", "sgd"),
    **dict.fromkeys(("beta1", "beta2", "adam_eps"), ("optimizer", "adamw")),
    **dict.fromkeys(("step_epochs", "step_factor"), ("schedule", "step")),
    "clip_credit": ("credit_norm", "none"),
}
REQUIRED = ("method", "architecture", "dataset", "seed", "epochs")


def parse_spec(raw: Mapping[str, Any], subject: str = "run specification", reported: Collection[str] = ()) -> RunSpec:
    """Parse the fields of a specification and return a checked RunSpec.

    Args:
        raw: mapping from field to text or number. A field whose value is None or an empty text is ignored.
        subject: name at the start of the error message.
        reported: names of fields that are missing because the caller has reported their values as invalid.

    Raises:
        InvalidFields: if a field is unknown, missing or invalid. The error lists all problems.
    """
    plugins = SpecPlugins(*(str(raw.get(name)) for name in NAMES), control=str(raw.get("control")))
    given = {name: value for name, value in raw.items() if value is not None and value != ""}
    problems = [Problem((name,), _unknown_field(name, raw)) for name in given if name not in TYPES]
    values, wrong = parse_fields(TYPES, {name: value for name, value in given.items() if name in TYPES})
    problems += [*wrong, *(Problem((name,), "missing") for name in REQUIRED if name not in {*given, *reported})]
    if "device" in values:
        values["device_class"] = values.pop("device")
    problems += _check_together(values, plugins)
    if problems or reported:
        raise InvalidFields(subject, problems)
    recipe = Recipe(**{name: values.pop(name) for name in RECIPE_FIELDS if name in values})
    return with_defaults(RunSpec(recipe=recipe, **values), plugins)


def _unknown_field(name: str, raw: Mapping[str, Any]) -> str:
    """Return the error text for an unknown field. The text suggests a similar field or option."""
    owners: dict[str, list[str]] = {}
    for owner in ("method", "architecture"):
        if raw.get(owner) in NAMES[owner].names():
            for option in NAMES[owner].describe(raw[owner]).card.options:
                owners.setdefault(option, []).append(f"{owner}.{option}")
    if (closest := closest_name(name, [*owners, *TYPES])) in owners:
        return f"unknown field {shortened(name)!r}; did you mean {' or '.join(owners[closest])}?"
    return unknown_name_text("field", name, TYPES)


def _check_together(values: dict[str, Any], plugins: SpecPlugins) -> list[Problem]:
    """Return the problems of combinations of fields, such as method and architecture."""
    problems: list[Problem] = []
    for owner in ("method", "architecture"):
        problems += _check_options(values, owner, plugins.describe(owner).card.options) if owner in values else []
    if "dataset" in values:
        size, samples = values.get("batch_size", Recipe.batch_size), plugins.card.train_samples
        held_out = validation_count(samples, values.get("validation", 0.0))
        of_them = f", of which {held_out} are validation samples" if held_out else ""
        if held_out and held_out >= samples:
            text = f"the share {values['validation']:g} of the {samples} training samples leaves no sample to train on"
            problems.append(Problem(("validation",), text))
        elif size > samples - held_out and not plugins.dataset.absent():
            text = (
                f"{size} is larger than the training data ({values['dataset']} has {samples} training samples{of_them})"
            )
            problems.append(Problem(("batch_size",), text))
    problems += _check_recipe(values)
    has_network, has_method = "architecture" in values, {"method", "architecture"} <= values.keys()
    network_problems = []
    if has_method and "dataset" in values:  # a card without a task has one target per sample
        task = plugins.task or tasks.CATALOG.describe(SAMPLE_TASKS[0]).card
        network_problems = task_problems(plugins.describe("method").card, plugins.describe("architecture").card, task)
    if has_network and "dataset" in values and not network_problems and not problems:
        misfits = plugins.misfits(values.get("architecture_options", {}))
        network_problems = [Problem(("architecture_options", *each.steps), each.text) for each in misfits]
    return [*problems, *network_problems, *(_check_pairing(values, plugins) if has_method else ())]


def _check_recipe(values: dict[str, Any]) -> list[Problem]:
    """Return the problems of the recipe: fields without effect, and schedules longer than the run."""
    recipe = Recipe(**{name: values[name] for name in RECIPE_FIELDS if name in values})
    problems = [
        Problem(
            (name,),
            f"expected {owner}={value}, without which {name} has no effect; found {owner}={getattr(recipe, owner)}",
        )
        for name, (owner, value) in NEEDS.items()
        if getattr(recipe, name) != getattr(Recipe, name) and getattr(recipe, owner) != value
    ]
    if recipe.select == BEST_VALIDATION and not recipe.validation:
        text = f"expected validation above 0, because {BEST_VALIDATION!r} compares epochs on validation samples; found validation=0"
        problems.append(Problem(("select",), text))
    if "epochs" not in values:
        return problems
    epochs = values["epochs"] // (LONGER if values.get("control") == FROZEN_LONG else 1)
    if recipe.warmup_epochs > epochs:
        text = f"expected at most the {epochs} epochs of the training, found {recipe.warmup_epochs}"
        problems.append(Problem(("warmup_epochs",), text))
    elif recipe.schedule == "step" and not 0 < recipe.step_epochs < epochs - recipe.warmup_epochs:
        last = epochs - recipe.warmup_epochs - 1
        range_text = f"a number from 1 to {last}" if last > 0 else "a longer training for the schedule step"
        text = f"expected {range_text}, because the first step must be inside of the {epochs} epochs; found {recipe.step_epochs}"
        problems.append(Problem(("step_epochs",), text))
    return problems


def _check_options(values: dict[str, Any], owner: str, options: Mapping[str, Option]) -> list[Problem]:
    """Parse the options of the method or the architecture in `values`, and return their problems."""
    field, types = f"{owner}_options", {name: option.kind for name, option in options.items()}
    values[field], problems = parse_fields(types, values.get(field, {}), f"option of {values[owner]}")
    return [Problem((field, *problem.steps), problem.text) for problem in problems]


def _check_pairing(values: dict[str, Any], plugins: SpecPlugins) -> list[Problem]:
    """Return the problems of method, architecture, precision and control together."""
    problems = []
    method, card = plugins.describe("method"), plugins.describe("method").card
    if not card.supports(values["architecture"]):
        supported = ", ".join(card.architectures)
        text = f"{card.name} supports {supported}, not {values['architecture']}: {card.unsupported}"
        problems.append(Problem(("architecture",), text))
    options = plugins.resolve(values.get("architecture_options", {}))
    problems += [
        Problem(("architecture_options",), f"{card.name} does not support {option}: {card.unsupported_options[option]}")
        for option in (f"{name}={plain(value)}" for name, value in options.items())
        if option in card.unsupported_options
    ]
    if options.get("num_blocks", 1) == 0 and not method.traits["end_to_end"]:
        text = f"with num_blocks=0, no block receives a credit of {values['method']!r}; use control=shallow"
        problems.append(Problem(("architecture_options",), text))
    precision_problem = obstacle(
        values.get("precision", "fp32"), values.get("device_class", "cpu"), method.traits["_replaces_weights"]
    )
    problems += [Problem(("precision",), precision_problem)] if precision_problem else []
    return problems + _check_control(values, method, options.get("num_blocks"))


def _check_control(values: dict[str, Any], method: Description, blocks: int | None) -> list[Problem]:
    """Return the problems of the control. `blocks` is None if the architecture has no option num_blocks."""
    control, problems = values.get("control", "none"), []
    depth = controls.depth(control)
    if depth is None and control not in ("none", DEEP_SUPERVISION) and not method.traits["end_to_end"]:
        text = f"expected method 'bp' for the {control} control, found {values['method']!r}"
        problems.append(Problem(("control",), text))
    if depth is not None and (blocks is None or depth > blocks):
        found_text = "has no option num_blocks" if blocks is None else f"has {blocks} blocks (num_blocks={blocks})"
        text = f"{control} trains the last {depth} blocks, but {values['architecture']} {found_text}"
        problems.append(Problem(("control",), text))
    if control == FROZEN_LONG and values.get("epochs", 0) % LONGER:
        text = (
            f"expected an even number for the {control} control, which trains {LONGER} times the epochs of its setting; "
            f"found {values['epochs']}"
        )
        problems.append(Problem(("epochs",), text))
    penalised = [name for name in ("penalty", "penalty_embedding") if values.get(name)]
    if control == DEEP_SUPERVISION and (values["method"] != "bp" or penalised or blocks == 0):
        problems.append(Problem(("control",), f"{control} needs method 'bp', at least one block and no penalty"))
    if not controls.trains_blocks(control):
        text = f"expected 0 for the {control} control, which has no trained blocks"
        problems += [Problem((name,), text) for name in penalised]
    return problems


SEPARATOR = " · "
USUAL_EPOCHS = 100  # number of epochs in the paper and default of `train`, which names omit
MAX_NAME = 200  # characters; a run's name in MLflow's database ends at 250
DIGITS = 6  # digits of a digest that distinguishes two names


def setting_label(spec: RunSpec) -> str:
    """Return a text that describes the specification's setting.

    The text contains the architecture with its size and changed options, the data set, the epochs, and changes to the recipe. It
    is the same for all runs of a setting, even for a control that trains longer.
    """
    return SEPARATOR.join(_setting(spec, [f"{spec.setting.epochs} epochs"]))


def run_name(spec: RunSpec) -> str:
    """Return a short name of the run: method, setting and seed.

    Different specifications get different names. Default options, the values of the paper's recipe and 100 epochs are omitted. A
    long name is cut and ends with six digits of the specification's identity.
    """
    epochs = [f"{spec.epochs} epochs"] if spec.epochs != USUAL_EPOCHS else []
    name = SEPARATOR.join([_method(spec), *_setting(spec, epochs), f"s{spec.seed}"])
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - DIGITS - 2]}… {spec.identity[:DIGITS]}"


def _method(spec: RunSpec) -> str:
    """Return the label, the changed options, and the first digits of an adopted checkpoint's digest."""
    label = " ".join([spec.method_label, spec.weights[:DIGITS]]).strip()
    unusual = _unusual(spec.method_options, _options(spec, "method"))
    unusual += [f"{name}={value}" for name, value in spec.recipe.of_credit.items()]
    return f"{label} ({', '.join(unusual)})" if unusual else label


def _setting(spec: RunSpec, epochs: list[str]) -> list[str]:
    options = _options(spec, "architecture")
    resolved = {name: option.default for name, option in options.items()} | dict(spec.architecture_options)
    size = "x".join(str(resolved.pop(name)) for name in ("d_hidden", "num_blocks") if name in resolved)
    architecture = "-".join(part for part in (spec.architecture, size) if part)
    fields = [
        field for field in dataclasses.fields(Recipe) if field.name not in OF_CREDIT
    ]  # those are a part of _method
    values = ((field.name, getattr(spec.recipe, field.name), field.default) for field in fields)
    recipe = [f"{name}={value}" for name, value, default in values if value != default]
    machine = [text for text, default in ((spec.precision, "fp32"), (spec.device_class, "cpu")) if text != default]
    return [architecture, *_unusual(resolved, options), spec.dataset, *epochs, *recipe, *machine]


def _unusual(values: Mapping[str, Scalar], options: Mapping[str, Option]) -> list[str]:
    return [
        f"{name}={value}" for name, value in values.items() if name not in options or value != options[name].default
    ]


def _options(spec: RunSpec, owner: str) -> Mapping[str, Option]:
    """Return the options of the method or architecture; a user-supplied loop has none."""
    try:
        return find_plugins(spec).describe(owner).card.options
    except UnknownName:
        return {}
