"""Whether a study trains what its edition compares its runs with: a setting without its frozen control is refused."""

from __future__ import annotations

import torch

from fa_registry import datasets
from fa_registry.protocol.rules import Edition
from fa_registry.records import RunSpec
from fa_registry.studies.study import Study
from fa_registry.terminal_loss import is_regression
from fa_registry.training.naming import setting_label

SKIPPED = "skipped"  # without_reference of a rule that an edition itself leaves out where there is no control


def without_frozen(study: Study, edition: Edition) -> list[str]:
    """One problem a setting with classes whose runs lack the frozen control that a rule of `edition` needs."""
    rules = [
        rule.code for rule in edition.rules if rule.reference and rule.gating and rule.without_reference != SKIPPED
    ]
    if not rules:
        return []
    problems = []
    for specs in study.settings.values():
        frozen = {spec.seed for spec in specs if spec.control == "frozen"}
        missing = sorted({spec.seed for spec in specs} - frozen)
        if missing and _has_classes(specs[0]):
            problems.append(
                f"controls.frozen: setting {setting_label(specs[0])}: expected a frozen control for {_seeds(missing)}, found none; "
                f"{', '.join(rules)} of edition {edition.name} cannot be judged without"
            )
    return problems


def _has_classes(spec: RunSpec) -> bool:
    """Read off the labels of a synthetic set. Every set that is read from a source has classes."""
    dataset = datasets.get(spec.dataset)
    if dataset.card.sha256 or dataset.card.files:
        return True
    return not is_regression(dataset.load(torch.device("cpu"), None, spec.seed).train_labels)


def _seeds(seeds: list[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
