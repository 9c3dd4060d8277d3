"""A callback for Hugging Face's Trainer: every `trainer.train` is a run, an epoch of it an epoch of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from fa_registry.adapters.callback_base import Following
from fa_registry.deprecated_names import aliases


class TransformersCallback(TrainerCallback):
    """`Trainer(…, callbacks=[TransformersCallback(model=lambda model: fa_registry.adapt(model, …), eval=(x, y), method="mine")])`.

    model: as the Trainer's has to be adapted (inputs, output, state: see `adapt`). accuracy, loss: names among the metrics of an
    evaluation and in the log. Other options as for `fa_registry.track`. An epoch is measured after its evaluation where there is
    one, else at its end. The Trainer tells nobody of an exception: such a run says RUNNING until the next command closes it.
    """

    def __init__(
        self,
        *,
        model: Callable[[nn.Module], nn.Module] | None = None,
        accuracy: str = "eval_accuracy",
        loss: str = "loss",
        **options: Any,
    ):
        self._following, self._names = Following(model, options), (accuracy, loss)
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
        """The epoch's end, where every epoch is evaluated."""
        if args.eval_strategy == "epoch":
            self._measure(state, metrics)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        self._following.end()

    def _measure(self, state: TrainerState, metrics: Mapping[str, Any]) -> None:
        if self._following.is_on:
            logged = next((entry for entry in reversed(state.log_history) if self._names[1] in entry), {})
            self._following.epoch({**logged, **metrics}, *self._names)


__getattr__ = aliases(__name__)
