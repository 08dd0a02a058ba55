"""A traced plan: the plan's own report, and what was alive at the peak of the profile run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvroom.redaction import clean
from kvroom.report.as_json import cleaned, plan_data
from kvroom.units import show_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from kvroom.tracing.exact import Exact
    from kvroom.tracing.run import Tensor

_SHOWN = 8


def exact_data(exact: Exact) -> dict[str, Any]:
    """The plan's data with the key ``trace``; null where vLLM's code could not be asked (``problem`` says why)."""
    answer = exact.answer
    data = plan_data(exact.plan)
    data["kind"] = "dry-run"
    data["trace"] = None
    data["problem"] = cleaned(exact.problem) or None
    if answer is not None:
        data["trace"] = cleaned(
            {
                "vllm_version": answer.vllm_version,
                "engine": exact.engine.source if exact.engine else None,
                "runner": answer.runner,
                "settings": answer.settings,
                "weights": answer.weights,
                "activation": answer.activation,
                "backends": answer.backends,
                "pools": list(answer.pools),
                "at_peak": [
                    {
                        "bytes": each.n_bytes,
                        "shape": list(each.shape),
                        "dtype": each.dtype,
                        "operator": each.operator,
                    }
                    for each in answer.at_peak
                ],
                "guessed": list(answer.guessed),
                "seconds": answer.seconds,
                "peak_rss": answer.peak_rss,
            }
        )
    return data


def print_peak(exact: Exact, console: Console) -> None:
    """Print what was alive at the peak: the answer to what to lower."""
    if exact.answer is None or not exact.answer.at_peak:
        return
    console.print(f"\nAlive at the peak of the profile run ({show_bytes(exact.answer.activation)})", style="bold")
    for each in exact.answer.at_peak[:_SHOWN]:
        console.print(f"  {clean(described(each))}", markup=False, soft_wrap=True)


def described(tensor: Tensor) -> str:
    """One tensor in words, e.g. ``0.49 GiB  1,024 x 128,256 float32 (aten.softmax)``."""
    shape = " x ".join(f"{size:,}" for size in tensor.shape) or "a number"
    return f"{show_bytes(tensor.n_bytes):>10}  {shape} {tensor.dtype} ({tensor.operator.removesuffix('.default')})"
