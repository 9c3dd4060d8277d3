"""A GPU without a card: its tensors have no numbers, and each of its rules raises where CUDA would wait, fail or race.

A tensor of this device is one of torch's meta device that says it is on cuda:0, so the CUDA branches run as they are. The stand-ins
for streams, graphs and generators keep the order of all work: `events` is what happened, and a stream or the host that reads what
another stream wrote, without having waited for it, raises Race.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

CARD = torch.device("cuda", 0)
META = torch.device("meta")
NOT_PERMITTED = "operation not permitted when stream is capturing"
READS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__", "__array__")
SCALARS = (bool, int, float, str, torch.dtype, torch.layout, torch.device, torch.memory_format)
LAYOUTS: dict[Any, Any] = {}
COPIES = ("copy_", "_to_copy")
_CPU_GENERATOR = torch.Generator


class Fault(AssertionError):
    """Something that CUDA refuses, or that makes a host wait where it must not. No library code catches it."""


class MixedDevices(Fault):
    """An operation, or the generator of its random numbers, is not on the device of its tensors."""


class Wait(Fault):
    """The host waits for the card."""


class Race(Fault):
    """A stream or the host reads what another stream wrote, without having waited for it."""


class Stream:
    """A queue of work. seen: by other stream, how much of its work is over before the next work of this one."""

    def __init__(self, device: object = None, gpu: VirtualGpu | None = None, name: str = "own"):
        self.gpu, self.name, self.tick, self.seen = gpu or VirtualGpu.present, name, 0, {}

    def wait_stream(self, other: Stream) -> None:
        if other is not self:
            self.gpu.events.append(f"{self.name} waits for {other.name}")
            self.learn(other)

    def synchronize(self) -> None:
        self.gpu.events.append(f"host waits for {self.name}")
        self.gpu.host.learn(self)

    def learn(self, other: Stream) -> None:
        """All that `other` was given so far, and what it waited for, is over before what comes next here."""
        for stream, tick in {**other.seen, other: other.tick}.items():
            self.seen[stream] = max(self.seen.get(stream, 0), tick)

    def knows(self, written: tuple[Stream, int]) -> bool:
        return written[0] is self or self.seen.get(written[0], 0) >= written[1]


class Generator(_CPU_GENERATOR):
    """A generator that says it is on the card: torch has none for tensors without numbers."""

    def __new__(cls, device: object = "cpu") -> Generator:
        made = super().__new__(cls)
        made.of = torch.device(device)
        return made

    @property
    def device(self) -> torch.device:
        return self.of

    def clone_state(self) -> Generator:
        return self

    def graphsafe_set_state(self, state: Generator) -> None:
        VirtualGpu.present.events.append("generator comes back")


class Graph:
    """What a capture recorded: the memory that the work reads and writes. `generators` are those that may draw in it."""

    def __init__(self):
        self.gpu, self.generators, self.read, self.written = VirtualGpu.present, [], set(), set()
        self.is_complete = False
        weakref.finalize(self, self.gpu.events.append, "release")

    def register_generator_state(self, generator: Generator) -> None:
        if generator.device != CARD:
            raise MixedDevices("a graph registers generators of the card alone")
        self.generators.append(generator)

    def replay(self) -> None:
        if not self.is_complete or self.gpu.capturing:
            raise Fault("only a complete graph can be replayed, and not in a capture")
        self.gpu.events.append(f"replay on {self.gpu.stream.name}")
        self.gpu.do(self.read, self.written)


class VirtualGpu(TorchFunctionMode):
    """The card while its context is active. `host` is the process as a reader of what streams wrote."""

    present: VirtualGpu

    def __init__(self, patch: pytest.MonkeyPatch):
        super().__init__()
        VirtualGpu.present = self
        self.events: list[str] = []
        self.host, self.default = Stream(gpu=self, name="host"), Stream(gpu=self, name="default")
        self.stream, self.capturing, self.debug_mode, self.may_wait = self.default, None, 0, True
        self.writers: dict[int, tuple[Stream, int]] = {}
        self.pinned: dict[int, Tensor] = {}  # kept, so that no other tensor has their memory
        self.draws: set[str] = set()
        self.dispatch = _Dispatch(self)
        stands_in = {
            "Stream": Stream,
            "CUDAGraph": Graph,
            "graph": self.capture,
            "stream": self.on_stream,
            "current_stream": lambda device=None: self.stream,
            "current_device": lambda: 0,
            "is_available": lambda: True,
            "is_current_stream_capturing": lambda: self.capturing is not None,
            "get_sync_debug_mode": lambda: self.debug_mode,
            "set_sync_debug_mode": lambda mode: setattr(self, "debug_mode", mode),
            "get_device_name": lambda device=None: "virtual",
            "get_device_properties": lambda device=None: SimpleNamespace(total_memory=2**40),
        }
        for name, value in stands_in.items():
            patch.setattr(torch.cuda, name, value)
        patch.setattr(torch, "Generator", Generator)

    def __enter__(self) -> VirtualGpu:
        super().__enter__()
        self.dispatch.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.dispatch.__exit__(*error)
        super().__exit__(*error)

    @contextmanager
    def on_stream(self, stream: Stream) -> Iterator[None]:
        previous, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = previous

    @contextmanager
    def capture(self, graph: Graph, stream: Stream | None = None) -> Iterator[None]:
        if self.capturing or self.stream is self.default or stream is not self.stream:
            raise Fault("a capture is on the current stream, not CUDA's default one, and never in another capture")
        self.events.append("capture")
        self.capturing = graph
        try:
            yield
            graph.is_complete = True
        finally:
            self.capturing = None

    @contextmanager
    def without_waits(self) -> Iterator[None]:
        """Where the host must not wait for the card."""
        self.may_wait = False
        try:
            yield
        finally:
            self.may_wait = True

    def wait(self, why: str) -> None:
        """The host waits for the current stream, if it may."""
        if self.capturing:
            raise RuntimeError(f"{NOT_PERMITTED}: {why}")
        if not self.may_wait:
            raise Wait(why)
        if self.debug_mode == "warn":
            warnings.warn(f"called a synchronizing CUDA operation: {why}", stacklevel=3)
        self.host.learn(self.stream)

    def do(self, read: Iterable[int], written: Iterable[int]) -> None:
        """The current stream reads and writes this memory."""
        if self.capturing:
            self.capturing.read |= {*read} - self.capturing.written
            self.capturing.written |= {*written}
            return
        for memory in read:
            self.check(memory, self.stream)
        self.stream.tick += 1
        self.writers |= dict.fromkeys(written, (self.stream, self.stream.tick))

    def writer(self, tensor: Tensor) -> Stream:
        """The stream that last wrote to this tensor."""
        return self.writers[_memory(tensor)][0]

    def check(self, memory: int, reader: Stream) -> None:
        writer = self.writers.get(memory)
        if writer and not reader.knows(writer):
            raise Race(f"{reader.name} reads what {writer[0].name} wrote")

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        if name == "__get__":
            return self._attribute(func, args)
        if func is torch.device:
            return func(*args, **kwargs)
        first = args[0] if args else None
        if name in READS and isinstance(first, Tensor) or name == "to" and first.is_meta and _names_cpu(args, kwargs):
            return self._read(func, name, args, kwargs)
        if name == "pin_memory" or kwargs.pop("pin_memory", False):
            made = first.clone() if name == "pin_memory" else func(*args, **kwargs)
            self.pinned[_memory(made)] = made
            self.writers.pop(_memory(made), None)
            return made
        if name == "tensor" and _is_card(kwargs.get("device")):
            self.wait("a tensor made of numbers of the host")
        args, kwargs = tuple(map(_to_meta, args)), {key: _to_meta(value) for key, value in kwargs.items()}
        result = func(*args, **kwargs)
        if name == "tensor" and result.is_meta:  # the dispatcher does not see it
            self.do([], [_memory(result)])
        if isinstance(draw := kwargs.get("generator"), Generator):
            self._check_draw(name, draw, result)
        return result

    def _attribute(self, func: Callable, args: Any) -> Any:
        value = func(*args)
        attribute = func.__self__.__name__
        if attribute == "device" and value == META:
            return CARD
        if attribute in ("is_cuda", "is_meta"):
            return args[0].is_meta and attribute == "is_cuda"
        return value

    def _read(self, func: Callable, name: str, args: Any, kwargs: Any) -> Any:
        """The value of a tensor on the host, which has none: see _invented."""
        tensor = args[0]
        if not tensor.is_meta:
            if _memory(tensor) in self.pinned:
                self.check(_memory(tensor), self.host)
            return func(*args, **kwargs)
        self.wait(f"{name} of a tensor on the card")
        self.check(_memory(tensor), self.stream)
        if name in ("numpy", "__array__"):
            raise MixedDevices("numpy reads no memory of the card")
        return func(_invented(tensor), *args[1:], **kwargs)

    def _check_draw(self, name: str, generator: Generator, result: Tensor) -> None:
        self.draws.add(name)
        if (generator.device == CARD) != result.is_meta:
            raise MixedDevices(f"{name} on {result.device} draws from a generator on {generator.device}")
        if self.capturing and not any(generator is one for one in self.capturing.generators):
            raise RuntimeError(f"{NOT_PERMITTED}: {name} with a generator that the graph does not know")


class _Dispatch(TorchDispatchMode):
    """Sees every operation, those of a backward pass too."""

    def __init__(self, gpu: VirtualGpu):
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [*_tensors((args, tuple(kwargs.values())))]
        name = func.overloadpacket.__name__
        with torch._C.DisableTorchFunction():
            if name == "copy_" and args[1].is_meta and not args[0].is_meta:
                return self._copy_out(*args, **kwargs)
            is_optimizer = (
                name.startswith("_fused_") and given[0].is_meta
            )  # torch has no such operation without numbers
            try:
                result = None if is_optimizer else _result(func, args, kwargs)
            except RuntimeError as error:  # NotImplementedError is one
                if "meta" not in str(error).lower() or not any(tensor.is_meta for tensor in given):
                    raise
                self.gpu.wait(f"{func}, whose result depends on numbers")
                result = _of_invented(func, args, kwargs)
            returned = [*_tensors(result)]
            for tensor in given if name != "copy_" else ():
                if not tensor.is_meta and _memory(tensor) in self.gpu.pinned:
                    self.gpu.check(_memory(tensor), self.gpu.host)
            if any(tensor.is_meta for tensor in (*given, *returned)):
                self._note(name, func, args, kwargs, given, returned)
        return result

    def _copy_out(self, to: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if not (non_blocking and _memory(to) in self.gpu.pinned):
            self.gpu.wait("a copy to memory that is not pinned")
        self.gpu.do([_memory(source)], [_memory(to)])
        return to

    def _note(self, name: str, func: Any, args: Any, kwargs: Any, given: list[Tensor], returned: list[Tensor]) -> None:
        # torch's forward mode has a zero on the CPU that no kernel reads
        outside = [tensor for tensor in given if not tensor.is_meta and not tensor._is_zerotensor()]
        if outside and name in COPIES:
            non_blocking = kwargs.get("non_blocking", args[2] if name == "copy_" and len(args) > 2 else False)
            if not (non_blocking and all(_memory(tensor) in self.gpu.pinned for tensor in outside)):
                self.gpu.wait("a copy from memory that is not pinned")
        elif outside:
            raise MixedDevices(f"{func} on the card has a tensor of the CPU, {tuple(outside[0].shape)}")
        read = {_memory(tensor) for tensor in given if tensor.is_meta}
        written = {_memory(tensor) for tensor in returned} - read
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info and argument.alias_info.is_write:
                written |= {_memory(tensor) for tensor in _tensors(value)}
        self.gpu.do(read, written)


def _result(func: Any, args: Any, kwargs: Any) -> Any:
    """func(*args, **kwargs), whose layout is computed once: torch computes it in Python, which takes half a millisecond."""
    in_place = func._schema.name.endswith("_") and func._schema.arguments[0].alias_info
    if not in_place and any(one.alias_info for one in (*func._schema.arguments, *func._schema.returns)):
        return func(*args, **kwargs)  # a view, which takes torch no time
    try:
        key = func, _described(args), _described(tuple(kwargs.items()))
    except TypeError:
        return func(*args, **kwargs)
    if key not in LAYOUTS:
        result = func(*args, **kwargs)
        parts = [result] if isinstance(result, Tensor) else result
        if not isinstance(parts, list | tuple) or not all(part is None or _is_plain(part) for part in parts):
            return result
        layouts = [None if part is None else (part.shape, part.stride(), part.dtype) for part in parts]
        LAYOUTS[key] = layouts, None if parts is not result else type(result)
        return result
    if in_place:
        return args[0]
    layouts, kind = LAYOUTS[key]
    made = [one and torch.empty_strided(one[0], one[1], dtype=one[2], device=META) for one in layouts]
    return kind(made) if kind else made[0]


def _of_invented(func: Any, args: Any, kwargs: Any) -> Any:
    """func(*args, **kwargs) of invented numbers; tensors of the result are on the card again."""
    values, named = tree_map_only(Tensor, lambda one: _invented(one) if one.is_meta else one, (list(args), kwargs))
    return tree_map_only(Tensor, lambda one: one.to(META), func(*values, **named))


def _invented(tensor: Tensor) -> Tensor:
    """Numbers on the host for a tensor of the card, which has none: 1 or true, so that all is finite and counts."""
    return torch.ones_like(tensor, device="cpu")


def _is_plain(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_meta and not value._is_zerotensor()


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in arguments or results."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _described(value: Any) -> Any:
    """What a result's layout depends on.

    Raises:
        TypeError: the layout can depend on more, such as a random generator.
    """
    if isinstance(value, Tensor):
        return (value.shape, value.stride(), value.dtype, value.is_meta, value._is_zerotensor())
    if isinstance(value, list | tuple):
        return tuple(map(_described, value))
    if value is None or isinstance(value, SCALARS):
        return (type(value), value)
    raise TypeError(type(value))


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _is_card(value: object) -> bool:
    return isinstance(value, torch.device | str) and str(value).startswith("cuda")


def _to_meta(value: Any) -> Any:
    return META if _is_card(value) else value


def _names_cpu(args: Any, kwargs: Any) -> bool:
    return any(str(value) == "cpu" for value in (*args[1:], *kwargs.values()) if isinstance(value, torch.device | str))
