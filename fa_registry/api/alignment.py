"""alignment: Γ of a credit rule of one's own on a model of one's own, site by site, with its null and what it hangs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry import jsonio
from fa_registry.api.checks import Checks
from fa_registry.api.one_batch import observed_look
from fa_registry.architectures import Adapted, adapt
from fa_registry.diagnostics import CATALOG, Absent, Bench
from fa_registry.errors import UsageError
from fa_registry.records import Measurements, Reading

MEASURED = ("h_norm", "gain", "g_norm", "fidelity", "gamma", "gamma_null", "norm_ratio", "aggregates")
COLUMNS = ("h_norm", "g_norm", "fidelity", "gamma", "gamma_null_mean", "gamma_null_p")  # of the table that print shows
NO_FRESH = "no `fresh` was given: a null needs the credit under other feedback than the model was trained with"
NOT_GIVEN = "no credit was given at this site"
SEED = 0
Credits = Sequence[Tensor | None]


@dataclass(frozen=True)
class Alignment:
    """What one batch shows of a credit rule. sites: names of sites 0..L. measured: every figure, or the reason why there is none.

    Γ is of each sample's own credit and gradient, float64, unclamped, and N/A where the reference is noise: see `gamma`'s card.
    """

    sites: tuple[str, ...]
    measured: Measurements
    draws: int

    @property
    def gamma(self) -> tuple[Reading, ...]:
        """Γ_l, l = 0..L: mean over samples of cos(c_l, g_l)."""
        return self.measured.sites["gamma"]

    @property
    def null_p(self) -> tuple[Reading, ...]:
        """Rank p-value of Γ_l among `draws` fresh draws of the feedback, (1 + #≥)/(draws + 1)."""
        return self.measured.sites["gamma_null_p"]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; a figure without a value is {"na": reason}."""
        return jsonio.encode(self)

    def __str__(self) -> str:
        """A line a site, the aggregates, and every reason once."""
        width = max(map(len, self.sites))
        lines = [f"{'site':<{width}}" + "".join(f"{name:>17}" for name in COLUMNS)]
        for site, name in enumerate(self.sites):
            row = (self.measured.sites[column][site] for column in COLUMNS)
            lines.append(f"{name:<{width}}" + "".join(f"{_shown(reading):>17}" for reading in row))
        scalars = self.measured.scalars
        named = ("gamma_deep_mean", "gamma_deep_median_median", "gamma_all_mean_mean", "gamma_spread")
        lines += [f"{name}: {_shown(scalars[name])}" for name in named]
        told = [reading.reason for column in COLUMNS for reading in self.measured.sites[column] if reading.reason]
        told += [scalars[name].reason for name in named if scalars[name].reason]
        return "\n".join([*lines, *(f"N/A: {reason}" for reason in dict.fromkeys(told))])


def alignment(
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    credit: Callable[[nn.Module, Tensor, Tensor], Credits],
    sites: Sequence[str] = (),
    draws: int = 20,
    fresh: Callable[[nn.Module, Tensor, Tensor, torch.Generator], Credits] | None = None,
    skip: str = "outside",
    readout: str = "",
) -> Alignment:
    """Γ of `credit` at every site of `model`, against the gradient of each sample's own cross entropy.

    batch: x (N, …), y (N,) int64. credit(model, x, y) → [c_0 … c_L], each (N, D_l) or of the state's shape, row i of sample i
    alone; None where the rule gives none. The scale is free: a cosine knows none. fresh(model, x, y, generator): the same rule
    under feedback drawn anew, `draws` times, for the null. sites, skip, readout: see `adapt`; of a model that is adapted they
    say nothing. Eval mode; weights, their gradients, modes and random generators are as before, also where `credit` fails.

    Raises InvalidFields that names all that is wrong. Source: arXiv 2606.21126, Γ and its fresh-B null.

    >>> fa_registry.alignment(model, (x, y), my_rule).gamma[1]
    Reading(value=0.31, reason='')
    """
    checks = Checks("alignment")
    network = _network(checks, model, sites, skip, readout)
    x, y = batch if isinstance(batch, (tuple, list)) and len(batch) == 2 else (None, None)
    checks.batch(network, x, y, ("batch[0]", "batch[1]"))
    whole = isinstance(draws, int) and not isinstance(draws, bool) and draws >= 2
    checks.problems += [] if whole else [f"draws: expected a whole number from 2, found {draws!r}"]
    checks.problems += [
        f"{name}: expected a function" for name, rule in _rules(credit, fresh).items() if not callable(rule)
    ]
    checks.finish()
    look = observed_look(network, x, y, "alignment")
    states = look.single.hidden
    with _untouched(model):
        given = _credits(checks, credit(model, x, y), states)
    checks.finish()

    def drawn(index: int) -> list[Tensor]:
        with _untouched(model):
            again = _credits(checks, fresh(model, x, y, torch.Generator().manual_seed(SEED + index)), states)
        checks.finish()
        return _filled(again, states)

    observation = look.observation(_filled(given, states), bench=_bench(drawn if fresh else None, draws))
    return Alignment(_names(network, len(states)), _measured(observation, given), draws if fresh else 0)


def _rules(credit: Any, fresh: Any) -> Mapping[str, Any]:
    return {"credit": credit} | ({} if fresh is None else {"fresh": fresh})


def _network(checks: Checks, model: Any, sites: Sequence[str], skip: str, readout: str) -> nn.Module | None:
    if not (sites or readout) or isinstance(model, Adapted) or not isinstance(model, nn.Module):
        return checks.network(model)
    try:
        return adapt(model, sites, skip, readout)
    except UsageError as error:
        checks.problems.append(f"model: {error}")
        return None


def _names(network: nn.Module, count: int) -> tuple[str, ...]:
    names = getattr(network, "sites", None)
    return ("h_0", *names) if names else tuple(f"h_{site}" for site in range(count))


def _credits(checks: Checks, given: Any, states: Sequence[Tensor]) -> list[Tensor | None]:
    """One a site, detached; what cannot be a credit is added to the problems."""
    listed = list(given) if isinstance(given, (list, tuple)) else None
    if listed is None or len(listed) != len(states):
        found = f"{len(listed)} of them" if listed is not None else f"a {type(given).__name__}"
        checks.problems.append(f"credit: expected a list of {len(states)}, c_0 to c_{len(states) - 1}, found {found}")
        return [None] * len(states)
    for site, (one, state) in enumerate(zip(listed, states, strict=True)):
        if one is None:
            continue
        if not isinstance(one, Tensor):
            checks.problems.append(f"credit: c_{site}: expected a tensor or None, found a {type(one).__name__}")
        elif one.shape not in (state.shape, _row_shape(state)):
            expected = " or ".join(map(str, dict.fromkeys((tuple(state.shape), tuple(_row_shape(state))))))
            checks.problems.append(f"credit: c_{site}: expected the shape {expected}, found {tuple(one.shape)}")
        elif one.device != state.device:
            checks.problems.append(
                f"credit: c_{site}: expected it where the model is ({state.device}), found {one.device}"
            )
    return [one.detach() if isinstance(one, Tensor) else None for one in listed]


def _row_shape(state: Tensor) -> torch.Size:
    """One vector a sample, as `gradient_vectors` makes them: tokens' last, maps' second dimension is the state's width."""
    return torch.Size((len(state), state.shape[1] if state.dim() == 4 else state.shape[-1]))


def _filled(credits: Credits, states: Sequence[Tensor]) -> list[Tensor]:
    return [
        torch.full_like(state, torch.nan) if one is None else one for one, state in zip(credits, states, strict=True)
    ]


def _bench(fresh: Callable[[int], Sequence[Tensor]] | None, draws: int) -> Bench:
    absent = Absent("alignment looks at one batch: this needs trials on the network")
    return Bench(
        states=(),
        gradients=(),
        losses=torch.zeros(0),
        losses_from=lambda *given: torch.zeros(0),
        generator=lambda name: torch.Generator(),
        credits=absent,
        batch_gradients=absent,
        fresh_credits=fresh or Absent(NO_FRESH),
        weights=absent,
        initial_weights=absent,
        bridge_residuals=absent,
        costates=absent,
        null_draws=draws,
    )


def _measured(observation: Any, given: Credits) -> Measurements:
    """Every figure; at a site without a credit those of a credit say so, and not that it is zero or not finite."""
    sites: dict[str, tuple[Reading, ...]] = {}
    scalars: dict[str, Reading] = {}
    for name in MEASURED:
        diagnostic = CATALOG.get(name)
        found = diagnostic.measure(observation)
        of_credit = set(diagnostic.card.needs_credit)
        sites |= {
            quantity: tuple(
                Reading(None, NOT_GIVEN) if quantity in of_credit and one is None else reading
                for reading, one in zip(row, given, strict=True)
            )
            for quantity, row in found.sites.items()
        }
        scalars |= found.scalars
    return Measurements(sites, scalars)


@contextmanager
def _untouched(model: nn.Module):
    """Inside, a rule may run the model as it likes: gradients, modes, buffers and generators are as before afterwards."""
    gradients = [(weight, weight.grad) for weight in model.parameters()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    modes = [(module, module.training) for module in model.modules()]
    cards = {weight.device for weight in model.parameters() if weight.device.type == "cuda"}
    for weight, _ in gradients:
        weight.grad = None
    model.eval()
    try:
        with torch.random.fork_rng(devices=cards), torch.enable_grad():
            yield
    finally:
        for weight, gradient in gradients:
            weight.grad = gradient
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for module, mode in modes:
            module.training = mode


def _shown(reading: Reading) -> str:
    return "N/A" if reading.value is None else f"{reading.value:.4g}"
