"""The lint rules: one module per rule, which defines `RULE`.

Modules with a leading underscore contain helper functions and no rules.
"""

from __future__ import annotations

import importlib
import pkgutil

from fa_lint.base import LintRule


def all_rules() -> tuple[LintRule, ...]:
    """Return all lint rules, sorted by code."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    rules = [importlib.import_module(f"{__name__}.{name}").RULE for name in names]
    return tuple(sorted(rules, key=lambda rule: rule.card.code))
