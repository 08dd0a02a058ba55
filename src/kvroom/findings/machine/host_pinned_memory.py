"""KVR269: pinned host memory that the operating system does not give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.common import cause
from kvroom.findings.startup.common import first

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR269",
    "host-pinned-memory",
    Severity.ERROR,
    "The operating system refused pinned host memory: it is not the GPU that is full.",
    explanation(
        what="""
            Reads CUDA's `OS call failed or operation not supported on this OS` and vLLM's `UVA is not available`.
            """,
        why="""
            Fast copies between host and GPU need host memory that is pinned.
            WSL2 gives only a limited amount of it and none in some calls, however much memory is free.
            Swap space, KV offloading, CPU offloading and FlashInfer's buffers pin memory.
            """,
        example="FlashInfer's buffer in pinned memory on WSL2.",
        cure="""
            Drop what pins much: `--swap-space 0` on the V0 engine, no KV or CPU offloading, smaller caches for
            images.
            Give WSL more memory in .wslconfig, or run on Linux itself.
            """,
        since="All releases.",
        references="NVIDIA's CUDA on WSL guide: known limitations",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with what pins memory here."""
    fact = cause(case, "oom_os", "err_uva")
    if fact is None:
        return
    if fact.id == "err_uva":
        yield RULE.found(
            "Pinned host memory is switched off on WSL2, and the V2 model runner needs it.",
            "vLLM leaves it off on WSL unless it is asked for; GPU memory is not short.",
            evidence=(shown(fact),),
            advice=(
                "VLLM_WSL2_ENABLE_PIN_MEMORY=1 (wants a WSL kernel of 4.19.121 or newer: wsl --update)",
                "VLLM_USE_V2_MODEL_RUNNER=0 (takes the runner that does without)",
            ),
        )
        return
    offload = case.setting("cpu_offload_gb") or case.setting("kv_offloading_size") or case.setting("kv_transfer_config")
    backend = (case.reading.attention_backend or "").upper()
    flashinfer = "FLASHINFER" in backend or any("flashinfer" in near.text for near in case.reading.facts.all("frame"))
    yield RULE.found(
        "The operating system refused pinned host memory.",
        "GPU memory is not short: lower utilisation or a shorter context do not help. WSL2 limits pinned memory.",
        evidence=(shown(fact),),
        advice=first(
            (
                "Drop --cpu-offload-gb, --kv-offloading-size and KV connectors: they pin host memory."
                if offload
                else None,
                "--swap-space 0" if case.reading.engine == "V0" else None,
                "Try an attention backend without pinned buffers (FLASH_ATTN)." if flashinfer else None,
                "wsl --shutdown, then more memory in .wslconfig; or run on Linux itself",
            )
        ),
    )
