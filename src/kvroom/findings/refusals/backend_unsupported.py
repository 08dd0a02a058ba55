"""KVR245: no attention backend takes this launch, or the chosen one does not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import backend_option, cause, chosen_backend, short

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR245",
    "attention-backend-unsupported",
    Severity.ERROR,
    "The attention backend cannot serve this head size, dtype, KV cache or card.",
    explanation(
        what="""
            Reads the refusal of a backend that was chosen by hand, of a head size, or of every backend, and
            takes the reasons apart.
            """,
        why="""
            Every attention backend covers some head sizes, KV cache dtypes, block sizes, kinds of attention and
            compute capabilities.
            vLLM stops when the chosen one, or all of them, lack one that the launch needs.
            """,
        example="""
            `--attention-backend FLASHINFER` for a head size that it does not have; `--kv-cache-dtype fp8` where
            only backends for Hopper take it.
            """,
        cure="""
            Leave the backend to vLLM; drop the setting that the reasons name (`--kv-cache-dtype`,
            `--block-size`); otherwise a newer card or release.
            """,
        since="""
            The list of reasons since vLLM 0.11.1; `--attention-backend` since 0.13, before it
            `VLLM_ATTENTION_BACKEND`, which is ignored since 0.15.
            """,
        references="`vllm/platforms/cuda.py: get_attn_backend_cls`, `vllm/v1/attention/backend.py`",
    ),
)
_BY_BACKEND = re.compile(r"(\w{3,60}): \[([^\]]{0,400})\]")
_CURES = {
    "kv_cache_dtype not supported": "Drop --kv-cache-dtype: the cache then has the model's dtype.",
    "block_size not supported": "Drop --block-size.",
    "dtype not supported": "--dtype auto",
    "batch invariance not supported": "Drop VLLM_BATCH_INVARIANT.",
    "DCP not supported": "Drop --decode-context-parallel-size.",
    "compute capability not supported": "Look for a newer vLLM or a newer card: the kernels do not exist for this one.",
    "sparse not supported": "Look for a newer vLLM: sparse attention has few backends, most for Hopper and Blackwell.",
}


def find(case: Case) -> Iterator[Finding]:
    """The finding with the reasons."""
    fact = cause(case, "err_backend_invalid", "err_backend_none", "err_head_size", "err_backend_kernel")
    if fact is None:
        return
    if fact.id == "err_backend_none":
        yield _none(fact)
        return
    if fact.id == "err_backend_kernel":
        yield _kernel(case, fact)
        return
    backend = fact.values["backend"].rpartition(".")[2]
    if fact.id == "err_head_size":
        sizes = re.search(r"Supported head sizes are: (\[[\d, ]{1,300}\])", fact.text)
        reasons = f"head size {fact.values['head_size']}"
        why = f"It has {sizes[1]}." if sizes else ""
    else:
        reasons = short(", ".join(_words(fact.values["reason"].strip("[]"))))
        why = ""
    yield RULE.found(
        f"{backend} cannot serve this launch: {reasons}.",
        why,
        evidence=(shown(fact),),
        advice=_flexible(fact.text) or _chosen(case, reasons),
    )


def _kernel(case: Case, fact: Fact) -> Finding:
    """What the kernels of FlashAttention themselves refuse."""
    if "Sinks" in fact.text:
        return RULE.found(
            "The model's attention sinks need FlashAttention 3, which runs on Hopper only.",
            "On other cards another backend has them: Triton on older ones, FlashInfer on Blackwell.",
            evidence=(shown(fact),),
            advice=(chosen_backend(case, "TRITON_ATTN"), "Take the newest vLLM: it chooses a backend that fits."),
        )
    return RULE.found(
        "FlashAttention's kernels do not take this model or card.",
        f"They say: {short(fact.text)}",
        evidence=(shown(fact),),
        advice=(
            "Remove the package flash-attn if it was installed by hand: pip uninstall flash-attn",
            chosen_backend(case, "TRITON_ATTN"),
        ),
    )


def _none(fact: Fact) -> Finding:
    reasons = {name: _words(text) for name, text in _BY_BACKEND.findall(fact.values.get("reason", ""))}
    counted = Counter(reason for found in reasons.values() for reason in found)
    # what keeps a backend away that nothing else does would free it
    alone = Counter(found[0] for found in reasons.values() if len(found) == 1)
    order = [reason for reason, _ in (*alone.most_common(), *counted.most_common())]
    cures = [_CURES[reason] for reason in dict.fromkeys(order) if reason in _CURES]
    listed = "; ".join(f"{name}: {', '.join(found)}" for name, found in reasons.items())
    return RULE.found(
        f"None of {len(reasons)} attention backends takes this launch." if reasons else "No attention backend fits.",
        f"{listed}." if listed else "",
        evidence=(shown(fact),),
        advice=cures[:3] or ["Try a newer vLLM, or a model without this kind of attention."],
    )


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip(" '\""))]


def _chosen(case: Case, reasons: str) -> list[str]:
    advice = [f"Drop {backend_option(case)}: vLLM then takes one that fits."]
    advice += [cure for reason, cure in _CURES.items() if reason in reasons.split(", ") and cure.startswith("Drop")]
    return advice


def _flexible(text: str) -> list[str]:
    """What the message itself offers."""
    return ["VLLM_ATTENTION_BACKEND=FLEX_ATTENTION"] if "VLLM_ATTENTION_BACKEND=FLEX_ATTENTION" in text else []
