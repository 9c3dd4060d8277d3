"""Functions with which the more expensive diagnostics run the network again.

The class ProbeContext passes these functions to the diagnostics. All random numbers come from the specification's seed.
"""

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
from fa_registry.tasks import task_of
from fa_registry.training.method_calls import compute_credits, frozen_weights
from fa_registry.training.prediction import scores_of
from fa_registry.training.run_setup import EVAL_SAMPLES, RunSetup, build_network, network_shape, to_device

LEAST = "fidelity_least_error"  # name of an entry in a run's conventions
FIRST_CREDITED = "first_credited_site"  # name of an entry in a run's conventions
CHEAP_WORK = 5e8  # greatest number of floating-point operations of a cheap draw: about 20 ms of a core
COUNTED_SAMPLES = 8
# Values by feedback state, kept as long as the state exists, because a training needs its value once per epoch.
_DRAWS: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
NO_INITIAL = "the run's initial weights were not saved"


@dataclass(frozen=True)
class Conventions:
    """Parameters of the metrics that are recorded with a run.

    Attributes:
        null_draws: number of newly drawn feedback states for the null distribution of the alignment Γ.
        least_error: a sample counts in the fidelity only if its ‖e‖ is larger than this value.
        first_credited: the first site whose credit trains a parameter. It is 1 if site 0 is the input.
    """

    null_draws: int
    least_error: float = LEAST_ERROR
    first_credited: int = 0


def conventions_of_setup(setup: RunSetup, recorded: Mapping[str, Scalar] | None = None) -> Conventions:
    """Return the parameters of the metrics for a new run or for a recorded run.

    `recorded` contains the conventions that the run recorded, or is None for the defaults of the installed version. Only the
    recorded number of draws is used. The other two recorded values are ignored, because a run must not choose which samples
    and sites count.
    """
    draws = (recorded or {}).get("gamma_null_draws") or null_draws(setup)
    return Conventions(int(draws), first_credited=setup.network.first_credited)


def bench_of(
    setup: RunSetup,
    forward_backward: ForwardBackward,
    credits: Sequence[Tensor] | None,
    no_feedback: str,
    initial: Mapping[str, Tensor] | None,
    draws: int = 0,
) -> ProbeContext:
    """Return the context with which the diagnostics run a setup's network again.

    Each part is computed only when a diagnostic needs it. If `forward_backward` has no float64 pass, its float32 pass is converted.

    Args:
        no_feedback: the reason why `credits` is None.
        initial: the initial weights, name → tensor, or None.
        draws: number of newly drawn feedback states for the null distribution of Γ; 0 means the result of `null_draws`.
    """
    labels, exact = setup.eval_batch[1], forward_backward.double or forward_backward.single
    network = cache(lambda precision: in_precision(setup.network, precision))

    def losses_from(site: int, states: Tensor, first: int = 0) -> Tensor:
        """Return the losses (n, V) of V states per sample at a site, in float64.

        `states` (n, V, …) belong to n consecutive samples of the eval batch. `first` is the index of the first of these samples.
        The network computes in the precision of the states.
        """
        count, variants = states.shape[:2]
        variant_labels = labels[first : first + count].repeat_interleave(variants, dim=0)  # (count * variants, …)
        with torch.no_grad():
            logits = network(states.dtype).logits_from(site, states.flatten(0, 1))
        return setup.task.sample_losses(logits.double(), variant_labels).reshape(count, variants)

    return ProbeContext(
        states=[state.double() for state in exact.hidden],
        gradients=[gradient.double() for gradient in exact.gradients],
        losses=setup.task.sample_losses(exact.logits.double(), labels),
        losses_from=losses_from,
        generator=lambda name: stream(setup, name),
        credits=Unavailable(no_feedback) if credits is None else [credit.double() for credit in credits],
        batch_gradients=_batch_gradients(setup),
        fresh_credits=Unavailable(no_feedback) if no_feedback else _fresh_credits(setup, forward_backward),
        weights={name: weight.detach() for name, weight in setup.network.named_parameters()},
        initial_weights=Unavailable(NO_INITIAL) if initial is None else initial,
        bridge_residuals=Unavailable(no_feedback) if no_feedback else _bridge_residuals(setup, forward_backward),
        costates=_costates(setup, lambda: network(torch.float64)),
        null_draws=draws or null_draws(setup),
    )


def stream(setup: RunSetup, name: str, device: str | torch.device = "cpu") -> torch.Generator:
    """Return a new random generator for the measurement with this name.

    The random numbers are the same in training and in a recomputation.
    """
    return torch.Generator(device).manual_seed(derive(setup.spec.seed, f"evaluation/{name}"))


