"""The card of a method: what a reader must know before believing one of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fa_registry.errors import PluginError
from fa_registry.records import Option

GAMMA_REFERENCES = ("bp", "gauss_newton", "informational", "none")
EXACT_SITES = ("none", "last", "all")
CREDIT_SCALES = ("sum", "mean")
REQUIRED = ("name", "rule", "citation", "bibtex", "equations", "architectures", "feedback")


@dataclass(frozen=True)
class MethodCard:
    """`properties` are declared here and measured by fa_registry.testing.

    deviations: what differs from the source, numbered in this order. architectures: catalog names, or ("any",). unsupported: why
    the others are refused, a sentence. gamma_reference: what Γ compares the credit with and means. exact_sites: sites whose credit
    is exact by construction: none, last (site L), all. feedback: the distribution of the feedback state, in words. learned: the
    feedback learns, so that a fresh draw of it is an untrained net and no other feedback.
    credit_scale: of which loss the source holds its credit when it normalises it, of the samples' sum (an error e without 1/N) or
    of their mean. Credits here are always of the sum; what the word decides is the unit of norm(c)'s ε, 1e-6 or N·1e-6.
    credit_scale_source: where that is known from.
    version: of a method of our own; raised whenever one of its numbers changes, so that no run of the old code is taken for one of
    the new.
    """

    name: str
    rule: str
    citation: str
    bibtex: str
    equations: str
    deviations: tuple[str, ...]
    architectures: tuple[str, ...]
    gamma_reference: str
    exact_sites: str
    feedback: str
    properties: tuple[str, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict)
    unsupported: str = ""
    learned: bool = False
    credit_scale: str = "sum"
    credit_scale_source: str = ""
    version: int = 1

    def __post_init__(self):
        problems = [name for name in REQUIRED if not getattr(self, name)]
        if self.gamma_reference not in GAMMA_REFERENCES:
            problems.append(f"gamma_reference (one of {', '.join(GAMMA_REFERENCES)})")
        if self.exact_sites not in EXACT_SITES:
            problems.append(f"exact_sites (one of {', '.join(EXACT_SITES)})")
        if self.credit_scale not in CREDIT_SCALES:
            problems.append(f"credit_scale (one of {', '.join(CREDIT_SCALES)})")
        if self.architectures and "any" not in self.architectures and not self.unsupported:
            problems.append("unsupported (why other architectures are refused)")
        if problems:
            raise PluginError(f"the card of method {self.name!r} lacks: {', '.join(problems)}")

    def is_exact(self, site: int, blocks: int) -> bool:
        """Whether the credit at `site` (0..blocks) equals g by construction, so that its Γ = 1 says nothing."""
        return self.exact_sites == "all" or (self.exact_sites == "last" and site == blocks)

    def supports(self, architecture: str) -> bool:
        """Whether the method may be trained on the architecture of this name."""
        return "any" in self.architectures or architecture in self.architectures
