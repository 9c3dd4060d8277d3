"""Declaration of a metric: the class, and the names that other modules refer to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fa_registry.errors import PluginError
from fa_registry.statistics.over_seeds import ARITHMETIC, GEOMETRIC

FAMILY = "/*"  # suffix of a metric with one value per parameter: feature_drift/* → feature_drift/embed.weight
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "kind": ("num", "sci", "cos", "exact", "compact", "pct", "pp", "nats", "signed_nats"),
        "mean": (ARITHMETIC, GEOMETRIC),
        "where": ("", "site", "run", "epoch"),
        "direction": ("", "higher", "lower"),
    }
)

HEADLINE_GAMMA = "gamma_deep_mean"


@dataclass(frozen=True)
class Metric:
    """Declaration of one metric: name, texts, unit, format and mean over seeds."""

    name: str  # ends with FAMILY for a family of metrics
    symbol: str = ""
    words: str = ""  # short description
    kind: str = "num"  # the filter that formats its values
    always: bool = False  # show its row even if no run measured it
    valued: bool = False  # show its row only if it has a value; most methods have no value
    # kind of mean over seeds; GEOMETRIC for ratio scales that span decades (norms, growth, gain)
    mean: str = ARITHMETIC
    unit: str = ""  # empty: the unit on the diagnostic's card
    where: str = ""  # one value per `site`, `run` (at its end) or `epoch`; empty: the card does not state this
    about: str = ""  # the metric that this metric summarises or qualifies, and that pages show instead
    head: str = ""  # column heading; empty: the symbol
    under: str = ""  # small text below the heading, which distinguishes metrics with the same heading
    alone: str = ""  # label for places without a description; empty: the symbol
    direction: str = ""  # whether a `higher` or a `lower` value is better; empty: neither
    # whether the metric compares a run with its frozen control; a control has no value of it
    compared_with_control: bool = False
    with_deviation: bool = False  # whether the audit table also shows the standard deviation over seeds

    def __post_init__(self):
        problems = [
            f"{field} (expected one of {', '.join(filter(None, choices))}, found {getattr(self, field)!r})"
            for field, choices in CHOICES.items()
            if getattr(self, field) not in choices
        ]
        if problems:
            raise PluginError(f"metric {self.name!r}: {'; '.join(problems)}")

    @property
    def heading(self) -> str:
        """Column heading of the metric in a table."""
        return self.head or self.symbol

    @property
    def label(self) -> str:
        """Label of the metric where no description is shown, such as `largest growth`."""
        return self.alone or self.symbol

    @property
    def title(self) -> str:
        """Label with a capital first letter for a figure's title: `Largest growth`."""
        # a symbol keeps its case, because S_l and s_l are different metrics
        return self.label[:1].upper() + self.label[1:] if self.label[:2].isalpha() else self.label

    @property
    def family(self) -> str:
        """Common prefix of the metrics of a family, for example `feature_drift/`.

        A family has one metric per parameter. The prefix of a single metric is an empty string.
        """
        return self.name.removesuffix("*") if self.name.endswith(FAMILY) else ""


Known = Mapping[str, Metric]
DIAGNOSTICS = "diagnostics/"  # prefix of a diagnostic's name in the cards of a report

NONE: Known = MappingProxyType({})
NOT_CREDITED = "site 0 is the input: no parameter learns from it"  # why Γ has no value at site 0
REFERENCE_BATCH = 128  # the published values are gradients of the *mean* loss over this number of samples
# Aggregates of Γ over sites and samples → description of each.
AGGREGATES: Mapping[str, str] = MappingProxyType(
    {
        f"gamma_{scope}_{over_sites}_{over_samples}": f"{over_sites} over {sites} of the {over_samples} over samples"
        for scope, sites in (("deep", "sites 1..L"), ("all", "sites 0..L"))
        for over_sites in ("mean", "median")
        for over_samples in ("mean", "median")
    }
)
SPREAD = "gamma_spread"
VALIDATION = "_validation"  # end of the name of a main metric that is measured on the validation samples
REFERENCE_CHECK = "reference_check"
FIDELITY = ("fidelity", "fidelity_batch", "fidelity_min", "fidelity_left_out")  # see RunSpec.is_due
# A last site with a smaller g_norm_mean_ce is checked in float64 after every epoch: twice the floor of every built-in edition.
SMALL_REFERENCE = 2e-7
# Name → metric. An empty unit means the unit on the card. No diagnostic measures the last entries, so no card names them.
