"""KVR103: what vLLM allocates after the KV cache does not fit beside the budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.settings.common import flag, free_bytes
from kvroom.ledger.overhead import counts_graphs, graph_memory
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.ledger.entries import Ledger
    from kvroom.ledger.predict import Prediction

RULE = Rule(
    "KVR103",
    "no-room-outside-the-budget",
    Severity.WARNING,
    "Part of what vLLM allocates is not in its memory budget, and the card has no room left for it.",
    explanation(
        what="""
            Adds up what is allocated after the KV cache has been sized: CUDA graphs in the releases that do
            not subtract them, and the workspace of the attention backend where it is created late.
            Reports a launch that leaves less than that outside the budget.
            """,
        why="""
            The server passes the capacity check, prints its pool, and then dies of an out-of-memory error
            while it captures graphs or serves its first request.
            The KV cache has already taken everything that the utilisation allows, so only the rest of the
            card is left.
            """,
        example="""
            vLLM 0.19 with `--gpu-memory-utilization 0.97` on a 24 GB card: 0.2 GiB is left outside, the CUDA
            graphs of an 8B model take about 0.7 GiB.
            """,
        cure="""
            Lower `--gpu-memory-utilization` until the rest of the card holds these buffers.
            Fewer or smaller graphs (`--max-num-seqs`, `--cudagraph-capture-sizes`) or `--enforce-eager` need
            less.
            """,
        since="""
            CUDA graphs are outside the budget up to vLLM 0.19 (0.18 and 0.19 subtract an estimate when
            `VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1`), and for the V2 model runner up to 0.28.
            FlashInfer's workspace is created after the KV cache in every release.
            """,
        references="""
            `vllm/v1/worker/gpu_worker.py: determine_available_memory`,
            `vllm/v1/attention/backends/flashinfer.py`
            """,
    ),
)


def find(prediction: Prediction) -> Iterator[Finding]:
    """The finding where the rest of the card is smaller than what is expected to land there."""
    ledger, settings, backend = prediction.ledger, prediction.settings, prediction.backend
    if ledger is None or settings is None or backend is None:
        return
    setup = prediction.setup
    parts = []
    if settings.capture_sizes and not counts_graphs(setup.args, settings, setup.machine.device):
        parts.append(("CUDA graphs", int(graph_memory(setup.shape, setup.args, settings).expected)))
    if backend.outside_bytes:
        parts.append((f"the workspace of {backend.name}", backend.outside_bytes))
    taken = _budget(prediction, ledger)
    room = free_bytes(prediction) - taken
    needed = sum(n_bytes for _, n_bytes in parts)
    if not parts or room >= needed or room < 0:
        return
    words = " and ".join(f"{name} ({show_bytes(n_bytes)})" for name, n_bytes in parts)
    total = setup.machine.device.total_bytes
    share = int((free_bytes(prediction) - needed) / total * 100) / 100
    fixed = setup.args.kv_cache_memory_bytes is not None
    yield RULE.found(
        f"{words} must fit outside the budget, where {show_bytes(room)} of the card is left.",
        evidence=(
            flag("kv_cache_memory_bytes", setup.args.kv_cache_memory_bytes)
            if fixed
            else flag("gpu_memory_utilization", settings.gpu_memory_utilization),
        ),
        advice=("Lower --kv-cache-memory-bytes.",) if fixed else (f"--gpu-memory-utilization {max(share, 0.05):g}",),
    )


def _budget(prediction: Prediction, ledger: Ledger) -> int:
    """Bytes of the card that are spoken for once the KV cache exists."""
    if prediction.setup.args.kv_cache_memory_bytes is None:
        return ledger.requested.expected
    parts = (ledger.weights, ledger.activation, ledger.other, ledger.available)
    return sum(part.expected for part in parts)
