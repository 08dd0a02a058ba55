"""LoRA slots: memory that vLLM sets aside beside every linear layer when adapters are enabled."""

from __future__ import annotations

from kvroom.models.weights.storage import Cut, block_bytes, rank_sizes
from kvroom.models.weights.tensor import Part, Tensor
from kvroom.vllm.rules import Rules
from kvroom.vllm.weights.launch import Launch


def lora_bytes(launch: Launch, cut: Cut, slots: tuple[int, int], layers: range) -> int:
    """Bytes of ``slots`` = (max_loras, max_lora_rank) on a rank that runs ``layers``.

    Every linear layer of the language model holds an A of rank x inputs for each of its fused parts and a
    B of outputs x rank, cut like the layer itself (lora/layers/base_linear.py: create_lora_weights; routed
    experts, in the releases that adapt them, lora/layers/fused_moe.py). Models that adapt embeddings hold
    both for the output head too (lora/layers/logits_processor.py).
    """
    loras, rank = slots
    rules = launch.rules
    adapts_head = launch.last and launch.shape.architecture in rules["lora_head_architectures"]
    total = 0
    for tensor in launch.shape.tensors:
        if tensor.part is Part.LM_HEAD and adapts_head:
            (rows,), hidden, _ = rank_sizes(tensor, cut)
            total += block_bytes(loras * rank * hidden * cut.element) + block_bytes(loras * rank * rows * cut.element)
        if not _adapted(tensor, rules):
            continue
        out, inp, copies = rank_sizes(tensor, cut)
        parts = len(out)
        held = sum(1 for layer in tensor.layers if layer in layers)
        if tensor.experts:
            size = copies * loras * rank * (parts * inp + sum(out)) * cut.element
            total += held * block_bytes(size)
        else:
            down = block_bytes(loras * rank * inp * cut.element)
            up = sum(block_bytes(loras * rank * size * cut.element) for size in out)
            total += held * copies * (parts * down + up)
    return total


def _adapted(tensor: Tensor, rules: Rules) -> bool:
    if not tensor.quantisable or not tensor.layers or tensor.part in (Part.VISION, Part.LM_HEAD, Part.DRAFT):
        return False
    return not tensor.experts or bool(rules["lora_adapts_experts"])
