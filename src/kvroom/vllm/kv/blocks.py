"""Tokens a block covers: what the backend wants, what hybrids force, what windowed layers take.

Mirrors platforms/interface.py: update_block_size_for_backend and, before 0.20,
model_executor/models/config.py: HybridAttentionMambaModelConfig.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from kvroom.errors import EngineError
from kvroom.units import cdiv
from kvroom.vllm.rules import Rules

DEFAULT_BLOCK = 16


@dataclass(frozen=True, slots=True)
class KernelSizes:
    """Block sizes that a backend's kernels take: some exactly, or every multiple of one."""

    exact: tuple[int, ...]
    multiple_of: int | None = None

    @property
    def smallest(self) -> int:
        """The smallest block that the kernels take."""
        sizes = self.exact if self.multiple_of is None else (*self.exact, self.multiple_of)
        return min(sizes)

    def splits(self, block: int) -> bool:
        """Whether ``block`` tokens divide into blocks that the kernels take."""
        if self.multiple_of is not None and block % self.multiple_of == 0:
            return True
        return any(block % size == 0 for size in self.exact)

    def largest_within(self, tokens: int) -> int:
        """The largest block of at most ``tokens``; the smallest of all when none is that small.

        Mirrors layers/attention/attention.py: _largest_kernel_block_within.
        """
        sizes = list(self.exact)
        if self.multiple_of is not None:
            sizes.append(max(self.multiple_of, tokens // self.multiple_of * self.multiple_of))
        fitting = [size for size in sizes if size <= tokens]
        return max(fitting) if fitting else min(sizes)

    def __str__(self) -> str:
        names = [str(size) for size in self.exact]
        if self.multiple_of is not None:
            names.append(f"MultipleOf({self.multiple_of})")
        return f"[{', '.join(names)}]"


def kernel_sizes(backend: str, preferred: int | None, rules: Rules) -> KernelSizes:
    """What ``backend`` takes; ``preferred`` is what the backend itself asked for, if anything.

    A backend that prefers a size outside its usual ones (FlashAttention 4 with heads of 256) takes
    that size only.
    """
    stated = rules["kv_kernel_blocks"].get(backend, "1*")
    sizes = [stated] if isinstance(stated, str) else stated
    exact = tuple(size for size in sizes if isinstance(size, int))
    multiples = [int(str(size).rstrip("*")) for size in sizes if isinstance(size, str)]
    known = KernelSizes(exact, multiples[0] if multiples else None)
    if preferred is not None and backend in rules["kv_blocks_follow_preference"] and preferred > DEFAULT_BLOCK:
        return KernelSizes((preferred,))
    return known


def primary_block(asked: int | None, preferred: int | None, backend: str, sizes: KernelSizes, rules: Rules) -> int:
    """The attention layers' block before hybrids change it.

    ``asked`` is ``--block-size``. Up to 0.17 the CUDA platform overrode it for MLA backends that need
    another; since 0.18 it stands.
    """
    forced = rules["kv_forced_blocks"].get(backend)
    if asked is not None:
        if forced is not None and asked % forced["multiple_of"] and asked not in forced["also"]:
            return int(forced["block"])
        return asked
    if preferred is not None:
        return preferred
    if forced is not None:
        return int(forced["block"])
    if rules["kv_default_block"] == "backend" and not sizes.splits(DEFAULT_BLOCK):
        return sizes.smallest
    return DEFAULT_BLOCK


@dataclass(frozen=True, slots=True)
class Aligned:
    """Block sizes after attention and recurrent pages were made equal."""

    block: int
    state_block: int
    state_page: int | None
    """Bytes that the recurrent pages are padded to, None when they fit as they are."""
    notes: tuple[str, ...] = ()


def align_hybrid(
    *,
    block: int,
    token_bytes: int,
    state_bytes: int,
    mode: str,
    max_model_len: int,
    backend: str,
    sizes: KernelSizes,
    latent: bool,
    wide_blackwell: bool,
    chunk: int | None,
    checkpoint: int,
    rules: Rules,
) -> Aligned:
    """The blocks of a model that mixes attention (``token_bytes`` a token) with states of ``state_bytes``.

    ``mode`` is the Mamba cache mode, ``chunk`` the kernel's chunk or ``--mamba-block-size``,
    ``checkpoint`` the tokens that prefill checkpoints land on. Raises EngineError where a release has
    no alignment and the pages do not match.
    """
    how = rules["kv_hybrid_alignment"]
    if state_bytes == 0:
        return Aligned(block, max_model_len, None)
    if how in ("none", "pad_only"):
        return _unaligned(block, token_bytes, state_bytes, max_model_len, how)
    if how == "fixed":
        unit = rules["kv_hybrid_unit"]["latent" if latent else "attention"]
        if latent and backend == "CUTLASS_MLA":
            unit = rules["kv_hybrid_unit"]["cutlass"]
        if wide_blackwell and not latent:
            unit = max(unit, rules["kv_hybrid_unit"]["wide_blackwell"])
    else:
        unit = max(sizes.smallest, block)
        if latent:
            unit = max(unit, rules["kv_hybrid_unit"]["latent"])
        if mode == "align":
            unit = lcm(unit, checkpoint)
    state_block = max_model_len
    if mode == "all":
        step = lcm(chunk or 1, unit)
        wanted = step * cdiv(cdiv(state_bytes, token_bytes), step)
        state_block = wanted
    else:
        wanted = unit * cdiv(state_bytes, unit * token_bytes)
        if rules["kv_hybrid_rounds_to_kernel"]:
            wanted = sizes.smallest * cdiv(wanted, sizes.smallest)
    notes = []
    if block < wanted:
        notes.append(rules["kv_hybrid_block_text"].format(block=wanted))
        block = wanted
    if mode == "align":
        state_block = block
    page = block * token_bytes
    if page == state_bytes:
        return Aligned(block, state_block, None, tuple(notes))
    notes.append(rules["kv_hybrid_padding_text"].format(percent=100 * (page - state_bytes) / state_bytes))
    return Aligned(block, state_block, page, tuple(notes))


def _unaligned(block: int, token_bytes: int, state_bytes: int, max_model_len: int, how: str) -> Aligned:
    """Mirrors 0.9's gpu_model_runner.py: _maybe_pad_mamba_page_size."""
    page = block * token_bytes
    if how == "none" or page < state_bytes:
        wanted = 16 * cdiv(state_bytes, 16 * token_bytes)
        raise EngineError(
            f"Attention block size should be increased to at least {wanted} in order to match the mamba page size",
            f"Pass --block-size {wanted}, or use vLLM 0.10.0 or newer.",
        )
    return Aligned(block, max_model_len, None if page == state_bytes else page)


@dataclass(frozen=True, slots=True)
class Shared:
    """The page that layers of different dtypes share, and the block that makes it."""

    block: int
    page: int | None


def align_dtypes(
    block: int, quantized_bytes: int, plain_bytes: int, state_page: int | None, sizes: KernelSizes
) -> Shared:
    """The block at which a quantised layer's page covers an unquantised one's (``--kv-cache-dtype-skip-layers``).

    Mirrors platforms/interface.py: _align_heterogeneous_kv_block_size. Raises EngineError where quantising makes a
    token larger, as it does for the narrowest heads.
    """
    if plain_bytes < quantized_bytes:
        raise EngineError(
            f"padded-spec per-token page ({plain_bytes}B) < primary ({quantized_bytes}B); a higher-precision padded"
            " spec must not be smaller than the quantized primary.",
            "Leave out --kv-cache-dtype-skip-layers, or the quantised KV cache.",
        )
    if plain_bytes == quantized_bytes:
        return Shared(block, None)
    step = max(sizes.smallest, block)
    required = max(plain_bytes * sizes.smallest, state_page or 0)
    block = max(block, step * cdiv(required, step * quantized_bytes))
    return Shared(block, block * quantized_bytes)


def window_block(block: int, token_bytes: int, shared_page: int | None, sizes: KernelSizes, rules: Rules) -> int:
    """The block of a sliding layer, which since 0.25 need not be the primary one."""
    how = rules["kv_window_block"]
    if how == "primary":
        return block
    if how == "smallest":
        exact = sizes.exact or (sizes.smallest,)
        if shared_page is None:
            return min(exact)
        fitting = [size for size in exact if size * token_bytes <= shared_page]
        return max(fitting) if fitting else min(exact)
    return sizes.largest_within((shared_page or token_bytes * block) // token_bytes)


def no_common_block(block: int, backend: str, sizes: KernelSizes, rules: Rules) -> str | None:
    """VLLM's message when the backend's kernels cannot take ``block`` tokens, None when they can.

    Mirrors v1/worker/utils.py: select_common_block_size.
    """
    text = rules["kv_no_common_block_text"]
    if text is None or sizes.splits(block):
        return None
    return str(text.format(block=block, backend=backend, sizes=sizes))
