"""``choose_backend``: the attention backend of a launch, with vLLM's words for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from kvroom.devices.device import Device
from kvroom.models.shape import ModelShape, StateCache
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.backends.checks import reasons
from kvroom.vllm.backends.choice import BackendChoice
from kvroom.vllm.backends.facts import fa_version, facts
from kvroom.vllm.backends.legacy import Pick, pick_legacy
from kvroom.vllm.backends.order import DEFAULT_BLOCK, hook, hybrid_alignment, order, preferred_block
from kvroom.vllm.backends.question import Question, questions
from kvroom.vllm.backends.words import error_none, error_unknown, log_default, log_legacy
from kvroom.vllm.backends.workspace import workspace
from kvroom.vllm.rules import Rules
from kvroom.vllm.settings import Settings

_STATE_BACKENDS = {
    "mamba1": "MAMBA1_ATTN",
    "mamba2": "MAMBA2_ATTN",
    "short_conv": "SHORT_CONV_ATTN",
    "linear_attention": "LINEAR_ATTN",
}


def choose_backend(
    shape: ModelShape,
    args: EngineArgs,
    settings: Settings,
    device: Device,
    *,
    without: frozenset[str] = frozenset(),
) -> BackendChoice:
    """The backend that this release picks for the model's attention layers on ``device``.

    The official GPU build is assumed: FlashAttention 2 to 4, FlashInfer, FlashMLA and Triton are there;
    ``without`` names what is not (``flashinfer``, ``flashmla``, ``fa3``, ``fa4``). A backend that cannot
    serve this is reported in ``error`` with vLLM's text, never raised.
    """
    asks = questions(shape, args, settings, device, without)
    if not asks:
        state = next((entry.cache for entry in shape.caches if isinstance(entry.cache, StateCache)), None)
        name = _STATE_BACKENDS.get(state.kind, "GDN_ATTN") if state else "NO_ATTENTION"
        return BackendChoice(name, "the model has no attention layers", block_size=args.block_size or DEFAULT_BLOCK)
    rules = settings.rules
    asked = _asked(args)
    if device.vendor != "NVIDIA":
        return _other_vendor(rules, asks[0], asked, device, settings)
    if rules["backend.selector"] == "legacy":
        choice = _legacy(rules, asks, asked, hybrid=shape.is_hybrid, settings=settings, args=args)
    else:
        choice = _by_priority(rules, shape, asks, asked, settings=settings, args=args)
    return choice if device.compute_capability else replace(choice, basis="estimated")


def _asked(args: EngineArgs) -> str | None:
    name = (args.attention_backend or "").upper().removesuffix("_VLLM_V1")
    return None if name in {"", "AUTO"} else name


def _legacy(
    rules: Rules,
    asks: tuple[Question, ...],
    asked: str | None,
    *,
    hybrid: bool,
    settings: Settings,
    args: EngineArgs,
) -> BackendChoice:
    first = asks[0]
    forced, block = hook(rules, first, asked)
    pick = pick_legacy(rules, first, asked or forced, settings.engine, block)
    if forced and not asked:
        pick = pick._replace(how=f"the default for latent attention on compute capability {_dotted(first)}")
    hybrid_error = rules["backend.legacy_hybrid_error"]
    if hybrid and hybrid_error and settings.engine == "V1" and pick.name != "FLASHINFER":
        pick = pick._replace(error=hybrid_error)
    space = workspace(pick.name, (), asks, args, settings)
    return BackendChoice(
        pick.name,
        pick.how,
        (pick.name,),
        block_size=block,
        kernel_alignment=hybrid_alignment(rules, pick.name, asked, first, block),
        workspace_bytes=space.inside,
        outside_bytes=space.outside,
        workspace_in=space.seen_in,
        workspace_why=space.why,
        log_line=log_legacy(rules, pick.name, settings.engine),
        error=pick.error,
    )


def _by_priority(
    rules: Rules,
    shape: ModelShape,
    asks: tuple[Question, ...],
    asked: str | None,
    *,
    settings: Settings,
    args: EngineArgs,
) -> BackendChoice:
    asks, forced, why_forced = _model_wish(rules, asks, asked)
    special = rules["backend.by_architecture"].get(shape.architecture)
    before = hook(rules, asks[0], asked)
    if before.forced:
        forced = before.forced
        why_forced = f"vLLM hands latent attention on compute capability {_dotted(asks[0])} to it"
    picks = [_pick(rules, ask, asked or forced) for ask in asks]
    if special == "diffkv" and asks[0].layer.head_size != asks[0].layer.head_size_v:
        picks = [_diff_kv(rules, asks[0])] * len(asks)
    elif special and "name" in special:
        picks = [Pick(special["name"], f"{shape.architecture} brings its own attention")]
    pick = picks[0]
    candidates, rejected = candidates_of(rules, asks[0])
    names = [each.name for each in picks]
    block = before.block_size
    if rules["backend.block_size_from"] != "platform":
        several = rules["backend.block_size_from"] == "every_layer"
        blocks = [preferred_block(rules, *pair) for pair in zip(names, asks, strict=False)]
        block = max(blocks) if several else blocks[0]
    if special and special != "diffkv" and args.block_size is None:
        block = special.get("block_size", block)
    how, log = pick.how, log_default(rules, pick.name, candidates)
    if asked or forced:
        how = why_forced if forced and not asked else f"asked for with {rules['backend.asked_by']}"
        log = rules["backend.log.asked"].format(name=pick.name)
    error = next((each.error for each in picks if each.error), None)
    if error or (special and special != "diffkv" and "name" in special):
        log = ""
    space = workspace(pick.name, () if asked or forced else order(rules, asks[0]), asks, args, settings)
    return BackendChoice(
        pick.name,
        how,
        candidates,
        rejected,
        block,
        hybrid_alignment(rules, pick.name, asked or forced, asks[0], block),
        space.inside,
        space.outside,
        space.seen_in,
        space.why,
        log,
        error,
        tuple(dict.fromkeys(name for name in names if name != pick.name)),
    )


def _model_wish(
    rules: Rules, asks: tuple[Question, ...], asked: str | None
) -> tuple[tuple[Question, ...], str | None, str]:
    """What Gemma 4's own config does where head sizes differ (models/config.py: Gemma4Config)."""
    rule, sizes = rules["backend.mixed_heads"], {ask.layer.head_size for ask in asks}
    first = asks[0]
    if not rule or len(sizes) < 2 or first.layer.mla or (rule == "triton" and max(sizes) <= 256):
        return asks, None, ""
    fa4 = first.major in {9, 10, 11} and "fa4" not in first.without
    if rule != "triton" and fa4 and max(sizes) <= 512:
        by_layer = rule.endswith("fp8_mixed") and first.major == 9 and first.kv_cache_dtype.startswith("fp8")
        if not by_layer and asked in {None, "FLASH_ATTN"}:
            asks = tuple(replace(ask, flash_attn_version=4) for ask in asks)
        return asks, None, ""
    heads = " and ".join(str(size) for size in sorted(sizes))
    return asks, None if asked else "TRITON_ATTN", f"only Triton takes heads of {heads} alike here"


