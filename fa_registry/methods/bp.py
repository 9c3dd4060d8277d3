"""Method bp: backpropagation, the reference for all other methods."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.errors import PluginError
from fa_registry.methods.base import ALL_TASKS, CreditInputs, Method, MethodCard, NetworkShape, NoFeedback
from fa_registry.records import Scalar


class Backpropagation(Method):
    end_to_end = True
    card = MethodCard(
        name="bp",
        rule="c_l = g_l, the exact gradient",
        citation="Rumelhart, Hinton & Williams 1986",
        bibtex="""@article{rumelhart1986learning,
  title={Learning representations by back-propagating errors},
  author={Rumelhart, David E. and Hinton, Geoffrey E. and Williams, Ronald J.},
  journal={Nature}, volume={323}, pages={533--536}, year={1986}
}""",
        equations="g_{l-1} = g_l (I + ∂f_l/∂h_{l-1}), trained end to end on the mean cross entropy",
        deviations=(),
        architectures=("any",),
        tasks=ALL_TASKS,
        gamma_reference="bp",
        exact_sites="all",
        feedback="none: the transposed Jacobians of the network",
        has_feedback=False,
        properties=("exact",),
        credit_scale_source="bp normalises no credit, because it trains end to end on the mean cross entropy",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return NoFeedback()

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Return the exact gradients g_0..g_L, in the shapes of the states.

        Raises:
            PluginError: the inputs do not contain gradients.
        """
        if inputs.gradients is None:
            raise PluginError("method 'bp' needs CreditInputs.gradients, because its credit is the exact gradient")
        return list(inputs.gradients)


PLUGIN = Backpropagation()
