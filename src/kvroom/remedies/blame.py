"""What vLLM's error leaves out: the attention backend in use and the setting to blame."""

from __future__ import annotations

from kvroom.ledger.predict import Prediction
from kvroom.ledger.verdict import Status
from kvroom.remedies.advise import Advice
from kvroom.remedies.remedy import Remedy
from kvroom.units import show_bytes
from kvroom.vllm.settings import Settings

_SETTINGS = ("attention_backend", "max_num_seqs", "max_num_batched_tokens", "limit_mm_per_prompt")
"""The first of these that would make up at least half of the shortage is to blame."""


def left_out(prediction: Prediction, advice: Advice) -> str | None:
    """One or two sentences for a launch that fails or may fail; None for one that fits or stops earlier."""
    backend = prediction.backend
    if prediction.verdict.status is Status.FITS or backend is None:
        return None
    said = f"The attention backend is {backend.name} ({backend.how})."
    if prediction.ledger is None or prediction.pool is None or prediction.settings is None:
        return said
    return f"{said} {_setting(prediction, prediction.settings, advice)}"


def shortage(prediction: Prediction) -> int:
    """Bytes that are missing for one request of max_model_len, at the expected value of every entry."""
    pool, layout, ledger = prediction.pool, prediction.layout, prediction.ledger
    assert pool is not None
    assert layout is not None
    assert ledger is not None
    reserve = layout.bytes_per_block if prediction.rules["kv_reserves_null_block"] else 0
    return pool.needed_bytes + reserve - ledger.available.expected


def _setting(prediction: Prediction, settings: Settings, advice: Advice) -> str:
    ledger, pool = prediction.ledger, prediction.pool
    assert ledger is not None
    assert pool is not None
    if prediction.verdict.stage == "device_memory_check":
        return "Other programs hold memory on the card; the setting to change is --gpu-memory-utilization."
    if ledger.weights.expected >= ledger.requested.expected:
        return (
            f"The weights ({show_bytes(ledger.weights.expected)} a GPU) are larger than the budget "
            f"({show_bytes(ledger.requested.expected)}): no context setting cures that."
        )
    missing = shortage(prediction)
    suspects = sorted(
        (offer for offer in advice.offers if _single(offer) in _SETTINGS),
        key=lambda offer: _SETTINGS.index(_single(offer)),
    )
    culprit = next((offer for offer in suspects if _gain(prediction, offer) >= max(missing, 1) / 2), None)
    if culprit is not None:
        return f"{_accuse(prediction, settings, _single(culprit))} {_cure(prediction, culprit)}"
    return (
        f"The setting to blame is --max-model-len ({settings.max_model_len:,}): one request needs "
        f"{show_bytes(pool.needed_bytes)}, and the longest that fits is {pool.longest_context:,} tokens."
    )


def _single(remedy: Remedy) -> str:
    return remedy.changes[0][0] if len(remedy.changes) == 1 else ""


def _gain(prediction: Prediction, remedy: Remedy) -> int:
    if prediction.ledger is None or remedy.after.ledger is None:
        return 0
    return remedy.after.ledger.available.expected - prediction.ledger.available.expected


def _accuse(prediction: Prediction, settings: Settings, argument: str) -> str:
    backend, ledger = prediction.backend, prediction.ledger
    assert ledger is not None
    if argument == "attention_backend" and backend is not None:
        return f"The backend is to blame: its workspace takes {show_bytes(backend.workspace_bytes)} of the budget."
    if argument == "limit_mm_per_prompt":
        return f"Profiling the vision encoder is to blame: {show_bytes(ledger.activation.expected)} of activation."
    flag = "--" + argument.replace("_", "-")
    value = settings.max_num_seqs if argument == "max_num_seqs" else settings.max_num_batched_tokens
    return (
        f"The setting to blame is {flag} ({value:,}): it makes the activation peak "
        f"{show_bytes(ledger.activation.expected)}."
    )


def _cure(prediction: Prediction, remedy: Remedy) -> str:
    pool, after = prediction.pool, remedy.after.pool
    if pool is None or after is None:
        return ""
    return f"{' '.join(remedy.flags)} leaves {after.num_blocks:,} blocks instead of {pool.num_blocks:,}."
