"""Check that a third-party network computes its outputs from the images, and trains by its credits.

A network could contain the test set and look up the labels. Such a network could recognise a sample in three ways: by the content
of the image, by the position in a batch or in the test set, or by earlier inputs. Each probe removes the information that one of
these ways needs. A classifier needs none of the removed information.

The scores of a third-party method that predicts by itself are probed in the same way. Its feedback could contain a second network,
so its accuracy must fall to chance if the network is newly drawn and the feedback stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fa_registry import architectures, methods, tasks
from fa_registry.architectures.base import Network, noisy
from fa_registry.conformance.credit_check import SAME_CREDIT, Gradients, Trial, copied, gradients_by_credits
from fa_registry.diagnostics import eval_mode
from fa_registry.methods.base import CreditedStates
from fa_registry.records import NETWORK_CHECK, TASK_CHECK, TRAINING_CHECK, Check, Measurements
from fa_registry.tasks.classification import accuracy
from fa_registry.tasks.token_prediction import TEST_BATCH
from fa_registry.training.probe_context import stream, with_fresh_weights
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.step import backprop_step

SAMPLES = 1_000  # test samples of the probes, drawn with the run's seed; all samples if the test set is smaller
ALONE = 64  # samples that are also classified one at a time
NOISE = 0.01  # fraction of the images' standard deviation: invisible noise that changes the bits of every pixel
# positions after which tokens are replaced: all positions of a sequence of at most MOST_CUTS + 1 tokens
MOST_CUTS = 512
ROWS = 512  # sequences with replaced tokens
# Absolute and relative change of a log-probability that rounding may cause, in nats. If a sequence keeps its row, the change of
# causal_transformer is 0 on the CPU in float32, bfloat16 and float16. A change below SAME is too small to improve a loss.
SAME = 1e-3
TOKEN_MARGIN = 0.2  # nats per token by which a test loss may be smaller than a training loss
SHOWN = 4  # largest number of names in a message
MARGIN = 0.05  # difference of accuracy; rounding and noise cause far smaller differences, and a lookup far larger ones
DEVIATIONS = 4.0  # standard deviations of sampling noise that every probe allows


@dataclass(frozen=True)
class Probes:
    """Accuracies of one network in several probes, as fractions.

    Attributes:
        whole: accuracy on the whole test set in its order.
        shuffled: accuracy on `samples` test samples in random order.
        noisy: accuracy on the same samples as `shuffled`, with noise of NOISE standard deviations.
        random: accuracy on random images, with the test labels in their order.
        train: accuracy on at most SAMPLES training samples.
        chance: fraction of the most frequent test label.
        alone: fraction of ALONE samples whose predicted class is the same in a batch of one and in a larger batch.
        samples: number of test samples that the probes use.
        redrawn: accuracy on the samples of `shuffled` if a method that predicts by itself has a newly drawn network, but its
            trained feedback; None if the head predicts.
    """

    whole: float
    shuffled: float
    noisy: float
    random: float
    train: float
    chance: float
    alone: float
    samples: int
    redrawn: float | None = None

    def deviation(self, share: float) -> float:
        """Allowed difference of accuracies near `share`: MARGIN + DEVIATIONS standard deviations of sampling."""
        return MARGIN + DEVIATIONS * (max(share * (1 - share), 1 / self.samples) / self.samples) ** 0.5

    @property
    def objections(self) -> Iterator[str]:
        """One text for each probe result that is evidence of stored answers.

        Such a result cannot occur if the network computes each output from one image only.
        """
        if abs(self.whole - self.shuffled) > self.deviation(self.whole):
            yield f"the accuracy is {self.whole:.4f} in the test set's order and {self.shuffled:.4f} in another order"
        if self.alone < 1 - MARGIN:
            yield f"of {ALONE} samples, {1 - self.alone:.0%} get different classes in a batch of one and in a larger batch"
        if self.shuffled - self.noisy > self.deviation(self.noisy):
            yield (
                f"the accuracy is {self.shuffled:.4f} without noise and {self.noisy:.4f} "
                f"with noise of {NOISE:g} standard deviations"
            )
        if self.random - self.chance > self.deviation(self.chance):
            yield f"the accuracy on random images is {self.random:.4f}, expected about {self.chance:.4f} by chance"
        if self.redrawn is not None and self.redrawn - self.chance > self.deviation(self.chance):
            yield (
                f"the accuracy of the method's own prediction is {self.redrawn:.4f} with a newly drawn network, expected about "
                f"{self.chance:.4f} by chance"
            )
        if self.whole - self.train > self.deviation(self.train):
            yield f"the accuracy is {self.whole:.4f} on the test set and only {self.train:.4f} on training samples"


def network_check(setup: RunSetup, measured: Measurements) -> Check | None:
    """Check that a third-party network or prediction with its final weights does not look up answers.

    Args:
        setup: the setup of the run. The function does not change its network.
        measured: the run's recomputed measurements, which contain the accuracy on the whole test set.

    Returns:
        The result. It is None if architecture and prediction are built-in, and for a data set that has neither classes nor
        tokens. The outcome is "not possible" if a probe raises an exception, or if a probe shows that the network looks up stored
        answers.
    """
    headline = setup.task.headline
    reading = measured.scalars.get(headline.name) if headline.is_share else None
    share = reading.value if reading else None
    is_builtin = architectures.CATALOG.location(setup.spec.architecture).is_builtin
    if setup.predictor is not setup.network:
        is_builtin = is_builtin and methods.CATALOG.location(setup.spec.method).is_builtin
    if is_builtin or (share is None and not setup.task.by_position):
        return None
    if setup.task.by_position:
        return _token_check(setup)
    try:
        probes = probe(setup, share)
    except Exception as error:  # a network may fail on batches that it does not know
        return Check(NETWORK_CHECK, "not possible", f"a probe of the network failed: {type(error).__name__}: {error}")
    if objections := list(probes.objections):
        return Check(
            NETWORK_CHECK, "not possible", f"the outputs are not computed from the images only: {'; '.join(objections)}"
        )
    return Check(
        NETWORK_CHECK,
        "agrees",
        f"accuracy {probes.whole:.4f} in the test set's order, {probes.shuffled:.4f} in another order, "
        f"{probes.noisy:.4f} with noise, {probes.train:.4f} on training samples, {probes.random:.4f} on random images",
    )


def training_check(setup: RunSetup) -> Check | None:
    """Check that only credits train the blocks of a third-party network, and freezing changes nothing.

    The result is None for a built-in architecture. The outcome is "not possible" if a probe fails or finds an objection.
    """
    if architectures.CATALOG.location(setup.spec.architecture).is_builtin:
        return None
    if objection := training_objection(setup):
        return Check(TRAINING_CHECK, "not possible", objection)
    return Check(TRAINING_CHECK, "agrees", "no block is trained without credit; frozen blocks change no other gradient")


def training_objection(setup: RunSetup) -> str:
    """Return evidence that the network trains its blocks itself, or differs if they are frozen.

    The text is empty if there is none. Two probes run training steps on the eval batch, in train mode:

    - If all credits are zero, no weight of a block may have a gradient, even if another part shares the weight.
    - If the blocks are frozen, logits and gradients of the other weights must not change. A weight that a block shares with
      another part is an objection, because it is frozen too. All modules keep their mode, because a frozen BatchNorm uses
      other statistics.
    """
    images, labels = setup.eval_batch
    noise = stream(setup, "network_check_training", setup.device)
    try:
        if not setup.method.end_to_end:
            trial = Trial.copy_of(setup, noise)
            trial = dataclasses.replace(trial, spec=trial.spec.unpenalised)
            with torch.no_grad():  # a copy, because a BatchNorm in train mode changes its statistics
                credits = [torch.zeros_like(state) for state in Trial.copy_of(setup, noise).network.hidden(images)]
            zero = gradients_by_credits(trial, images, labels, CreditedStates(credits))
            if names := _moved_blocks(trial.network, zero):
                return f"without any credit, these weights of blocks have a gradient: {', '.join(names[:SHOWN])}"
        free, frozen = (_end_to_end(Trial.copy_of(setup, noise), images, labels, freeze) for freeze in (False, True))
    except Exception as error:  # a network may fail if it is called otherwise than in training
        return f"a probe of the network failed: {type(error).__name__}: {error}"
    changed = [name for name in {**free, **frozen} if not _is_near(frozen.get(name), free.get(name))]
    return f"with frozen blocks, a training step changes otherwise: {', '.join(changed[:SHOWN])}" if changed else ""


def _moved_blocks(network: Network, gradients: Gradients) -> list[str]:
    """Return the names of the blocks' weights whose gradient is finite and not zero somewhere."""
    names = _weights(network, in_blocks=True)
    return [name for name in names if (found := gradients[name]) is not None and found.nan_to_num(0, 0, 0).any()]


