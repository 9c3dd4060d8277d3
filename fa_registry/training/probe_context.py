"""The bench of a task: everything that the costlier diagnostics may try on its network, seeded from the spec's seed alone."""

from __future__ import annotations

import copy
import dataclasses
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from fa_registry import diagnostics
from fa_registry.architectures.base import ExactCostate, Network
from fa_registry.datasets.base import Splits
from fa_registry.diagnostics import ForwardBackward, ProbeContext, Unavailable
from fa_registry.diagnostics.base import LEAST_ERROR
from fa_registry.diagnostics.gamma_null import CHEAP_DRAWS, COSTLY_DRAWS
from fa_registry.diagnostics.stability import BATCH, BATCHES
from fa_registry.methods.base import Bridge, CreditInputs, FixedMatrices, check_credits
from fa_registry.records import Scalar
from fa_registry.seeding import derive, generator
from fa_registry.terminal_loss import sample_losses
from fa_registry.training.method_calls import compute_credits, frozen_weights
from fa_registry.training.task import EVAL_SAMPLES, Task, network_shape

LEAST = "fidelity_least_error"  # among the conventions of a run
EVERY_ERROR = -1.0  # least_error of a release that left out no sample
FIRST_CREDITED = "first_credited_site"  # among the conventions of a run
CHEAP_WORK = 5e8  # floating-point operations of a draw, up to which it is cheap: about 20 ms of a core
COUNTED_SAMPLES = 8
# By feedback state, while it lives: a training asks once an epoch.
_DRAWS: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
NO_INITIAL = "the run's initial weights were not saved"


@dataclass(frozen=True)
class Conventions:
    """What the metrics of a run depend on beside its weights, and what this version may do differently.

    null_draws: fresh draws of the feedback that make the null of Γ. least_error, first_credited: as of an Observation.
    """

    null_draws: int
    least_error: float = LEAST_ERROR
    first_credited: int = 0


def conventions_of_task(task: Task, recorded: Mapping[str, Scalar] | None = None) -> Conventions:
    """Return today's conventions, or those by which a run was measured.

    recorded: the conventions that the run recorded. Only the number of draws is taken from them as it is. Of the two others
    they say whether the version that measured the run had them: a run may not choose which of its sites count.
    """
    if recorded is None:
        return Conventions(null_draws(task), first_credited=task.network.first_credited)
    draws = int(recorded.get("gamma_null_draws", COSTLY_DRAWS))
    return Conventions(
        draws, least_error_of(recorded), task.network.first_credited if FIRST_CREDITED in recorded else 0
    )


def least_error_of(recorded: Mapping[str, Scalar]) -> float:
    """Return the least error of a sample that counts in fidelity, of the release that measured a run."""
    return LEAST_ERROR if LEAST in recorded else EVERY_ERROR


def bench_of(
    task: Task,
    look: ForwardBackward,
    credits: Sequence[Tensor] | None,
    no_feedback: str,
    initial: Mapping[str, Tensor] | None,
    draws: int = 0,
) -> ProbeContext:
    """Nothing is computed before a diagnostic asks for it.

    look: with its float64 pass. credits: the method's, or None and then no_feedback says why. initial: name → tensor.
    draws: how many make the null of Γ; 0: as many as today's conventions say.
    """
    labels = task.eval_batch[1]
    double = cache(lambda: in_double(task.network))

    def losses_from(site: int, states: Tensor, first: int = 0) -> Tensor:
        """(n, V, …) → (n, V): row i is of sample first + i, whose label all V of its variants share."""
        count, variants = states.shape[:2]
        chosen = labels[first : first + count].repeat_interleave(variants, dim=0)  # (count * variants, …)
        with torch.no_grad():
            logits = double().logits_from(site, states.flatten(0, 1))
        return sample_losses(logits, chosen).reshape(count, variants)

    return ProbeContext(
        states=look.double.hidden,
        gradients=look.double.gradients,
        losses=sample_losses(look.double.logits, labels),
        losses_from=losses_from,
        generator=lambda name: stream(task, name),
        credits=Unavailable(no_feedback) if credits is None else [credit.double() for credit in credits],
        batch_gradients=_batch_gradients(task),
        fresh_credits=Unavailable(no_feedback) if no_feedback else _fresh_credits(task, look),
        weights={name: weight.detach() for name, weight in task.network.named_parameters()},
        initial_weights=Unavailable(NO_INITIAL) if initial is None else initial,
        bridge_residuals=Unavailable(no_feedback) if no_feedback else _bridge_residuals(task, look),
        costates=_costates(task, double),
        null_draws=draws or null_draws(task),
    )


