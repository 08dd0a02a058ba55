"""vLLM's own sentences about the KV cache, word for word as each release prints them."""

from __future__ import annotations

from kvroom.units import GIB
from kvroom.vllm.rules import Rules


def shown_gib(n_bytes: int, rules: Rules) -> str:
    """``n_bytes`` in GiB as this release prints it in errors: ``16.00`` to 0.13, ``16.0`` since 0.14.

    Mirrors utils/mem_utils.py: format_gib.
    """
    if rules["kv_gib_format"] == "fixed":
        return f"{n_bytes / GIB:.2f}"
    return f"{round(n_bytes / GIB, 2)}"


def too_small(needed: int, available: int, length: int, estimate: int, rules: Rules) -> str:
    """The error when one request of ``length`` tokens needs more than there is (bytes)."""
    hint = rules["kv_estimate_text"].format(estimate=estimate) if estimate > 0 else ""
    text: str = rules["kv_needed_text"]
    return text.format(length=length, needed=shown_gib(needed, rules), available=shown_gib(available, rules), hint=hint)


def auto_fit_line(reached: int, asked: int, available: int, rules: Rules) -> str:
    """What ``--max-model-len auto`` logs after settling on ``reached`` of ``asked`` tokens."""
    text: str = rules["kv_auto_fit_text"]["full" if reached >= asked else "reduced"]
    return text.format(asked=asked, reached=reached, available=shown_gib(available, rules))


def ranks_lines(ranks: int, prefill: int, rules: Rules) -> tuple[str, ...]:
    """The line that says that the cache counts over ``ranks`` of context parallelism, where there is one."""
    text: str | None = rules["kv_context_ranks_text"]
    if text is None or ranks == 1:
        return ()
    return (text.format(ranks=ranks, prefill=prefill, decode=ranks // prefill),)


def size_lines(tokens: int, length: int, concurrency: float, rules: Rules) -> tuple[str, ...]:
    """The lines that announce the cache: its tokens, and how many requests of ``length`` it holds."""
    texts: list[str] = rules["kv_size_text"]
    return tuple(t.format(tokens=tokens, length=length, concurrency=concurrency) for t in texts)