def _weights(network: Network, in_blocks: bool) -> list[str]:
    """Return the names of the weights that a block, or another part, uses; a shared weight is in both."""
    uses: dict[int, set[bool]] = {}
    for name, weight in network.named_parameters(remove_duplicate=False):
        uses.setdefault(id(weight), set()).add(name.startswith("blocks."))
    return [name for name, weight in network.named_parameters() if in_blocks in uses[id(weight)]]


def _end_to_end(trial: Trial, images: Tensor, labels: Tensor, freeze: bool) -> dict[str, Tensor]:
    """Return the logits of one end-to-end step, and the gradients outside the blocks, which may be frozen."""
    network = trial.network.train()
    network.blocks.requires_grad_(not freeze)
    with torch.random.fork_rng(), noisy(network, copied(trial.noise)):
        torch.manual_seed(0)
        backprop_step(network, images, labels, 0.0, task=trial.task)
        torch.manual_seed(0)
        with torch.no_grad():
            logits = network(images)
    weights = ((name, network.get_parameter(name)) for name in _weights(network, in_blocks=False))
    return {"the logits": logits, **{name: weight.grad for name, weight in weights if weight.grad is not None}}


def _is_near(value: Tensor | None, expected: Tensor | None) -> bool:
    """Return whether two results of the same sums exist and are equal except for rounding."""
    if value is None or expected is None:
        return False
    return bool((value - expected).norm() <= SAME_CREDIT * expected.norm()) or not expected.isfinite().all()


