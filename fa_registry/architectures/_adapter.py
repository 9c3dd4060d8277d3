"""adapt: observe a third-party model with forward hooks, without changing its forward pass.

Each forward pass checks the declared position of the skip. The published code had no such check, and therefore measured gradients
of a wrong network for ViT and ResNet.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry.architectures._received_states import (
    declared_states,
    first_misfit,
    is_seen_as,
    is_seen_at_readout,
)
from fa_registry.architectures._site_names import advice, is_container
from fa_registry.architectures._stream import norm_name
from fa_registry.errors import InvalidFields, UsageError, unknown_name_text
from fa_registry.tasks._user_loss import Loss, loss_problem

SKIPS = ("outside", "inside", "none")
UNUSED_STATE = "the function `state` of adapt was not used, because every site returns a tensor"
GRADIENTS = ("backward", "forward")  # the sources of the reference gradient, see adapt
# Tolerance in roundings of the largest value, because the model may add h and f in a fused operation. A larger tolerance would
# accept a wrong h if f has exploded.


@dataclass(frozen=True)
class ModelIO:
    """Functions that convert the inputs and outputs of a third-party model.

    If a function is None, the tensor that the model or the block receives or returns is used unchanged.

    Attributes:
        inputs: Function from x to the arguments of the model. A mapping is passed as keyword arguments.
        output: Function from the return value of the model to the logits.
        state: Function from the return value of a block to one tensor in it: the state, or the residual branch if the model adds
            the skip outside the block. It is used only if the block returns anything but a tensor.
    """

    inputs: Callable[[Tensor], Any] | None = None
    output: Callable[[Any], Tensor] | None = None
    state: Callable[[Any], Tensor] | None = None


class AdaptedNetwork(nn.Module):
    """Third-party model whose chain of blocks is observed at sites 0..L; created by `adapt`.

    Args:
        sites: Paths of the modules whose outputs are h_1..h_L.
        skip: "outside", "inside" or "none". An empty string becomes "none" or "outside" in the first pass.
        readout: Path of the module that receives h_L, or an empty string.
        reads: Functions that convert inputs and outputs.
        gradient: Source of the reference gradient, "backward" or "forward".
        loss: Loss of the model, as for `adapt`; an empty string if none was named.
        stream: Name of the norm at the end of each site, as for `adapt`.
    """

    def __init__(
        self,
        model: nn.Module,
        sites: Sequence[str],
        skip: str,
        readout: str,
        reads: ModelIO | None = None,
        gradient: str = "backward",
        loss: Loss = "",
        stream: str = "",
    ):
        super().__init__()
        self.model = model
        self.stream = stream
        self.sites = tuple(sites)
        self.skip = skip or "none"
        self.is_skip_open = not skip
        self.readout = readout
        self.reads = reads or ModelIO()
        self.gradient = gradient
        self.loss = loss
        self.is_state_used: bool | None = None  # None before a pass

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about arguments of `adapt` that no pass has used."""
        return (UNUSED_STATE,) if self.reads.state and self.is_state_used is False else ()

    def __repr__(self) -> str:
        """Return one line; the repr of `model` lists the modules."""
        return f"AdaptedNetwork({type(self.model).__name__}, sites: {len(self.sites)}, skip: {self.skip})"

    def forward(
        self, x: Tensor, return_hidden: bool = False, shifts: Sequence[Tensor] | None = None
    ) -> Tensor | tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return the logits. With return_hidden, also return the states h_0..h_L and their root tensors.

        The loss is differentiated with respect to the root tensors. If the model adds the skip outside a block, no hook receives
        the tensor h_l. The root tensor of h_l is then the block's output f_l, because ∂ℓ/∂f_l = ∂ℓ/∂h_l for h_l = h_{l-1} + f_l.

        Args:
            x: Inputs (batch, …).
            return_hidden: Whether to return states and root tensors.
            shifts: L+1 tensors that are added to the states h_0..h_L, each with the shape of its state. If shifts are passed, the
                declared sites and skip are not checked.
        """
        if not return_hidden:
            return self._logits(x)
        flow = _Flow(self.sites, self.reads.state, self.skip, shifts)
        with flow.watching(self.model, self.readout), running_eagerly(self.model):
            logits = self._logits(x.clone())  # a model may write into its input, and a leaf cannot be written into
        if shifts is None:
            flow.check_runs()
            self._resolve(flow)
            self.is_state_used = flow.is_state_used or bool(self.is_state_used)
        states = declared_states(flow, self.sites, self.skip)
        if shifts is None:
            self._check(flow, states)
            flow.check_in_place()
        return logits, states, [flow.entry, *(flow.roots[name] for name in self.sites)]

    def site_calls(self) -> Iterator[tuple[int, nn.Module, int, str]]:
        """Yield tuples (site, module, number of its call, name of its norm); see `_stream.SiteCalls`."""
        for site, name in enumerate(self.sites, start=1):
            path, call = path_and_call(name)
            module = self.model.get_submodule(path)
            yield site, module, call or 1, self.stream or norm_name(module)

    def _resolve(self, flow: _Flow) -> None:
        """Set the skip to "outside" if the first pass shows residual branches."""
        if self.is_skip_open:
            fits_skip = {skip: self._misfit(flow, skip) is None for skip in ("outside", "inside")}
            if fits_skip["outside"] and not fits_skip["inside"] and (len(self.sites) > 1 or flow.readout is not None):
                self.skip = "outside"
            self.is_skip_open = False

    def _misfit(self, flow: _Flow, skip: str) -> tuple[str, int] | None:
        return first_misfit(flow, self.sites, declared_states(flow, self.sites, skip))

    def _logits(self, x: Tensor) -> Any:
        model_inputs = self.reads.inputs(x) if self.reads.inputs else x
        returned = self.model(**model_inputs) if isinstance(model_inputs, Mapping) else self.model(model_inputs)
        return self.reads.output(returned) if self.reads.output else returned

    def _check(self, flow: _Flow, states: Sequence[Tensor]) -> None:
        """Raise UsageError if block l+1 or the readout does not receive the declared h_l."""
        if self.skip == "none":
            return
        if len(self.sites) == 1 and not is_seen_at_readout(flow, states[-1]):
            raise UsageError(
                f"adapt: expected `readout` to name the module that receives h_1, found {self.readout or 'none'!r}; with one "
                f"site, skip={self.skip!r} can only be checked at the readout"
            )
        misfit = self._misfit(flow, self.skip)
        if misfit is None:
            return
        other_skip = SKIPS[1 - SKIPS.index(self.skip)]
        other_fits = self._misfit(flow, other_skip) is None
        if misfit[0] == flow.readout_name and not self.readout and len(self.sites) > 1:
            # an undeclared readout shows only a wrong skip of the last block: a function may change h_L before this module
            last = self.sites[-1]
            other_state = flow.outputs[last] + (flow.inputs[last] if self.skip == "inside" else 0)
            if not is_seen_as(flow.readout, other_state):
                return
        raise UsageError(
            f"adapt: skip={self.skip!r} was declared, but the input of {misfit[0]} differs from the h_{misfit[1]} of this skip; "
            + (
                f"declare skip={other_skip!r}"
                if other_fits
                else "neither skip='outside' nor skip='inside' fits; skip='none' allows modules at any position and "
                "uses their outputs as the states"
            )
        )


class _Flow:
    """Tensors of one forward pass at the sites: copies of the states, and root tensors for gradients.

    The blocks receive clones, so in-place operations of the model do not change the recorded tensors. `bypassed` is true if the
    skip is not "inside". In this case the model may also use h_0 outside block 1. The root tensor of h_0 is then the model's tensor
    and not a clone, and its version counter shows whether the model changed it in place.
    """

    def __init__(
        self,
        sites: Sequence[str],
        state: Callable[[Any], Tensor] | None,
        skip: str,
        shifts: Sequence[Tensor] | None = None,
    ):
        self.sites = sites
        self.state = state
        self.is_state_used = False  # whether a site returned anything but a tensor
        self.bypassed = skip != "inside"
        self.skip = skip
        self.shifts = shifts
        self.calls: dict[str, int] = {}
        self.order: list[str] = []
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self.roots: dict[str, Tensor] = {}
        self.runs = dict.fromkeys(sites, 0)
        self.handed: dict[str, tuple[Tensor, int]] = {}
        self.entry: Tensor | None = None
        self.entry_version = 0
        self.readout: Tensor | None = None
        self.declared = self.readout_name = ""

    @contextmanager
    def watching(self, model: nn.Module, readout: str) -> Iterator[None]:
        """Context manager: record the input and output of every site in a forward pass of `model`.

        The forward hooks are removed on exit.

        Args:
            readout: Path of the module that receives h_L, or an empty string if the module is unknown.

        Raises:
            AttributeError: If a site is not the path of a module.
        """
        self.declared = self.readout_name = readout
        with ExitStack() as hooks:
            # the readout first: it may be a site's module, whose input must be recorded before it is cloned
            for name, module in model.named_modules():
                if readout in ("", name):  # the model itself, whose name is empty, starts before the sites
                    hooks.callback(module.register_forward_pre_hook(partial(self._at_readout, name)).remove)
            for name in dict.fromkeys(path_and_call(site)[0] for site in self.sites):
                module = model.get_submodule(name)
                pre_hook = module.register_forward_pre_hook(partial(self._before, name), with_kwargs=True)
                hooks.callback(pre_hook.remove)
                hooks.callback(module.register_forward_hook(partial(self._after, name)).remove)
            yield

    def _site(self, name: str) -> str | None:
        """Return the site of the current call of a module, or None if this call is not a site."""
        numbered_name = f"{name}#{self.calls[name]}"
        return numbered_name if numbered_name in self.sites else name if name in self.sites else None

    def check_runs(self) -> None:
        """Check that every site ran exactly once, and in the declared order.

        Raises:
            UsageError: If a site did not run, ran more than once, or ran in another order.
        """
        for name, runs in self.runs.items():
            if runs != 1:
                path, _ = path_and_call(name)
                calls = self.calls.get(path, 0)
                numbers = ", ".join(f"{path}#{call}" for call in range(1, calls + 1))
                advice = (
                    f"name one of these calls as the site: {numbers}" if calls else "remove this name from the sites"
                )
                raise UsageError(f"adapt: {name}: expected one call in a forward pass, found {runs}; {advice}")
        if self.order != list(self.sites):
            actual_order = ", ".join(self.order)
            raise UsageError(
                f"adapt: sites: expected the sites in the order in which the forward pass calls them: {actual_order}; change "
                "the order"
            )

    def check_in_place(self) -> None:
        """Check that the model changed no uncloned tensor of the residual stream in place.

        Raises:
            UsageError: If the model changed such a tensor.
        """
        advice = "write h = h + block(h) instead of h += block(h), and avoid other in-place operations on this tensor"
        if not self.bypassed:
            return
        if self.entry._version != self.entry_version:
            raise UsageError(
                f"adapt: the input of {self.sites[0]} was changed in place after the block received this tensor; {advice}"
            )
        for name, (passed_tensor, version) in self.handed.items():
            if passed_tensor._version != version:
                chain = ", or declare skip='inside' if only the block uses this tensor" if self.skip == "none" else ""
                raise UsageError(
                    f"adapt: {name} changes its input in place, and the skip uses the same tensor; {advice}{chain}"
                )

    def _before(
        self, name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Record the state that a site receives, and pass a clone of the state to the site.

        The state is the first floating-point tensor of the positional arguments. If the positional arguments contain no such
        tensor, the state is the first floating-point tensor of the keyword arguments.
        """
        self.calls[name] = self.calls.get(name, 0) + 1
        site = self._site(name)
        if site is None:
            return args, kwargs
        arguments: dict[int | str, Any] = {**dict(enumerate(args)), **kwargs}
        key = next(
            (
                key
                for key, argument in arguments.items()
                if isinstance(argument, Tensor) and argument.is_floating_point()
            ),
            None,
        )
        if key is None:
            found_kinds = ", ".join(
                str(argument.dtype) if isinstance(argument, Tensor) else _kind(argument)
                for argument in arguments.values()
            )
            raise UsageError(
                f"adapt: {site}: expected a floating-point tensor among the inputs, found {found_kinds or 'none'}; select a module "
                "after the embedding"
            )
        state = arguments[key]
        if site == self.sites[0]:
            state = self._entered(site, state)
        self.inputs[site] = state.detach().clone()
        passed_tensor = state.clone()
        self.handed[site] = (passed_tensor, passed_tensor._version)
        return tuple(passed_tensor if position == key else argument for position, argument in enumerate(args)), {
            name: passed_tensor if name == key else argument for name, argument in kwargs.items()
        }

    def _entered(self, site: str, state: Tensor) -> Tensor:
        """Record h_0, and add its shift if there are shifts."""
        self.entry = state if self.bypassed else state.clone()
        if self.shifts is not None:
            if self.bypassed and any(
                step == 0 and size > 1 for step, size in zip(state.stride(), state.shape, strict=True)
            ):
                raise UsageError(
                    f"adapt: {site}: expected an input h_0 whose entries do not share memory, found an expanded tensor; write "
                    ".clone() after .expand() in the model"
                )
            is_cut = self.entry.is_leaf and self.entry.requires_grad  # torch allows no in-place change of such a state
            with torch.set_grad_enabled(torch.is_grad_enabled() and not is_cut):
                self.entry.add_(self.shifts[0])  # in place, so that a skip around the block adds the shifted h_0
        _require_gradient(self.entry)
        self.entry_version = self.entry._version
        return self.entry

    def _after(self, name: str, _: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        site = self._site(name)
        if site is None:
            return output
        self.is_state_used |= not isinstance(output, Tensor)
        state = self.state(output) if self.state and not isinstance(output, Tensor) else output
        if not isinstance(state, Tensor):
            hint = (
                "" if self.state else f"; to select the tensor that is the state, pass for example {_suggested(output)}"
            )
            raise UsageError(f"adapt: {name}: expected a tensor as output, found {_kind(state)}{hint}")
        if not state.is_floating_point():
            raise UsageError(
                f"adapt: {site}: expected a floating-point tensor as output, found {state.dtype}; select another site"
            )
        self.runs[site] += 1
        self.order.append(site)
        shifted = state if self.shifts is None else state + self.shifts[self.sites.index(site) + 1]
        _require_gradient(shifted)
        self.outputs[site] = shifted.detach().clone()
        self.roots[site] = shifted
        return _with(output, state, shifted.clone())

    def _at_readout(self, name: str, _: nn.Module, args: tuple[Any, ...]) -> None:
        """Record the input of the readout. By default, the readout is the first module after the last site."""
        if self.readout is None and args and isinstance(args[0], Tensor) and self.is_past_the_sites(name):
            self.readout, self.readout_name = args[0].detach().clone(), name

    def is_past_the_sites(self, name: str) -> bool:
        """Return whether a module may be the readout.

        If a readout is declared, only the declared module may be the readout. Otherwise, any module after the last site may be the
        readout.
        """
        return self.declared == name if self.declared else self.runs[self.sites[-1]] > 0


def _require_gradient(state: Tensor) -> None:
    if torch.is_grad_enabled() and not state.requires_grad:
        state.requires_grad_()


@contextmanager
def running_eagerly(model: nn.Module) -> Iterator[None]:
    """Context manager: run `model` uncompiled, because code compiled by torch.compile skips hooks."""
    compiled = any(hasattr(module, "_orig_mod") or module._compiled_call_impl is not None for module in model.modules())
    if not compiled:
        yield
        return
    with torch.compiler.set_stance("force_eager"), torch._dynamo.config.patch(error_on_nested_fx_trace=False):
        yield


def unwrapped(model: Any) -> tuple[Any, tuple[str, ...]]:
    """Remove the wrappers of torch.compile and of data parallelism from a model.

    Returns:
        The inner module, which shares its weights with the wrapped model, and the class names of the wrappers.
    """
    wrappers: list[str] = []
    while isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)) or hasattr(model, "_orig_mod"):
        wrappers.append(type(model).__name__)
        model = model._orig_mod if hasattr(model, "_orig_mod") else model.module
    return model, tuple(wrappers)


