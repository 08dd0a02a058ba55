"""What vLLM does with one definite value of every entry: where it stops, and with which text."""

from __future__ import annotations

from collections.abc import Sequence

from kvroom.ledger.entries import Entry, Ledger
from kvroom.ledger.setup import Setup
from kvroom.ledger.verdict import Outcome
from kvroom.units import GIB
from kvroom.vllm.kv.capacity import Pool
from kvroom.vllm.settings import Settings

OUT_OF_MEMORY = "CUDA out of memory."
"""torch's OutOfMemoryError begins so; the numbers that follow are the machine's."""


def outcome_of(setup: Setup, settings: Settings, ledgers: Sequence[Ledger], pool: Pool, side: int) -> Outcome:
    """What happens when every part lies on the same side of its interval.

    ``side`` is -1 where the pool is smallest, 0 for the expected values, 1 where it is largest.
    ``ledgers`` has one entry a pipeline stage.
    """
    rules = settings.rules
    room = setup.machine.free_before_launch(side)
    requested = ledgers[0].requested.expected
    if room < requested and rules["startup_free_memory_check"]:
        message = rules["free_memory_message"].format(
            free=_rounded(room),
            total=_rounded(setup.machine.device.total_bytes),
            util=settings.gpu_memory_utilization,
            requested=_rounded(requested),
        )
        return Outcome(False, "device_memory_check", message)
    weights = max(_on_side(ledger.weights, side) for ledger in ledgers)
    if weights > room:
        return Outcome(False, "weight_load", OUT_OF_MEMORY)
    if any(_on_side(ledger.weights, side) + _on_side(ledger.activation, side) > room for ledger in ledgers):
        return Outcome(False, "profile", _profile_text(settings, ledgers[-1]))
    if not pool.fits:
        return Outcome(False, "kv_sizing", pool.error)
    if _fixed(setup) and weights + _on_side(ledgers[0].other, side) + _fixed_bytes(setup, pool) > room:
        return Outcome(False, "kv_alloc", OUT_OF_MEMORY)
    return Outcome(True)


def _rounded(n_bytes: int) -> str:
    """GiB as every release writes them in this message (utils: GiB, format_gib)."""
    return str(round(n_bytes / GIB, 2))


def _on_side(entry: Entry, side: int) -> int:
    return (entry.expected, entry.low, entry.high)[side]


def _fixed(setup: Setup) -> bool:
    """Whether the pool's size was said rather than measured, so that nothing keeps it within the card."""
    return setup.args.kv_cache_memory_bytes is not None or setup.args.num_gpu_blocks_override is not None


def _fixed_bytes(setup: Setup, pool: Pool) -> int:
    if setup.args.num_gpu_blocks_override is not None:
        return pool.num_blocks * pool.bytes_per_block
    return setup.args.kv_cache_memory_bytes or 0


def _profile_text(settings: Settings, ledger: Ledger) -> str:
    """The error of a profile run that finds no room: the sampler's has a text of its own in runner V1."""
    if ledger.activation.cause != "sampler" or settings.model_runner != "V1":
        return OUT_OF_MEMORY
    text: str = settings.rules["sampler_oom_message"]
    return text.format(seqs=min(settings.max_num_seqs, settings.max_num_batched_tokens))
