"""Card of an architecture, which is read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fa_registry.errors import Problem
from fa_registry.records import Option, Scalar

VALUES, TOKENS = "values", "tokens"  # inputs of an architecture


@dataclass(frozen=True)
class ArchitectureCard:
    """Description of an architecture.

    Attributes:
        line: Description in one line.
        source: Publication of the architecture.
        version: Version of a built-in architecture. The version increases when the initial weights or the forward pass change.
        credit_options: Names of the options that change only how a credit is distributed over positions. End-to-end methods do not
            use these options. Two runs of such a method therefore have equal weights if they differ only in these options.
        block_options: Names of the options that change only the blocks. Two networks without blocks are equal if they differ only
            in these options.
        inputs: Kind of the inputs. `values`: images or other numbers, with one target per sample. `tokens`: token ids (N, T), with
            one target per position.
    """

    name: str
    line: str
    options: Mapping[str, Option]
    source: str
    version: int = 1
    credit_options: tuple[str, ...] = ()
    block_options: tuple[str, ...] = ()
    inputs: str = VALUES

    def resolve(self, options: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the values of all options. An option that is not given has its default."""
        return {name: options.get(name, option.default) for name, option in self.options.items()}

    def conflicts(self, options: Mapping[str, Scalar]) -> list[Problem]:
        """Return one problem for each option that needs another one, see Option.needs.

        `options` are the values of all options. An option that the card does not have is not needed.
        """
        return [
            Problem((name,), f"expected {option.default} with {option.needs}=false, found {options[name]}")
            for name, option in self.options.items()
            if options.get(name, option.default) != option.default and not options.get(option.needs, True)
        ]
