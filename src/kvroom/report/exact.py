"""A traced plan: the plan's own report, and what was alive at the peak of the profile run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
                "phase": answer.phase,
                "place": answer.place,
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
    answer = exact.answer
    if answer is None or not answer.at_peak:
        return
    where = f" in the {answer.phase}" if answer.phase else ""
    console.print(f"\nPeak of the profile run: {show_bytes(answer.activation)}{where}", style="bold")
    if answer.place:
        console.print(f"  reached in {clean(answer.place)}, with these tensors alive:", markup=False, soft_wrap=True)
    names = sizes_of(exact)
    for same in alike(answer.at_peak)[:_SHOWN]:
        console.print(f"  {clean(described(same, names))}", markup=False, soft_wrap=True)


def sizes_of(exact: Exact) -> dict[int, str]:
    """Sizes of the launch by what they are, as far as they can be told apart."""
    settings, shape = exact.plan.prediction.settings, exact.plan.prediction.setup.shape
    if settings is None:
        return {}
    named = [
        (shape.vocab_size, "vocabulary"),
        (shape.hidden_size, "hidden size"),
        (settings.max_num_seqs, "max_num_seqs"),
        (settings.max_num_batched_tokens, "max_num_batched_tokens"),
    ]
    sizes = [size for size, _ in named]
    return {size: name for size, name in named if sizes.count(size) == 1 and size > 1}


def alike(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """``tensors`` of one shape and type together, the group with the most bytes first."""
    groups: dict[tuple[object, ...], list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault((tensor.shape, tensor.dtype, tensor.n_bytes), []).append(tensor)
    return sorted(groups.values(), key=lambda group: -sum(tensor.n_bytes for tensor in group))


def described(same: Sequence[Tensor], names: Mapping[int, str]) -> str:
    """Tensors of one shape in words, e.g. ``1.47 GiB  3 x [1,024 (max_num_seqs) x 128,256 float32] (aten.softmax)``."""
    first = same[0]
    shape = " x ".join(f"{size:,}" + (f" ({names[size]})" if size in names else "") for size in first.shape)
    times = f"{len(same)} x " if len(same) > 1 else ""
    makers = ", ".join(dict.fromkeys(tensor.operator.removesuffix(".default") for tensor in same))
    size = show_bytes(sum(tensor.n_bytes for tensor in same))
    return f"{size:>10}  {times}[{shape or 'a number'}] {first.dtype} ({makers})"