def with_fresh_weights(setup: RunSetup, name: str) -> RunSetup:
    """Return the setup with the initial network of another seed, drawn from the generator with this name.

    Constants in the code of a method cannot be fitted to these weights.
    """
    (seed,) = torch.randint(2**31, (1,), generator=stream(setup, name)).tolist()
    network = build_network(dataclasses.replace(setup.spec, seed=seed), setup.card)
    return dataclasses.replace(setup, network=to_device(network, setup.device))


def in_precision(network: Network, precision: torch.dtype) -> Network:
    """Return a copy of the network with weights of this dtype, in eval mode and without gradients."""
    return copy.deepcopy(network).to(precision).eval().requires_grad_(False)


def credit_inputs(
    setup: RunSetup, forward_backward: ForwardBackward, generator: torch.Generator | None = None
) -> CreditInputs:
    """Return the inputs that a method receives in measuring. They include the exact gradients."""
    single_pass, (images, labels) = forward_backward.single, setup.eval_batch
    return CreditInputs(
        single_pass.hidden,
        forward_backward.error,
        forward_backward.onehot,
        single_pass.gradients[-1],
        single_pass.gradients,
        generator,
        images,
        labels,
        setup.task.sample_losses(single_pass.logits, labels),
        setup.network,
        progress=1.0,
        task=setup.task,
        scores=scores_of(setup.method, setup.feedback, setup.network, images, single_pass.logits.shape),
    )


def credits_under(setup: RunSetup, feedback: nn.Module, forward_backward: ForwardBackward) -> list[Tensor]:
    """Return the method's credits on the eval batch with this feedback state.

    Raises:
        PluginError: if a credit has a wrong shape.
    """
    with diagnostics.eval_mode(setup.network):
        credits = compute_credits(setup.method, feedback, credit_inputs(setup, forward_backward))
    check_credits(setup.spec.method, credits, forward_backward.single.hidden)
    return [setup.network.spread(*pair) for pair in zip(credits, forward_backward.single.hidden, strict=True)]


def _batch_gradients(setup: RunSetup) -> Callable[[], list[Tensor]] | Unavailable:
    """Return a function that computes the mean gradients of K batches, (K, D) per site.

    The metric for gradient stability compares these K gradients.
    """
    split = stability_split(setup.splits)
    if isinstance(split, Unavailable):
        return split

    def batch_gradients() -> list[Tensor]:
        augmentation_generator = generator(setup.spec.seed, "evaluation", setup.device)
        batches = disjoint_batches(setup.splits, split, augmentation_generator)
        observations = [diagnostics.observe(setup.network, *batch, double=False, task=setup.task) for batch in batches]
        mean_gradients = [
            [gradient.double().mean(dim=0) for gradient in observation.gradients] for observation in observations
        ]
        return [torch.stack(rows) for rows in zip(*mean_gradients, strict=True)]  # each (K, D)

    return batch_gradients


def _fresh_credits(setup: RunSetup, forward_backward: ForwardBackward) -> Callable[[int], list[Tensor]] | Unavailable:
    if not setup.feedback.state_dict():
        return Unavailable(f"the method {setup.spec.method!r} has no feedback that could be newly drawn")
    if setup.method.card.learned:
        return Unavailable("the method trains its feedback, so newly drawn feedback would be an untrained network")

    shape = cache(lambda: network_shape(setup.network, setup.splits.test_images[:1], setup.card.classes))

    def fresh_credits(index: int) -> list[Tensor]:
        fresh_feedback = setup.method.feedback(shape(), setup.spec.method_options, stream(setup, f"gamma_null/{index}"))
        fresh_feedback = fresh_feedback.to(setup.device, forward_backward.error.dtype)
        return forward_backward.rows(credits_under(setup, fresh_feedback, forward_backward))

    return fresh_credits


def null_draws(setup: RunSetup) -> int:
    """Return the number of newly drawn feedback states for the null distribution of Γ.

    The number is larger if a draw is cheap. The cost is counted in operations, not timed. If the feedback is one fixed matrix per
    site, a draw needs one multiplication per site and takes at most 3 ms on any built-in architecture. Any other feedback needs a
    pass through the network: 3 ms on mlp, 10 ms on resmlp (2e8 operations), and 0.3 s on small_resnet. With the larger number, the
    final measurement on small_resnet would take twice as long.
    """
    if isinstance(setup.feedback, FixedMatrices):
        return CHEAP_DRAWS
    if not setup.feedback.state_dict() or setup.method.card.learned:
        return COSTLY_DRAWS
    if setup.feedback not in _DRAWS:
        _DRAWS[setup.feedback] = CHEAP_DRAWS if _work_of_draw(setup) <= CHEAP_WORK else COSTLY_DRAWS
    return _DRAWS[setup.feedback]


