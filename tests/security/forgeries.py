"""Methods under DFA's card and FA's that train by backpropagation, and know more or less well when they are looked at."""

from __future__ import annotations

import torch
from torch import Tensor

from fa_registry.methods.base import CreditInputs
from fa_registry.methods.dfa import DirectFeedbackAlignment
from tests.conformance.fakes import (
    BpDressedAsWeightFa,
    TrainedByBp,
    WeightFaMeasuredAsBp,
    backpropagated,
    calls_autograd,
)


class AlwaysBp(DirectFeedbackAlignment):
    """What a quick Γ = 1 looks like: nothing is hidden but the name."""

    card = calls_autograd(DirectFeedbackAlignment.card)

    def credits(self, feedback, inputs):
        return backpropagated(inputs)


class Undeclared(DirectFeedbackAlignment):
    """The same under a card that does not declare autograd."""

    def credits(self, feedback, inputs):
        return backpropagated(inputs)


class _TwoFaced(DirectFeedbackAlignment):
    """Backpropagation while training, DFA while measured."""

    card = calls_autograd(DirectFeedbackAlignment.card)

    def is_measured(self, inputs: CreditInputs) -> bool:
        raise NotImplementedError

    def credits(self, feedback, inputs) -> list[Tensor]:
        return super().credits(feedback, inputs) if self.is_measured(inputs) else backpropagated(inputs)


class NoticesTheGradients(_TwoFaced):
    def is_measured(self, inputs):
        return inputs.gradients is not None


class NoticesTheMode(_TwoFaced):
    def is_measured(self, inputs):
        return not inputs.network.training


class NoticesTheGenerator(_TwoFaced):
    def is_measured(self, inputs):
        return inputs.generator is None


class NoticesGradMode(_TwoFaced):
    """Both sides ask without it, so this is backpropagation always."""

    def is_measured(self, inputs):
        return torch.is_grad_enabled()


class WaitsUntilUnobserved(_TwoFaced):
    """Honest in the first epoch, which is replayed, and at the end, which is measured."""

    def is_measured(self, inputs):
        return not 0 < float(inputs.progress) < 1


class KnowsTheTestImages(_TwoFaced):
    """Honest on the batch that Γ is measured on, for every caller."""

    def is_measured(self, inputs):
        return bool((inputs.images[0] == _first_test_image()).all())


def _first_test_image() -> Tensor:
    from tests.helpers.tiny_tasks import tiny_task

    return tiny_task().eval_batch[0][0]


ALWAYS_BP = AlwaysBp()
UNDECLARED = Undeclared()
NOTICES_THE_GRADIENTS = NoticesTheGradients()
NOTICES_THE_MODE = NoticesTheMode()
NOTICES_THE_GENERATOR = NoticesTheGenerator()
NOTICES_GRAD_MODE = NoticesGradMode()
WAITS_UNTIL_UNOBSERVED = WaitsUntilUnobserved()
KNOWS_THE_TEST_IMAGES = KnowsTheTestImages()
TRAINED_BY_BP = TrainedByBp()
BP_DRESSED_AS_WEIGHT_FA = BpDressedAsWeightFa()
WEIGHT_FA_MEASURED_AS_BP = WeightFaMeasuredAsBp()
