"""One rank's KV cache as far as it does not depend on the bytes available.

``layout_of`` is the heavy step from model and settings to groups and bytes per block; it is remembered,
so that a search over memory or lengths pays for it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from kvroom.models.shape import ModelShape
from kvroom.units import GIB, cdiv
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.kv.blocks import no_common_block
from kvroom.vllm.kv.grouping import grouped
from kvroom.vllm.kv.groups import Group, Layer, on_stage
from kvroom.vllm.kv.pages import WINDOWED_KINDS, SpecKind
from kvroom.vllm.kv.specs import specs_of
from kvroom.vllm.kv.terms import UNBOUNDED, Term, Terms, added, block_bytes, terms_needed
from kvroom.vllm.parallel import stage_layers
from kvroom.vllm.rules import Rules
from kvroom.vllm.settings import Settings

V0_SWAP_GIB = 4.0


@dataclass(frozen=True, eq=False)
class KvLayout:
    """Groups, bytes per block, and how a request's need grows with its length."""

    rules: Rules
    groups: tuple[Group, ...]
    """As they are on this pipeline stage."""
    block_size: int
    """``--block-size`` as vLLM resolves it: the attention layers' block."""
    bytes_per_block: int
    needed_terms: tuple[Term, ...]
    """Bytes that one request takes, by the rule of this release's check."""
    request_terms: tuple[Term, ...]
    """What one request takes of the pool, in units of ``request_unit``."""
    request_unit: int = 1
    context_ranks: int = 1
    """Ranks that one request's tokens are spread over."""
    prefill_ranks: int = 1
    """Those of them that prefill context parallelism adds."""
    warnings: tuple[str, ...] = ()
    """Lines that vLLM logs while planning."""
    refusal: str | None = None
    """vLLM's message when it stops whatever the bytes."""
    cpu_blocks: int = 0
    """V0 only: blocks of swap space."""
    stages: int = 1

    @property
    def min_block_size(self) -> int:
        """The smallest block of any group, which older releases log tokens by."""
        return min((group.spec.block_size for group in self.groups), default=self.block_size)

    @property
    def has_states(self) -> bool:
        """Whether a group holds recurrent states."""
        return any(group.spec.kind is SpecKind.MAMBA for group in self.groups)

    def needed_bytes(self, length: int) -> int:
        """Bytes that this release says one request of ``length`` tokens needs."""
        return sum(term.weight * term.blocks(length) for term in self.needed_terms)

    def request_blocks(self, length: int) -> int:
        """Blocks that one request of ``length`` tokens takes over all groups."""
        return cdiv(sum(term.weight * term.blocks(length) for term in self.request_terms), self.request_unit)

    def longest(self, limit: int, ceiling: int) -> int:
        """The largest length up to ``ceiling`` that needs at most ``limit`` bytes; 0 when one token does not fit.

        Mirrors estimate_max_model_len.
        """
        if self.needed_bytes(ceiling) <= limit:
            return ceiling
        if len(self.needed_terms) == 1 and self.needed_terms[0].cap == UNBOUNDED:
            return max(0, min(self.needed_terms[0].tokens(limit), ceiling))
        low, high = 0, ceiling
        while high - low > 1:
            middle = (low + high) // 2
            if self.needed_bytes(middle) <= limit:
                low = middle
            else:
                high = middle
        return low


def layout_of(
    shape: ModelShape,
    args: EngineArgs,
    settings: Settings,
    backend: str,
    backend_block_size: int | None,
    *,
    stage: int = 0,
    draft: ModelShape | None = None,
    capability: tuple[int, int] | None = None,
) -> KvLayout:
    """The KV cache of one rank of pipeline stage ``stage``, remembered for equal launches.

    ``backend_block_size`` is the block that the attention backend prefers (None: the usual 16),
    ``draft`` a separate speculator, ``capability`` the CUDA compute capability. Raises EngineError
    with vLLM's message where it refuses the combination.
    """
    key = (
        shape,
        settings.rules,
        settings.engine,
        settings.max_model_len if shape.has_state else 0,
        settings.max_num_batched_tokens * settings.max_concurrent_batches,
        settings.max_num_batched_tokens,
        settings.dtype,
        settings.kv_cache_dtype,
        settings.enable_prefix_caching,
        settings.mamba_cache_mode,
        settings.speculative_tokens,
        settings.uses_own_draft,
        settings.hybrid_manager,
        args.tensor_parallel_size,
        args.pipeline_parallel_size,
        args.decode_context_parallel_size,
        args.prefill_context_parallel_size,
        args.block_size,
        args.disable_sliding_window,
        args.mamba_block_size,
        args.mamba_cache_dtype,
        args.mamba_ssm_cache_dtype,
        args.kv_cache_dtype_skip_layers,
        args.attention_backend,
        args.swap_space,
        args.env.get("VLLM_PP_LAYER_PARTITION"),
        args.env.get("VLLM_KV_CACHE_LAYOUT"),
        backend,
        backend_block_size,
        stage,
        draft,
        capability,
    )
    return _layout(_Launch(key, shape, args, settings, backend, backend_block_size, stage, draft, capability))


class _Launch(NamedTuple):
    """A launch, equal to another when ``key`` is."""

    key: tuple[object, ...]
    shape: ModelShape
    args: EngineArgs
    settings: Settings
    backend: str
    backend_block_size: int | None
    stage: int
    draft: ModelShape | None
    capability: tuple[int, int] | None

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Launch) and self.key == other.key

    def __ne__(self, other: object) -> bool:
        return not self == other


