"""What compiled operators return: as vLLM declares it to torch.compile in this release, else as listed here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

NAMESPACES = frozenset(
    """_C _moe_C _C_cache_ops _C_cuda_utils _C_custom_ar _vllm_fa2_C _vllm_fa3_C _flashmla_C
    _flashmla_extension_C _qutlass_C _dsa_C""".split()
)
"""Where vLLM registers compiled operators."""
declared: dict[str, Callable[..., Any]] = {}
"""Shapes by ``namespace::operator``, or ``namespace::operator.overload``, as vLLM's register_fake gave them."""
_INTO = frozenset("out output c c_or_none".split())
"""Parameters that take the result: an operator that is given one returns it and allocates nothing."""


def listen() -> None:
    """Keep what vLLM declares of its compiled operators; torch would refuse it, since there are none."""
    register = torch.library.register_fake

    def registering(op: Any, func: Any = None, /, **kwargs: Any) -> Any:
        if not isinstance(op, str) or op.partition("::")[0] not in NAMESPACES:
            return register(op, func, **kwargs)
        if func is None:
            return lambda each: registering(op, each)
        declared[op] = _into_what_was_given(func)
        return func

    torch.library.register_fake = registering


def _into_what_was_given(shape: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(shape)
    into = [name for name in signature.parameters if name in _INTO]

    def answering(*args: Any, **kwargs: Any) -> Any:
        if into:
            given = signature.bind(*args, **kwargs).arguments.get(into[0])
            if isinstance(given, torch.Tensor):
                return given
        return shape(*args, **kwargs)

    return answering


def _repacked(weight: torch.Tensor, rows: int, columns: int, bits: int) -> torch.Tensor:
    """The shape of Marlin's tiles of 16 rows (csrc/quantization/marlin/gptq_marlin_repack.cu)."""
    return torch.empty(rows // 16, columns * 16 // (32 // bits), dtype=torch.int32, device=weight.device)


def _topk(scores: torch.Tensor, _groups: int, _topk_group: int, topk: int, *_: Any, **__: Any) -> tuple[Any, Any]:
    """Weights and indices (csrc/moe/grouped_topk_kernels.cu)."""
    shape = (scores.shape[0], topk)
    return (
        torch.empty(shape, dtype=torch.float32, device=scores.device),
        torch.empty(shape, dtype=torch.int32, device=scores.device),
    )


def _expert_marlin(_a: Any, out: torch.Tensor | None, *_: Any, **__: Any) -> torch.Tensor:
    """Written into what it is given (csrc/moe/marlin_moe_wna16/ops.cu); what vLLM declares misses parameters."""
    if out is None:
        raise NotImplementedError("moe_wna16_marlin_gemm without an output is not known")
    return out


def _marlin(a: torch.Tensor, _c: Any, weight: torch.Tensor, *rest: Any, **__: Any) -> torch.Tensor:
    columns = rest[-4] if len(rest) > 4 and isinstance(rest[-4], int) else weight.shape[1]
    return torch.empty(a.shape[0], columns, dtype=a.dtype, device=a.device)


_SHAPES: dict[str, Callable[..., Any]] = {
    "gptq_marlin_repack": lambda weight, _perm, rows, columns, bits, *_, **__: _repacked(weight, rows, columns, bits),
    "awq_marlin_repack": lambda weight, rows, columns, bits, *_, **__: _repacked(weight, rows, columns, bits),
    "marlin_gemm": _marlin,
    "gptq_marlin_gemm": _marlin,
    "get_cuda_view_from_cpu_tensor": lambda tensor: tensor,
    "grouped_topk": _topk,
    "moe_wna16_marlin_gemm": _expert_marlin,
}
"""Operators that return something and are not declared in every release."""
_UNDECLARED = frozenset({"moe_wna16_marlin_gemm", "grouped_topk"})
"""Operators whose declaration is not what they do."""
_FROM_HOPPER, _FROM_BLACKWELL, _FROM_ADA = (9, 0), (10, 0), (8, 9)


def of(namespace: str, name: str, capability: tuple[int, int]) -> Callable[..., Any] | None:
    """What the operator returns, None where nothing is known of it."""
    whole = f"{namespace}::{name}"
    if whole in declared and name not in _UNDECLARED:
        return declared[whole]
    if name in _SHAPES:
        return _SHAPES[name]
    if "support" in name:
        least = _FROM_BLACKWELL if "fp4" in name else _FROM_ADA if name.endswith("supports_fp8") else _FROM_HOPPER
        return lambda *_, **__: capability >= least
    return None
