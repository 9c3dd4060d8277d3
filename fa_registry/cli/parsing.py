"""From what was typed to what the commands take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fa_registry.errors import InvalidFields, UsageError


def fields(arguments: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Spec fields from the options and the `--set name=value,…` pairs; dotted names go into their options."""
    raw: dict[str, Any] = {**arguments, "method_options": {}, "architecture_options": {}}
    problems = []
    for setting in [one for several in settings for one in several.split(",") if one]:
        name, separator, value = setting.partition("=")
        owner, dot, option = name.partition(".")
        if not separator:
            problems.append(f"--set {setting}: expected NAME=VALUE")
        elif dot and f"{owner}_options" in raw:
            raw[f"{owner}_options"][option] = value
        else:
            raw[name] = value
    if problems:
        raise InvalidFields("settings", problems)
    return raw


def overrides(epochs: str, seeds: str, device: str, data: str = "", scale: str = "") -> dict[str, Any]:
    """What the command line replaces in a study."""
    listed = [seed for seed in seeds.split(",") if seed]
    return {"epochs": epochs, "seeds": listed, "device": device, "data": data, "scale": scale}


def existing(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"{name}: no such file; `fa-registry audit` writes one")
    return path


def folder(name: str) -> Path | None:
    return Path(name) if name else None


def thresholds(settings: Sequence[str]) -> dict[str, float]:
    """The `--threshold RULE=NUMBER` settings, rule → number; InvalidFields names all that are not of that form."""
    found: dict[str, float] = {}
    problems = []
    for setting in settings:
        rule, _, number = setting.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not rule.strip() or not math.isfinite(value):
            problems.append(f"--threshold {setting}: expected RULE=NUMBER, D1=100")
        elif rule.strip() in found:
            problems.append(f"--threshold {setting}: {rule.strip()} is given twice")
        found[rule.strip()] = value
    if problems:
        raise InvalidFields("thresholds", problems)
    return found


def names(text: str) -> tuple[str, ...]:
    """The names of a list `a,b,c`."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
