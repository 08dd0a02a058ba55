"""What the plugin says, in words: the lines behind a refusal, the one line of a start that came up."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.plugin.start import PARTS, Start
from kvroom.units import GIB, show_bytes
from kvroom.version import __version__

if TYPE_CHECKING:
    from kvroom.plugin.account import Account
    from kvroom.remedies.remedy import Remedy

_SHOWN = 4
"""Remedies."""
_NAMES = {"cuda_graphs": "CUDA graphs"}
_ESTIMATE = re.compile(r"estimated maximum model length is (\d+)")
_NEEDED = re.compile(r"\(([\d.]+) GiB KV cache is needed")


def refusal_lines(start: Start, account: Account | None, text: str) -> Iterator[str]:
    """The lines behind vLLM's ``text``: the backend, the ledger, what to change."""
    from kvroom.plugin.account import how_chosen

    yield f"[kvroom {__version__}] What this start measured, and what the text above leaves out:"
    backends = ", ".join(start.backends) or "not known"
    how = how_chosen(start, account)
    yield f"  attention backend: {backends}" + (f" ({how})" if start.backends else "")
    yield f"  memory: {ledger_text(start)}"
    pool = account.prediction.pool if account is not None and account.agrees else None
    if pool is not None:
        each = pool.needed_bytes / pool.max_model_len
        yield (
            f"  one request of {pool.max_model_len:,} tokens: {show_bytes(pool.needed_bytes)},"
            f" {each / 1024:,.1f} KiB a token; longest that fits: {pool.longest_context:,} tokens"
        )
    lines = list(_changes(start, account, text))
    if lines:
        yield "  what to change, reckoned on these figures; each alone is enough:"
        yield from (f"    {line}" for line in lines)
    yield from (f"  not known: {problem}" for problem in start.problems)


def ledger_text(start: Start) -> str:
    """The ledger in one clause: what was asked for, what took it, what was left."""
    sizes = start.sizes
    parts = [f"{_NAMES.get(name, name)} {show_bytes(sizes[name])}" for name in PARTS if name in sizes]
    asked = start.flags.get("kv_cache_memory_bytes")
    left = f"{show_bytes(sizes['available'])} for the KV cache" if "available" in sizes else "the rest to the KV cache"
    if asked is not None:
        fixed = f"{show_bytes(asked)} for the KV cache by --kv-cache-memory-bytes"
        return f"{fixed}, without a profile" + (f"; {', '.join(parts)}" if parts else "")
    if "requested" not in sizes:
        return left
    util = start.flags.get("gpu_memory_utilization")
    whole = f" ({show_bytes(sizes['total'])} x {util:g})" if "total" in sizes and util else ""
    less = f" less {', '.join(parts)}" if parts else " less what the process takes"
    return f"{show_bytes(sizes['requested'])} requested{whole}{less} leaves {left}"


def started_line(start: Start) -> str:
    """One line on a start that came up."""
    pool = start.pool
    holds = [f"{pool['blocks']:,} blocks"] if "blocks" in pool else []
    if "tokens" in pool:
        holds.append(f"{pool['tokens']:,} tokens")
    if "max_concurrency" in pool and "max_model_len" in pool:
        holds.append(f"{pool['max_concurrency']:.2f} requests of {pool['max_model_len']:,} tokens")
    backend = f"; attention {', '.join(start.backends)}" if start.backends else ""
    return f"kvroom {__version__}: {ledger_text(start)}: {', '.join(holds) or 'its size is not known'}{backend}"


def _changes(start: Start, account: Account | None, text: str) -> Iterator[str]:
    if account is not None and account.agrees:
        for remedy in [each for each in account.remedies if each.flags][:_SHOWN]:
            yield _remedy_line(remedy)
    elif "kv_cache_memory_bytes" not in start.flags:
        yield from _by_hand(start, text)
    else:
        yield from _length(text)


def _remedy_line(remedy: Remedy) -> str:
    pool = remedy.after.pool
    status = "starts" if remedy.after.verdict.status == "fits" else "should start"
    holds = (
        f", {pool.max_concurrency:.2f} requests of {pool.max_model_len:,} tokens at once"
        if pool is not None and pool.fits
        else ""
    )
    price = f" ({remedy.price})" if remedy.price not in {"", "none", "memory"} else ""
    return f"{' '.join(remedy.flags)}: {status}{holds}{price}"


def _length(text: str) -> Iterator[str]:
    found = _ESTIMATE.search(text)
    if found:
        yield f"--max-model-len {found[1]}: the engine's own estimate of what fits"


def _by_hand(start: Start, text: str) -> Iterator[str]:
    """What follows from the engine's text alone, where kvroom does not come to its numbers."""
    yield from _length(text)
    needed, sizes = _NEEDED.search(text), start.sizes
    util = start.flags.get("gpu_memory_utilization")
    if needed is None or not util or not {"available", "total"} <= sizes.keys():
        return
    missing = (float(needed[1]) + 0.02) * GIB - sizes["available"]
    wanted = math.ceil(100 * (util + missing / sizes["total"])) / 100
    if missing > 0 and wanted * sizes["total"] < sizes.get("free", 0.97 * sizes["total"]):
        yield f"--gpu-memory-utilization {wanted:.2f}: {show_bytes(missing)} more, of what is free on the card"
