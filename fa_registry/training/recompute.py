"""Measuring a finished run again, from its spec, checkpoint and feedback state alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from fa_registry.diagnostics.base import MOMENTS
from fa_registry.records import Measurements, RunSpec
from fa_registry.training.checkpoint import load_into, load_tensors
from fa_registry.training.devices import pinned_threads
from fa_registry.training.measuring import measure, with_conventions
from fa_registry.training.task import Task, prepare

NO_FEEDBACK = (
    "the run's feedback state is not in the store (never saved, or lost): "
    "Γ of another draw would say nothing about this run"
)
NOT_GIVEN = "the feedback matrices were not given"  # of a run that was trained elsewhere and adopted without them


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
    initial: Path | None = None,
    drawn: Task | None = None,
) -> Measurements:
    """All measurements of a run's final weights.

    digests: "checkpoint", "feedback" and "initial" → recorded SHA-256. feedback None: every Γ is N/A with the reason.
    initial: the checkpoint of the initial weights; None: what is compared with them is N/A.
    drawn: the task as `prepare` draws it, where the caller has it; it ends with the run's final weights and feedback.
    Raises IntegrityError when a file is not the recorded one or does not fit the spec.
    """
    with pinned_threads(threads):
        task = drawn or prepare(spec, torch.device(spec.device_class), data_root)
        load_into(task.network, checkpoint, digests["checkpoint"])
        has_feedback = bool(task.feedback.state_dict())
        if has_feedback and feedback is not None:
            load_into(task.feedback, feedback, digests["feedback"])
        absent = ""
        if has_feedback and feedback is None:
            absent = NOT_GIVEN if spec.weights and not digests.get("feedback") else NO_FEEDBACK
        start = None if initial is None else load_tensors(initial, digests.get("initial"))
        return with_conventions(measure(task, absent, MOMENTS, start), task)  # one look for both moments
