"""A CUDA that computes on the CPU and enforces CUDA's rules, so that the GPU path runs, with values, without a GPU.

Tensors on it report a CUDA device with its number and hold their values in a tensor on the CPU. What a GPU refuses is
refused here: operators over several devices, a device without its number where CUDA asks for one, host copies and
synchronization within a capture, a read of what another stream has written without waiting for that stream, more
memory than there is. What a GPU would silently get wrong fails too: a host tensor that is read before the copy to it
has been waited for, and results of a captured graph outside its replay.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn.attention import bias
from torch.utils._python_dispatch import TorchDispatchMode

ILLEGAL_ACCESS = "CUDA error: an illegal memory access was encountered"
aten = torch.ops.aten


class DeviceTensor(Tensor):
    """A tensor on a simulated device."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    held: Tensor
    cuda: SimulatedCuda

    @staticmethod
    def __new__(cls, values: Tensor, device: torch.device, cuda: SimulatedCuda) -> DeviceTensor:
        tensor: DeviceTensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, values.size(), values.stride(), values.storage_offset(), dtype=values.dtype, device=device
        )
        tensor.held, tensor.cuda = values, cuda
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        (cuda,) = {leaf.cuda for leaf in _flat((args, kwargs)) if isinstance(leaf, DeviceTensor)}
        return cuda.run(func, args, kwargs or {})

    def tolist(self) -> Any:  # torch's own takes no subclasses
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"DeviceTensor({self.held!r}, {self.device})"


@dataclass(eq=False)
class Stream:
    """Work in order; `waited` says up to which tick of each other stream it waits."""

    cuda: SimulatedCuda
    tick: int = 0
    waited: dict[Stream, int] = field(default_factory=dict)

    def wait_stream(self, other: Stream) -> None:
        self.waited[other] = other.tick

    def synchronize(self) -> None:
        self.cuda.wait_for(self)


@dataclass(eq=False)
class Event:
    """A place in a stream's work."""

    cuda: SimulatedCuda
    stream: Stream | None = None

    def record(self) -> None:
        self.stream = self.cuda._stream

    def synchronize(self) -> None:
        assert self.stream is not None, "the event has not been recorded"
        self.cuda.events += 1
        self.cuda.wait_for(self.stream)


@dataclass(eq=False)
class Graph:
    """What was recorded: each operator with its arguments and its results."""

    calls: list[tuple[Any, Any, Any, Any]] = field(default_factory=list)
    cuda: SimulatedCuda | None = None
    device: int = 0

    def replay(self) -> None:
        assert self.cuda is not None, "the graph has not been captured"
        self.cuda.replay(self)


class Decomposed(TorchDispatchMode):
    """Brings a simulated CUDA the operators that make tensors, and those on host tensors."""

    def __init__(self, cuda: SimulatedCuda) -> None:
        super().__init__()
        self._cuda = cuda

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._cuda.run(func, args, kwargs or {})


class Operators(Decomposed):
    """The same for a thread: in a `with`, or for as long as the thread lives."""

    def __enter__(self) -> Operators:
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(device=...) makes a CPU tensor first, and moves it
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        torch._C._set_only_lift_cpu_tensors(False)


