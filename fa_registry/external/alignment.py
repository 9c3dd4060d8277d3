"""Γ of a user-supplied credit rule on a user-supplied model.

Γ, the cosine of credit and gradient, is measured at each site and compared with a null distribution. The null distribution
contains the Γ of the same rule with newly drawn feedback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fa_registry import jsonio
from fa_registry.diagnostics import CATALOG
from fa_registry.errors import InvalidFields
from fa_registry.jsonio import parse_fields
from fa_registry.network_mode import gradients_enabled, usable_for_gradients
from fa_registry.records import Measurements, Reading
from fa_registry.seeding import generators_unchanged
from fa_registry.tasks._user_loss import CROSS_ENTROPY, Loss, loss_name, user_task
from fa_registry.training.forward_traits import remarks_on
from fa_registry.training.input_validation import Checks
from fa_registry.training.user_model import DRAWS, CreditRule, FreshRule, UserCreditRule, measured

MEASURED = ("h_norm", "gain", "g_norm", "fidelity", "gamma", "gamma_flat", "gamma_null", "norm_ratio", "aggregates")
# of the table that str() returns
OF_MAPS = "gamma_flat"  # shown only if a state is a map
COLUMNS = (
    "h_norm",
    "g_norm_mean_ce",
    "fidelity",
    "gamma",
    OF_MAPS,
    "gamma_null_mean",
    "gamma_null_p",
    "reference_check",
)


@dataclass(frozen=True, repr=False)
class Alignment:
    """Result of `alignment`: metrics of a credit rule on one batch.

    Γ is the cosine of each sample's credit and gradient, computed in float64 without clamping. Γ is N/A if the reference
    gradient is dominated by rounding noise, or if a check shows that the reference is not the gradient.

    Attributes:
        sites: names of sites 0..L.
        measured: all metrics. A metric without a value contains the reason.
        draws: how many times the feedback was newly drawn for the null; 0 if no null was measured.
        reference: how the reference gradient was computed; empty if the backward pass of the model computed it.
        loss: name of the loss of which it is the gradient, or `function`.
        remarks: properties of the forward pass that change a measurement: random numbers, written weights or buffers; and
            the reason for a gradient of zero at the last site.
    """

    sites: tuple[str, ...]
    measured: Measurements
    draws: int
    reference: str = ""
    loss: str = CROSS_ENTROPY
    remarks: tuple[str, ...] = ()

    @property
    def gamma(self) -> tuple[Reading, ...]:
        """Γ_l at each site l = 0..L: the mean over samples of cos(c_l, g_l)."""
        return self.measured.sites["gamma"]

    @property
    def null_p(self) -> tuple[Reading, ...]:
        """p-value of Γ_l at each site, from the rank of Γ_l in its null.

        The null contains the Γ_l of `draws` new draws of the feedback. The p-value is (1 + number of draws whose Γ_l is at least
        the measured Γ_l) / (draws + 1).
        """
        return self.measured.sites["gamma_null_p"]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values.

        A metric without a value is {"na": reason}.
        """
        return jsonio.encode(self)

    def __repr__(self) -> str:
        gamma = _shown(self.measured.scalars["gamma_deep_mean"])
        return f"Alignment(sites: {len(self.sites)}, gamma_deep_mean: {gamma}, draws: {self.draws})"

    def __str__(self) -> str:
        """Return a table with one line per site, the aggregates, and the reasons for N/A."""
        width = max(map(len, self.sites))
        columns = [name for name in COLUMNS if name in self.measured.sites]
        if not any(reading.value is not None for reading in self.measured.sites.get(OF_MAPS, ())):
            columns = [name for name in columns if name != OF_MAPS]
        lines = [f"{'site':<{width}}" + "".join(f"{name:>17}" for name in columns)]
        for site, name in enumerate(self.sites):
            row = (self.measured.sites[column][site] for column in columns)
            lines.append(f"{name:<{width}}" + "".join(f"{_shown(reading):>17}" for reading in row))
        scalars = self.measured.scalars
        scalar_names = ("gamma_deep_mean", "gamma_deep_median_median", "gamma_all_mean_mean", "gamma_spread")
        lines += [f"{name}: {_shown(scalars[name])}" for name in scalar_names]
        lines += [f"reference gradient: {self.reference}"] if self.reference else []
        lines += [f"loss: {self.loss}"] if self.loss != CROSS_ENTROPY else []
        reasons = [reading.reason for column in columns for reading in self.measured.sites[column] if reading.reason]
        reasons += [scalars[name].reason for name in scalar_names if scalars[name].reason]
        lines += [f"note: {remark}" for remark in self.remarks]
        return "\n".join([*lines, *(f"N/A: {reason}" for reason in dict.fromkeys(reasons))])