def _work_of_draw(setup: RunSetup) -> float:
    """Count the floating-point operations that compute the credits of one eval batch."""
    splits = setup.splits
    images, labels = splits.test_images[:COUNTED_SAMPLES], splits.test_labels[:COUNTED_SAMPLES]
    reduced = dataclasses.replace(setup, splits=dataclasses.replace(splits, test_images=images, test_labels=labels))
    forward_backward = diagnostics.run_forward_backward(reduced.network, images, labels, double=False, task=setup.task)
    with _Counter() as counter:
        credits_under(reduced, reduced.feedback, forward_backward)
    return counter.operations * EVAL_SAMPLES / len(images)


class _Counter(TorchDispatchMode):
    """Counter of operations, because FlopCounterMode fails if autograd.grad is called at a site."""

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


def _bridge_residuals(setup: RunSetup, forward_backward: ForwardBackward) -> Callable[[], list[Tensor]] | Unavailable:
    method = setup.method
    if not isinstance(method, Bridge):
        return Unavailable(f"only credit_bridge has this metric; the method {setup.spec.method!r} has no value net")

    def bridge_residuals() -> list[Tensor]:
        """Return the residuals of the value net, one tensor (N,) per site."""
        inputs = credit_inputs(setup, forward_backward, stream(setup, "bridge_residual", setup.device))
        with torch.no_grad(), frozen_weights(setup.network):
            residuals = method.bridge_residuals(setup.feedback, inputs)
        _check(
            f"method {setup.spec.method!r}",
            residuals,
            [(len(forward_backward.error),)] * len(forward_backward.single.hidden),
        )
        return residuals

    return bridge_residuals


def _costates(setup: RunSetup, double: Callable[[], Network]) -> Callable[[], list[Tensor]] | Unavailable:
    if not isinstance(setup.network, ExactCostate):
        return Unavailable(f"the costate of {setup.spec.architecture!r} has no closed form")

    # the costates of a third-party network need no parameter for a task that the type of the labels determines
    task = () if setup.task is task_of(setup.splits.train_labels) else (setup.task,)

    def costates() -> list[Tensor]:
        images, labels = setup.eval_batch
        network = double()
        with torch.no_grad():
            states = network.hidden(images.double())
            costates = network.costates(images.double(), labels, *task)
        _check(f"architecture {setup.spec.architecture!r}", costates, [tuple(state.shape) for state in states])
        return costates

    return costates


def _check(subject: str, tensors: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise ValueError if a shape is wrong. The error is recorded as a failure of the diagnostic."""
    found_shapes = [tuple(tensor.shape) for tensor in tensors]
    if found_shapes != list(shapes):
        raise ValueError(f"{subject}: expected tensors of shapes {list(shapes)}, one per site, found {found_shapes}")


def bench_conventions(setup: RunSetup, conventions: Conventions | None = None) -> dict[str, Scalar]:
    """Return a mapping of the parameters of Γ's null distribution, fidelity and gradient stability.

    The parameters are recorded with a run. None for `conventions` means the defaults of the installed version.
    """
    used_conventions = conventions or conventions_of_setup(setup)
    reported = {
        "gamma_null_draws": used_conventions.null_draws,
        FIRST_CREDITED: used_conventions.first_credited,
        LEAST: used_conventions.least_error,
    }
    split = stability_split(setup.splits)
    if isinstance(split, Unavailable):
        return {"stability_split": f"none: {split.reason}", **reported}
    return {"stability_split": split, "stability_batches": BATCHES, "stability_batch_size": BATCH, **reported}


# Disjoint batches whose gradients are compared, from the test split if it is large enough, else from the training split.


def stability_split(splits: Splits) -> str | Unavailable:
    """Return the split, `test` or `train`, on whose batches gradient stability is measured.

    The test split is preferred. If neither split has enough samples, the result is Unavailable, because the metric would have
    another meaning with smaller batches.
    """
    test, train = len(splits.test_labels), len(splits.train_labels)
    for split, samples in (("test", test), ("train", train)):
        if samples >= BATCHES * BATCH:
            return split
    return Unavailable(
        f"needs {BATCHES} disjoint batches of {BATCH}: the test split has {test} samples, the training split {train}"
    )


def disjoint_batches(
    splits: Splits, split: str, augmentation_generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the first BATCHES batches of a split, as images (BATCH, …) and labels (BATCH,).

    The samples are not shuffled. Each batch of `train` is augmented once. The generator is on the device of the data.
    """
    sample_count = BATCHES * BATCH
    if split == "test":
        images, labels = splits.test_images[:sample_count], splits.test_labels[:sample_count]
    else:
        images, labels = (
            splits.augment(splits.train_images[:sample_count], augmentation_generator),
            splits.train_labels[:sample_count],
        )
    return zip(images.split(BATCH), labels.split(BATCH), strict=True)
