"""Remedies that are flags of the same launch on the same machine, each priced by predicting again."""

from __future__ import annotations

from collections.abc import Iterator

from kvroom.ledger.overhead import counts_graphs
from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.verdict import Status
from kvroom.remedies.remedy import Impossible, Remedy
from kvroom.units import GIB, cdiv, show_bytes

Candidates = Iterator[Remedy | Impossible]

CEILING = 0.97
"""Utilisation above this leaves too little for what vLLM allocates after the KV cache."""
_CONTEXT_BYTES = GIB // 2
"""A CUDA context takes about this much before the first snapshot."""


def _changed(before: Prediction, flags: tuple[str, ...], why: str, price: str, **changes: object) -> Remedy:
    after = predict(before.setup.with_args(**changes))
    return Remedy(flags, tuple(changes.items()), why, price, after)


def round_length(tokens: int) -> int:
    """A round number of tokens at or below ``tokens``: a multiple of 8192, 4096, 1024 or 256."""
    for step, least in ((8192, 65536), (4096, 16384), (1024, 4096), (256, 256)):
        if tokens >= least:
            return tokens // step * step
    return tokens


def shorter_context(before: Prediction) -> Candidates:
    """A lower max_model_len: the longest that surely fits, rounded down."""
    settings, pool = before.settings, before.pool
    if settings is None:
        yield from _length_of_the_model(before)
        return
    if pool is None or before.pool_low is None or settings.auto_max_model_len:
        return
    longest = pool.longest_context
    safe = round_length(before.pool_low.longest_context or int(longest * 0.9))
    if safe >= settings.max_model_len or safe < 1:
        if safe < 1 and not pool.fits:
            yield Impossible("--max-model-len", "not even one token fits, so a shorter context cannot help")
        return
    yield _set_length(before, safe, longest)


def _length_of_the_model(before: Prediction) -> Candidates:
    """The longest context that the config allows, where a longer one was refused."""
    asked = before.setup.args.max_model_len
    own = predict(before.setup.with_args(max_model_len=None)).settings if asked else None
    if own is not None and asked is not None and asked > own.max_model_len:
        tokens = own.max_model_len
        yield _changed(
            before,
            ("--max-model-len", str(tokens)),
            f"the model's config allows {tokens:,} tokens",
            "longer requests are refused",
            max_model_len=tokens,
        )


def _set_length(before: Prediction, tokens: int, longest: int) -> Remedy:
    return _changed(
        before,
        ("--max-model-len", str(tokens)),
        f"the longest context that fits is {longest:,} tokens; {tokens:,} leaves a margin",
        "longer requests are refused",
        max_model_len=tokens,
    )


def fewer_sequences(before: Prediction) -> Candidates:
    """A lower max_num_seqs, where the sampler's share of the activation peak is what costs."""
    settings, ledger = before.settings, before.ledger
    if settings is None or ledger is None or settings.max_num_seqs <= 16:
        return
    if "sampler" not in ledger.activation.why:
        return
    best = None
    for count in (512, 256, 128, 64, 32, 16):
        if count >= settings.max_num_seqs:
            continue
        best = _changed(
            before,
            ("--max-num-seqs", str(count)),
            f"the profile run samples for {settings.max_num_seqs} sequences, which takes "
            f"{show_bytes(ledger.activation.expected)}",
            f"at most {count} requests run at once",
            max_num_seqs=count,
        )
        if best.after.verdict.status is Status.FITS:
            break
    if best is not None:
        yield best


def fewer_batched_tokens(before: Prediction) -> Candidates:
    """A lower max_num_batched_tokens, where the widest layer or the encoder decides the peak."""
    settings, ledger = before.settings, before.ledger
    if settings is None or ledger is None or settings.max_num_batched_tokens <= 2048:
        return
    tokens = 2048
    if not settings.enable_chunked_prefill and tokens < settings.max_model_len:
        return
    remedy = _changed(
        before,
        ("--max-num-batched-tokens", str(tokens)),
        f"the profile run forwards {settings.max_num_batched_tokens:,} tokens at once",
        "long prompts take more steps, so the first token comes later",
        max_num_batched_tokens=tokens,
    )
    if _gain(before, remedy.after) > 0:
        yield remedy


