"""Validation of the inputs of FAProtocol and diagnose.

The validation precedes all measurements. One error lists all problems. If inputs can be measured but give weak evidence, for
example only one sample, the validation issues a warning instead.
"""

from __future__ import annotations

import hashlib
import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry.architectures import AdaptedNetwork, adapt, unwrapped
from fa_registry.architectures._adapter import running_eagerly
from fa_registry.architectures.base import Network
from fa_registry.errors import EvidenceWarning, InvalidFields
from fa_registry.tasks._user_loss import Loss, UserLoss, are_probabilities, class_numbers, loss_problem, user_task
from fa_registry.tasks.token_prediction import IGNORED
from fa_registry.training.forward_traits import ForwardTraits, eval_pass, passes_with_traits
from fa_registry.training.output_range import OutputRange

Batch = tuple[Tensor, Tensor]
KEYWORDS = '; if the model takes keyword arguments, use fa_registry.adapt(model, …, inputs=lambda x: {"name": x})'
LOGITS = "; to read the logits, use fa_registry.adapt(model, …, output=lambda out: out.logits)"
WITH_LOSS = "; for one-hot rows or values, name the loss of the model, for example loss='mse'"
LAST_TOKEN = (
    "; for a loss at the last token only, return the logits of all tokens, (N, T, V), and pass y (N, T) with −100 at all but the "
    "last token. Labels y (N,) fit a model that reads all tokens, such as output=lambda out: out.logits.mean(1)"
)
NOT_LOGITS = (
    "model: expected logits, because without `loss` the gradient of their cross entropy is measured; found {found}; name the loss "
    "of the model with `loss`: {advice}"
)
FOR_PROBABILITIES = (
    "loss='nll' if it is −log of the target's probability, loss='cross_entropy' if these outputs are used as logits"
)
FOR_LIMITED = "{names}, or loss='cross_entropy' if these outputs are used as logits"


