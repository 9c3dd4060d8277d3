"""Common base of the trainer callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from fa_registry.external.track import TrackedRun, track


class Following:
    """Run of `track` that the callbacks of a trainer begin, continue and end.

    Args:
        model: function that converts the trainer's model to the model for `track`; None if no conversion is needed.
    """

    def __init__(self, model: Callable[[nn.Module], nn.Module] | None, options: Mapping[str, Any]):
        self._model, self._options = model, dict(options)
        self._run: TrackedRun | None = None

    @property
    def is_on(self) -> bool:
        return self._run is not None

    def begin(self, model: nn.Module) -> TrackedRun:
        """Begin a run. Raise an error if an option of `track` is wrong."""
        self._run = track(self._model(model) if self._model else model, **self._options)
        try:
            return self._run.__enter__()
        except BaseException:
            self._run = None
            raise

    def epoch(self, metrics: Mapping[str, Any], accuracy: str, test_loss: str, loss: str) -> None:
        """Record the next epoch, with the test accuracy or the test loss per token.

        Args:
            accuracy: name of the test accuracy in `metrics`.
            test_loss: name of the test loss per token in `metrics`, for a model with one target per position.
            loss: name of the training loss in `metrics`.
        """
        is_share = self._run.headline.is_share
        main = {"test_accuracy": metrics.get(accuracy)} if is_share else {"test_loss": metrics.get(test_loss)}
        reported = {**main, "loss_train": metrics.get(loss)}
        self._run.epoch(**{name: float(value) for name, value in reported.items() if value is not None})

    def end(self, error: BaseException | None = None) -> None:
        """End the run. If `error` is given, the run ends as failed."""
        run, self._run = self._run, None
        if run:
            run.__exit__(type(error) if error else None, error, None)
