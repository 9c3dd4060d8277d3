"""regression: C values per sample; ℓ_i = ½‖z_i − y_i‖²."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.records import Reading
from fa_registry.tasks.base import NO_CLASSES, NO_TOKENS, Task, TaskCard


class Regression(Task):
    card = TaskCard(
        name="regression",
        line="target values per sample, half the squared distance as the loss, no main metric",
        targets="target values (N, C)",
        loss="ℓ_i = ½‖z_i − y_i‖²",
        source="the toy linear-quadratic task of arXiv 2606.21126",
    )

    def takes(self, targets: Tensor) -> bool:
        return targets.is_floating_point()

    def problems(self, train: Tensor, test: Tensor, outputs: int, eval_samples: int) -> list[str]:
        return [
            f"{name}: expected target values (samples, {outputs}), found {labels.dtype} {tuple(labels.shape)}; {NO_TOKENS}"
            for name, labels in {"train_labels": train, "test_labels": test}.items()
            if not labels.is_floating_point() or labels.shape[1:] != (outputs,)
        ]

    def target_shape(self, outputs: Tensor) -> torch.Size:
        return outputs.shape

    def target_rows(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the target values y, (N, C), with the dtype of the outputs."""
        self.check_shapes(outputs, targets)
        return targets.to(outputs.dtype)

    def sample_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.check_shapes(outputs, targets)
        return (outputs - targets).square().sum(dim=1) / 2

    def output_error(self, outputs: Tensor, targets: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return e = z − y, (N, C)."""
        return outputs - (self.target_rows(outputs, targets) if rows is None else rows)

    def batch_score(self, outputs: Tensor, targets: Tensor, losses: Tensor) -> Tensor:
        return losses.new_zeros(())

    def train_metrics(self, mean: float) -> Mapping[str, Reading]:
        return {"accuracy_train": Reading(None, NO_CLASSES)}

    def evaluate(self, network: nn.Module, inputs: Tensor, targets: Tensor) -> Mapping[str, Reading]:
        """Return only the accuracy, which is N/A for a regression. Reports show the reason."""
        return {self.headline.name: Reading(None, NO_CLASSES)}


PLUGIN = Regression()
