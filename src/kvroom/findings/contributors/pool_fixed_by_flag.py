"""KVR229: the size of the pool was said, so that the measurement has no say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.contributors.common import argument, overflow, shortage
from kvroom.findings.finding import Evidence, Finding, Rule, Severity, explanation
from kvroom.findings.values import whole_number
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR229",
    "pool-fixed-by-flag",
    Severity.WARNING,
    "A flag fixes the KV cache; gpu_memory_utilization does not size it.",
    explanation(
        what="Reports `--kv-cache-memory-bytes` or `--num-gpu-blocks-override`, and whether it is what failed.",
        why="""
            Both replace the size that vLLM would measure. Too small, a request of full length does not fit
            however much of the card is free; too large, the cache does not fit beside weights and
            activations, or leaves no room for CUDA graphs.
            A number that fits one machine need not fit another: a desktop on the card takes 1 to 2 GiB.
            """,
        example="""
            `--num-gpu-blocks-override` with `--gpu-memory-utilization 0.5`: 87 GiB of 96 are in use, with 0.8
            too.
            """,
        cure="Leave the flag out and let vLLM measure, or take the value that it suggests at the end of a start.",
        since="""
            `--num-gpu-blocks-override` in all releases (before 0.20 the check of capacity still uses the
            measured memory), `--kv-cache-memory-bytes` since 0.10.2.
            """,
        references="""
            `vllm/v1/worker/gpu_worker.py: determine_available_memory`,
            `vllm/v1/core/kv_cache_utils.py: may_override_num_blocks`
            """,
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding for either flag: a note where it works, a warning where the size is the trouble."""
    fact, flag, size = _fixed(case)
    if not flag:
        return
    lack = shortage(case)
    full = overflow(case, "kv_alloc", "graph_capture", "sampler_warmup", "serving")
    counts = flag != "--num-gpu-blocks-override" or case.since("0.20.0")
    error = lack.fact if lack and counts else full
    if lack and counts:
        end, advice = "and one request of full length needs more", _larger(flag, lack.fact.gib("needed"))
    elif full is not None:
        end, advice = "and memory ran out beside it", f"A smaller {flag}, or leave it out and let vLLM measure"
    elif case.reading.came_up:
        end, advice = "whatever --gpu-memory-utilization says", ""
    else:
        return
    option = f"{flag} fixes the KV cache at {size}"
    yield RULE.found(
        f"{option}, {end}.",
        "The flag replaces what vLLM would measure, so utilisation and profile do not size the cache.",
        evidence=[shown(found) for found in (fact, error) if found is not None] or (Evidence(flag),),
        advice=(advice,) if advice else (),
        severity=Severity.WARNING if error is not None else Severity.NOTE,
    )


def _larger(flag: str, needed: int | None) -> str:
    """The flag with what one request needs and two percent for rounding, where that is known."""
    if flag == "--kv-cache-memory-bytes" and needed:
        return f"{flag} {needed * 51 // 50}"
    return f"A larger {flag}, or leave it out"


def _fixed(case: Case) -> tuple[Fact | None, str, str]:
    """The line, the flag and the size as words; an empty flag where nothing was fixed."""
    reserved = case.reading.facts.last("reserved")
    n_bytes = reserved.gib("available") if reserved else whole_number(argument(case, "kv_cache_memory_bytes"))
    if n_bytes:
        return reserved, "--kv-cache-memory-bytes", show_bytes(n_bytes)
    # The trial capture of CUDA graphs overrides a pool of 0 blocks by itself.
    lines = [fact for fact in case.reading.facts.all("override") if fact.whole("old")]
    blocks = lines[-1].whole("new") if lines else whole_number(argument(case, "num_gpu_blocks_override"))
    if blocks:
        return (lines[-1] if lines else None), "--num-gpu-blocks-override", f"{blocks:,} blocks"
    return None, "", ""
