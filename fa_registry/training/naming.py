"""Readable names: `dfa+pen λ=0.01 · resmlp-256x4 · digits · s42`."""

from __future__ import annotations

import dataclasses

from fa_registry import architectures
from fa_registry.records import Recipe, RunSpec


def setting_label(spec: RunSpec) -> str:
    """Architecture with its size and whatever differs from its defaults, data set, epochs, what differs from the recipe."""
    options = architectures.CATALOG.get(spec.architecture).card.options
    resolved = {name: spec.architecture_options.get(name, option.default) for name, option in options.items()}
    size = "x".join(str(resolved.pop(name)) for name in ("d_hidden", "num_blocks") if name in resolved)
    unusual = [f"{name}={value}" for name, value in resolved.items() if value != options[name].default]
    architecture = "-".join(part for part in (spec.architecture, size) if part)
    device = [spec.device_class] if spec.device_class != "cpu" else []
    return " · ".join([architecture, *unusual, spec.dataset, f"{spec.epochs} epochs", *_unusual_recipe(spec), *device])


def _unusual_recipe(spec: RunSpec) -> list[str]:
    """Fields that are not the paper's; how credits are normalised belongs to the method and not to the setting."""
    fields = [field for field in dataclasses.fields(Recipe) if field.name != "credit_norm"]
    values = ((field.name, getattr(spec.recipe, field.name), field.default) for field in fields)
    return [f"{name}={value}" for name, value, default in values if value != default]


def run_name(spec: RunSpec) -> str:
    architecture = setting_label(spec).split(" · ")[0]
    return f"{spec.method_label} · {architecture} · {spec.dataset} · s{spec.seed}"
