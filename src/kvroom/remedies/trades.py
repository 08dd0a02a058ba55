"""Remedies that trade something for room: the backend, 8-bit KV, images, CUDA graphs, speed, a measured pool."""

from __future__ import annotations

from kvroom.ledger.overhead import counts_graphs, graph_memory
from kvroom.ledger.predict import Prediction
from kvroom.ledger.verdict import Status
from kvroom.remedies.remedy import Candidates, Impossible, Remedy, changed, leaves_more
from kvroom.units import GIB, MIB, cdiv, show_bytes
from kvroom.vllm.flags import flags_for

_STEP = 256 * MIB


def other_backend(before: Prediction) -> Candidates:
    """Another attention backend that is valid here and leaves more room."""
    backend = before.backend
    if backend is None:
        return
    for name in backend.candidates:
        if name == backend.name:
            continue
        remedy = changed(
            before,
            ("--attention-backend", name),
            f"{backend.name} takes {show_bytes(backend.workspace_bytes)} of workspace inside the budget",
            f"attention runs on {name} instead, which may be slower here",
            attention_backend=name,
        )
        if leaves_more(before, remedy.after) or (backend.error and remedy.after.pool is not None):
            yield remedy
            return


def eager(before: Prediction) -> Candidates:
    """``--enforce-eager``, where the release subtracts its CUDA graphs from the budget."""
    settings, ledger = before.settings, before.ledger
    if settings is None or ledger is None or before.setup.args.enforce_eager:
        return
    if not counts_graphs(before.setup.args, settings, before.setup.machine.device):
        if before.verdict.status is not Status.FITS:
            yield Impossible(
                "--enforce-eager",
                f"vLLM {before.setup.release} sizes the KV cache without CUDA graphs here, so it frees nothing",
            )
        return
    yield changed(
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
    remedy = changed(
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
    if leaves_more(before, after) or after.verdict.status is not Status.FAILS:
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
    yield changed(
        before,
        flags,
        f"profiling the vision encoder takes {show_bytes(ledger.activation.expected)}",
        "images and videos are refused: for text-only use",
        limit_mm_per_prompt={"image": 0, "video": 0},
    )


def fixed_cache(before: Prediction) -> Candidates:
    """A KV cache of said bytes on a card that others use too: profiling then counts nothing of theirs."""
    ledger, setup = before.ledger, before.setup
    free = setup.machine.free_bytes
    if free is None or ledger is None or setup.args.kv_cache_memory_bytes is not None:
        return
    if "kv_cache_memory_bytes" not in flags_for(setup.release).by_name:
        return
    taken = sum(entry.high for entry in (ledger.weights, ledger.activation, ledger.other))
    if before.settings is not None:
        taken += int(graph_memory(setup.shape, setup.args, before.settings).high)
    if before.backend is not None:
        taken += before.backend.outside_bytes
    size = (free - taken) // _STEP * _STEP
    share = int(free / setup.machine.device.total_bytes * 100) / 100
    if size <= 0 or share < 0.01:
        return
    yield changed(
        before,
        ("--kv-cache-memory-bytes", str(size), "--gpu-memory-utilization", f"{share:g}"),
        f"{show_bytes(size)} of the {show_bytes(free)} that are free, whatever else the card holds",
        "the KV cache no longer follows what is free, so it runs out of memory if the others grow",
        kv_cache_memory_bytes=size,
        gpu_memory_utilization=share,
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
    yield changed(
        before,
        ("--cpu-offload-gb", str(gigabytes)),
        f"moves {gigabytes} GiB of weights to host memory on each GPU",
        "those weights cross the bus at every step: decoding is many times slower",
        cpu_offload_gb=float(gigabytes),
    )
