"""Which runs of an audit a published figure is about, and in what they are another experiment than the published one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fa_registry.protocol.grouping import Group
from fa_registry.records import PublishedFigure, Recipe, RunSpec, Scalar

Cards = Mapping[str, Mapping[str, Any]]


def nearest(figure: PublishedFigure, groups: Iterable[Group], cards: Cards) -> tuple[Group, tuple[str, ...]] | None:
    """The group of that method, penalty, control and architecture with the fewest differences, and these in words.

    Of several that are equally near, runs trained here come before adopted ones, and more runs before fewer.
    """
    candidates = [(group, tuple(differences(figure, _spec(group), cards))) for group in groups if _is_of(figure, group)]
    return min(
        candidates,
        key=lambda candidate: (len(candidate[1]), bool(_spec(candidate[0]).weights), -len(candidate[0].runs)),
        default=None,
    )


def alike(figure: PublishedFigure, groups: Iterable[Group], cards: Cards) -> Sequence[Group]:
    """Every group that differs from the published run in nothing that is written down: on another device, say."""
    return [group for group in groups if _is_of(figure, group) and not any(differences(figure, _spec(group), cards))]


def differences(figure: PublishedFigure, spec: RunSpec, cards: Cards) -> Iterator[str]:
    """Data set, epochs, options and recipe in which the runs are not what was published, one sentence each."""
    setting = figure.setting
    if setting is None:
        return
    if spec.dataset != setting.dataset:
        yield f"data set: published on {setting.dataset}, here {spec.dataset}"
    if spec.epochs != setting.epochs:
        yield f"epochs: published after {setting.epochs}, here {spec.epochs}"
    for family, name, published, ours in (
        ("architectures", spec.architecture, setting.architecture_options, spec.architecture_options),
        ("methods", spec.method, figure.method_options, spec.method_options),
    ):
        yield from _unlike(published, ours, _defaults(cards, family, name))
    recipe = {field.name: field.default for field in dataclasses.fields(Recipe)}
    yield from _unlike(setting.recipe, dataclasses.asdict(spec.recipe), recipe)


def _unlike(
    published: Mapping[str, Scalar], ours: Mapping[str, Scalar], defaults: Mapping[str, Scalar]
) -> Iterator[str]:
    """An option that the reference does not name had its default; one whose default nobody knows is said to be open."""
    meant = {**defaults, **published}
    for name in dict.fromkeys([*published, *ours]):
        if name not in meant:
            yield f"{name}: the reference does not say it, here {ours[name]}"
        elif name in ours and ours[name] != meant[name]:
            yield f"{name}: published with {meant[name]}, here {ours[name]}"
        elif name not in ours and meant[name] != defaults.get(name):
            yield f"{name}: published with {meant[name]}, not an option here"


def _defaults(cards: Cards, family: str, name: str) -> Mapping[str, Scalar]:
    options = cards.get(f"{family}/{name}", {}).get("options", {})
    return {option: declared["default"] for option, declared in options.items() if "default" in declared}


def _is_of(figure: PublishedFigure, group: Group) -> bool:
    spec = _spec(group)
    same = (spec.method, spec.penalty, spec.control) == (figure.method, figure.penalty, figure.control)
    return same and (figure.setting is None or spec.architecture == figure.setting.architecture)


def _spec(group: Group) -> RunSpec:
    return group.runs[0].record.spec