def other_backend(before: Prediction) -> Candidates:
    """Another attention backend that is valid here and leaves more room."""
    backend = before.backend
    if backend is None:
        return
    for name in backend.candidates:
        if name == backend.name:
            continue
        remedy = _changed(
            before,
            ("--attention-backend", name),
            f"{backend.name} takes {show_bytes(backend.workspace_bytes)} of workspace inside the budget",
            f"attention runs on {name} instead, which may be slower here",
            attention_backend=name,
        )
        if _gain(before, remedy.after) > 0 or (backend.error and remedy.after.pool is not None):
            yield remedy
            return


def more_utilisation(before: Prediction) -> Candidates:
    """A higher gpu_memory_utilization in small steps, while free memory allows; never for weights."""
    settings, ledger = before.settings, before.ledger
    args, machine = before.setup.args, before.setup.machine
    if settings is None or ledger is None or args.kv_cache_memory_bytes is not None:
        return
    total = machine.device.total_bytes
    if before.verdict.stage == "device_memory_check" and machine.free_bytes is not None:
        yield from _less_utilisation(before, machine.free_bytes / total)
        return
    if before.verdict.stage == "weight_load" or ledger.weights.expected >= ledger.requested.expected:
        yield Impossible(
            "--gpu-memory-utilization", "the weights themselves do not fit; a larger share cannot cure that"
        )
        return
    free = machine.free_bytes if machine.free_bytes is not None else total - _CONTEXT_BYTES
    ceiling = min(CEILING, int(free / total * 100) / 100)
    now = settings.gpu_memory_utilization
    if ceiling < now + 0.01:
        yield Impossible("--gpu-memory-utilization", f"{now:g} already takes what is free ({show_bytes(free)})")
        return
    best = None
    steps = round((ceiling - now) * 100)
    for step in range(1, steps + 1):
        util = round(now + step / 100, 2)
        best = _changed(
            before,
            ("--gpu-memory-utilization", f"{util:g}"),
            f"{show_bytes((util - now) * total)} more of the card for the KV cache",
            "less is left outside the budget for graphs, workspaces and other programs",
            gpu_memory_utilization=util,
        )
        if best.after.verdict.status is Status.FITS:
            break
    if best is not None:
        yield best


def _less_utilisation(before: Prediction, share: float) -> Candidates:
    util = int(share * 100) / 100
    if util < 0.05:
        yield Impossible("--gpu-memory-utilization", "hardly any memory is free on this card")
        return
    yield _changed(
        before,
        ("--gpu-memory-utilization", f"{util:g}"),
        "only this share of the card is free at the start",
        "a smaller KV cache; or stop the other processes on the card",
        gpu_memory_utilization=util,
    )


def eager(before: Prediction) -> Candidates:
    """``--enforce-eager``, where the release subtracts its CUDA graphs from the budget."""
    settings, ledger = before.settings, before.ledger
    if settings is None or ledger is None or before.setup.args.enforce_eager:
        return
    if not counts_graphs(before.setup.args, settings):
        if before.verdict.status is not Status.FITS:
            yield Impossible(
                "--enforce-eager",
                f"vLLM {before.setup.release} sizes the KV cache without CUDA graphs here, so it frees nothing",
            )
        return
    yield _changed(
        before,
        ("--enforce-eager",),
        f"frees the {show_bytes(ledger.cuda_graphs.expected)} kept for CUDA graphs",
        "no CUDA graphs and no compilation: decoding is noticeably slower",
        enforce_eager=True,
    )


