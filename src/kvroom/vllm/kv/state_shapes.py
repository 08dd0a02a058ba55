"""Recurrent states: their shapes on one rank and their dtypes.

Mirrors model_executor/layers/mamba/mamba_utils.py: MambaStateShapeCalculator and
MambaStateDtypeCalculator.
"""

from __future__ import annotations

from kvroom.errors import EngineError
from kvroom.models.shape import StateCache, StateKind
from kvroom.vllm.rules import Rules

Shape = tuple[int, ...]


def state_shapes(cache: StateCache, tp: int, speculative: int, rules: Rules) -> tuple[Shape, ...]:
    """The shapes of ``cache`` on one of ``tp`` ranks, convolution first.

    ``speculative`` tokens widen the convolution where this release's layers keep them. Raises
    EngineError when the heads or channels do not divide.
    """
    kind = cache.kind
    conv = max(cache.conv_kernel - 1, 0)
    if kind.value in rules["kv_state_keeps_drafts"]:
        conv += speculative
    if kind is StateKind.MAMBA1:
        inner = _divide(cache.inner, tp, "channels")
        return (conv, inner), (inner, cache.state_size)
    if kind is StateKind.MAMBA2:
        groups = cache.groups if cache.groups % tp == 0 else tp
        width = _divide(cache.inner + 2 * groups * cache.state_size, tp, "channels")
        return (conv, width), (_divide(cache.heads, tp, "heads"), cache.head_size, cache.state_size)
    if kind is StateKind.GATED_DELTA_NET:
        width = 2 * cache.key_heads * cache.key_size + cache.heads * cache.head_size
        return (
            (conv, _divide(width, tp, "channels")),
            (_divide(cache.heads, tp, "heads"), cache.head_size, cache.key_size),
        )
    if kind is StateKind.KDA:
        width = cache.heads * cache.head_size + 2 * cache.key_heads * cache.key_size
        return (
            (conv, _divide(width, tp, "channels")),
            (_divide(cache.heads, tp, "heads"), cache.head_size, cache.head_size),
        )
    if kind is StateKind.SHORT_CONV:
        return ((conv, _divide(cache.inner, tp, "channels")),)
    return ((cache.heads // tp, cache.head_size, cache.head_size),)


def state_dtypes(
    cache: StateCache, *, conv: str | None, recurrent: str | None, dtype: str, architecture: str, rules: Rules
) -> tuple[str, ...]:
    """The dtypes of the shapes of ``cache``, in their order.

    ``conv`` is ``--mamba-cache-dtype`` and ``recurrent`` ``--mamba-ssm-cache-dtype`` (None: auto);
    ``dtype`` is the model's, or in releases with ``kv_state_dtype_of_cache`` the KV cache's.
    Some architectures take the recurrent dtype from their config.
    """
    first = dtype if conv in (None, "auto") else str(conv)
    kind = cache.kind
    if kind in (StateKind.SHORT_CONV, StateKind.LINEAR):
        return (first,)
    if recurrent in (None, "auto"):
        recurrent = _dtype_of_config(cache, architecture, rules)
    if kind is StateKind.KDA:
        chosen = recurrent if rules["kv_kda_dtype_choice"] and recurrent else "float32"
        return first, chosen
    if recurrent is None or kind.value in rules["kv_state_dtype_ignored"]:
        return first, first
    return first, recurrent


def _dtype_of_config(cache: StateCache, architecture: str, rules: Rules) -> str | None:
    """The recurrent dtype that this release reads from the config of ``architecture``, if it does.

    Mirrors model_executor/models/config.py: NemotronHForCausalLMConfig and its kin.
    """
    for prefix, fallback in rules["kv_state_dtype_from_config"].items():
        if architecture.startswith(prefix):
            asked = cache.state_dtype
            return asked if asked is not None else fallback
    return None


def _divide(number: int, tp: int, what: str) -> int:
    if number % tp:
        raise EngineError(
            f"{number} is not divisible by {tp}: the {what} of the recurrent layers do not divide over "
            f"--tensor-parallel-size {tp}.",
            "Choose a tensor-parallel size that divides them.",
        )
    return number // tp
