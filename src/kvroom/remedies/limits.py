"""Remedies that set a limit of the launch: length, sequences, batched tokens, utilisation."""

from __future__ import annotations

from kvroom.ledger.overhead import counts_graphs, graph_memory
from kvroom.ledger.predict import Prediction, predict
from kvroom.ledger.verdict import Status
from kvroom.remedies.remedy import Candidates, Impossible, Remedy, changed, leaves_more, room
from kvroom.units import show_bytes
from kvroom.vllm.parallel import deals

CEILING = 0.97
"""Utilisation above this leaves too little for what vLLM allocates after the KV cache."""


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
        yield changed(
            before,
            ("--max-model-len", str(tokens)),
            f"the model's config allows {tokens:,} tokens",
            "longer requests are refused",
            max_model_len=tokens,
        )


def _set_length(before: Prediction, tokens: int, longest: int) -> Remedy:
    return changed(
        before,
        ("--max-model-len", str(tokens)),
        f"the longest context that fits is {longest:,} tokens; {tokens:,} leaves a margin",
        "longer requests are refused",
        max_model_len=tokens,
    )


def fewer_sequences(before: Prediction) -> Candidates:
    """The largest lower max_num_seqs that helps, where the sampler's peak or the state blocks are what costs."""
    settings, ledger, pool = before.settings, before.ledger, before.pool
    if settings is None or ledger is None or pool is None or settings.max_num_seqs <= 16:
        return
    states = pool.error is not None and "max_num_seqs" in pool.error
    if ledger.activation.cause != "sampler" and not states:
        return
    why = (
        f"{settings.max_num_seqs} sequences need a state block each, and the pool has {pool.num_blocks}"
        if states
        else f"the profile run samples for {settings.max_num_seqs} sequences, which takes "
        f"{show_bytes(ledger.activation.expected)}"
    )
    best: Remedy | None = None
    for count in (512, 256, 128, 64, 32, 16):
        if count >= settings.max_num_seqs:
            continue
        flags, price = ("--max-num-seqs", str(count)), f"at most {count} requests run at once"
        remedy = changed(before, flags, why, price, max_num_seqs=count)
        if best is None or room(remedy.after) < room(best.after):
            best = remedy
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
    remedy = changed(
        before,
        ("--max-num-batched-tokens", str(tokens)),
        f"the profile run forwards {settings.max_num_batched_tokens:,} tokens at once",
        "long prompts take more steps, so the first token comes later",
        max_num_batched_tokens=tokens,
    )
    if leaves_more(before, remedy.after):
        yield remedy


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
    ceiling = _highest_utilisation(before)
    now = settings.gpu_memory_utilization
    if ceiling < now + 0.01:
        yield Impossible("--gpu-memory-utilization", f"{now:g} leaves no more than vLLM needs beside its budget")
        return
    best: Remedy | None = None
    for step in range(1, round((ceiling - now) * 100) + 1):
        util = round(now + step / 100, 2)
        remedy = changed(
            before,
            ("--gpu-memory-utilization", f"{util:g}"),
            f"{show_bytes((util - now) * total)} more of the card for the KV cache",
            "less is left outside the budget for graphs, workspaces and other programs",
            gpu_memory_utilization=util,
        )
        if best is None or room(remedy.after) < room(best.after):
            best = remedy
        if best.after.verdict.status is Status.FITS:
            break
    if best is not None:
        yield best


def _highest_utilisation(before: Prediction) -> float:
    """The share that leaves room for what lands outside the budget: a context, uncounted graphs, workspaces."""
    setup, settings, backend = before.setup, before.settings, before.backend
    assert settings is not None
    outside = backend.outside_bytes if backend is not None else 0
    if not counts_graphs(setup.args, settings, setup.machine.device):
        outside += int(graph_memory(setup.shape, setup.args, settings).expected)
    share = (setup.machine.free_before_launch() - outside) / setup.machine.device.total_bytes
    return min(CEILING, int(share * 100) / 100)


def _less_utilisation(before: Prediction, share: float) -> Candidates:
    util = int(share * 100) / 100
    if util < 0.05:
        yield Impossible("--gpu-memory-utilization", "hardly any memory is free on this card")
        return
    yield changed(
        before,
        ("--gpu-memory-utilization", f"{util:g}"),
        "only this share of the card is free at the start",
        "a smaller KV cache; or stop the other processes on the card",
        gpu_memory_utilization=util,
    )


def valid_parallelism(before: Prediction) -> Candidates:
    """The largest tensor-parallel size below the one asked for that divides the attention heads."""
    heads, kv_heads = before.setup.shape.heads, before.setup.shape.kv_heads
    asked = before.setup.args.tensor_parallel_size
    if not heads or deals(heads, kv_heads, asked):
        return
    size = next(size for size in range(min(asked, heads), 0, -1) if deals(heads, kv_heads, size))
    yield changed(
        before,
        ("--tensor-parallel-size", str(size)),
        f"{heads} attention heads and {kv_heads} KV heads cannot be dealt to {asked} GPUs",
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
            yield changed(
                before,
                (),
                f"--{name.replace('_', '-')} fixes the pool: leave it out and vLLM sizes it by profiling",
                "none",
                **{name: None},
            )


def idle_gpus(before: Prediction) -> Candidates:
    """Tensor parallelism over GPUs that are there and that the launch does not use."""
    setup = before.setup
    args, heads, kv_heads = setup.args, setup.shape.heads, setup.shape.kv_heads
    others = args.pipeline_parallel_size * args.data_parallel_size * args.prefill_context_parallel_size
    owned = setup.machine.count // others
    sizes = [size for size in (16, 8, 4, 2) if args.tensor_parallel_size < size <= owned]
    size = next((size for size in sizes if heads and deals(heads, kv_heads, size)), None)
    if size is not None:
        yield changed(
            before,
            ("--tensor-parallel-size", str(size)),
            f"{owned - args.tensor_parallel_size} of the {owned} GPUs hold nothing",
            "uses the GPUs that are there",
            tensor_parallel_size=size,
        )


def enough_batched_tokens(before: Prediction) -> Candidates:
    """More max_num_batched_tokens, where vLLM refuses fewer than sequences or than the length."""
    args, verdict = before.setup.args, before.verdict
    if (
        verdict.stage != "config"
        or args.max_num_batched_tokens is None
        or "max_num_batched_tokens" not in str(verdict.message)
    ):
        return
    yield changed(
        before,
        (),
        f"--max-num-batched-tokens {args.max_num_batched_tokens} is refused: leave it out and vLLM chooses",
        "none",
        max_num_batched_tokens=None,
    )


def without_unknown_flags(before: Prediction) -> Candidates:
    """The launch without the flags that this release does not have."""
    unknown = before.setup.args.unknown
    if unknown:
        words = " ".join(unknown)
        yield changed(
            before, (), f"leave out {words}: vLLM {before.setup.release} has no such flag", "none", unknown=()
        )
