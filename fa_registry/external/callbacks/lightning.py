"""Callback for Lightning: each `trainer.fit` becomes one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from torch import nn

from fa_registry.external.callbacks.callback_base import Following


class LightningCallback(pl.Callback):
    """Callback that tracks a Lightning training with `fa_registry.track`.

    Example: `Trainer(callbacks=[LightningCallback(eval=(x, y), method="mine", seed=7)])`. If the training uses several
    processes, the model of the first process is measured.

    Args:
        model: function that converts the module to the network whose forward pass returns logits. Default: the module itself.
        accuracy: name of the test accuracy among the metrics that the module logs.
        test_loss: name of the test loss per token in nats among these metrics, if eval has one target per position.
        loss: name of the training loss among the metrics that the module logs.
        options: options of `fa_registry.track`.
    """

    def __init__(
        self,
        *,
        model: Callable[[nn.Module], nn.Module] | None = None,
        accuracy: str = "val_acc",
        test_loss: str = "val_loss",
        loss: str = "train_loss",
        **options: Any,
    ):
        self._following, self._names = Following(model, options), (accuracy, test_loss, loss)
        self.run_id = ""

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            self.run_id = self._following.begin(module).run_id

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self._following.is_on:  # validation is part of Lightning's epoch, so the validation has finished
            self._following.epoch(trainer.callback_metrics, *self._names)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._following.end()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, error: BaseException) -> None:
        self._following.end(error)
