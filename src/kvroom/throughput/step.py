"""How long one engine step takes: what it reads and what it computes, whichever is longer, and what cannot hide."""

from __future__ import annotations

from kvroom.throughput.card import Card
from kvroom.throughput.costs import Costs
from kvroom.throughput.factors import Factors

_BANDWIDTH, _RATE = 2.0e12, 3.12e14
"""Bytes and operations a second of the card (an A100) at which the shares are those of the factors."""
_EAGER = 6.0e-5
"""Seconds a layer takes more when its kernels are launched one by one."""


def step_seconds(
    costs: Costs,
    card: Card,
    factors: Factors,
    decodes: float,
    context: float,
    chunk: float = 0.0,
    before: float = 0.0,
) -> float:
    """Seconds of a step with ``decodes`` sequences of ``context`` tokens and a ``chunk`` of prompt tokens.

    ``before`` is what a token of the chunk looks back at on average. With pipeline stages the batch is cut into as
    many parts, which follow each other through all stages.
    """
    if costs.pp > 1:
        parts = costs.pp
        return parts * _stage(costs, card, factors, decodes / parts, context, chunk / parts, before)
    return _stage(costs, card, factors, decodes, context, chunk, before)


def _stage(
    costs: Costs, card: Card, factors: Factors, decodes: float, context: float, chunk: float, before: float
) -> float:
    tokens = decodes + chunk
    if tokens <= 0:
        return 0.0
    reading, computing = (
        reading_seconds(costs, card, factors, decodes, context, chunk, before),
        computing_seconds(costs, card, factors, decodes, context, chunk, before),
    )
    core = max(reading, computing) + factors.overlap * min(reading, computing)
    sampled = decodes + (1.0 if chunk else 0.0)
    if costs.heads_here:
        core += factors.logits * sampled * costs.vocab / costs.tp / bandwidth(card, factors)
    fixed = factors.step * (0.4 if costs.overlaps else 1.0) / costs.pp + factors.request * sampled
    fixed += costs.layers * (factors.layer + (_EAGER if costs.eager else 0.0))
    return core + fixed + _communication(costs, card, factors, tokens)


def reading_seconds(
    costs: Costs, card: Card, factors: Factors, decodes: float, context: float, chunk: float, before: float
) -> float:
    """Seconds to read weights and cache."""
    tokens = (decodes + chunk) * (costs.dp if costs.gathers else 1)
    weights = float(costs.weights)
    if costs.expert_share:
        hit = 1.0 - (1.0 - costs.expert_share) ** tokens
        weights += costs.experts * hit / factors.experts
    if costs.unpacks:
        weights /= factors.unpack
    cache = decodes * costs.read(context)
    if chunk:
        cache += costs.read(2 * before)
    return (weights + cache) / bandwidth(card, factors)


def bandwidth(card: Card, factors: Factors) -> float:
    """Bytes a second that decoding reaches."""
    share: float = factors.bandwidth * (_BANDWIDTH / card.bandwidth) ** factors.falls
    return card.bandwidth * share


def arithmetic(card: Card, factors: Factors, bits: int) -> float:
    """Operations a second that long batches reach in linear layers."""
    rate = {16: card.half, 8: card.eight, 4: card.four}[bits]
    share: float = factors.compute * (_RATE / rate) ** factors.steep
    return rate * share


def computing_seconds(
    costs: Costs, card: Card, factors: Factors, decodes: float, context: float, chunk: float, before: float
) -> float:
    """Seconds of arithmetic."""
    tokens = decodes + chunk
    rate = arithmetic(card, factors, costs.bits)
    if costs.unpacks:
        rate *= factors.unpack
    linear = costs.flops * tokens
    linear += costs.expert_flops * tokens * (costs.dp if costs.gathers else 1) / factors.experts
    looked = decodes * costs.seen(context) + chunk * costs.seen(before)
    return linear / rate + costs.attention_flops * looked * factors.compute / factors.attention / arithmetic(
        card, factors, 16
    )


def _communication(costs: Costs, card: Card, factors: Factors, tokens: float) -> float:
    """Seconds of all-reduces between tensor parallel ranks, of gathered tokens between replicas, between stages."""
    ranks = costs.tp * (costs.dp if costs.gathers else 1)
    link = card.link * (factors.link if card.fabric else factors.link_pcie)
    if ranks == 1 and costs.pp == 1:
        return 0.0
    latency = factors.reduce_fabric if card.fabric else factors.reduce_pcie
    n_bytes = 2.0 * tokens * costs.hidden
    seconds = 0.0
    if costs.tp > 1:
        moved = 2 * n_bytes * (costs.tp - 1) / costs.tp
        seconds += 2 * costs.layers * (latency + moved / link)
    if costs.gathers:
        moved = 2 * n_bytes * (costs.dp - 1)
        seconds += costs.layers * (2 * latency + moved / link)
    if costs.pp > 1:
        seconds += latency + n_bytes / link
    return seconds