def _token_check(setup: RunSetup) -> Check:
    """Check that a network predicts a token from the earlier tokens of the same sequence only."""
    inputs, random = setup.splits.test_images[:ALONE], stream(setup, "network_check")
    train_indices = torch.randperm(len(setup.splits.train_labels), generator=random)[:SAMPLES].to(setup.device)
    train = (setup.splits.train_images[train_indices], setup.splits.train_labels[train_indices])
    test = (setup.splits.test_images[:SAMPLES], setup.splits.test_labels[:SAMPLES])
    try:
        looking_ahead = _positions_looking_ahead(setup, inputs, random)
        alone = _same_alone(setup, inputs)
        train_loss, test_loss = (_mean_loss(setup, *part) for part in (train, test))
    except Exception as error:  # a network may fail on batches that it does not know
        return Check(NETWORK_CHECK, "not possible", f"a probe of the network failed: {type(error).__name__}: {error}")
    objections = []
    if looking_ahead:
        objections.append(
            f"the predictions at {len(looking_ahead)} of {inputs.shape[1]} positions change if only later tokens of the "
            f"sequence change, first at position {looking_ahead[0]}"
        )
    if alone < 1 - MARGIN:
        objections.append(
            f"{1 - alone:.0%} of the predictions differ between a batch of one sequence and a larger batch"
        )
    if test_loss < train_loss - TOKEN_MARGIN:
        objections.append(
            f"the loss per token is {train_loss:.4f} on training sequences and only {test_loss:.4f} on the test set"
        )
    if objections:
        return Check(
            NETWORK_CHECK, "not possible", f"the outputs depend on more than earlier tokens: {'; '.join(objections)}"
        )
    return Check(
        NETWORK_CHECK,
        "agrees",
        f"no prediction depends on later tokens, and {alone:.0%} of the predictions do not depend on other sequences; "
        f"loss per token {test_loss:.4f} on the test set, {train_loss:.4f} on training sequences",
    )


def cuts(length: int) -> Tensor:
    """Return the positions from which on tokens are replaced, (cuts,).

    The positions are 1 to length − 1. If these are more than MOST_CUTS, only MOST_CUTS evenly spaced positions are returned.
    """
    count = min(length - 1, MOST_CUTS)
    return 1 + torch.arange(count) * (length - 2) // max(1, count - 1)


