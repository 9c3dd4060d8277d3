"""Plug-ins that a specification names; each catalog is asked once per specification."""

from __future__ import annotations

from functools import cached_property

from fa_registry import architectures, datasets, methods, tasks
from fa_registry.architectures.base import Architecture
from fa_registry.datasets.base import Dataset, DatasetCard
from fa_registry.methods.base import Method
from fa_registry.records import RunSpec
from fa_registry.tasks import Task

KEPT = "plugins"  # attribute of a RunSpec; like its cached values, the attribute is neither compared nor pickled


class SpecPlugins:
    """Method, architecture, data set and task of a specification.

    Each plug-in is looked up at its first use. A plug-in that is not installed or cannot be imported raises an error at each use.

    Args:
        method, architecture, dataset: names of the plug-ins.
    """

    def __init__(self, method: str, architecture: str, dataset: str):
        self._names = method, architecture, dataset

    @cached_property
    def method(self) -> Method:
        return methods.CATALOG.get(self._names[0])

    @cached_property
    def architecture(self) -> Architecture:
        return architectures.CATALOG.get(self._names[1])

    @property
    def dataset(self) -> Dataset:
        """The data set. A family member, such as `text:PATH`, is read again, as its file may have changed."""
        return datasets.get(self._names[2]) if ":" in self._names[2] else self._named_dataset

    @cached_property
    def _named_dataset(self) -> Dataset:
        return datasets.get(self._names[2])

    @property
    def card(self) -> DatasetCard:
        """The card of the data set."""
        return self.dataset.card

    @property
    def task(self) -> Task | None:
        """The task that the card of the data set names, or None if the card names no task."""
        return tasks.CATALOG.get(self.card.task) if self.card.task else None


def find_plugins(spec: RunSpec) -> SpecPlugins:
    """Return the plug-ins of a specification, which keeps them for later calls."""
    return vars(spec).setdefault(KEPT, SpecPlugins(spec.method, spec.architecture, spec.dataset))


def keep_plugins(spec: RunSpec, plugins: SpecPlugins) -> RunSpec:
    """Make the specification keep plug-ins that were already looked up, and return the specification."""
    vars(spec)[KEPT] = plugins
    return spec
