"""What each departure from the published code does to the figures: small trainings and looks on digits, some minutes in all.

Every function returns plain figures by name; benchmarks.differences puts them into words. One seed, one thread.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.recording import FOLDER, ROOT
from fa_registry import diagnostics
from fa_registry.diagnostics import ForwardBackward
from fa_registry.diagnostics._forward_backward import eval_mode, site_gradients
from fa_registry.diagnostics.base import REFERENCE_BATCH, sample_cosines
from fa_registry.methods.base import Method
from fa_registry.records import Scalar
from fa_registry.tasks.classification import accuracy
from fa_registry.training.devices import pinned_threads
from fa_registry.training.measuring import measure
from fa_registry.training.probe_context import credits_under
from fa_registry.training.run_setup import RunSetup, build_setup
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer

SEED, EPOCHS, MAP_EPOCHS = 42, 100, 20
SMALL: dict[str, dict[str, Scalar]] = {
    "resmlp": {"d_hidden": 64},
    "vit_mini": {"d_hidden": 32},
    "small_resnet": {"width": 8, "num_blocks": 2},
}
Figures = dict[str, float | str]


def task_of(method: str, architecture: str = "resmlp", epochs: int = EPOCHS, **changes: Any) -> RunSetup:
    fields = {"method": method, "architecture": architecture, "dataset": "digits", "seed": SEED, "epochs": epochs}
    return build_setup(
        parse_spec({**fields, "architecture_options": SMALL[architecture], **changes}), torch.device("cpu")
    )


def trained(task: RunSetup) -> RunSetup:
    """The task when all its epochs are trained."""
    trainer = Trainer(task)
    for _ in range(task.spec.epochs):
        trainer.run_epoch()
    return task


def changed(method: Method, **card: Any) -> Method:
    """A copy of the method with other words on its card."""
    copied = copy.copy(method)
    copied.card = dataclasses.replace(method.card, **card)
    return copied


def site_of_gamma(task: RunSetup) -> Figures:
    """Γ of fa at the last block, where its credit acts and one site earlier, and the means over blocks."""
    found = measure(task)
    return {
        "last_output": found.sites["gamma"][-1].value,
        "last_input": found.sites["gamma_block_input"][-1].value,
        "mean_output": found.scalars["gamma_deep_mean"].value,
        "mean_input": found.scalars["gamma_block_input_mean"].value,
    }


def clamped_cosine(task: RunSetup) -> Figures:
    """The cosine of every sample's gradient with itself at site L, by torch's function on the mean loss's float32 gradients.

    And of the same gradients at the published length of dfa's on CIFAR-10, which the digits' do not come down to.
    """
    gradient = seen(task).single.gradients[-1] / REFERENCE_BATCH
    kept = gradient[gradient.norm(dim=1) > 0]
    clamped = nn.functional.cosine_similarity(kept, kept, dim=1)  # fa: ok FA002 the clamp is what is measured here
    published = published_norm()
    small = kept * (published / kept.norm(dim=1).median())
    return {
        "median": kept.norm(dim=1).median().item(),
        "clamped": clamped.mean().item(),
        "published": published,
        "clamped_there": nn.functional.cosine_similarity(small, small, dim=1).mean().item(),  # fa: ok FA002 as above
        "zero": len(gradient) - len(kept),
        "samples": len(gradient),
    }


def published_norm() -> float:
    """‖g_L‖ of dfa in the paper's main setting, as the study `paper` quotes it."""
    quoted = tomllib.loads((ROOT / "projects" / "paper" / "reference.toml").read_text(encoding="utf-8"))["table"]
    rows = (one for one in quoted if one["quantity"] == "g_norm_mean_ce" and one.get("site") == "last")
    return next(one["value"] for one in next(rows)["figures"] if one["method"] == "dfa")


