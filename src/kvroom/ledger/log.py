"""The start-up lines that vLLM will print for a prediction, in its own words and order.

What no prediction can know (durations, dates, process ids) is written as ``<seconds>`` or left out.
"""

from __future__ import annotations

from kvroom.ledger.entries import Ledger
from kvroom.ledger.outcome import OUT_OF_MEMORY
from kvroom.ledger.overhead import counts_graphs, graph_memory
from kvroom.ledger.predict import EMPTY_STAGE, UNEVEN_HEADS, Prediction
from kvroom.units import GIB
from kvroom.vllm.messages import gib_in_log
from kvroom.vllm.settings import Settings


def predicted_log(prediction: Prediction) -> tuple[str, ...]:
    """The memory lines of this launch up to success or the error that ends it."""
    settings, rules = prediction.settings, prediction.rules
    verdict = prediction.verdict
    failure = _raised(prediction)
    if settings is None:
        return (failure,) if failure else ()
    lines = [
        _fill(rules["max_model_len_line"], max_model_len=str(settings.max_model_len)),
        _fill(rules["chunked_prefill_line"], tokens=str(settings.max_num_batched_tokens))
        if settings.enable_chunked_prefill
        else "",
    ]
    stages = _reached(prediction)
    pool_lines = prediction.pool.notes if prediction.pool is not None else ()
    lines += [line for line in pool_lines if line.startswith(_EARLY)]
    pool_lines = tuple(line for line in pool_lines if not line.startswith(_EARLY))
    if "weight_load" in stages and prediction.backend is not None:
        lines.append(prediction.backend.log_line)
    if "profile" in stages and prediction.ledger is not None:
        lines.append(_weights_line(prediction, prediction.ledger))
    if "kv_sizing" in stages and prediction.ledger is not None and prediction.layout and prediction.layout.groups:
        lines += _sizing_lines(prediction, prediction.ledger, settings)
    if "kv_alloc" in stages and prediction.pool is not None:
        lines += pool_lines
    if failure and "serving" not in stages:
        if prediction.pool is not None and verdict.stage == "kv_sizing":
            lines += pool_lines
        if verdict.stage == "weight_load" and verdict.message == OUT_OF_MEMORY and settings.model_runner == "V1":
            lines.append(rules["load_failed_line"])
        lines.append(failure)
    return tuple(line for line in lines if line)


_EARLY = ("Setting attention block size", "Padding mamba page size")
"""Lines about the cache that vLLM prints while it resolves the configuration."""
_ORDER = ("config", "device_memory_check", "weight_load", "profile", "kv_sizing", "kv_alloc", "serving")


def _reached(prediction: Prediction) -> tuple[str, ...]:
    """The stages that are begun when every part is as expected."""
    verdict = prediction.verdict
    pool = prediction.pool
    if verdict.stage is None or (verdict.status == "tight" and pool is not None and pool.fits):
        return _ORDER
    stop = verdict.stage if verdict.stage in _ORDER else "weight_load"
    return _ORDER[: _ORDER.index(stop) + 1]


def _fill(template: str, **values: str) -> str:
    return template.format(**values) if template else ""


def _weights_line(prediction: Prediction, ledger: Ledger) -> str:
    rules = prediction.rules
    weights = ledger.weights.expected
    return _fill(rules["weights_line"], gib=gib_in_log(weights, rules), gib4=f"{weights / GIB:.4f}")


def _sizing_lines(prediction: Prediction, ledger: Ledger, settings: Settings) -> list[str]:
    setup, rules = prediction.setup, prediction.rules
    fixed = setup.args.kv_cache_memory_bytes
    if fixed is not None:
        free = gib_in_log(setup.machine.free_before_launch(), rules)
        return [_fill(rules["reserved_line"], gib2=gib_in_log(fixed, rules), free=free)]
    lines = []
    if settings.capture_sizes and settings.engine == "V1":
        device = setup.machine.device
        counted = counts_graphs(setup.args, settings, device)
        graphs = ledger.cuda_graphs.expected if counted else graph_memory(setup.shape, setup.args, settings).expected
        # Model runner V2 estimates without a line, and nothing is estimated on other vendors' cards at first.
        if settings.model_runner == "V1" and device.vendor in rules["cudagraph_estimate_vendors"]:
            lines.append(_fill(rules["graph_estimate_line"], gib2=f"{graphs / GIB:.2f}"))
    lines.append(_fill(rules["available_line"], gib=gib_in_log(ledger.available.expected, rules)))
    return lines


def _raised(prediction: Prediction) -> str | None:
    """The last line of the traceback: the exception's class and text; None when nothing is raised."""
    message = prediction.verdict.message
    if message is None:
        return None
    if prediction.setup.args.unknown or message in (UNEVEN_HEADS, EMPTY_STAGE):
        return message
    if message == OUT_OF_MEMORY:
        return f"torch.OutOfMemoryError: {message}"
    if prediction.verdict.stage == "profile":
        return f"RuntimeError: {message}"
    return f"ValueError: {message}"
