"""Test cases of the conformance suite: small float64 networks of every architecture, with one batch.

The batch is computed from the seed. For a linear residual network, theory gives the feedback state with which a rule equals
backpropagation.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fa_registry import architectures
from fa_registry.architectures.base import TOKENS, Architecture, Network, identity
from fa_registry.diagnostics import eval_mode
from fa_registry.methods.base import CreditInputs, Method, NetworkShape, check_credits
from fa_registry.records import Recipe, Scalar
from fa_registry.seeding import derive, generator, undrawn
from fa_registry.tasks import CATALOG as TASKS
from fa_registry.token_axes import mean_over_positions
from fa_registry.training.method_calls import compute_credits, update_feedback
from fa_registry.training.prediction import scores_of
from fa_registry.training.run_setup import network_shape
from fa_registry.training.step import OutputError, StepSums, backprop_step, local_credit_step

IMAGE_SHAPE = (3, 8, 8)
SEQUENCE_SHAPE = (6,)  # shape of one input if the inputs are tokens
CLASSES = 5
SAMPLES = 64
DEPTHS = (1,)  # numbers of blocks in addition to three; with one block, fa and dfa must agree
# w2_std is large, because at the default 0.01 every branch is nearly zero. All sites would be similar, and no check would detect an
# index error.
SMALL: Mapping[str, Scalar] = {"d_hidden": 16, "width": 8, "num_blocks": 3, "w2_std": 0.5, "learn": True}

Gradients = dict[str, Tensor]


@dataclass(frozen=True)
class NetworkCase:
    """A method with one network and one batch, all in float64.

    Attributes:
        feedback: Feedback state of the method.
        images: Inputs (samples, *IMAGE_SHAPE), or tokens (samples, *SEQUENCE_SHAPE).
        labels: Classes (samples,), or the next tokens (samples, *SEQUENCE_SHAPE).
    """

    method: Method
    network: Network
    feedback: nn.Module
    images: Tensor
    labels: Tensor

    @property
    def blocks(self) -> int:
        return len(self.network.blocks)

    @property
    def exact(self) -> list[bool]:
        """One boolean per site: whether the card declares the credit exact."""
        return [self.method.card.is_exact(site, self.blocks) for site in range(self.blocks + 1)]

    def inputs(self, start: int = 0, count: int | None = None, measuring: bool = True) -> CreditInputs:
        """Return the inputs of the method's `credits`, computed in eval mode.

        Args:
            start: First sample.
            count: Number of samples, or None for all samples from `start`.
            measuring: Whether the inputs contain the exact gradients.
        """
        images, labels = self.images[start:][:count], self.labels[start:][:count]
        with eval_mode(self.network):
            logits, hidden = self.forward(images)
        gradients = sum_gradients(logits, hidden, labels)
        output = OutputError.of(logits, labels)
        return CreditInputs(
            [state.detach() for state in hidden],
            output.error,
            output.targets,
            gradients[-1],
            gradients if measuring else None,
            images=images,
            labels=labels,
            losses=output.losses,
            network=self.network,
            task=output.task,
            scores=scores_of(self.method, self.feedback, self.network, images, output.logits.shape),
        )

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the logits and the states h_0..h_L in one autograd graph.

        Images require grad, because an embedding may have no weights (mlp). Tokens do not, because integers cannot require grad.
        """
        images = images.detach().clone()
        return self.network(images.requires_grad_(images.is_floating_point()), return_hidden=True)

    def in_single(self) -> NetworkCase:
        """Return a copy of the case in float32."""
        network, feedback = (copy.deepcopy(module).float() for module in (self.network, self.feedback))
        images = self.images.float() if self.images.is_floating_point() else self.images
        return NetworkCase(self.method, network, feedback, images, self.labels)

    def credits(self, inputs: CreditInputs) -> list[Tensor]:
        with eval_mode(self.network):
            credits = compute_credits(self.method, self.feedback, inputs)
        check_credits(self.method.card.name, credits, inputs.hidden)
        return [self.network.spread(*pair) for pair in zip(credits, inputs.hidden, strict=True)]

    def step(self, penalty: float = 0.0, credit_norm: str = "none", penalty_embedding: float = 0.0) -> Gradients:
        """Run one training step, and return the gradients by parameter name."""
        self._run(penalty, credit_norm, penalty_embedding=penalty_embedding)
        return {name: parameter.grad.clone() for name, parameter in self.network.named_parameters()}

    def _run(
        self,
        penalty: float,
        credit_norm: str,
        generator: torch.Generator | None = None,
        penalty_embedding: float = 0.0,
    ) -> StepSums:
        self.network.zero_grad(set_to_none=True)
        self.feedback.zero_grad(set_to_none=True)
        if self.method.end_to_end:
            return backprop_step(self.network, self.images, self.labels, penalty, penalty_embedding=penalty_embedding)
        batch = (self.images, self.labels)
        settings = (penalty, credit_norm, generator)
        return local_credit_step(
            self.network, self.method, self.feedback, *batch, *settings, penalty_embedding=penalty_embedding
        )

    def true_step(self) -> Gradients:
        """Return autograd's gradients of the mean cross entropy in training mode, by parameter name."""
        loss = cross_entropies(self.network(self.images), self.labels).mean()
        parameters = dict(self.network.named_parameters())
        return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))

    def train(self, steps: int) -> None:
        """Train network and feedback for `steps` AdamW steps on the batch, with the default recipe."""
        recipe, draw = Recipe(), generator(0, "method")
        learning = [
            *self.network.parameters(),
            *(parameter for parameter in self.feedback.parameters() if parameter.requires_grad),
        ]
        optimizer = torch.optim.AdamW(learning, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
        for _ in range(steps):
            sums = self._run(0.0, recipe.credit_norm, draw)
            optimizer.step()
            if sums.seen is not None:
                update_feedback(self.method, self.feedback, sums.seen)


def sum_gradients(logits: Tensor, hidden: Sequence[Tensor], labels: Tensor) -> list[Tensor]:
    """Return g_l = ∂(Σ_i ℓ_i)/∂h_l for all states, computed by autograd."""
    return list(torch.autograd.grad(cross_entropies(logits, labels).sum(), hidden))


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each sample's cross entropy (N,), summed over positions, without fa_registry.tasks."""
    picked = logits.log_softmax(dim=-1).gather(-1, labels.unsqueeze(-1))
    return -picked.flatten(1).sum(dim=1)


@dataclass(frozen=True)
class Setting:
    """A method, an architecture with options, and a seed. Every case of a setting is equal.

    Args:
        options: Options of the architecture.
        seed: Seed of weights, feedback and batch.
        method_options: Options of the method that differ from the defaults in its card.
    """

    method: Method
    architecture: Architecture
    options: Mapping[str, Scalar]
    seed: int
    method_options: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def label(self) -> str:
        network_options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        method_options = "".join(f"{name}={value}, " for name, value in self.method_options.items())
        return f"{method_options}{self.architecture.card.name}({network_options}), seed {self.seed}"

    def case(self) -> NetworkCase:
        """Return a new case with weights, feedback state and batch from the seed."""
        return self._draw(self.seed)

    def third_party(self) -> NetworkCase:
        """Return a case with the batch of `case`, but weights and feedback state of another seed."""
        return self._draw(self.seed + 1)

    def _draw(self, seed: int) -> NetworkCase:
        complete = self.architecture.resolve(self.options)
        shape = input_shape(self.architecture)
        network = self.architecture.build(complete, shape, CLASSES, generator(seed, "init")).double()
        images, labels = batch(self.seed, shape=shape)
        feedback = draw_feedback(self.method, network_shape(network, images[:1], CLASSES), seed, self.method_options)
        return NetworkCase(self.method, network, feedback.double(), images, labels)


def draw_feedback(
    method: Method, shape: NetworkShape, seed: int, changes: Mapping[str, Scalar] | None = None
) -> nn.Module:
    """Return a method's initial feedback state. `changes` are options that differ from the defaults."""
    options = {name: option.default for name, option in method.card.options.items()}
    return method.feedback(shape, {**options, **(changes or {})}, generator(seed, "feedback"))


def forms(method: Method) -> Iterator[dict[str, Scalar]]:
    """Yield a dict {option: choice} for each choice of an option that is not its default."""
    for name, option in method.card.options.items():
        yield from ({name: choice} for choice in option.choices if choice != option.default)


def input_shape(architecture: Architecture) -> tuple[int, ...]:
    """Return the shape of one input of an architecture: an image, or a sequence of tokens."""
    return SEQUENCE_SHAPE if architecture.card.inputs == TOKENS else IMAGE_SHAPE


def batch(seed: int, samples: int = SAMPLES, shape: tuple[int, ...] = IMAGE_SHAPE) -> tuple[Tensor, Tensor]:
    """Return a random batch.

    Images are float64 numbers with a standard normal distribution, and labels are uniformly distributed. If `shape` is the shape
    of a sequence, inputs and labels are uniformly distributed tokens (samples, *shape).
    """
    stream = torch.Generator().manual_seed(derive(seed, "conformance batch"))
    if shape == SEQUENCE_SHAPE:
        return tuple(torch.randint(CLASSES, (samples, *shape), generator=stream) for _ in range(2))
    images = torch.randn(samples, *IMAGE_SHAPE, generator=stream, dtype=torch.float64)
    return images, torch.randint(CLASSES, (samples,), generator=stream)


def variants(architecture: Architecture) -> Iterator[dict[str, Scalar]]:
    """Yield sets of options for small networks of an architecture.

    The sets are a base set, the base set with another depth, and the base set with one boolean option negated.
    """
    options = architecture.card.options
    base = {name: value for name, value in SMALL.items() if name in options}
    yield base
    if "num_blocks" in options:
        yield from ({**base, "num_blocks": depth} for depth in DEPTHS)
    flags = [name for name, option in options.items() if isinstance(option.default, bool) and name != "learn"]
    yield from ({**base, name: not options[name].default} for name in flags)


def cannot_build(architecture: Architecture) -> str:
    """Return the reason why the suite cannot build small networks of an architecture, or an empty string."""
    try:
        for options in variants(architecture):
            architecture.build(architecture.resolve(options), input_shape(architecture), CLASSES, generator(0, "init"))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def supported_by(method: Method, requested: Sequence[str | Architecture] | None, task: str = "") -> list[Architecture]:
    """Return the architectures to test, only those that support the task.

    If `requested` is None, these are all architectures of the catalog that the method's card supports. Without a task, they are
    the architectures that support one of the tasks in the card.
    """
    card = method.card
    if requested is None:
        requested = [name for name in architectures.CATALOG.members() if card.supports(name)]
    found = [architectures.CATALOG.get(item) if isinstance(item, str) else item for item in requested]
    names = [task] if task else card.tasks
    wanted = {TASKS.get(name).by_position for name in names if card.trains(TASKS.get(name))}
    return [item for item in found if (item.card.inputs == TOKENS) in wanted]


WIDTH, DEPTH = 8, 3


def linear_case(setting: Setting) -> tuple[NetworkCase, list[Tensor], list[Tensor]]:
    """Return a case with a linear residual network without LayerNorm, and its Jacobians.

    There is one Jacobian for each block, and one of the logits at each site 1..L.
    """
    stream = torch.Generator().manual_seed(derive(setting.seed, "linear network"))
    blocks = [_layer(WIDTH, WIDTH, stream) for _ in range(DEPTH)]
    tokens = setting.architecture.card.inputs == TOKENS
    case = setting.case()
    with torch.no_grad():
        has_positions = any(state.dim() > 2 for state in case.network.hidden(case.images[:2]))
    flatten = nn.Flatten(2 if has_positions else 1)  # one token per channel, or one vector
    embed = (
        nn.Embedding.from_pretrained(torch.randn(CLASSES, WIDTH, generator=stream, dtype=torch.float64), freeze=False)
        if tokens
        else nn.Sequential(flatten, _layer(math.prod(IMAGE_SHAPE[flatten.start_dim - 1 :]), WIDTH, stream))
    )
    pool = identity if tokens else mean_over_positions
    network = Network(embed, blocks, out_ln=None, out_head=_layer(WIDTH, CLASSES, stream), pool=pool)
    jacobians = [torch.eye(WIDTH, dtype=torch.float64) + block.weight.detach() for block in blocks]
    outputs = [network.out_head.weight.detach()]  # (classes, hidden)
    for jacobian in reversed(jacobians[1:]):
        outputs.append(outputs[-1] @ jacobian)
    images, labels = batch(setting.seed, shape=input_shape(setting.architecture))
    shape = network_shape(network, images[:1], CLASSES)
    feedback = draw_feedback(setting.method, shape, setting.seed, setting.method_options).double()
    return NetworkCase(setting.method, network, feedback, images, labels), jacobians, outputs[::-1]


def _layer(features_in: int, features_out: int, stream: torch.Generator) -> nn.Linear:
    """Return a float64 Linear with random weights from `stream`."""
    layer = undrawn(nn.Linear, features_in, features_out, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.normal_(0.0, features_in**-0.5, generator=stream)
        layer.bias.normal_(0.0, 0.1, generator=stream)
    return layer
