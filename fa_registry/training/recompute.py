"""Measuring a finished run again, from its spec, checkpoint and feedback state alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from fa_registry.records import Measurements, RunSpec
from fa_registry.training.checkpoint import load_into
from fa_registry.training.loop import pinned_threads
from fa_registry.training.measuring import measure, with_conventions
from fa_registry.training.task import prepare

NO_FEEDBACK = "the run's feedback state was not saved: Γ of another draw would say nothing about this run"


def obstacle(spec: RunSpec) -> str:
    """Why a run cannot be measured again on this machine; empty where it can."""
    if spec.device_class == "cuda" and not torch.cuda.is_available():
        return "the run was trained on a GPU and there is none here to measure it on again"
    return ""


def remeasure(
    spec: RunSpec,
    checkpoint: Path,
    feedback: Path | None,
    digests: Mapping[str, str],
    threads: int = 1,
    data_root: Path | None = None,
) -> Measurements:
    """All measurements of a run's final weights.

    digests: "checkpoint" and "feedback" → recorded SHA-256. feedback None: every Γ is N/A with the reason.
    Raises IntegrityError when a file is not the recorded one or does not fit the spec.
    """
    with pinned_threads(threads):
        task = prepare(spec, torch.device(spec.device_class), data_root)
        load_into(task.network, checkpoint, digests["checkpoint"])
        has_feedback = bool(task.feedback.state_dict())
        if has_feedback and feedback is not None:
            load_into(task.feedback, feedback, digests["feedback"])
        absent = NO_FEEDBACK if has_feedback and feedback is None else ""
        return with_conventions(measure(task, absent), task)