@generators_unchanged()
@gradients_enabled()
def alignment(
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    credit: CreditRule,
    sites: Sequence[str] = (),
    draws: int = 20,
    fresh: FreshRule | None = None,
    skip: str = "",
    readout: str = "",
    gradient: str = "",
    *,
    loss: Loss = "",
) -> Alignment:
    """Measure Γ of a credit rule at every site of a model.

    The reference is the gradient of each sample's loss. The model runs in eval mode. The weights of the model,
    their gradients, the training modes and the random generators are restored afterwards, even if `credit` raises an error.

    Args:
        model: an nn.Module, or a model that `adapt` returned. In the second case, `sites`, `skip`, `readout` and `gradient` are
            ignored.
        batch: input x (N, …) and labels y (N,) int64; with `loss` also values in the shape of the outputs.
        credit: function (model, x, y) → [c_0 … c_L]. Each c_l has the shape (N, D_l) or the shape of the state. Row i must
            depend only on sample i. Use None at a site where the rule has no credit. The scale of c_l has no effect.
        sites: see `adapt`.
        draws: how many times the feedback is newly drawn for the null, at least 2.
        fresh: function (model, x, y, generator) → the credits of the same rule with newly drawn feedback, for the null.
            Without `fresh`, no null is measured.
        skip: see `adapt`.
        readout: see `adapt`.
        gradient: see `adapt`.
        loss: loss that trains the model, as for `adapt`. The default is the loss that `adapt` received, or the cross entropy of
            logits.

    Raises:
        InvalidFields: lists all wrong arguments; or `fresh` failed, with its error.

    Source: arXiv 2606.21126, Γ and its null with newly drawn feedback B.

    >>> fa_registry.alignment(model, (x, y), my_rule).gamma[1]
    Reading(value=0.31, reason='')
    """
    checks = Checks("alignment")
    network = checks.network(model, sites, skip, readout, gradient)
    loss = checks.loss(network, loss)
    batch = _checked_batch(checks, network, batch, loss)
    rules = {"credit": credit, **({"fresh": fresh} if fresh is not None else {})}
    checks.problems += [f"{name}: expected a function" for name, rule in rules.items() if not callable(rule)]
    checks.problems += parse_fields(DRAWS, {"draws": draws})[1]
    checks.finish()
    rule = UserCreditRule("alignment", model, credit, fresh, draws)
    members, task = [CATALOG.get(name) for name in MEASURED], user_task(batch[1], loss)
    measurements, reference = measured(network, *batch, rule, members, task=task)
    if fresh and (failure := measurements.failures.get("gamma_null")):
        raise InvalidFields("alignment", ["fresh: " + failure.splitlines()[-1].strip(" -")])
    names, remarks = (
        _names(network, measurements),
        (*remarks_on(network, checks.traits), *filter(None, [reference.zero])),
    )
    return Alignment(names, measurements, draws if fresh else 0, reference.source, loss_name(loss), remarks)


def _checked_batch(checks: Checks, network: nn.Module | None, batch: Any, loss: Loss) -> Any:
    """Return the pair (x, y), usable for gradients; if it is wrong, add the problems to `checks`."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        checks.problems.append(f"batch: expected a pair (x, y), found the type {type(batch).__name__}")
        return batch
    pair = tuple(map(usable_for_gradients, batch))
    checks.batch(network, *pair, ("batch[0]", "batch[1]"), loss=loss)
    return pair


def _names(network: nn.Module, measurements: Measurements) -> tuple[str, ...]:
    names = getattr(network, "sites", None)
    return ("h_0", *names) if names else tuple(f"h_{site}" for site in range(len(measurements.sites["h_norm"])))


def _shown(reading: Reading) -> str:
    return "N/A" if reading.value is None else f"{reading.value:.4g}"
