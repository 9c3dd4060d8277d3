"""Plug-ins that a specification names; each catalog is asked once per specification."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from fa_registry import architectures, datasets, methods, tasks
from fa_registry.architectures._card import TOKENS, ArchitectureCard
from fa_registry.datasets.base import Dataset, DatasetCard
from fa_registry.errors import Problem
from fa_registry.methods._card import MethodCard
from fa_registry.plugin_registry import Description
from fa_registry.records import DEEP_SUPERVISION, Option, RunSpec, Scalar
from fa_registry.tasks import TaskCard

if TYPE_CHECKING:
    from fa_registry.architectures.base import Architecture
    from fa_registry.methods.base import Method

NAMES = {"method": methods.CATALOG, "architecture": architectures.CATALOG, "dataset": datasets.CATALOG}
KEPT = "plugins"  # attribute of a RunSpec; like its cached values, the attribute is neither compared nor pickled


class SpecPlugins:
    """Method, architecture, data set and task of a specification.

    Each plug-in is looked up at its first use. A plug-in that is not installed or cannot be imported raises an error at each use.
    Cards and descriptions of built-in plug-ins need no import of the plug-in.

    Args:
        method, architecture, dataset: names of the plug-ins.
        control: name of the control. For `deep_supervision`, the method is backpropagation with local heads.
    """

    def __init__(self, method: str, architecture: str, dataset: str, control: str = "none"):
        self._names = {"method": method, "architecture": architecture, "dataset": dataset}
        self._has_local_heads = (method, control) == ("bp", DEEP_SUPERVISION)
        self._described: dict[str, Description] = {}

    @cached_property
    def method(self) -> Method:
        if self._has_local_heads:
            from fa_registry.methods._local_heads import DeepSupervision

            return DeepSupervision()
        return methods.CATALOG.get(self._names["method"])

    @cached_property
    def architecture(self) -> Architecture:
        return architectures.CATALOG.get(self._names["architecture"])

    @property
    def dataset(self) -> Dataset:
        """The data set. A family member, such as `text:PATH`, is read again, as its file may have changed."""
        return datasets.get(self._names["dataset"]) if ":" in self._names["dataset"] else self._named_dataset

    @cached_property
    def _named_dataset(self) -> Dataset:
        return datasets.get(self._names["dataset"])

    @property
    def card(self) -> DatasetCard:
        """The card of the data set."""
        described = self.describe("dataset") if ":" not in self._names["dataset"] else None
        return described.card if described and described.suffices else self.dataset.card

    @property
    def task(self) -> TaskCard | None:
        """The card of the task that the card of the data set names, or None if that card names no task."""
        return tasks.CATALOG.describe(self.card.task).card if self.card.task else None

    def describe(self, owner: str) -> Description:
        """Return the description of a plug-in; `owner` is one of NAMES."""
        if owner not in self._described:
            self._described[owner] = NAMES[owner].describe(self._names[owner], lambda: getattr(self, owner))
        return self._described[owner]

    def resolve(self, options: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the values of all options of the architecture."""
        described = self.describe("architecture")
        return (described.card if described.suffices else self.architecture).resolve(options)

    def misfits(self, options: Mapping[str, Scalar]) -> list[Problem]:
        """Return the problems of the architecture's options for the data set."""
        described, values = self.describe("architecture"), self.resolve(options)
        conflicts = described.card.conflicts(values)
        if described.suffices:
            return conflicts
        return conflicts + self.architecture.check(values, self.card.image_shape)


def find_plugins(spec: RunSpec) -> SpecPlugins:
    """Return the plug-ins of a specification, which keeps them for later calls."""
    return vars(spec).setdefault(KEPT, SpecPlugins(spec.method, spec.architecture, spec.dataset, spec.control))


def task_problems(method: MethodCard, architecture: ArchitectureCard, task: TaskCard) -> list[Problem]:
    """Return the problems if the method or the architecture does not support the task."""
    problems = []
    if not method.trains(task):
        trained = ", ".join(method.tasks)
        text = f"according to its card, {method.name} trains the tasks {trained}, not {task.name}"
        problems.append(Problem(("method",), text))
    if (architecture.inputs == TOKENS) != task.by_position:
        needed = "token ids with one target per position" if architecture.inputs == TOKENS else "one target per sample"
        text = f"{architecture.name} needs {needed}; the task {task.name} has {task.targets}"
        problems.append(Problem(("architecture",), text))
    return problems


def with_defaults(spec: RunSpec, plugins: SpecPlugins | None = None) -> RunSpec:
    """Add missing options of method and architecture, because a run's identity includes every option.

    An option whose card declares `omit_default` is omitted if it has its default.
    """
    plugins = plugins or find_plugins(spec)
    declared = plugins.describe("method").card.options
    method_options = {**{name: option.default for name, option in declared.items()}, **spec.method_options}
    networks = plugins.describe("architecture").card.options
    full_spec = dataclasses.replace(
        spec,
        method_options=_without_omitted(method_options, declared),
        architecture_options=_without_omitted(plugins.resolve(spec.architecture_options), networks),
    )
    vars(full_spec)[KEPT] = plugins
    return full_spec


def _without_omitted(options: Mapping[str, Scalar], declared: Mapping[str, Option]) -> dict[str, Scalar]:
    """Return the options except those with a default that the card omits."""
    return {
        name: value
        for name, value in options.items()
        if name not in declared or not declared[name].omit_default or value != declared[name].default
    }
