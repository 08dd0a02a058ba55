"""What a report's "what fixed it" names, and whether one of two remedies is that.

A cure is the name of an argument (``max_model_len``), of a variable (``VLLM_USE_V1``) or of a deed
(``free_the_gpu``). For the share of memory the direction counts as well: up where the fix was up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UTILIZATION = "gpu_memory_utilization"


@dataclass(frozen=True, slots=True)
class Cure:
    """One change that helped, or that is offered."""

    name: str
    direction: str = ""
    """``up`` or ``down`` where the text says so."""
    value: float | None = None
    """The share of memory, where one is named."""


_FAILED = re.compile(
    r"without success|doubtful|does not (?:help|address)|did not help|no effect|breaks on", re.IGNORECASE
)
_ASIDE = re.compile(r"\([^()]*\)")
_UP = re.compile(r"\b(?:rais|higher|increas|larger|more)", re.IGNORECASE)
_DOWN = re.compile(r"\b(?:lower|reduc|decreas|smaller|less)", re.IGNORECASE)
_SHARE = r"(?<![\d.])0?\.\d{1,4}(?!\.?\d)"
_UTILIZATION = re.compile(
    rf"utili[sz]ation\b(?:\s*(?:to|=|of)?\s*(?P<value>{_SHARE}))?|(?P<alone>{_SHARE})", re.IGNORECASE
)
_LENGTH = re.compile(r"\s*[1-9]\d{3,6}\b(?!\s*(?:seqs|sequences|requests))")
_ENVIRONMENT = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_ARGUMENT = re.compile(r"(?<![\w-])--(?:no-)?([a-z][a-z0-9_-]*[a-z0-9])")

_WORDS = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        (
            "max_model_len",
            r"max[-_ ]?model[-_ ]?len(?:gth)?\b|(?:short|small)er context|context length|max[-_ ]seq[-_ ]len\b",
        ),
        ("max_num_seqs", r"max[-_ ]num[-_ ]seqs|smaller batch|fewer (?:sequences|requests)"),
        ("max_num_batched_tokens", r"max[-_ ]num[-_ ]batched[-_ ]tokens|smaller batch"),
        ("enforce_eager", r"\beager\b|enforce[-_ ]eager"),
        ("kv_cache_memory_bytes", r"kv[-_ ]cache[-_ ]memory|\bKV_MEM\b"),
        ("kv_cache_dtype", r"kv[-_ ]cache[-_ ]dtype|fp8 (?:kv|cache)"),
        ("cudagraph_capture_sizes", r"capture[-_ ]sizes?"),
        ("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", r"graph (?:memory )?(?:estimate|profiling) off"),
        ("VLLM_USE_V1", r"\bV[01]\b(?! model runner)"),
        ("limit_mm_per_prompt", r"limit[-_ ]mm[-_ ]per[-_ ]prompt"),
        ("mm_processor_kwargs", r"mm[-_ ]processor[-_ ]kwargs|max_pixels"),
        ("tensor_parallel_size", r"tensor[-_ ]parallel|\btp[ =]?\d|more GPUs"),
        ("pipeline_parallel_size", r"pipeline[-_ ]parallel|\bpp[ =]?\d"),
        ("speculative_config", r"speculative|draft tokens|DFLASH_TOKENS|num[-_ ]spec"),
        ("swap_space", r"swap[-_ ]space"),
        ("cpu_offload_gb", r"cpu[-_ ]offload"),
        ("block_size", r"block[-_ ]size"),
        ("attention_backend", r"attention[-_ ]backend"),
        ("quantization", r"--quantization|quanti[sz]ed (?:model|weights|checkpoint)"),
        ("dtype", r"--dtype|\bfloat16\b|\bhalf\b"),
        ("shm_size", r"shm[-_ ]size|/dev/shm|--ipc"),
        ("trust_remote_code", r"trust[-_ ]remote[-_ ]code"),
        ("expandable_segments", r"expandable[-_ ]segments|PYTORCH_(?:CUDA_)?ALLOC_CONF"),
        ("CUDA_VISIBLE_DEVICES", r"(?:select|choose|another|other) (?:device|gpu)s?\b"),
        ("MAX_JOBS", r"\bMAX_JOBS\b"),
        ("free_the_gpu", r"\bkill|(?:stop|clos|end)\w* (?:the )?(?:old|other)|zombie"),
    )
)
_SAME = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments", "PYTORCH_ALLOC_CONF": "expandable_segments"}
_SAME |= {"DFLASH_TOKENS": "speculative_config", "KV_MEM": "kv_cache_memory_bytes"}
_SAME |= {"num_speculative_tokens": "speculative_config", "spec_tokens": "speculative_config"}
_SAME |= {"kv_cache_memory": "kv_cache_memory_bytes", "max_cudagraph_capture_size": "cudagraph_capture_sizes"}
_SAME |= {
    "cuda_graph_sizes": "cudagraph_capture_sizes",
    "VLLM_ATTENTION_BACKEND": "attention_backend",
    "ipc": "shm_size",
}
_SHORT = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-q": "quantization",
    "-sc": "speculative_config",
}


def cures_of(text: str) -> tuple[Cure, ...]:
    """The changes that ``text`` says to have helped; none where it says that they did not.

    >>> [(cure.name, cure.direction) for cure in cures_of("Lower utilisation or --enforce-eager.")]
    [('gpu_memory_utilization', 'down'), ('enforce_eager', '')]
    >>> [cure.name for cure in cures_of("0.85, or max-model-len 163840.")]
    ['gpu_memory_utilization', 'max_model_len']
    >>> cures_of("PR #2863 / #2249."), cures_of("0.2.4."), cures_of("Eager tried without success.")
    ((), (), ())
    """
    if _FAILED.search(text) or text.startswith("Attempted"):
        return ()
    text = _ASIDE.sub(" ", text).strip() or text
    return tuple(dict.fromkeys((*_shares(text), *(Cure(name) for name in _names(text)))))


def _names(text: str) -> Iterator[str]:
    for name, pattern in _WORDS:
        if pattern.search(text):
            yield name
    for name in _ENVIRONMENT.findall(text):
        yield _SAME.get(name, name)
    for flag in _ARGUMENT.findall(text):
        name = flag.replace("-", "_")
        if name != UTILIZATION:
            yield _SAME.get(name, name)
    if _LENGTH.match(text):
        yield "max_model_len"


def _shares(text: str) -> Iterator[Cure]:
    found = _UTILIZATION.search(text)
    if found is None:
        return
    before = re.split(r"[.;,]\s|/|\bor\b", text[: found.start()])[-1]
    direction = "up" if _UP.search(before) else "down" if _DOWN.search(before) else ""
    value = found["value"] or found["alone"]
    yield Cure(UTILIZATION, direction, float(value) if value else None)


def offered(remedy: Mapping[str, Any] | str) -> tuple[Cure, ...]:
    """The changes that ``remedy`` makes: those of its flags, else those that its words name.

    >>> offered({"flags": ["--max-model-len", "24576"]}), offered({"flags": ["VLLM_USE_V1=0"]})[0].name
    ((Cure(name='max_model_len', direction='', value=None),), 'VLLM_USE_V1')
    """
    if isinstance(remedy, str):
        return cures_of(remedy)
    flags = [str(token) for token in remedy.get("flags") or ()]
    if not flags:
        words = (remedy.get(key) for key in ("name", "title", "what", "why"))
        return cures_of(". ".join(str(each) for each in words if each))
    found = []
    for token, following in zip(flags, [*flags[1:], ""], strict=True):
        name, _, value = token.partition("=")
        if token.startswith("-"):
            name = _SHORT.get(name) or name.lstrip("-").removeprefix("no-").replace("-", "_")
        elif not re.fullmatch(r"[A-Z][A-Z0-9_]+", name):
            continue
        share = _number(value or following) if name == UTILIZATION else None
        found.append(Cure(_SAME.get(name, name), "", share))
    return tuple(found)


def cured(wanted: Iterable[Cure], remedies: Sequence[Mapping[str, Any] | str], before: float | None = None) -> bool:
    """Whether one of the first two remedies is a wanted cure, or one that the ledger shows to start.

    ``before`` is the share of memory of the launch: an offer in the other direction than the fix does not count.
    """
    for remedy in remedies[:2]:
        verdict = remedy.get("verdict") if isinstance(remedy, Mapping) else None
        if isinstance(verdict, Mapping) and verdict.get("status") == "fits":
            return True
        for offer in offered(remedy):
            if any(_same(offer, cure, before) for cure in wanted):
                return True
    return False


def _same(offer: Cure, cure: Cure, before: float | None) -> bool:
    if offer.name != cure.name:
        return False
    ways = {_direction(each, before) for each in (offer, cure)} - {""}
    return len(ways) < 2


def _direction(cure: Cure, before: float | None) -> str:
    if cure.direction or cure.value is None or before is None or cure.value == before:
        return cure.direction
    return "up" if cure.value > before else "down"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