def _suggested(output: Any, parameter: str = "state") -> str:
    """Return source code of a function that reads the first tensor of an output."""
    if isinstance(output, Mapping):  # also an output of transformers, whose fields are attributes too
        key = next((key for key, value in output.items() if isinstance(value, Tensor)), "…")
        return f"{parameter}=lambda out: out[{key!r}]"
    if isinstance(output, (tuple, list)):
        position = next((index for index, value in enumerate(output) if isinstance(value, Tensor)), "…")
        return f"{parameter}=lambda out: out[{position}]"
    return f"{parameter}=lambda out: …"


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
    return f"a {type(value).__name__}"


def _with(output: Any, tensor: Tensor, replacement: Tensor) -> Any:
    """Return a copy of a block's output in which one tensor is replaced."""
    if output is tensor:
        return replacement
    if isinstance(output, Mapping):
        copied = copy.copy(output)
        for key, value in output.items():
            if value is tensor:
                copied[key] = replacement
        return copied
    value = [replacement if part is tensor else part for part in output]
    return type(output)(*value) if hasattr(output, "_fields") else type(output)(value)


def path_and_call(site: str) -> tuple[str, int]:
    """Split the name of a site into the path of a module and the number of a call.

    `layer#2` gives ("layer", 2), and `layer` gives ("layer", 0).
    """
    path, _, call = site.rpartition("#")
    return (path, int(call)) if path and call.isdecimal() else (site, 0)