@lru_cache(maxsize=1024)
def _layout(launch: _Launch) -> KvLayout:
    shape, args, settings = launch.shape, launch.args, launch.settings
    rules = settings.rules
    specs = specs_of(
        shape,
        args,
        settings,
        launch.backend,
        launch.backend_block_size,
        draft=launch.draft,
        capability=launch.capability,
    )
    owned = _owned(specs.layers, shape.layers, args, rules, launch.stage)
    mine = tuple(layer for layer in specs.layers if layer.index in owned)
    if settings.engine == "V0":
        return _v0_layout(mine, specs.block_size, args, rules)
    packed = rules["kv_packing"] == "block_outermost" and (
        any(layer.spec.tokens_per_state > 1 for layer in specs.layers)
        or args.env.get("VLLM_KV_CACHE_LAYOUT", "").startswith("B")
    )
    whole = mine if rules["kv_groups_per_worker"] else specs.layers
    grouping = grouped(whole, rules, hybrid=settings.hybrid_manager, packed=packed)
    groups = grouping.groups if whole is mine else on_stage(grouping.groups, owned, rules)
    sizes = (args.decode_context_parallel_size, args.prefill_context_parallel_size)
    refusal = None
    if any(layer.spec.kind not in (SpecKind.MAMBA, SpecKind.MLA) for layer in mine):
        refusal = no_common_block(specs.block_size, launch.backend, specs.sizes, rules)
    if sizes[0] > 1 and any(group.spec.kind in WINDOWED_KINDS for group in groups):
        refusal = rules["kv_window_refuses_dcp"] or refusal
    return plan_layout(
        groups,
        rules,
        settings,
        block_size=specs.block_size,
        context_parallel=sizes,
        whole_model=grouping.groups,
        raw=mine,
        warnings=(*specs.notes, *grouping.warnings),
        refusal=refusal,
    )


def _owned(layers: Sequence[Layer], decoder_layers: int, args: EngineArgs, rules: Rules, stage: int) -> frozenset[int]:
    """Numbers of the layers on ``stage``; draft layers live on the last one."""
    stages = args.pipeline_parallel_size
    if stages == 1:
        return frozenset(layer.index for layer in layers)
    partition = args.env.get("VLLM_PP_LAYER_PARTITION")
    ranges = stage_layers(decoder_layers, stages, partition, rules["pp_remainder"])
    mine = set(ranges[stage])
    if stage == stages - 1:
        mine |= {layer.index for layer in layers if layer.index >= decoder_layers}
    return frozenset(mine)


def plan_layout(
    groups: Sequence[Group],
    rules: Rules,
    settings: Settings,
    *,
    block_size: int,
    context_parallel: tuple[int, int] = (1, 1),
    whole_model: Sequence[Group] | None = None,
    raw: Sequence[Layer] = (),
    warnings: tuple[str, ...] = (),
    refusal: str | None = None,
) -> KvLayout:
    """The layout of ``groups`` under the rules of a release.

    ``context_parallel`` is (decode, prefill); ``whole_model`` the groups before the pipeline split,
    which some releases check; ``raw`` this stage's layers before grouping, which older ones check.
    """
    decode, prefill = context_parallel
    how = rules["kv_context_parallel"]
    ranks = {"none": 1, "decode": decode, "decode_and_prefill": decode * prefill}[how]
    terms = Terms(settings, ranks)
    groups = tuple(groups)
    pages = [group.page_bytes for group in groups]
    if rules["kv_concurrency"] == "sum" or len(set(pages)) == 1:
        pages = [1] * len(groups)
    check = rules["kv_check"]
    if check == "layers":
        needed = added(terms.of_spec(layer.spec, layer.spec.page_bytes) for layer in raw)
    elif check == "first_group_of_model":
        needed = terms_needed(tuple(whole_model or groups), rules, terms, first_only=True)
    else:
        needed = terms_needed(groups, rules, terms, first_only=check == "first_group")
    return KvLayout(
        rules=rules,
        groups=groups,
        block_size=block_size,
        bytes_per_block=block_bytes(groups, rules) if groups else 0,
        needed_terms=needed,
        request_terms=added(terms.of_group(group, page) for group, page in zip(groups, pages, strict=True)),
        request_unit=pages[0] if pages else 1,
        context_ranks=ranks,
        prefill_ranks=prefill,
        warnings=warnings,
        refusal=refusal,
    )


def _v0_layout(layers: Sequence[Layer], block_size: int, args: EngineArgs, rules: Rules) -> KvLayout:
    """V0: every attention layer keeps every token; states live outside the cache.

    Mirrors worker/cache_engine.py: CacheEngine.get_cache_block_size.
    """
    attending = tuple(layer for layer in layers if layer.spec.kind is not SpecKind.MAMBA)
    block = sum(layer.spec.page_bytes for layer in attending)
    groups = (Group(attending[0].spec, attending),) if attending else ()
    swap = int((V0_SWAP_GIB if args.swap_space is None else args.swap_space) * GIB)
    return KvLayout(
        rules=rules,
        groups=groups,
        block_size=block_size,
        bytes_per_block=block,
        needed_terms=(Term(block, 1, UNBOUNDED, block_size, 0),) if attending else (),
        request_terms=(Term(1, 1, UNBOUNDED, block_size, 0),) if attending else (),
        cpu_blocks=swap // block if block else 0,
        stages=args.pipeline_parallel_size,
    )