def precision_of_gamma(task: RunSetup) -> Figures:
    """The largest change of a sample's cosine, dfa at site L, when it is multiplied in float32 instead of float64."""
    look = seen(task)
    credit, gradient = credits_under(task, task.feedback, look)[-1], look.single.gradients[-1]
    exact = sample_cosines(credit, gradient)
    single = (credit * gradient).sum(dim=1) / (credit.norm(dim=1) * gradient.norm(dim=1))
    gap = (exact - single).abs()
    return {"largest": gap[gap.isfinite()].max().item()}


def medians(task: RunSetup) -> Figures:
    """The median over an even batch of ‖g_L‖, the lower of the two middle ones and their midpoint."""
    norms = seen(task).single.gradients[-1].norm(dim=1)
    return {"ratio": float(np.median(norms.double().numpy()) / norms.median().item()), "samples": len(norms)}


def reduction(task: RunSetup) -> Figures:
    """‖g_L‖ of the same samples in a quarter of the batch, over that in the whole: of the summed loss and of the mean."""
    images, labels = task.eval_batch
    large, small = len(labels), len(labels) // 4
    lengths = {}
    for size in (large, small):
        gradient = site_gradients(*_hidden(task, images[:size]), labels[:size])[-1]
        lengths[size] = gradient[:small].norm(dim=1).mean().item()
    by_sum = lengths[small] / lengths[large]
    return {"large": large, "small": small, "by_sum": by_sum, "by_mean": by_sum * large / small}


def whole_test_set(task: RunSetup) -> Figures:
    images, labels = task.splits.test_images, task.splits.test_labels
    few = task.eval_batch
    return {
        "batch": accuracy(task.network, *few),
        "whole": accuracy(task.network, images, labels),
        "few": len(few[1]),
        "all": len(labels),
    }


def without_skips(task: RunSetup) -> Figures:
    """fa's resmlp walked as the published `compute_diagnostics` does it, h_l = f_l(h_{l−1}), and as it was trained."""
    images, labels = task.eval_batch
    with eval_mode(task.network):
        logits, states = _hidden(task, images)
        walked = [states[0].detach().requires_grad_()]
        for block in task.network.blocks:
            walked.append(block(walked[-1]))
        other = task.network.readout(walked[-1])
    right, wrong = (site_gradients(*one, labels) for one in ((logits, states), (other, walked)))
    credits = credits_under(task, task.feedback, seen(task))[1:]
    means = {
        name: np.mean([sample_cosines(*pair).nanmean().item() for pair in zip(credits, rows[:-1], strict=True)])
        for name, rows in (("right", right), ("wrong", wrong))
    }
    return {
        "norms": (wrong[0].norm(dim=1).median() / right[0].norm(dim=1).median()).item(),
        "cosine": sample_cosines(right[0], wrong[0]).nanmean().item(),
        **{name: float(value) for name, value in means.items()},
    }


def skip_added_twice() -> Figures:
    """vit_mini at initialisation, its skip inside the block: the states when a reader adds the skip once more."""
    task = task_of("bp", "vit_mini")
    images, labels = task.eval_batch
    with eval_mode(task.network):
        logits, states = _hidden(task, images)
        wrong = [states[0].detach().requires_grad_()]
        for block in task.network.blocks:
            wrong.append(wrong[-1] + (wrong[-1] + block(wrong[-1])))  # the block returned h + f, and h came on top
        other = task.network.readout(wrong[-1])
    right, doubled = (site_gradients(*one, labels)[0][:, 0] for one in ((logits, states), (other, wrong)))
    return {
        "growth": _length(states[-1]) / _length(states[0]),
        "growth_wrong": _length(wrong[-1]) / _length(wrong[0]),
        "cosine": sample_cosines(right, doubled).nanmean().item(),
    }


def _length(state: Tensor) -> float:
    """The median length of the class token."""
    return state[:, 0].norm(dim=1).median().item()