def stream(task: Task, name: str, device: str | torch.device = "cpu") -> torch.Generator:
    """A fresh generator for one named purpose of measuring: the same in training and when the run is measured again."""
    return torch.Generator(device).manual_seed(derive(task.spec.seed, f"evaluation/{name}"))


def in_double(network: Network) -> Network:
    """A float64 copy in eval mode, without gradients."""
    return copy.deepcopy(network).double().eval().requires_grad_(False)


def credit_inputs(task: Task, look: ForwardBackward, generator: torch.Generator | None = None) -> CreditInputs:
    """What a method is told while measuring: the exact gradients are among it."""
    seen, (images, labels) = look.single, task.eval_batch
    return CreditInputs(
        seen.hidden,
        look.error,
        look.onehot,
        seen.gradients[-1],
        seen.gradients,
        generator,
        images,
        labels,
        sample_losses(seen.logits, labels),
        task.network,
        progress=1.0,
    )


def credits_under(task: Task, feedback: nn.Module, look: ForwardBackward) -> list[Tensor]:
    """The method's credits with this feedback state, each of its state's shape; PluginError when one does not fit its state."""
    with diagnostics.eval_mode(task.network):
        credits = compute_credits(task.method, feedback, credit_inputs(task, look))
    check_credits(task.spec.method, credits, look.single.hidden)
    return [task.network.spread(*pair) for pair in zip(credits, look.single.hidden, strict=True)]


def _batch_gradients(task: Task) -> Callable[[], list[Tensor]] | Unavailable:
    """The mean gradient of every batch as `observe` sees it: one vector a site, float32 passes, float64 means."""
    split = stability_split(task.splits)
    if isinstance(split, Unavailable):
        return split

    def batch_gradients() -> list[Tensor]:
        draw = generator(task.spec.seed, "evaluation", task.device)
        batches = disjoint_batches(task.splits, split, draw)
        seen = [diagnostics.observe(task.network, *batch, double=False) for batch in batches]
        means = [[gradient.double().mean(dim=0) for gradient in observation.gradients] for observation in seen]
        return [torch.stack(rows) for rows in zip(*means, strict=True)]  # each (K, D)

    return batch_gradients


def _fresh_credits(task: Task, look: ForwardBackward) -> Callable[[int], list[Tensor]] | Unavailable:
    if not task.feedback.state_dict():
        return Unavailable(f"the method {task.spec.method!r} has no feedback to draw afresh")
    if task.method.card.learned:
        return Unavailable("its feedback is learned: a fresh draw would be an untrained net, not another feedback")

    shape = cache(lambda: network_shape(task.network, task.splits.test_images[:1], task.card.classes))

    def fresh_credits(index: int) -> list[Tensor]:
        drawn = task.method.feedback(shape(), task.spec.method_options, stream(task, f"gamma_null/{index}"))
        return credits_under(task, drawn.to(task.device, look.error.dtype), look)

    return fresh_credits


def null_draws(task: Task) -> int:
    """How many fresh draws make the null of Γ: many where a draw is cheap, which counted work says and no clock.

    Feedback that is one fixed matrix a site costs a product a site: at most 3 ms a draw on any architecture here. Any other
    goes through the network. On resmlp that takes 10 ms (2e8 operations) and on mlp 3 ms, but 0.3 s on small_resnet, whose
    final measurement would be twice as long by it. Where there is no null, the number is of no consequence.
    """
    if isinstance(task.feedback, FixedMatrices):
        return CHEAP_DRAWS
    if not task.feedback.state_dict() or task.method.card.learned:
        return COSTLY_DRAWS
    if task.feedback not in _DRAWS:
        _DRAWS[task.feedback] = CHEAP_DRAWS if _work_of_draw(task) <= CHEAP_WORK else COSTLY_DRAWS
    return _DRAWS[task.feedback]