def _positions_looking_ahead(setup: RunSetup, inputs: Tensor, random: torch.Generator) -> list[int]:
    """Return the positions whose log-probabilities change if only later tokens of the sequence change.

    Every cut is used for at least ROWS // MOST_CUTS sequences. A sequence stays in the same row of the batch, because a matrix
    product may round each row differently.
    """
    length, all_cuts = inputs.shape[1], cuts(inputs.shape[1])
    changes = torch.zeros(length, dtype=torch.bool, device=inputs.device)
    predictor = setup.predictor
    with torch.inference_mode(), eval_mode(predictor):
        expected = predictor(inputs).log_softmax(dim=-1)
        for start in range(0, ROWS if len(all_cuts) else 0, len(inputs)):
            cut = all_cuts[(start + torch.arange(len(inputs))) % len(all_cuts)]
            is_kept = (torch.arange(length) < cut[:, None]).to(inputs.device)  # (N, T)
            other = torch.randint(0, setup.card.classes, inputs.shape, generator=random).to(inputs)
            found = predictor(torch.where(is_kept, inputs, other)).log_softmax(dim=-1)
            is_equal = torch.isclose(found, expected, rtol=SAME, atol=SAME, equal_nan=True).all(dim=-1)
            changes |= (is_kept & ~is_equal).any(dim=0)
    return changes.nonzero().flatten().tolist()


def _mean_loss(setup: RunSetup, inputs: Tensor, targets: Tensor) -> float:
    """Return the loss per counted target, in float64."""
    total, predictor = 0.0, setup.predictor
    with torch.inference_mode(), eval_mode(predictor):
        for part, expected in zip(inputs.split(TEST_BATCH), targets.split(TEST_BATCH), strict=True):
            total += setup.task.sample_losses(predictor(part), expected).double().sum().item()
    return total / setup.task.counted(targets)


def task_check(setup: RunSetup) -> Check | None:
    """Return the check of a third-party task, or None for a built-in task.

    The check never confirms the results of a third-party task. Such a task may compute any loss and any main metric, for example a
    metric that depends on the weights.
    """
    name = setup.task.card.name
    location = tasks.CATALOG.location(name)
    if location.is_builtin:
        return None
    return Check(
        TASK_CHECK,
        "not possible",
        f"the package {location.package} {location.version} contains the task {name}, which computes the losses and the main "
        "metric of this run",
    )


def probe(setup: RunSetup, full_accuracy: float) -> Probes:
    """Run all probes with the run's seed; `full_accuracy` is the accuracy on the whole test set."""
    splits, generator, predictor = setup.splits, stream(setup, "network_check"), setup.predictor
    test_indices = torch.randperm(len(splits.test_labels), generator=generator)[:SAMPLES].to(setup.device)
    images, labels = splits.test_images[test_indices], splits.test_labels[test_indices]
    noise = (
        torch.randn(images.shape, generator=generator).to(images) * images.std() if images.is_floating_point() else None
    )
    ordered_labels = splits.test_labels[: len(test_indices)]
    train_indices = torch.randperm(len(splits.train_labels), generator=generator)[:SAMPLES].to(setup.device)
    train = splits.augment(
        splits.train_images[train_indices], stream(setup, "network_check_augmentation", setup.device)
    )
    shuffled = accuracy(predictor, images, labels)
    return Probes(
        whole=full_accuracy,
        shuffled=shuffled,
        noisy=shuffled if noise is None else accuracy(predictor, images + NOISE * noise, labels),
        random=0.0 if noise is None else accuracy(predictor, images.mean() + noise, ordered_labels),
        train=accuracy(predictor, train, splits.train_labels[train_indices]),
        chance=ordered_labels.bincount().max().item() / len(ordered_labels),
        alone=_same_alone(setup, images[:ALONE]),
        samples=len(test_indices),
        redrawn=None
        if predictor is setup.network
        else accuracy(with_fresh_weights(setup, "network_check_weights").predictor, images, labels),
    )


def _same_alone(setup: RunSetup, images: Tensor) -> float:
    """Return the fraction of samples whose class is the same in this batch and in a batch of one."""
    predictor = setup.predictor
    with torch.inference_mode(), eval_mode(predictor):
        batch_classes = predictor(images).argmax(dim=-1)
        single_classes = torch.cat([predictor(image[None]).argmax(dim=-1) for image in images])
    return (batch_classes == single_classes).double().mean().item()