def expanded_to_tokens() -> Figures:
    """A row of credit as (N, D, 1, 1), which fits maps, expanded to a transformer's tokens (N, T, D)."""
    task = task_of("dfa", "vit_mini")
    tokens = task.network.embed(task.eval_batch[0])
    row = torch.zeros(len(tokens), tokens.shape[2], 1, 1)
    try:
        row.expand_as(tokens)
    except RuntimeError as error:
        return {"error": type(error).__name__}
    return {"error": "none"}


def _gap(one: Tensor, other: Tensor) -> float:
    """The distance of two vectors in units of the first."""
    return ((one - other).norm() / one.norm()).item()


def statistics_moved_twice(ours: RunSetup) -> Figures:
    """small_resnet under dfa when every batch passes once more, without a graph, before the step, as the published loop has it."""
    task = task_of("dfa", "small_resnet", MAP_EPOCHS)

    class Twice(Trainer):
        def step(self, images: Tensor, labels: Tensor) -> Any:
            with torch.no_grad():
                self.setup.network(images)
            return super().step(images, labels)

    trainer = Twice(task)
    for _ in range(MAP_EPOCHS):
        trainer.run_epoch()
    pairs = zip(ours.network.parameters(), task.network.parameters(), strict=True)
    moved = max((one - other).abs().max().item() for one, other in pairs)
    logits = _gap(*(_hidden(one, one.eval_batch[0])[0] for one in (ours, task)))
    return {"parameters": moved, "logits": logits, "accuracy_once": _accuracy(ours), "accuracy_twice": _accuracy(task)}


def _accuracy(task: RunSetup) -> float:
    return accuracy(task.network, task.splits.test_images, task.splits.test_labels)


def one_vector_of_a_map() -> Figures:
    """Over how many positions of small_resnet's maps a gradient is summed: averaged, it is that many times smaller."""
    task = task_of("bp", "small_resnet")
    gradient = site_gradients(*_hidden(task, task.eval_batch[0]), task.eval_batch[1])[-1]
    axes = tuple(range(2, gradient.dim()))
    return {"positions": (gradient.sum(dim=axes).norm() / gradient.mean(dim=axes).norm()).item()}


def rules() -> Figures:
    """Over the recorded groups of docs/calibration.md: what editions 2026-11 and 2026-05 make of them, in numbers."""
    rows = json.loads((FOLDER / "calibration.json").read_text(encoding="utf-8"))["rows"]
    pairs = [(row["verdicts"]["2026-11"], row["verdicts"]["2026-05"]) for row in rows]
    return {
        "groups": len(pairs),
        "reference": sum("D2" in theirs and "D2" not in ours for ours, theirs in pairs),
        "undecided": sum("undecided" in ours and "undecided" not in theirs for ours, theirs in pairs),
        "differ": sum(ours != theirs for ours, theirs in pairs),
        "warned": sum("WARN(D" in theirs for _, theirs in pairs),
    }


def seen(task: RunSetup) -> ForwardBackward:
    return diagnostics.run_forward_backward(task.network, *task.eval_batch)


def _hidden(task: RunSetup, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    with eval_mode(task.network):
        return task.network(images, return_hidden=True)


def measured() -> Mapping[str, Figures]:
    """Every departure's figures, by its name."""
    with pinned_threads(1):
        bp, fa, dfa = (trained(task_of(method)) for method in ("bp", "fa", "dfa"))
        fitted = trained(task_of("bp", dataset="digits_centred", architecture_options={"d_hidden": 256}))
        maps = trained(task_of("dfa", "small_resnet", MAP_EPOCHS))
        on: Mapping[Callable[..., Figures], tuple[RunSetup, ...]] = {
            site_of_gamma: (fa,),
            clamped_cosine: (fitted,),
            precision_of_gamma: (dfa,),
            medians: (fa,),
            reduction: (bp,),
            whole_test_set: (fa,),
            without_skips: (fa,),
            statistics_moved_twice: (maps,),
            skip_added_twice: (),
            expanded_to_tokens: (),
            one_vector_of_a_map: (),
            rules: (),
        }
        return {look.__name__: look(*tasks) for look, tasks in on.items()}