class SimulatedCuda:
    """Use it in a `with`: `torch.cuda` is simulated in there, on this thread, and on others within `Operators`."""

    def __init__(self, devices: int = 2, total_bytes: int = 2**30, capability: tuple[int, int] = (9, 0)) -> None:
        self.devices, self.total_bytes, self.capability = devices, total_bytes, capability
        self.synchronizations = 0  # of the host with a device: each costs the time that the device is behind
        self.events = 0  # of these, up to an event only
        self.pinned_allocations = 0  # each waits for the device
        self.host_bytes = 0  # that left the device
        self.host_copies = 0  # in which they left
        self.kernels = 0  # that the host launched one by one
        self.replays = 0
        self.captures = 0
        self.masks: list[bool] = []  # for each attention, whether it was given a mask
        self.flashes = 0  # attentions that asked for flash attention by name
        self.may_use_cudnn: list[bool] = []  # for each attention, whether torch was free to choose cuDNN
        self.node_bytes = 64  # that the driver takes for each operator of a graph; torch does not know of them
        self.broken: str | None = None
        self._current = 0
        self._default = Stream(self)
        self._stream = self._default
        self._seen: dict[Stream, int] = {}  # what the host has waited for
        self._written: dict[int, tuple[Stream, int]] = {}  # by storage: the stream that wrote it last, and when
        self._in_flight: list[tuple[Stream, Tensor, Tensor]] = []  # copies to the host: where to, and what
        self._pinned: set[int] = set()
        self._capturing: Graph | None = None
        self._captured_on: int | None = None
        self._live: dict[int, weakref.ref[DeviceTensor]] = {}
        self._reserved = dict.fromkeys(range(devices), 0)
        self._graphs: weakref.WeakSet[Graph] = weakref.WeakSet()
        self._patches = ExitStack()

    # -- what tests ask and do -----------------------------------------------------------------------------------------

    def break_context(self, message: str = ILLEGAL_ACCESS) -> None:
        """From now on everything fails, as after an illegal access: only another process has the GPU again."""
        self.broken = message

    def allocated(self, device: int = 0) -> int:
        """Bytes that tensors on the device take."""
        storages = {}
        for reference in list(self._live.values()):
            tensor = reference()
            if tensor is not None and tensor.device.index == device:
                storages[_storage(tensor.held)] = tensor.held.untyped_storage().nbytes()
        return sum(storages.values())

    def free(self, device: int = 0) -> int:
        """Bytes that other processes could have."""
        nodes = sum(len(graph.calls) for graph in self._graphs if graph.device == device)
        return self.total_bytes - self._reserved[device] - nodes * self.node_bytes

    # -- torch.cuda ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> SimulatedCuda:
        replaced: dict[str, Any] = {
            "_lazy_init": lambda: None,
            "is_available": lambda: True,
            "device_count": lambda: self.devices,
            "current_device": lambda: self._current,
            "set_device": self._set_device,
            "get_device_name": lambda device=None: f"simulated {self._numbered(device)}",
            "get_device_capability": lambda device=None: self._numbered(device) >= 0 and self.capability,
            "mem_get_info": lambda device=None: (self.free(self._numbered(device)), self.total_bytes),
            "synchronize": lambda device=None: self._numbered(device) >= 0 and self.wait_for(None),
            "empty_cache": self._empty_cache,
            "Stream": lambda device=None: self._numbered(device) >= 0 and Stream(self),
            "Event": lambda: Event(self),
            "stream": self._on_stream,
            "current_stream": lambda device=None: self._numbered(device) >= 0 and self._stream,
            "graph_pool_handle": lambda: (0, 1),
            "CUDAGraph": Graph,
            "graph": self._capture,
        }
        for name, value in replaced.items():
            self._patches.enter_context(mock.patch.object(torch.cuda, name, value))
        self._patches.enter_context(mock.patch.object(torch.accelerator, "empty_host_cache", create=True))
        self._patches.enter_context(mock.patch.object(bias, "can_use_flash_attention", _is_for_flash))
        self._patches.enter_context(mock.patch.object(bias.CausalBias, "__new__", _new_bias))
        self._patches.callback(torch.backends.cuda.enable_cudnn_sdp, torch.backends.cuda.cudnn_sdp_enabled())
        _set_device_guard()
        self._patches.enter_context(Operators(self))
        return self

    def __exit__(self, *exc: Any) -> None:
        self._patches.close()

    def _numbered(self, device: Any) -> int:
        """The number of a device as CUDA wants it: `torch.device("cuda")` alone is refused."""
        if device is None:
            return self._current
        found = device if isinstance(device, int) else torch.device(device).index
        if found is None:
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
        if not 0 <= found < self.devices:
            raise torch.AcceleratorError("CUDA error: invalid device ordinal")
        return int(found)

    def _set_device(self, device: Any) -> None:
        self._current = self._numbered(device)

    def _empty_cache(self) -> None:
        self._check_usable()
        self._reserved = {device: self.allocated(device) for device in range(self.devices)}

    @contextmanager
    def _on_stream(self, stream: Stream) -> Iterator[None]:
        before, self._stream = self._stream, stream
        try:
            yield
        finally:
            self._stream = before

    @contextmanager
    def _capture(self, graph: Graph, pool: Any = None, stream: Stream | None = None, **_: Any) -> Iterator[None]:
        assert self._capturing is None, "a capture within a capture"
        self.wait_for(None)
        self._capturing, self._captured_on = graph, self._current
        self.captures += 1
        try:
            with self._on_stream(stream or Stream(self)):
                yield
        finally:
            self._capturing = None
            graph.cuda, graph.device = self, self._current
            self._spoil(graph)
        if len(graph.calls) * self.node_bytes > self.free(self._current):
            raise torch.AcceleratorError("CUDA error: out of memory")  # as cudaGraphInstantiate fails
        self._graphs.add(graph)

    # -- operators -----------------------------------------------------------------------------------------------------

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator, wherever its tensors are."""
        if func is aten._scaled_dot_product_flash_attention.default:
            self.flashes += 1
        if func is aten.scaled_dot_product_attention.default:
            self.masks.append(len(args) > 3 and args[3] is not None)
            self.may_use_cudnn.append(torch.backends.cuda.cudnn_sdp_enabled())
        if func._can_decompose() and func is not aten.is_pinned.default:  # in inference mode they come as they are
            with Decomposed(self):
                return func.decompose(*args, **kwargs)
        tensors = [leaf for leaf in _flat((args, kwargs)) if isinstance(leaf, Tensor)]
        ours = [tensor for tensor in tensors if isinstance(tensor, DeviceTensor)]
        asked = kwargs.get("device")
        target = torch.device(asked) if asked is not None else None
        if func in (aten._to_copy.default, aten.copy_.default):
            if target is not None and target.type == "meta":  # the stand-in of `_set_device_guard` numbers "cuda" so
                target = torch.device("cuda", self._current)
                kwargs = {**kwargs, "device": target}
            source, goal = (args[0], target) if func is aten._to_copy.default else (args[1], args[0].device)
            if goal is not None and {goal.type, source.device.type} == {"cpu", "cuda"}:
                return self._transfer(func, args, kwargs, goal)
        if not ours and (target is None or target.type != "cuda"):
            return self._on_host(func, args, kwargs, tensors)
        if func is aten._local_scalar_dense.default:
            self._check_usable()
            self.wait_for(self._stream)
            return func(args[0].held)
        device = self._device_of(func, tensors, ours, target)
        return self._launch(func, args, kwargs, device)

    def _device_of(self, func: Any, tensors: list[Tensor], ours: list[DeviceTensor], target: Any) -> torch.device:
        found = {tensor.device for tensor in tensors if tensor.dim() > 0 or isinstance(tensor, DeviceTensor)}
        if target is not None:
            found = {torch.device("cuda", self._numbered(target.index))}
        if len(found) != 1:
            raise RuntimeError(f"Expected all tensors to be on the same device, but {func} got {found}")
        (device,) = found
        if self._capturing is not None and device.index != self._captured_on:
            raise RuntimeError(f"{func} on {device} while a graph of cuda:{self._captured_on} is captured")
        return device

    def _launch(self, func: Any, args: Any, kwargs: Any, device: torch.device) -> Any:
        """An operator on a device, in the current stream."""
        self._check_usable()
        self.kernels += 1
        if self._capturing is None:
            self._stream.tick += 1
            self._check_order(args, kwargs)
            results = self._compute(func, args, kwargs)
        else:  # the operator runs when the graph is replayed, and nothing is written before that
            written = [leaf for leaf in _written(func, args, kwargs) if isinstance(leaf, DeviceTensor)]
            before = [tensor.held.clone() for tensor in written]
            results = self._compute(func, args, kwargs)
            for tensor, values in zip(written, before, strict=True):
                tensor.held.copy_(values)
        return self._wrapped(func, args, kwargs, results, device)

    def _compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        here = {**kwargs, **({"device": "cpu"} if kwargs.get("device") is not None else {})}
        here.pop("pin_memory", None)
        if func is aten._scaled_dot_product_flash_attention.default:
            return _flash(*_mapped(_values, args), **_mapped(_values, here))
        if func in (aten._convert_weight_to_int4pack.default, aten._weight_int4pack_mm.default):
            emulated = _int4_packed if func is aten._convert_weight_to_int4pack.default else _int4_product
            return emulated(*_mapped(_values, args))
        return func(*_mapped(_values, args), **_mapped(_values, here))

    def _wrapped(self, func: Any, args: Any, kwargs: Any, results: Any, device: torch.device) -> Any:
        known = {id(leaf.held): leaf for leaf in _leaves(args, kwargs)}
        storages = {_storage(leaf.held) for leaf in known.values()}

        def wrap(result: Any) -> Any:
            if not isinstance(result, Tensor):
                return result
            if id(result) in known:
                return known[id(result)]
            if _storage(result) not in storages:
                self._allocate(result, device)
            return self._tensor(result, device)

        wrapped = _mapped(wrap, results)
        if self._capturing is not None:
            self._capturing.calls.append((func, args, kwargs, wrapped))
            return wrapped
        made = {_storage(leaf.held) for leaf in _leaves(wrapped)} - storages
        for storage in made | {_storage(leaf.held) for leaf in _written(func, args, kwargs)}:
            self._written[storage] = (self._stream, self._stream.tick)
        return wrapped

    def _tensor(self, values: Tensor, device: torch.device) -> DeviceTensor:
        with torch.inference_mode(values.is_inference()):  # a view of a tensor made outside of it is not one of it
            tensor = DeviceTensor(values, device, self)
        key = id(tensor)
        self._live[key] = weakref.ref(tensor, lambda _: self._live.pop(key, None))
        return tensor

    def _allocate(self, values: Tensor, device: torch.device) -> None:
        """Count a new storage; what was freed before stays reserved, as torch's allocator keeps it."""
        self._written.pop(_storage(values), None)
        needed = values.untyped_storage().nbytes()
        if needed * CHECKED_SHARE < self.total_bytes:
            return  # to count all that is allocated takes a while
        allocated = self.allocated(device.index) + needed
        if allocated > self.total_bytes:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {needed} bytes.")
        self._reserved[device.index] = max(self._reserved[device.index], allocated)

    def _check_usable(self) -> None:
        if self.broken is not None:
            raise torch.AcceleratorError(self.broken)

    def _check_order(self, args: Any, kwargs: Any) -> None:
        for tensor in _leaves(args, kwargs):
            stream, tick = self._written.get(_storage(tensor.held), (self._stream, 0))
            if stream is not self._stream and max(self._stream.waited.get(stream, 0), self._seen.get(stream, 0)) < tick:
                raise RuntimeError(f"a read of {tuple(tensor.shape)} that another stream writes, without a wait")

    # -- the host ------------------------------------------------------------------------------------------------------

    def _on_host(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        for tensor in () if func.is_view else tensors:
            if any(_storage(tensor) == _storage(goal) for _, goal, _ in self._in_flight):
                raise RuntimeError(f"{func} of a host tensor before the copy to it has been waited for")
        if func is aten.is_pinned.default:
            return _storage(tensors[0]) in self._pinned
        pinned = kwargs.get("pin_memory") or func is aten._pin_memory.default
        kwargs = {key: value for key, value in kwargs.items() if key != "pin_memory"}
        result = args[0].clone() if func is aten._pin_memory.default else func(*args, **kwargs)
        if pinned:
            self.pinned_allocations += 1
            self._pinned.add(_storage(result))
        return result

    def _transfer(self, func: Any, args: Any, kwargs: Any, goal: torch.device) -> Any:
        """A copy between host and device; one to the host is done, where the host does not wait, when it waits."""
        self._check_usable()
        non_blocking = bool(kwargs.get("non_blocking", args[2] if len(args) > 2 else False))
        if self._capturing is not None:
            raise RuntimeError(f"{func} to {goal} while a graph is captured: CUDA error: operation not permitted")
        self._stream.tick += 1
        if goal.type == "cuda":
            if func is aten._to_copy.default:
                return self._wrapped(func, args, kwargs, self._compute(func, args, kwargs), self._device(goal))
            args[0].held.copy_(args[1])
            self._written[_storage(args[0].held)] = (self._stream, self._stream.tick)
            return args[0]
        self._check_order(args, kwargs)
        source = args[0] if func is aten._to_copy.default else args[1]
        self.host_bytes += source.nbytes
        self.host_copies += 1
        if func is aten._to_copy.default:
            values = self._compute(func, args, {**kwargs, "non_blocking": False})
            if values is args[0].held or _storage(values) == _storage(args[0].held):
                values = values.clone()
            result = torch.empty_like(values) if non_blocking else values
            if non_blocking:  # torch makes the tensor pinned, then
                self._pinned.add(_storage(result))
        else:
            result, values = args[0], args[1].held.clone()
            non_blocking = non_blocking and _storage(result) in self._pinned
        if non_blocking:
            _poison(result)
            self._in_flight.append((self._stream, result, values))
        else:
            self.wait_for(self._stream)
            result.copy_(values)
        return result

    def _device(self, device: torch.device) -> torch.device:
        return torch.device("cuda", self._numbered(self._current if device.index is None else device.index))

    def wait_for(self, stream: Stream | None) -> None:
        """The host waits for a stream, or for all of them."""
        self._check_usable()
        if self._capturing is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        self.synchronizations += 1
        for waited in {*self._written_by(), self._stream} if stream is None else {stream}:
            self._seen[waited] = waited.tick
        done = [copy for copy in self._in_flight if stream is None or copy[0] is stream]
        self._in_flight = [copy for copy in self._in_flight if not (stream is None or copy[0] is stream)]
        for _, goal, values in done:
            goal.copy_(values)

    def _written_by(self) -> set[Stream]:
        return {stream for stream, _ in self._written.values()}

    # -- graphs --------------------------------------------------------------------------------------------------------

    def replay(self, graph: Graph) -> None:
        self._check_usable()
        self.replays += 1
        self._stream.tick += 1
        for func, args, kwargs, recorded in graph.calls:
            self._check_order(args, kwargs)
            for old, new in zip(_leaves(recorded), _flat(self._compute(func, args, kwargs)), strict=True):
                if old.held.data_ptr() != new.data_ptr():
                    old.held.copy_(new)
                self._written[_storage(old.held)] = (self._stream, self._stream.tick)
        self._spoil(graph)

    def _spoil(self, graph: Graph) -> None:
        """Overwrite what the graph allocated: the next one in its pool has the same memory."""
        made: set[int] = set()
        for _, args, kwargs, results in graph.calls:
            given = {_storage(leaf.held) for leaf in _leaves(args, kwargs)}
            made |= {_storage(leaf.held) for leaf in _leaves(results)} - given
        for _, _, _, results in graph.calls:
            for leaf in _leaves(results):
                if _storage(leaf.held) in made:
                    _poison(leaf.held)


def _int4_packed(pairs: Tensor, tiles: int) -> Tensor:
    """The shape that the GPU's layout has, in an order of our own: only the product below reads it."""
    rows, columns = pairs.shape[0], 2 * pairs.shape[1]
    assert pairs.dtype == torch.uint8
    assert tiles in (2, 4, 8)
    assert rows % 8 == columns % (16 * tiles) == 0, f"{rows} rows, {columns} columns, {tiles} tiles"
    return pairs.contiguous().view(torch.int32).reshape(rows // 8, columns // (16 * tiles), 32, tiles // 2)


def _int4_product(x: Tensor, packed: Tensor, group: int, scales: Tensor) -> Tensor:
    """In the higher half of a byte is the column of even number, and 8 stands for the second of a group's scales."""
    pairs = packed.reshape(packed.shape[0] * 8, -1).view(torch.uint8)
    assert (x.dtype, scales.dtype) == (torch.bfloat16, torch.bfloat16)
    assert scales.shape == (2 * pairs.shape[1] // group, len(pairs), 2)
    numbers = torch.stack([pairs >> 4, pairs & 15], dim=2).flatten(1).float().unflatten(1, (-1, group)) - 8
    factors = scales.float().transpose(0, 1).unsqueeze(3)  # [rows, groups, 2, 1]
    weights = (numbers * factors[:, :, 0] + factors[:, :, 1]).flatten(1)
    return (x.float() @ weights.T).to(torch.bfloat16)


def _is_for_flash(params: Any, debug: bool = False) -> bool:
    return params.query.dtype in (torch.bfloat16, torch.float16)


def _new_bias(cls: Any, *_: Any) -> Any:
    """torch's own makes a tensor in C++, which the operators of a simulated CUDA would make a plain one."""
    with torch._C._DisableTorchDispatch():  # type: ignore[attr-defined]
        return Tensor._make_subclass(cls, torch.empty(0))


def _flash(q: Tensor, k: Tensor, v: Tensor, *options: object, scale: float) -> tuple[Any, ...]:
    """What flash attention computes: its causal mask ends at the lower right corner."""
    assert options == (0.0, True), f"dropout and causality {options}"
    hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1 + k.shape[-2] - q.shape[-2])
    scores = (q.float() @ k.float().mT * scale).masked_fill(hidden, float("-inf"))
    out = (scores.softmax(-1) @ v.float()).to(q.dtype)
    none = torch.empty(0)
    return out, none, none, none, q.shape[-2], k.shape[-2], none, none, none


def _set_device_guard() -> None:
    """Indexing and copies switch to a tensor's device in C++; a build without CUDA lacks the switch.

    Meta tensors' switch, which does nothing, is put in its place.
    """
    library = Path(torch.__file__).parent / "lib" / ("libc10.dylib" if sys.platform == "darwin" else "libc10.so")
    guards = (ctypes.c_void_p * (META + 1)).in_dll(ctypes.CDLL(str(library)), GUARDS)
    if guards[CUDA] is None:
        guards[CUDA] = guards[META]
    torch._C._ensureCUDADeviceGuardSet()  # a build with CUDA, on a machine without


CUDA, META = 1, 14  # c10::DeviceType
GUARDS = "_ZN3c104impl26device_guard_impl_registryE"

CHECKED_SHARE = 512
"""Allocations below a 512th of a device's memory are not counted against it one by one."""


def _flat(value: Any) -> list[Any]:
    """What stands in nested lists, tuples and dictionaries."""
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _flat(item)]
    return _flat(list(value.values())) if isinstance(value, dict) else [value]


def _mapped(change: Any, value: Any) -> Any:
    """The same lists, tuples and dictionaries of changed values."""
    if isinstance(value, list | tuple):
        return type(value)(_mapped(change, item) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(change, item) for key, item in value.items()}
    return change(value)


def _leaves(*values: Any) -> list[DeviceTensor]:
    return [leaf for leaf in _flat(values) if isinstance(leaf, DeviceTensor)]


def _values(leaf: Any) -> Any:
    return leaf.held if isinstance(leaf, DeviceTensor) else leaf


def _storage(values: Tensor) -> int:
    return values.untyped_storage()._cdata


def _written(func: Any, args: Any, kwargs: Any) -> list[DeviceTensor]:
    """The arguments that an operator writes to."""
    found = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += _leaves(args[place] if place < len(args) else kwargs.get(argument.name))
    return found


def _poison(values: Tensor) -> None:
    """Values that no computation survives unnoticed."""
    values.fill_(float("nan") if values.is_floating_point() else True if values.dtype == torch.bool else -1)
