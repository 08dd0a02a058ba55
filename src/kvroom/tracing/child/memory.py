"""CUDA tensors that have a shape and no data, real CPU tensors beside them, and the bytes that are alive.

A tensor on the pretended card is torch's FakeTensor. What an operator returns to the CPU becomes real
zeros, since vLLM turns such tensors into NumPy arrays. Live bytes are counted as the caching allocator
counts them: storages, not views, each rounded up to its block.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only

from . import allocator, bodies, host

_LARGEST_REAL = 64 << 20
"""Bytes of a CPU tensor that is made real; weights offloaded to the host stay without data."""
_SHOWN = 12
_COPIES = {torch.ops.aten._to_copy, torch.ops.aten.to}
_aten = torch.ops.aten
_PRODUCTS = {_aten.linear, _aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.matmul}
_PHASES = {
    "_dummy_sampler_run": "sampler",
    "_dummy_pooler_run": "pooler",
    "embed_multimodal": "encoder",
    "get_multimodal_embeddings": "encoder",
    "_dummy_run": "forward",
}
"""Functions of the model runners and models by the phase of the profile run that they are."""
_WRAPPERS = frozenset({"_custom_ops.py", "model_executor/parameter.py", "model_executor/custom_op.py"})
"""Files of vLLM whose functions pass a call on."""
_UNIQUE = {_aten._unique2, _aten.unique_dim, _aten.unique_consecutive}


class IntegerDevices(TorchFunctionMode):
    """Integer devices mean ``cuda:N``, and no memory is pinned: a build without CUDA refuses both."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func`` with a device that torch takes."""
        kwargs = kwargs or {}
        if isinstance(kwargs.get("device"), int) and not isinstance(kwargs["device"], bool):
            kwargs = {**kwargs, "device": torch.device("cuda", kwargs["device"])}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **kwargs)