def adapt(
    model: nn.Module,
    sites: Sequence[str] = (),
    skip: str = "",
    readout: str = "",
    inputs: Callable[[Tensor], Any] | None = None,
    output: Callable[[Any], Tensor] | None = None,
    state: Callable[[Any], Tensor] | None = None,
    *,
    gradient: str = "backward",
    loss: Loss = "",
    stream: str = "",
) -> AdaptedNetwork:
    """Return the model as a network that can be observed at the modules in `sites`.

    Args:
        model: The model. Wrappers of torch.compile and data parallelism are removed. The result uses the weights of your model,
            not copies.
        sites: Paths of the modules whose outputs are h_1..h_L, in the order in which the modules run. The path `layer#2` is the
            second call of `layer` in a forward pass. The state h_0 is the first floating-point tensor among the arguments of the
            first site. Function calls between the modules are allowed. By default, the sites are the modules in `model.blocks`.
        skip: "outside": the outputs are residual branches that the model adds to the stream, so h_l = h_{l−1} + output. "inside":
            the outputs are the states, and the only input of a site is the state of the previous site. "none": the outputs are the
            states of modules at any position. Every pass checks "outside" and "inside". The default is "outside" if `sites` is
            empty. Otherwise the default is "outside" if the first pass shows residual branches, and "none" if not.
        readout: Path of the module that receives h_L. The input of this module is compared with the output of the last block. The
            default is `out_ln`, `out_head`, or the module that runs after the last site.
        inputs: Function from x to the argument of the model. A dict is passed as keywords: `lambda x: {"input_ids": x}`.
        output: Function from the return value of the model to the logits, such as `lambda out: out.logits`.
        state: Function from the return value of a site to the tensor that is the state or branch, such as `lambda out: out[0]`.
        gradient: "backward" computes the reference gradient with the backward pass of the model, and checks it against finite
            differences of the loss. "forward" uses only the forward pass. Choose "forward" if layers have a custom backward pass
            or if the model detaches states.
        loss: Loss that trains the model: "cross_entropy" (of logits), "nll", "bce", "bce_with_logits", "mse", or a function
            (outputs, targets) that returns one loss per sample, (N,). The named losses are torch's with reduction="none",
            summed over the outputs of each sample: no mean over outputs, and no ½ for "mse". "nll" is −log of the target's
            probability, for outputs that are probabilities or log-probabilities. Targets are class numbers (N,), which mean
            one-hot rows of 0 and 1 for "bce" and "mse", or values in the shape of the outputs. Without a loss, the outputs
            are logits with the cross entropy, and outputs that cannot be logits are refused.
        stream: Name of the norm that ends each site, such as "norm2" in a post-LN encoder layer. ‖h‖ and its growth are then those
            of the norm's input, because the norm hides how far the stream has grown. The default is the attribute `stream` of
            the site's module, if the module has one.

    Raises:
        InvalidFields: If a name or value is wrong. The message lists all wrong values.
        UsageError: In the first forward pass: if `skip` is wrong, if a site does not run exactly once, or if the model changes the
            stream in place.
    """
    model, wrappers = unwrapped(model)
    is_listed = isinstance(sites, Iterable) and not isinstance(sites, (str, nn.Module))
    listed = list(sites) if is_listed else [sites]
    readout = _inside(readout, wrappers)
    names = tuple(_inside(name, wrappers) if isinstance(name, str) else name for name in listed)
    names = names or tuple(f"blocks.{index}" for index in range(len(getattr(model, "blocks", ()))))
    modules = dict(model.named_modules())
    reads = {"inputs": inputs, "output": output, "state": state}
    skip = skip or ("" if listed else "outside")
    problems = [*_wrong_sites(model, sites, names), *_wrong_arguments(readout, skip, gradient, modules, reads)]
    problems += [f"loss: {problem}"] if (problem := loss_problem(loss)) else []
    problems += [] if problems else [f"stream: {problem}" for problem in _wrong_streams(stream, names, modules)]
    if problems:
        raise InvalidFields("adapt", problems)
    model_io = ModelIO(**reads)
    return AdaptedNetwork(model, names, skip, readout or _default_readout(modules), model_io, gradient, loss, stream)