def _work_of_draw(task: Task) -> float:
    """Count the floating-point operations of the credits of one eval batch, on a few of its samples."""
    splits = task.splits
    images, labels = splits.test_images[:COUNTED_SAMPLES], splits.test_labels[:COUNTED_SAMPLES]
    few = dataclasses.replace(task, splits=dataclasses.replace(splits, test_images=images, test_labels=labels))
    seen = diagnostics.run_forward_backward(few.network, images, labels, double=False)
    with _Counter() as counter:
        credits_under(few, few.feedback, seen)
    return counter.operations * EVAL_SAMPLES / len(images)


class _Counter(TorchDispatchMode):
    """Count the operations of matrix products and convolutions inside, by torch's formulas.

    torch's own FlopCounterMode puts hooks into modules, on which autograd.grad at a site fails, and it has no formula for the
    product of oneDNN.
    """

    def __init__(self):
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if count := flop_registry.get(func._overloadpacket):
            self.operations += count(*args, **(kwargs or {}), out_val=result)
        elif func.overloadpacket.__name__ == "_linear_pointwise":  # x (…, in), weight (out, in)
            self.operations += 2 * args[0].numel() * args[1].shape[0]
        return result


def _bridge_residuals(task: Task, look: ForwardBackward) -> Callable[[], list[Tensor]] | Unavailable:
    method = task.method
    if not isinstance(method, Bridge):
        return Unavailable(f"credit_bridge only: the method {task.spec.method!r} has no value net")

    def bridge_residuals() -> list[Tensor]:
        inputs = credit_inputs(task, look, stream(task, "bridge_residual", task.device))
        with torch.no_grad(), frozen_weights(task.network):
            residuals = method.bridge_residuals(task.feedback, inputs)
        _check(f"method {task.spec.method!r}", residuals, [(len(look.error),)] * len(look.single.hidden))
        return residuals

    return bridge_residuals


def _costates(task: Task, double: Callable[[], Network]) -> Callable[[], list[Tensor]] | Unavailable:
    if not isinstance(task.network, ExactCostate):
        return Unavailable(f"the costate of {task.spec.architecture!r} has no closed form")

    def costates() -> list[Tensor]:
        images, labels = task.eval_batch
        network = double()
        with torch.no_grad():
            states = network.hidden(images.double())
            costates = network.costates(images.double(), labels)
        _check(f"architecture {task.spec.architecture!r}", costates, [tuple(state.shape) for state in states])
        return costates

    return costates


def _check(who: str, tensors: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise ValueError (recorded as that diagnostic's failure) unless the tensors have these shapes."""
    shown = [tuple(tensor.shape) for tensor in tensors]
    if shown != list(shapes):
        raise ValueError(f"{who}: expected tensors of shapes {list(shapes)}, one a site, found {shown}")


def bench_conventions(task: Task, conventions: Conventions | None = None) -> dict[str, Scalar]:
    """What the bench of this task takes its batches from, and what its metrics depend on beside."""
    how = conventions or conventions_of_task(task)
    reported = {"gamma_null_draws": how.null_draws, FIRST_CREDITED: how.first_credited, LEAST: how.least_error}
    split = stability_split(task.splits)
    if isinstance(split, Unavailable):
        return {"stability_split": f"none: {split.reason}", **reported}
    return {"stability_split": split, "stability_batches": BATCHES, "stability_batch_size": BATCH, **reported}


# Disjoint batches to compare gradients between: of the test split where it is large enough, else of the training split.


def stability_split(splits: Splits) -> str | Unavailable:
    """`test`, or `train`. Smaller batches would measure another quantity, so where neither has enough samples there is none."""
    test, train = len(splits.test_labels), len(splits.train_labels)
    for split, samples in (("test", test), ("train", train)):
        if samples >= BATCHES * BATCH:
            return split
    return Unavailable(
        f"needs {BATCHES} disjoint batches of {BATCH}: the test split holds {test} samples, the training split {train}"
    )


def disjoint_batches(splits: Splits, split: str, draw: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """images (BATCH, …), labels (BATCH,): the first BATCHES of the split, unshuffled; of `train` under one augmentation draw.

    draw: on the splits' device, what the augmentation is drawn from.
    """
    whole = BATCHES * BATCH
    if split == "test":
        images, labels = splits.test_images[:whole], splits.test_labels[:whole]
    else:
        images, labels = splits.augment(splits.train_images[:whole], draw), splits.train_labels[:whole]
    return zip(images.split(BATCH), labels.split(BATCH), strict=True)
