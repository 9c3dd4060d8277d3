"""Callback for Hugging Face's Trainer: each `trainer.train` becomes one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from fa_registry.external.callbacks.callback_base import Following


class TransformersCallback(TrainerCallback):
    """Callback that tracks a Hugging Face training with `fa_registry.track`.

    Example: `Trainer(…, callbacks=[TransformersCallback(model=lambda model: fa_registry.adapt(model, …), eval=(x, y),
    method="mine")])`. If the Trainer evaluates every epoch, the model is measured after each evaluation, otherwise at the end of
    each epoch. The Trainer does not report exceptions to callbacks. After an exception, the run therefore stays in the state
    RUNNING. When the process has ended, a later command of fa-registry closes the run.

    Args:
        model: function that converts the Trainer's model for `track`, usually with `adapt` and its arguments inputs, output, state.
        accuracy: name of the test accuracy in the evaluation or the log.
        test_loss: name of the test loss per token in nats in the evaluation or the log, if eval has one target per position.
            The Trainer divides `eval_loss` by the number of labels. Some models shift the labels and do not predict the first
            label, for example GPT-2. For such a model, set the first label of each sequence to −100. Otherwise, `eval_loss` is too
            small.
        loss: name of the training loss in the evaluation or the log.
        options: options of `fa_registry.track`.
    """

    def __init__(
        self,
        *,
        model: Callable[[nn.Module], nn.Module] | None = None,
        accuracy: str = "eval_accuracy",
        test_loss: str = "eval_loss",
        loss: str = "loss",
        **options: Any,
    ):
        self._following, self._names = Following(model, options), (accuracy, test_loss, loss)
        self.run_id = ""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **more: Any
    ) -> None:
        if state.is_world_process_zero:
            self.run_id = self._following.begin(model).run_id

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        if args.eval_strategy != "epoch":
            self._measure(state, {})

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any],
        **more: Any,
    ) -> None:
        """Measure the model if the Trainer evaluates every epoch."""
        if args.eval_strategy == "epoch":
            self._measure(state, metrics)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        self._following.end()

    def _measure(self, state: TrainerState, metrics: Mapping[str, Any]) -> None:
        if self._following.is_on:
            logged = next((entry for entry in reversed(state.log_history) if self._names[-1] in entry), {})
            self._following.epoch({**logged, **metrics}, *self._names)
