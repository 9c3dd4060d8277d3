"""Optimiser of a training: one torch optimiser for each part of the network with one credit.

A layer without credit in a step is not moved by momentum or weight decay. Its part of the optimiser skips the step: weights,
moments and step count stay as they are. There are two reasons for a layer without credit:

- the control freezes its block. The block's weights do not require a gradient, so no optimiser contains them;
- the credit of its site is zero for every sample of the batch, and no penalty applies to its part. The optimiser then receives
  `found_inf`, the flag by which torch's fused optimisers skip a step. The flag is a tensor, so the host does not wait for the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry.architectures.base import Network, part_of
from fa_registry.records import Recipe

Parameters = list[nn.Parameter]


class PartOptimizer:
    """The recipe's optimiser for the weights of a network and of its feedback."""

    def __init__(self, network: Network, learned: Parameters, recipe: Recipe, has_credits: bool):
        """Start before the first step.

        Args:
            network: the network; weights that do not require a gradient are frozen.
            learned: the weights of the feedback that learn by a loss.
            has_credits: whether the blocks and the embedding learn from credits, so each of them can be without one.
        """
        parts = _parts(network, recipe, has_credits)
        parts.setdefault(None, []).append({"params": learned, "factor": recipe.rate_blocks})
        self._sites = [site for site in parts if site is not None]
        self._optimizers = {site: _optimizer(groups, recipe) for site, groups in parts.items()}

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of weights with one learning rate each."""
        return list(chain.from_iterable(optimizer.param_groups for optimizer in self._optimizers.values()))

    def values(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """Return the optimiser's tensors of a weight, such as its moments; empty before the first step."""
        return next((one.state[parameter] for one in self._optimizers.values() if parameter in one.state), {})

    def restore(self, parameter: nn.Parameter, values: Mapping[str, Tensor]) -> None:
        """Replace the optimiser's tensors of a weight."""
        for optimizer in self._optimizers.values():
            if any(parameter is one for group in optimizer.param_groups for one in group["params"]):
                optimizer.state[parameter] = dict(values)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of every group: its factor times `rate`."""
        for group in self.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(group["factor"] * rate)
            else:
                group["lr"] = group["factor"] * rate

    def zero_grad(self) -> None:
        for optimizer in self._optimizers.values():
            optimizer.zero_grad(set_to_none=True)

    def step(self, credited: Tensor | None = None) -> None:
        """Move the weights along their gradients.

        Args:
            credited: whether each site 0..L has a credit in this step, (L+1,); None without credits.
        """
        for site, optimizer in self._optimizers.items():
            if site is not None and credited is not None:
                optimizer.found_inf, optimizer.grad_scale = (~credited[site]).float(), None
            optimizer.step()


def _parts(network: Network, recipe: Recipe, has_credits: bool) -> dict[int | None, list[dict[str, Any]]]:
    """Return site → groups of the weights that its credit trains.

    The key None has the groups that an exact gradient trains. The weights of a head that are also weights of the embedding have
    an exact gradient.
    """
    factors = {"embed": recipe.rate_embedding, "readout": recipe.rate_head}
    every_name = network.named_parameters(remove_duplicate=False)
    exact = {id(parameter) for name, parameter in every_name if part_of(name) == "readout"}
    groups: dict[int | None, dict[float, Parameters]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            part = part_of(name)
            credited_site = 1 + int(part.split(".")[1]) if part.startswith("blocks.") else 0
            site = None if not has_credits or id(parameter) in exact else credited_site
            groups.setdefault(site, {}).setdefault(factors.get(part, recipe.rate_blocks), []).append(parameter)
    return {
        site: [{"params": parameters, "factor": factor} for factor, parameters in by_factor.items()]
        for site, by_factor in groups.items()
    }


def _optimizer(groups: list[dict[str, Any]], recipe: Recipe) -> torch.optim.Optimizer:
    """Return torch's fused optimiser of the recipe for groups of weights, each with the key `factor`."""
    on_gpu = any(parameter.is_cuda for group in groups for parameter in group["params"])
    for group in groups:
        # a captured step reads the learning rate at each replay, so the rate has to be a tensor on the GPU
        group["lr"] = torch.tensor(recipe.learning_rate, device="cuda") if on_gpu else recipe.learning_rate
    shared: dict[str, Any] = {"weight_decay": recipe.weight_decay, "fused": True}
    if recipe.optimizer == "adamw":
        betas = (recipe.beta1, recipe.beta2)
        return torch.optim.AdamW(groups, betas=betas, eps=recipe.adam_eps, capturable=on_gpu, **shared)
    optimizer = torch.optim.SGD(groups, momentum=recipe.momentum, **shared)
    for parameter in (one for group in groups for one in group["params"] if recipe.momentum):
        # torch begins with the first gradient, which is equal; a skipped first step would leave the memory unwritten
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter, requires_grad=False)
    return optimizer
