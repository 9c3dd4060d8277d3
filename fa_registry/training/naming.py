"""Readable names: `dfa+pen λ=0.01 · resmlp-256x4 · digits · s42`. λ is written by RunSpec.method_label and nowhere else."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from fa_registry import architectures, methods
from fa_registry.records import Option, Recipe, RunSpec, Scalar

SEPARATOR = " · "
USUAL_EPOCHS = 100  # the paper's, and what `train` takes unless told otherwise; not worth room in a name
MAX_NAME = 200  # characters; a run's name in MLflow's database ends at 250
DIGITS = 6  # of a digest that tells two names apart


def setting_label(spec: RunSpec) -> str:
    """Architecture with its size and whatever differs from its defaults, data set, epochs, what differs from the recipe."""
    return SEPARATOR.join(_setting(spec, [f"{spec.epochs} epochs"]))


def run_name(spec: RunSpec) -> str:
    """Method, setting and seed, as short as it can be so that two specifications never have one name.

    What is usual is left out: options at their default, the paper's recipe, 100 epochs. A name that would not fit ends
    in six digits of the specification's identity.
    """
    epochs = [f"{spec.epochs} epochs"] if spec.epochs != USUAL_EPOCHS else []
    name = SEPARATOR.join([_method(spec), *_setting(spec, epochs), f"s{spec.seed}"])
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - DIGITS - 2]}… {spec.identity[:DIGITS]}"


def _method(spec: RunSpec) -> str:
    """The label, the first digits of an adopted file, and options that are not the default."""
    label = " ".join([spec.method_label, spec.weights[:DIGITS]]).strip()
    unusual = _unusual(spec.method_options, methods.CATALOG.get(spec.method).card.options)
    if spec.recipe.credit_norm != Recipe.credit_norm:
        unusual.append(f"credit_norm={spec.recipe.credit_norm}")
    return f"{label} ({', '.join(unusual)})" if unusual else label


def _setting(spec: RunSpec, epochs: list[str]) -> list[str]:
    options = architectures.CATALOG.get(spec.architecture).card.options
    resolved = {name: spec.architecture_options.get(name, option.default) for name, option in options.items()}
    size = "x".join(str(resolved.pop(name)) for name in ("d_hidden", "num_blocks") if name in resolved)
    architecture = "-".join(part for part in (spec.architecture, size) if part)
    machine = [word for word, usual in ((spec.precision, "fp32"), (spec.device_class, "cpu")) if word != usual]
    return [architecture, *_unusual(resolved, options), spec.dataset, *epochs, *_unusual_recipe(spec), *machine]


def _unusual(values: Mapping[str, Scalar], options: Mapping[str, Option]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items() if value != options[name].default]


def _unusual_recipe(spec: RunSpec) -> list[str]:
    """Fields that are not the paper's; how credits are normalised belongs to the method and not to the setting."""
    fields = [field for field in dataclasses.fields(Recipe) if field.name != "credit_norm"]
    values = ((field.name, getattr(spec.recipe, field.name), field.default) for field in fields)
    return [f"{name}={value}" for name, value, default in values if value != default]