class Card(TorchDispatchMode):
    """The pretended card's memory: every operator passes here, and what it allocates is counted."""

    def __init__(self, total: int, used: int, products: int = 0) -> None:
        """``total`` bytes of the card, ``used`` before anything starts, ``products`` taken by the first of those."""
        super().__init__()
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.total, self.used = total, used
        self.peak = self._upper = 0
        self._products = products
        self.at_peak: list[tuple[int, str, tuple[int, ...], str]] = []
        self.phase = self.place = ""
        """Of the profile run, and the function of vLLM, in which the peak was reached."""
        self.unsure: Counter[str] = Counter()
        """Operators whose result depends on data, and how often: a nought or the largest shape was taken."""
        self._before: set[int] = set()
        self._live: dict[int, tuple[StorageWeakRef, int, str, tuple[int, ...], str]] = {}

    @property
    def current(self) -> int:
        """Bytes that are alive."""
        self._drop_dead()
        return self._upper

    def reset_peak(self) -> None:
        """Start a new peak at what is alive now; ``at_peak`` then lists what came after."""
        self.peak, self.at_peak = self.current, []
        self._before = set(self._live)

    def free(self) -> int:
        """Bytes of the card that nothing holds."""
        return self.total - self.used - self.current

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func``: for real on CPU tensors, on shapes where the card takes part."""
        kwargs = kwargs or {}
        flat, _ = tree_flatten((args, kwargs))
        fakes = [each for each in flat if isinstance(each, FakeTensor)]
        device = next((each for each in flat if isinstance(each, torch.device)), None)
        if not fakes and (device is None or device.type != "cuda"):
            large = host.unwritten(func, args, kwargs)
            return func(*args, **kwargs) if large is None else large
        namespace, _, name = func.overloadpacket._qualified_op_name.partition("::")
        if bodies.runs(namespace, name):
            shaped = lambda: self._shaped(func, args, kwargs, flat, fakes)  # noqa: E731
            with IntegerDevices(), self:
                return bodies.run(name, shaped, args, kwargs, self.unsure)
        return self._shaped(func, args, kwargs, flat, fakes)

    def _shaped(self, func: Any, args: Any, kwargs: Any, flat: list[Any], fakes: list[FakeTensor]) -> Any:
        for each in fakes:
            each.constant = None  # else torch would compute on a card that is not there
        if kwargs.get("generator") is not None:
            kwargs = {**kwargs, "generator": None}
        out = self._run(func, args, kwargs, flat, bool(fakes))
        if isinstance(out, FakeTensor | tuple | list):
            if func.overloadpacket in _COPIES:
                out = tree_map_only(FakeTensor, _real, out)
            self._count(func, out, fakes)
        return out

    def _run(self, func: Any, args: Any, kwargs: Any, flat: list[Any], fakes: bool) -> Any:
        if not fakes and func.overloadpacket in _COPIES and isinstance(args[0], torch.Tensor):
            dtype = next((each for each in flat if isinstance(each, torch.dtype)), args[0].dtype)
            with self.fake:
                return torch.empty(tuple(args[0].shape), dtype=dtype, device="cuda")
        if func is torch.ops.aten._local_scalar_dense.default:
            self.unsure["item"] += 1
            dtype = args[0].dtype
            return False if dtype == torch.bool else 0.0 if dtype.is_floating_point else 0
        if func is torch.ops.aten.equal.default:
            self.unsure["equal"] += 1
            return args[0].shape == args[1].shape
        if func is torch.ops.aten.allclose.default:
            self.unsure["allclose"] += 1
            return True
        try:
            with self.fake:
                return func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            if func._can_decompose():  # its parts come back here one by one
                with self:
                    return func.decompose(*args, **kwargs)
            self.unsure[str(func)] += 1
            if func is torch.ops.aten.nonzero.default:
                with self.fake:
                    return torch.empty(args[0].numel(), args[0].dim(), dtype=torch.int64, device=args[0].device)
            if func.overloadpacket in _UNIQUE:
                return self._all_alike(args[0])
            if func is torch.ops.aten.index.Tensor:
                return self._masked(args[0], args[1])
            raise

    def _all_alike(self, tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Values, inverse and counts of ``unique``, as if all elements were equal: it serves for lists of adapters."""
        with self.fake:
            whole = torch.empty(tensor.shape, dtype=torch.int64, device=tensor.device)
            count = torch.empty(1, dtype=torch.int64, device=tensor.device)
            return torch.empty(1, dtype=tensor.dtype, device=tensor.device), whole, count

    def _masked(self, tensor: torch.Tensor, indices: list[torch.Tensor | None]) -> torch.Tensor:
        """``tensor`` under a mask, at its largest: as if the mask took every element."""
        mask = next(each for each in indices if each is not None)
        at = next(place for place, each in enumerate(indices) if each is not None)
        shape = (*tensor.shape[:at], mask.numel(), *tensor.shape[at + mask.dim() :])
        with self.fake:
            return torch.empty(shape, dtype=tensor.dtype, device=tensor.device)

    def _count(self, func: Any, out: Any, inputs: list[FakeTensor]) -> None:
        if self._products and func.overloadpacket in _PRODUCTS and not isinstance(out, list):
            self._upper, self._products = self._upper + self._products, 0
        added = 0
        for each in out if isinstance(out, tuple | list) else (out,):
            if isinstance(each, FakeTensor):
                each.constant = None
                if each.device.type == "cuda":
                    added += self._add(each, str(func))
        extra = allocator.inside_sort(inputs[0]) if added and inputs and func.overloadpacket is _aten.sort else 0
        if self._upper + extra > self.peak and self.current + extra > self.peak:
            self.peak, self.at_peak = self._upper + extra, self._largest()
            self.phase, self.place = _position()
            if extra:
                self.at_peak.insert(0, (extra, f"inside {func}", tuple(inputs[0].shape), "temporary"))

    def _add(self, tensor: FakeTensor, name: str) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._live.get(key)
        if known is not None and not known[0].expired():
            return 0
        if known is not None:
            self._upper -= self._live.pop(key)[1]
        size = allocator.block(storage.nbytes())
        self._live[key] = (StorageWeakRef(storage), size, name, tuple(tensor.shape), str(tensor.dtype))
        self._upper += size
        return size

    def _drop_dead(self) -> None:
        for key in [key for key, value in self._live.items() if value[0].expired()]:
            self._upper -= self._live.pop(key)[1]

    def _largest(self) -> list[tuple[int, str, tuple[int, ...], str]]:
        alive = ((key, *value[1:]) for key, value in self._live.items() if key not in self._before)
        return [each[1:] for each in sorted(alive, key=lambda each: -each[1])[:_SHOWN]]


def _position() -> tuple[str, str]:
    """The phase that the calls above belong to, and the innermost function of vLLM among them."""
    phase = place = ""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        path = code.co_filename.rpartition("/vllm/")[2]
        if not place and path != code.co_filename and path not in _WRAPPERS:
            place = f"{path}: {code.co_name}"
        phase = phase or _PHASES.get(code.co_name, "")
        frame = frame.f_back
    return phase, place


def _real(tensor: FakeTensor) -> torch.Tensor:
    """A CPU tensor with data, so that it can become a NumPy array; a large one stays as it is."""
    if tensor.device.type != "cpu" or tensor.numel() * tensor.element_size() > _LARGEST_REAL:
        return tensor
    with _disable_current_modes():
        return torch.zeros(tuple(tensor.shape), dtype=tensor.dtype)