@lru_cache(maxsize=1024)
def candidates_of(rules: Rules, ask: Question) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """The backends that accept ``ask``, best first, and what the others lack."""
    valid: list[str] = []
    rejected: dict[str, str] = {}
    for name in order(rules, ask):
        lacking = reasons(rules, name, ask)
        if lacking:
            rejected[name] = ", ".join(lacking)
        else:
            valid.append(name)
    return tuple(valid), MappingProxyType(rejected)


@lru_cache(maxsize=1024)
def _pick(rules: Rules, ask: Question, asked: str | None) -> Pick:
    if asked:
        if not facts(rules, asked).known:
            return Pick(asked, "", error_unknown(asked))
        lacking = reasons(rules, asked, ask)
        error = rules["backend.error.asked"].format(name=asked, reasons=list(lacking)) if lacking else None
        return Pick(asked, "", error)
    valid, rejected = candidates_of(rules, ask)
    if not valid:
        return Pick(order(rules, ask)[0], "no backend accepts this", error_none(rules, ask, rejected))
    before = [f"{name}: {rejected[name]}" for name in order(rules, ask)[: order(rules, ask).index(valid[0])]]
    if before:
        return Pick(valid[0], f"the first that accepts this ({'; '.join(before)})")
    return Pick(valid[0], f"first in the default order on compute capability {_dotted(ask)}")


def _diff_kv(rules: Rules, ask: Question) -> Pick:
    flash = fa_version(rules, ask, ask.layer.head_size) in {3, 4}
    name = "FLASH_ATTN_DIFFKV" if flash else "TRITON_ATTN_DIFFKV"
    return Pick(name, "values are narrower than keys")


def _other_vendor(rules: Rules, ask: Question, asked: str | None, device: Device, settings: Settings) -> BackendChoice:
    """Roughly what ROCm and XPU pick, without AITER."""
    rule = rules["backend.other_vendors"].get(device.vendor, {})
    name = rule.get("V0") if settings.engine == "V0" else rule.get("V1")
    if ask.layer.mla:
        name = rule.get("sparse", rule.get("mla")) if ask.layer.sparse else rule.get("mla")
    elif ask.layer.sink or ask.mm_prefix:
        name = rule.get("fallback", name)
    name = asked or name or "TRITON_ATTN"
    block = ask.block_size or rule.get("block_size", DEFAULT_BLOCK)
    how = f"asked for with {rules['backend.asked_by']}" if asked else f"the usual choice on {device.vendor}"
    return BackendChoice(name, how, (name,), block_size=block, kernel_alignment=block, basis="estimated")


def _dotted(ask: Question) -> str:
    return f"{ask.capability[0]}.{ask.capability[1]}"