class Checks:
    """Collector of the problems and doubts of one call; `finish` reports all of them.

    Attributes:
        subject: the name at the start of the error message.
        problems: texts that cause an error.
        doubts: texts that cause a warning.
        cause: the exception that caused one of the problems, or None.
        traits: properties of the forward pass of the first batch, or None before that pass.
    """

    def __init__(self, subject: str):
        self.subject = subject
        self.problems: list[str] = []
        self.doubts: list[str] = []
        self.cause: Exception | None = None
        self.traits: ForwardTraits | None = None

    def finish(self) -> None:
        """Raise InvalidFields if there are problems; otherwise warn about each doubt.

        If `cause` is an exception, the error is chained to it. The warning shows the line that calls the public function.
        """
        if self.problems:
            raise InvalidFields(self.subject, list(dict.fromkeys(self.problems))) from self.cause
        level, frame = 1, sys._getframe()
        while frame and frame.f_globals.get("__name__", "").partition(".")[0] in ("fa_registry", "contextlib"):
            level, frame = level + 1, frame.f_back
        for doubt in self.doubts:
            warnings.warn(f"{self.subject}: {doubt}", EvidenceWarning, stacklevel=level)

    def network(
        self, model: Any, sites: Sequence[str] = (), skip: str = "", readout: str = "", gradient: str = ""
    ) -> nn.Module | None:
        """Return `model` as a network with observable sites, or add its problems and return None.

        Args:
            model: an nn.Module. For a result of `adapt`, the other arguments are ignored.
            sites, skip, readout: as for `adapt`.
            gradient: as for `adapt`, or an empty string for the default.
        """
        if not isinstance(model, nn.Module):
            self.problems.append(f"model: expected an nn.Module, found {_kind(model)}")
            return None
        inner, _ = unwrapped(model)
        blocks = getattr(inner, "blocks", None)
        if isinstance(blocks, nn.ModuleList) and not len(blocks) and not sites:
            self.problems.append("model: expected at least one block to judge, found none")
            return None
        if isinstance(inner, AdaptedNetwork) or (isinstance(inner, Network) and not (sites or readout or gradient)):
            return inner
        try:
            return adapt(model, sites, skip, readout, gradient=gradient or "backward")
        except InvalidFields as error:
            self.problems += error.problems
            return None

    def fractions(self, **accuracies: Any) -> None:
        """Add a problem for each accuracy that is neither None nor a number in 0..1."""
        for name, value in accuracies.items():
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 <= value <= 1):  # nan is not in 0..1 either
                value_text = f"{value:g}" if is_number else repr(value)
                self.problems.append(f"{name}: expected a fraction of the test set in 0..1, found {value_text}")

    def limits(self, **limits: Any) -> None:
        """Add a problem for each threshold that is not a finite number."""
        for name, value in limits.items():
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value):
                self.problems.append(f"{name}: expected a finite number, found {value!r}")

    def switches(self, **switches: Any) -> None:
        """Add a problem for each switch that is not True or False, e.g. "no", which Python treats as True."""
        for name, value in switches.items():
            if not isinstance(value, bool):
                self.problems.append(f"{name}: expected True or False, found {value!r}")

    def loss(self, network: nn.Module | None, loss: Any) -> Loss:
        """Return the loss of a call: the argument `loss`, or the loss that `adapt` received.

        A wrong loss is added to the problems.

        Args:
            network: the network, or None if it is invalid.
            loss: name, function, or an empty string if the call names no loss.
        """
        declared = getattr(network, "loss", "") if isinstance(network, AdaptedNetwork) else ""
        if problem := loss_problem(loss):
            self.problems.append(f"loss: {problem}")
            return declared
        if loss and isinstance(network, Network):
            self.problems.append(
                "loss: expected no loss for an architecture of the registry, because the task of its data set defines the loss; "
                "to measure another loss, use fa_registry.adapt(model, …, loss=…)"
            )
        elif loss and declared and loss != declared:
            self.problems.append("loss: expected the loss that `adapt` received, found another loss")
        return loss or declared

    def batch(
        self,
        network: nn.Module | None,
        x: Any,
        y: Any,
        names: tuple[str, str],
        loss: Loss = "",
    ) -> int | None:
        """Check one eval batch, and append its problems to `problems`.

        Args:
            network: the network, or None if it is invalid.
            x: input, (N, …).
            y: int64 labels, (N,), each smaller than the number of the network's outputs; or tokens (N, T), if the network's
                outputs are (N, T, V).
            names: the names of x and y in messages.
            loss: as for `adapt`. With a loss, y may also be rows or values in the shape of the network's outputs.

        Returns:
            The number of the network's outputs, C or V, or None if it is unknown.
        """
        problem_count = len(self.problems)
        for name, value in zip(names, (x, y), strict=True):
            if not isinstance(value, Tensor) or not value.dim():
                self.problems.append(f"{name}: expected a tensor with one row per sample, found {_kind(value)}")
        if len(self.problems) > problem_count:
            return None
        task = user_task(y, loss) if loss else None
        by_position = y.dtype == torch.int64 and y.dim() == 2 and (task is None or task.by_position)
        is_loss_named = isinstance(task, UserLoss)
        has_labels = by_position or _are_labels(y) or is_loss_named
        if not has_labels:
            hint = WITH_LOSS if y.is_floating_point() or y.dim() > 1 else ""
            found_text = f"{y.dtype} of shape {tuple(y.shape)}{hint}"
            self.problems.append(
                f"{names[1]}: expected int64 labels of shape (N,), or (N, T) for tokens, found {found_text}"
            )
        if len(x) != len(y) or not len(y):
            self.problems.append(f"{names[0]}: expected one row per label, found {len(x)} rows for {len(y)} labels")
        has_rows = len(x) == len(y) > 0
        if x.device != y.device:
            self.problems.append(f"{names[1]}: expected the device of the input ({x.device}), found {y.device}")
        problem_count = len(self.problems)
        self._input(network, x, names[0])
        is_readable = has_rows and network is not None and len(self.problems) == problem_count
        if is_loss_named:
            return self._outputs_of_loss(network, x, y, names, task) if is_readable else None
        shape = y.shape if by_position else x.shape[:1]
        classes = self._classes(network, x, names[0], shape, loss) if is_readable else None
        if has_labels and len(y):
            self._range(y[y != IGNORED] if by_position else y, classes, names[1])
        return classes

    def classes(self, labels: Iterable[Tensor], name: str) -> None:
        """Add a warning to `doubts` if all batches together have only one sample or one class.

        Invalid labels are ignored, because `batch` reports invalid labels.
        """
        tensors = [batch for batch in labels if isinstance(batch, Tensor) and batch.dim()]
        label_batches = [numbers for numbers in map(class_numbers, tensors) if numbers is not None]
        distinct_labels = {label for batch in label_batches for label in batch.unique().tolist()}
        if sum(map(len, label_batches)) == 1:
            self.doubts.append(f"{name}: found only one sample, so every median is the value of this sample")
        elif len(distinct_labels) == 1:
            self.doubts.append(
                f"{name}: found labels of only one class, {next(iter(distinct_labels))}; "
                "the gradient over samples of one class is a poor reference"
            )

    def batches(self, eval_batches: Any) -> dict[int, Batch]:
        """Return a mapping: index in the iterable → pair (x, y).

        An element that is not a pair, equal batches, and an empty iterable are added to the problems.
        """
        if isinstance(eval_batches, Tensor) or not isinstance(eval_batches, Iterable):
            self.problems.append(f"eval_batches: expected an iterable of (x, y), found {_kind(eval_batches)}")
            return {}
        pairs: dict[int, Batch] = {}
        entries = list(eval_batches)
        for index, pair in enumerate(entries):
            if isinstance(pair, (tuple, list)) and len(pair) == 2:
                pairs[index] = (pair[0], pair[1])
            else:
                self.problems.append(f"eval_batches[{index}]: expected a pair (x, y), found {_kind(pair)}")
        if not entries:
            self.problems.append("eval_batches: expected at least one batch (x, y), found none")
        first_indices: dict[tuple[torch.Size, str], int] = {}
        for index, (x, _) in pairs.items():
            if isinstance(x, Tensor) and x.dim():
                values = x.detach().cpu().contiguous().view(torch.uint8).numpy()
                earlier = first_indices.setdefault((x.shape, hashlib.sha256(values).hexdigest()), index)
                if earlier != index:  # equal batches always give equal results
                    self.problems.append(
                        f"eval_batches: expected disjoint batches, but batches {earlier} and {index} are equal"
                    )
        return pairs

    def _input(self, network: nn.Module | None, x: Tensor, name: str) -> None:
        if x.is_floating_point() and not x.isfinite().all():
            self.problems.append(f"{name}: expected finite numbers, found inf or nan")
        weights = [] if network is None else [weight for weight in network.parameters() if weight.is_floating_point()]
        dtypes, devices = {weight.dtype for weight in weights}, {weight.device for weight in weights}
        if x.is_floating_point() and dtypes - {x.dtype}:
            expected = ", ".join(sorted(str(dtype) for dtype in dtypes))
            self.problems.append(f"{name}: expected the dtype of the model's parameters ({expected}), found {x.dtype}")
        if devices - {x.device}:
            expected = ", ".join(sorted(str(device) for device in devices))
            self.problems.append(f"{name}: expected the device of the model ({expected}), found {x.device}")

    def _outputs(self, network: nn.Module, x: Tensor, name: str, output_range: OutputRange) -> Any:
        """Return what the network returns for this input, or None if it cannot process the input."""
        try:
            with running_eagerly(network), output_range:
                if self.traits is None:
                    outputs, self.traits = passes_with_traits(network, x)
                    self.doubts += self.traits.remarks
                else:
                    outputs, _ = eval_pass(network, x)
                return outputs
        except Exception as error:
            hint = KEYWORDS if isinstance(error, TypeError) else ""  # Python's error for arguments that do not fit
            self.problems.append(f"{name}: the model fails on this input: {type(error).__name__}: {error}{hint}")
            self.cause = error
            return None

    def _outputs_of_loss(
        self, network: nn.Module, x: Tensor, y: Tensor, names: tuple[str, str], task: UserLoss
    ) -> int | None:
        """Return the number of outputs of a sample or position, or None if it is unknown.

        Outputs and targets that do not fit the loss are added to the problems.
        """
        problem_count = len(self.problems)
        outputs = self._outputs(network, x, names[0], OutputRange())
        if len(self.problems) > problem_count:
            return None
        if not isinstance(outputs, Tensor) or outputs.shape[:1] != x.shape[:1] or not outputs.is_floating_point():
            found_text = f"{outputs.dtype} {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else _kind(outputs)
            hint = LOGITS if hasattr(outputs, "logits") else ""
            self.problems.append(f"model: expected outputs ({len(x)}, …), found {found_text}{hint}")
            return None
        for name, problem in zip(("loss", names[1]), task.misfits(outputs, y), strict=True):
            self.problems += [f"{name}: {problem}"] if problem else []
        return outputs.shape[-1] if outputs.dim() > 1 else 1

    def _classes(self, network: nn.Module, x: Tensor, name: str, shape: torch.Size, loss: Loss) -> int | None:
        """Return the number of outputs of the network, or None if it cannot process the input.

        Without a loss, outputs that cannot be logits are added to the problems. `shape` is the expected shape of the logits
        without their last dimension.
        """
        problem_count, output_range = len(self.problems), OutputRange()
        logits = self._outputs(network, x, name, output_range)
        if len(self.problems) > problem_count:
            return None
        if not isinstance(logits, Tensor) or logits.shape[:-1] != shape or logits.shape[-1] < 2:
            found_text = tuple(logits.shape) if isinstance(logits, Tensor) else _kind(logits)
            is_one_hot = isinstance(logits, Tensor) and logits.shape == shape  # y has the shape of the outputs
            hint = LOGITS if hasattr(logits, "logits") else WITH_LOSS if is_one_hot else ""
            if isinstance(logits, Tensor) and not hint and (logits.dim(), len(shape)) in ((2, 2), (3, 1)):
                hint = LAST_TOKEN
            self.problems.append(
                f"model: expected logits ({', '.join(map(str, shape))}, at least 2 classes), found {found_text}{hint}"
            )
            return None
        if not loss and not isinstance(network, Network) and (problem := _no_logits(logits, output_range)):
            self.problems.append(problem)
        return logits.shape[-1]

    def _range(self, y: Tensor, classes: int | None, name: str) -> None:
        if not len(y):
            self.problems.append(
                f"{name}: expected at least one label that counts, found only {IGNORED}, which marks positions that do not count"
            )
            return
        lowest, highest = y.min().item(), y.max().item()
        if lowest < 0 or (classes is not None and highest >= classes):
            expected = (
                "labels from 0 on" if classes is None else f"labels 0..{classes - 1}, one for each output of the model"
            )
            self.problems.append(f"{name}: expected {expected}, found {lowest} to {highest}")


def _no_logits(outputs: Tensor, output_range: OutputRange) -> str:
    """Return why the outputs of a network cannot be logits, or an empty string."""
    low, high = output_range.of(outputs)
    if are_probabilities(outputs) and not output_range.is_product(outputs):
        return NOT_LOGITS.format(found="rows from 0 to 1 that add up to 1", advice=FOR_PROBABILITIES)
    if low < -1 or high > 1:
        return ""
    names = "loss='bce' or loss='mse'" if low >= 0 else "loss='mse'"
    found_text = f"outputs that the last operations of the model limit to {low:g} to {high:g}"
    return NOT_LOGITS.format(found=found_text, advice=FOR_LIMITED.format(names=names))


def _are_labels(y: Any) -> bool:
    return isinstance(y, Tensor) and y.dim() == 1 and y.dtype == torch.int64


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (tuple, list)) else "")
