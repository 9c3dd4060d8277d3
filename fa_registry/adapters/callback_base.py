"""Following: one run of `track` that begins, goes on and ends where a trainer's callbacks say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from fa_registry.workflows.track import TrackedRun, track


class Following:
    """model: the trainer's model → what `track` is given, for one that has to be adapted; options: of `track`."""

    def __init__(self, model: Callable[[nn.Module], nn.Module] | None, options: Mapping[str, Any]):
        self._model, self._options = model, dict(options)
        self._run: TrackedRun | None = None

    @property
    def is_on(self) -> bool:
        return self._run is not None

    def begin(self, model: nn.Module) -> TrackedRun:
        """Begin a run; everything that is wrong with the options shows here, before the first step."""
        self._run = track(self._model(model) if self._model else model, **self._options)
        try:
            return self._run.__enter__()
        except BaseException:
            self._run = None
            raise

    def epoch(self, metrics: Mapping[str, Any], accuracy: str, loss: str) -> None:
        """The next epoch, with what the trainer's metrics hold under these names."""
        reported = {"test_accuracy": metrics.get(accuracy), "loss_train": metrics.get(loss)}
        self._run.epoch(**{name: float(value) for name, value in reported.items() if value is not None})

    def end(self, error: BaseException | None = None) -> None:
        """End the run as it went."""
        run, self._run = self._run, None
        if run:
            run.__exit__(type(error) if error else None, error, None)
