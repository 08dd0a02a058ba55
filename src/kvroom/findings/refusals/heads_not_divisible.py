"""KVR243: heads or quantised weights that cannot be dealt to the tensor-parallel ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause
from kvroom.vllm.parallel import deals

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR243",
    "not-divisible-by-ranks",
    Severity.ERROR,
    "The tensor-parallel size does not divide the heads, or cuts through groups of quantised weights.",
    explanation(
        what="""
            Reads the refusals about attention heads, about partitions of quantised weights that a kernel's
            tile or a quantisation group does not divide, and about other sizes that leave a rest.
            """,
        why="""
            Tensor parallelism gives every rank the same share of each matrix.
            The heads must divide evenly, and the share of a quantised matrix must hold whole groups (128
            weights as a rule) and whole tiles of the kernel.
            """,
        example="""
            28 heads on 8 ranks; an intermediate size of 18944 on 8 ranks is 2368 each, which groups of 128 do
            not divide (2368 = 18.5 x 128).
            """,
        cure="""
            A smaller tensor-parallel size that divides, and `--pipeline-parallel-size` for the other GPUs:
            it splits layers.
            Mixture-of-experts models can keep whole experts with `--enable-expert-parallel`.
            """,
        since="All releases.",
        references="""
            `vllm/config/model.py: ModelConfig.verify_with_parallel_config`,
            `vllm/model_executor/layers/quantization/utils/marlin_utils.py`
            """,
    ),
)
_PART = re.compile(r"=\s?(\d{1,9})\b.{0,80}? is not divisible")
_MOST = 64


def find(case: Case) -> Iterator[Finding]:
    """The finding with the sizes that divide."""
    fact = cause(case, "err_heads", "err_marlin", "err_quant_aligned", "err_divide")
    if fact is None:
        return
    if fact.id == "err_heads":
        yield from _heads(case, fact)
    elif fact.id == "err_divide":
        yield from _divide(case, fact)
    else:
        yield from _groups(case, fact)


def _heads(case: Case, fact: Fact) -> Iterator[Finding]:
    heads, ranks = fact.whole("heads"), fact.whole("tensor_parallel_size")
    if not heads or not ranks:
        return
    known = case.prediction.setup.shape.kv_heads if case.prediction is not None else 0
    sizes = [n for n in range(1, min(heads, _MOST) + 1) if heads % n == 0 and (not known or deals(heads, known, n))]
    yield RULE.found(
        f"{heads} attention heads cannot be dealt to {ranks} ranks; {', '.join(map(str, sizes))} divide them.",
        f"{heads} / {ranks} leaves a rest of {heads % ranks}, and every rank needs the same number of heads.",
        evidence=(shown(fact),),
        # without the KV heads a power of two is the safe choice: 4 or 8 KV heads are usual
        advice=_advice(ranks, sizes if known else [n for n in sizes if n & (n - 1) == 0]),
    )


def _divide(case: Case, fact: Fact) -> Iterator[Finding]:
    size, parts = fact.whole("size"), fact.whole("parts")
    if not size or not parts:
        return
    sizes = [n for n in (1, 2, 4, 8, 16) if n < parts and size % n == 0]
    yield RULE.found(
        f"A size of {size:,} in the model cannot be split into {parts} equal parts.",
        f"Tensor parallelism splits every matrix evenly; {size:,} / {parts} leaves a rest of {size % parts}.",
        evidence=(shown(fact),),
        advice=_advice(parts, sizes) if case.whole("tensor_parallel_size") in {None, parts} else (),
    )


def _groups(case: Case, fact: Fact) -> Iterator[Finding]:
    ranks = case.whole("tensor_parallel_size") or case.reading.gpus
    found = _PART.search(fact.text)
    part, group = (int(found[1]) if found else None), fact.whole("value")
    on = f" on {ranks} ranks" if ranks and ranks > 1 else ""
    if part and group:
        title = f"A quantised matrix of {part:,} a rank{on} does not divide by {fact.values['what']} {group}."
    else:
        title = f"The share of a quantised matrix{on} does not hold whole quantisation groups."
    why = f"{part:,} = {part / group:.4g} x {group}: the kernel needs whole ones." if part and group else ""
    sizes = [1]
    if ranks and part and group:
        sizes = [n for n in range(1, min(ranks, _MOST)) if ranks % n == 0 and part * ranks // n % group == 0]
    advice: list[str] = []
    if ranks and ranks > 1:
        advice += _advice(ranks, sizes if part else [n for n in range(1, min(ranks, _MOST)) if ranks % n == 0])
        advice.append("--enable-expert-parallel (if it is a mixture of experts: experts then stay whole)")
    else:
        advice.append("Use another quantisation of the model: the kernel cannot take this shape even on one GPU.")
    if "--quantization gptq" in fact.text:
        advice.append("--quantization gptq (slower kernel with smaller tiles)")
    yield RULE.found(title, why, evidence=(shown(fact),), advice=advice)


def _advice(ranks: int, sizes: list[int]) -> list[str]:
    """The largest size that works, and the split that keeps all GPUs at work."""
    less = [n for n in sizes if n < ranks]
    if not less:
        return []
    near = max(less)
    advice = [f"--tensor-parallel-size {near}"]
    even = max(n for n in (1, *less) if ranks % n == 0)
    if ranks // even > 1:
        advice.append(f"--tensor-parallel-size {even} --pipeline-parallel-size {ranks // even} (uses all {ranks} GPUs)")
    return advice
