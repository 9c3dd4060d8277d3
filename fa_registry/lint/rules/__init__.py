"""The rules, one file each: a module that binds `RULE` is one; a name that starts with an underscore is a helper."""

from __future__ import annotations

import importlib
import pkgutil

from fa_registry.lint.base import LintRule


def all_rules() -> tuple[LintRule, ...]:
    """Every rule, by its code."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    rules = [importlib.import_module(f"{__name__}.{name}").RULE for name in names]
    return tuple(sorted(rules, key=lambda rule: rule.card.code))
