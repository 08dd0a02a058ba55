"""How a model can be spread over GPUs: tensor, pipeline and data parallel sizes that divide it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kvroom.models.shape import ModelShape
from kvroom.vllm.parallel import deals

REPLICAS = 64
"""The most data-parallel replicas that are tried."""
STAGES = 4
"""The most pipeline stages within one node: each adds waiting to every token."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of one way to spread a model; their product is the number of GPUs."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: bool = False
    """Whole experts are dealt over tensor and data parallel ranks, instead of slices of each."""
    nodes: int = 1

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.tp * self.pp * self.dp

    def flags(self) -> tuple[str, ...]:
        """The words for ``vllm serve``; nothing for sizes of one. Ray spans nodes (in every release)."""
        words: list[str] = []
        for flag, size in (
            ("--tensor-parallel-size", self.tp),
            ("--pipeline-parallel-size", self.pp),
            ("--data-parallel-size", self.dp),
        ):
            if size > 1:
                words += [flag, str(size)]
        if self.ep:
            words.append("--enable-expert-parallel")
        if self.nodes > 1:
            words += ["--distributed-executor-backend", "ray"] if self.dp == 1 else ["--data-parallel-backend", "ray"]
        return tuple(words)

    def label(self) -> str:
        """For a table: ``TP 4``, ``TP 2 x PP 2``, ``-`` for one GPU."""
        sizes = (("TP", self.tp), ("PP", self.pp), ("DP", self.dp))
        text = " x ".join(f"{name} {size}" for name, size in sizes if size > 1) or "-"
        return f"{text} + EP" if self.ep else text


@cache
def layouts(shape: ModelShape, gpus: int, per_node: int) -> tuple[Layout, ...]:
    """Every way to spread ``shape`` over ``gpus`` GPUs in nodes of ``per_node``.

    Tensor parallel ranks stay within a node, where the links are fast. Replicas of a model with routed experts deal
    whole experts over their ranks where that divides, as vLLM's own recipes do.
    """
    nodes = -(-gpus // per_node)
    if nodes > 1 and gpus % per_node:
        return ()
    found = []
    for tp in range(1, min(gpus, per_node) + 1):
        if gpus % tp or (per_node % tp and nodes > 1) or not deals(shape.heads, shape.kv_heads, tp):
            continue
        rest = gpus // tp
        for pp in range(1, rest + 1):
            dp = rest // pp
            deep = pp > max(STAGES, nodes) or pp > max(shape.layers, 1)
            if rest % pp or deep or dp > REPLICAS or (dp > 1 and pp > 1 and nodes > 1):
                continue
            whole = shape.is_moe and dp > 1 and shape.experts.routed % (tp * dp) == 0
            found.append(Layout(tp, pp, dp, ep=whole, nodes=nodes))
    return tuple(found)


def counts(per_node: int, most: int) -> tuple[int, ...]:
    """Numbers of GPUs to try, rising: powers of two within a node, then whole nodes."""
    within = [1 << power for power in range(per_node.bit_length()) if 1 << power <= min(per_node, most)]
    if per_node not in within and per_node <= most:
        within.append(per_node)
    return (*within, *range(2 * per_node, most + 1, per_node))
