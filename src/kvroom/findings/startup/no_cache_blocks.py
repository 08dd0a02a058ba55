"""KVR202: nothing is left for the KV cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.startup.common import (
    first,
    higher_share,
    ledger_text,
    lighter_batch,
    more_ranks,
    more_share,
    share_flag,
    utilization_of,
)
from kvroom.units import GIB, MIB, show_bytes

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR202",
    "no-cache-blocks",
    Severity.ERROR,
    "Weights and activations use up the whole budget: no memory is left for a single KV cache block.",
    explanation(
        what="""
            Reports a start in which nothing or less than nothing was left for the KV cache: the message that
            no memory is available for the cache blocks, 0 blocks, a negative remainder, or an automatic
            length that fits not even one token.
            """,
        why="""
            The KV cache gets what is left of total x `--gpu-memory-utilization` after the weights, the
            activation peak of the profile run, memory outside PyTorch and, since 0.20, the CUDA graphs.
            The log tells which part is large: weights above the budget call for more GPUs or a quantised
            checkpoint, a large activation peak for a smaller batch.
            Memory of other programs counts as this engine's own in 0.2.5, in 0.6.4 and in V1 from 0.8.0 to
            0.9.0, so there a low share on a shared card leaves less than nothing.
            """,
        example="""
            8.00 GiB x 0.70 = 5.60 GiB of budget, less 5.20 GiB of weights and 1.42 GiB of activations: -1.05
            GiB for the cache.
            """,
        cure="""
            Raise `--gpu-memory-utilization` where the card has more; else lower `--max-num-batched-tokens` and
            `--max-num-seqs`, limit images, use a quantised checkpoint or more GPUs.
            `--max-model-len` alone helps only where the profile run computes a batch of that length.
            """,
        since="All releases; the automatic length since 0.14.",
        references="""
            `vllm/v1/core/kv_cache_utils.py: check_enough_kv_cache_memory`, V0 `vllm/worker/worker.py:
            raise_if_cache_size_invalid`
            """,
    ),
)
_LEFT = ("available", "split_v0", "split_v0_part", "split_064")


def find(case: Case) -> Iterator[Finding]:
    """The finding with the subtraction that the log shows, and the part that is to blame."""
    reading = case.reading
    if reading.came_up:
        return
    error = reading.facts.first("err_none", "err_autofit", "err_metal", "told_none")
    left = _nothing_left(case)
    if error is None and not left:
        return
    available = reading.size("available")
    if error is not None and error.id == "err_metal":
        yield _metal(error)
        return
    size = f"{show_bytes(available)} is left" if available is not None else "nothing is left"
    if available is None and left and left[-1].id.startswith("blocks"):
        size = "0 blocks fit"
    what = "even one token of an automatic max_model_len" if error and error.id == "err_autofit" else "the KV cache"
    blame, advice = _blame(case)
    lines = {fact.line: fact for fact in (*left[:2], error) if fact}
    yield RULE.found(
        f"No memory for {what}: {size} of the budget after weights and activations.",
        f"{ledger_text(case)} {blame}".strip(),
        evidence=[shown(fact) for fact in lines.values()],
        advice=advice,
    )


def _nothing_left(case: Case) -> list[Fact]:
    """The lines that show a remainder of zero or less, or no blocks."""
    facts = case.reading.facts
    some = facts.first("err_bytes", "tokens") is not None
    found = [fact for fact in facts.all(*_LEFT) if _is_nothing(fact, some)]
    found += [fact for fact in facts.all("blocks_v0", "blocks_v1", "blocks_info") if fact.whole("blocks") == 0]
    return list({fact.line: fact for fact in found}.values())


def _is_nothing(fact: Fact, some: bool) -> bool:
    """Whether ``fact`` leaves nothing; 0.00 may be rounded where ``some`` cache came of it."""
    left = fact.number("gib" if fact.id == "available" else "available")
    return left is not None and (left < 0 or (left == 0 and not some))


def _metal(error: Fact) -> Finding:
    sizes = {name: error.gib(name) or 0 for name in ("requested", "weights", "other", "available")}
    rest = sizes["requested"] - sizes["weights"] - sizes["other"]
    why = (
        f"{show_bytes(sizes['requested'])} usable - {show_bytes(sizes['weights'])} model - "
        f"{show_bytes(sizes['other'])} overhead = {show_bytes(rest)}."
    )
    if abs(rest - sizes["available"]) > GIB // 10:
        hidden = show_bytes(rest - sizes["available"])
        why += (
            f" The message says {show_bytes(sizes['available'])}, so it subtracts {hidden} that it does not list: "
            "something is counted twice."
        )
    return RULE.found(
        f"No Metal memory for the KV cache: the budget comes to {show_bytes(sizes['available'])}.",
        why,
        evidence=(shown(error),),
        advice=first(
            (
                "A newer vllm-metal: the printed parts do not add up." if rest > 0 else None,
                "A smaller or more strongly quantised model.",
                "Close other programs that use the unified memory.",
            )
        ),
    )


def _blame(case: Case) -> tuple[str, tuple[str, ...]]:
    """Which part uses up the budget, and what to do about it."""
    reading, share, total = case.reading, utilization_of(case), case.total_bytes
    weights, activation, other = (reading.size(name) for name in ("weights", "activation", "other"))
    budget = reading.size("requested") or (int(total * share) if total and share else None)
    ledger = case.prediction.ledger if case.prediction is not None else None
    weights = ledger.weights.expected if weights is None and ledger else weights
    activation = ledger.activation.expected if activation is None and ledger else activation
    raised = _raised(case)
    heavy = ["A quantised checkpoint of the model.", more_ranks(case)]
    if weights is not None and budget is not None and weights >= budget:
        text = f"The weights of {show_bytes(weights)} alone exceed the budget of {show_bytes(budget)}."
        return text, first((raised, *heavy, lighter_batch(case)[0]))
    if other is not None and total and other > max(total // 10, 2 * GIB):
        text = f"{show_bytes(other)} lies outside PyTorch, much of it likely held by other programs."
        return text, first(("Stop the other programs on the card.", raised, *lighter_batch(case)))
    if share is not None and share < 0.6 and _charges_neighbours(case):
        text = f"This release counts memory of other programs against its share of {share:g}."
        return text, first((raised or _higher(share), "Stop the other programs on the card.", *_newer(case)))
    if weights is not None and activation is not None and activation > weights // 4 and activation > GIB // 2:
        return f"The activation peak of {show_bytes(activation)} is what can be lowered.", first(
            (raised, *lighter_batch(case), *heavy)
        )
    if weights is not None and total and weights > total * 0.75:
        text = f"The weights of {show_bytes(weights)} fill most of the {show_bytes(total)} of the GPU."
        return text, first((raised, *lighter_batch(case), *heavy))
    if raised is None and (share is None or share < 0.85):
        raised = higher_share(case) if share is None else _higher(share)
    batch = lighter_batch(case)
    return "", first((raised or higher_share(case), *batch[:2], *heavy, *batch[2:]))


def _raised(case: Case) -> str | None:
    """A utilisation at which one request, or at least some cache, fits; None where the card has no more."""
    available = case.reading.size("available")
    if available is None:
        return None
    pool = case.prediction.pool if case.prediction is not None else None
    need = pool.needed_bytes if pool is not None else 512 * MIB
    share = more_share(case, max(need, 512 * MIB) - available)
    return share_flag(share) if share else None


def _higher(share: float) -> str:
    return share_flag(min(0.9, math.ceil((share + 0.2) * 10) / 10))


def _charges_neighbours(case: Case) -> bool:
    """Whether the release counts what other programs hold as used by itself."""
    if case.release is None:
        return False
    early = not case.since("0.9.1") and bool(case.since("0.8.0")) and case.reading.engine != "V0"
    return early or case.release[:3] in {(0, 2, 5), (0, 2, 6), (0, 2, 7), (0, 6, 4)}


def _newer(case: Case) -> tuple[str, ...]:
    """The way out of that accounting where there is one."""
    if case.since("0.8.0") and not case.since("0.9.1"):
        return ("VLLM_USE_V1=0 (or vLLM 0.9.1 and later: they do not count other programs)",)
    return ("A newer release of vLLM.",)