def _wrong_sites(model: nn.Module, sites: Any, names: Sequence[Any]) -> list[str]:
    """Return why the sites are wrong, with the argument to write instead.

    Args:
        sites: what the user passed.
        names: the same as a sequence, or the default names.
    """
    callable_names = {name for name, module in model.named_modules() if not is_container(module)}
    wrong = [name for name in names if not isinstance(name, str) or path_and_call(name)[0] not in callable_names]
    if isinstance(sites, str) or wrong or not names:
        found_texts = [name if isinstance(name, str) else f"a {type(name).__name__}" for name in wrong]
        found_text = f"the text {sites!r}" if isinstance(sites, str) and sites else ", ".join(found_texts)
        found_text = found_text or "none, and the model has no attribute `blocks`"
        expected = "a list with the names of the modules that return h_1 … h_L"
        return [f"sites: expected {expected}, found {found_text}; {advice(model, pointed_at=wrong or names)}"]
    return [f"sites: expected each site only once, found {', '.join(names)}"] if len(set(names)) < len(names) else []


def _wrong_arguments(
    readout: str,
    skip: str,
    gradient: str,
    modules: Mapping[str, nn.Module],
    reads: Mapping[str, Callable[..., Any] | None],
) -> list[str]:
    """Return one sentence for every argument of `adapt` that is wrong for these modules."""
    problems = [] if skip in ("", *SKIPS) else [f"skip: expected one of {', '.join(SKIPS)}, found {skip!r}"]
    problems += [] if gradient in GRADIENTS else [f"gradient: expected backward or forward, found {gradient!r}"]
    problems += (
        [f"readout: {unknown_name_text('module', readout, filter(None, modules))}"]
        if readout not in ("", *modules)
        else []
    )
    problems += [
        f"{name}: expected a function or None, found an object that cannot be called"
        for name, function in reads.items()
        if function is not None and not callable(function)
    ]
    return problems


def _wrong_streams(stream: str, names: Sequence[str], modules: Mapping[str, nn.Module]) -> Iterator[str]:
    """Yield a sentence for each site that has no module of the name `stream`."""
    for name in names if stream else ():
        site = path_and_call(name)[0]
        if site in modules and f"{site}.{stream}" not in modules:
            yield f"expected the name of a module of the site {site}, found {stream!r}"


def _inside(name: str, wrappers: Sequence[str]) -> str:
    """Remove the prefixes that wrappers add to the path of a module."""
    for _ in wrappers:
        name = name.removeprefix("module.").removeprefix("_orig_mod.")
    return name


def _default_readout(modules: Mapping[str, nn.Module]) -> str:
    return next((name for name in ("out_ln", "out_head") if name in modules), "")