def fp8_cache(before: Prediction) -> Candidates:
    """An 8-bit KV cache where card, release and backend support it."""
    settings = before.settings
    if settings is None or settings.kv_cache_dtype != "auto" or before.pool is None:
        return
    remedy = _changed(
        before,
        ("--kv-cache-dtype", "fp8"),
        "a token takes half the bytes",
        "8-bit keys and values, here without calibrated scales: check the quality on long prompts",
        kv_cache_dtype="fp8",
    )
    backend, after = before.backend, remedy.after
    if after.backend is not None and after.backend.error:
        yield Impossible("--kv-cache-dtype fp8", after.backend.error)
        return
    if after.backend is not None and backend is not None and after.backend.name != backend.name:
        price = f"{remedy.price}; it brings the {after.backend.name} backend"
        remedy = Remedy(remedy.flags, remedy.changes, remedy.why, price, after, risk=True)
    if _gain(before, after) > 0 or after.verdict.status is not Status.FAILS:
        yield remedy


def no_images(before: Prediction) -> Candidates:
    """Serve text only, where profiling the vision encoder decides the activation peak."""
    ledger = before.ledger
    if ledger is None or "encoder" not in ledger.activation.why:
        return
    if not before.rules["limit_mm_json"]:
        flags: tuple[str, ...] = ("--limit-mm-per-prompt", "image=0,video=0")
    else:
        flags = ("--limit-mm-per-prompt", '{"image": 0, "video": 0}')
    yield _changed(
        before,
        flags,
        f"profiling the vision encoder takes {show_bytes(ledger.activation.expected)}",
        "images and videos are refused: for text-only use",
        limit_mm_per_prompt={"image": 0, "video": 0},
    )


def offload(before: Prediction) -> Candidates:
    """Keep part of the weights in host memory (``--cpu-offload-gb``)."""
    ledger, layout, pool = before.ledger, before.layout, before.pool
    args = before.setup.args
    if ledger is None or pool is None or layout is None or args.cpu_offload_gb:
        return
    short = pool.needed_bytes + layout.bytes_per_block - ledger.available.low
    if short <= 0:
        return
    gigabytes = cdiv(short, GIB) + 1
    if gigabytes * GIB > ledger.weights.expected * 0.8:
        yield Impossible("--cpu-offload-gb", f"{gigabytes} GiB would have to leave the card: most of the model")
        return
    yield _changed(
        before,
        ("--cpu-offload-gb", str(gigabytes)),
        f"moves {gigabytes} GiB of weights to host memory on each GPU",
        "those weights cross the bus at every step: decoding is many times slower",
        cpu_offload_gb=float(gigabytes),
    )


def valid_parallelism(before: Prediction) -> Candidates:
    """The largest tensor-parallel size below the one asked for that divides the attention heads."""
    heads, asked = before.setup.shape.heads, before.setup.args.tensor_parallel_size
    if before.verdict.stage != "config" or not heads or heads % asked == 0:
        return
    size = next(size for size in range(asked, 0, -1) if heads % size == 0)
    yield _changed(
        before,
        ("--tensor-parallel-size", str(size)),
        f"{heads} attention heads cannot be shared by {asked} GPUs",
        "fewer GPUs hold the model",
        tensor_parallel_size=size,
    )


def blocks_within_reach(before: Prediction) -> Candidates:
    """Without ``--num-gpu-blocks-override`` or with the profile instead of ``--kv-cache-memory-bytes``."""
    args = before.setup.args
    for name, value in (
        ("num_gpu_blocks_override", args.num_gpu_blocks_override),
        ("kv_cache_memory_bytes", args.kv_cache_memory_bytes),
    ):
        if value is not None:
            yield _changed(
                before,
                (),
                f"--{name.replace('_', '-')} fixes the pool: leave it out and vLLM sizes it by profiling",
                "none",
                **{name: None},
            )


def _gain(before: Prediction, after: Prediction) -> int:
    """Bytes more for the KV cache, or blocks where the layout changed."""
    if before.ledger is None or after.ledger is None or after.pool is None:
        return 0
    tokens = before.pool.tokens if before.pool else 0
    return max(after.ledger.available.expected - before.ledger.available.expected, after.pool.tokens - tokens)
