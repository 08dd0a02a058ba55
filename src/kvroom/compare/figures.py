"""The ledger and the pool of one side, from what a log prints or from a prediction."""

from __future__ import annotations

from collections.abc import Mapping

from kvroom.compare.side import Figure, Setting, known
from kvroom.ledger.predict import Prediction
from kvroom.logs.reading import Reading
from kvroom.units import GIB

LEDGER = ("requested", "weights", "activation", "other", "rest", "cuda_graphs", "available")
"""``rest`` is activation and other together, where a log tells only their sum."""
POOL = ("num_blocks", "tokens", "max_concurrency", "bytes_per_token", "needed_bytes")
_ROUNDED = 0.03 * GIB
"""By how much a sum of printed entries may miss."""


def ledger_of_log(
    reading: Reading, settings: Mapping[str, Setting], prediction: Prediction | None
) -> dict[str, Figure]:
    """The entries that the log prints or that follow from them, in bytes per GPU."""
    found = {
        name: known(size)
        for name in ("requested", "weights", "activation", "other", "available")
        if (size := reading.size(name)) is not None
    }
    if reading.pool.available_bytes is not None:
        found.setdefault("available", known(reading.pool.available_bytes))
    if "requested" not in found:
        requested = _requested(settings, prediction)
        if requested is not None:
            found["requested"] = requested
    consumed = reading.size("consumed")
    if "other" not in found and consumed is not None and "weights" in found:
        found["other"] = known(max(consumed - found["weights"].value, 0), "derived")
    graphs = _graphs(reading, settings)
    if graphs is not None:
        found["cuda_graphs"] = graphs
        _without_graphs(found)
    rest = _rest(found)
    if rest is not None:
        found["rest"] = rest
    return found


def ledger_of_prediction(prediction: Prediction) -> dict[str, Figure]:
    """The predicted entries, in bytes per GPU."""
    if prediction.ledger is None:
        return {}
    found = {entry.name: Figure(entry.expected, entry.low, entry.high, "predicted") for entry in prediction.ledger}
    parts = found["activation"], found["other"]
    value, low, high = (sum(getattr(part, end) for part in parts) for end in ("value", "low", "high"))
    found["rest"] = Figure(value, low, high, "predicted")
    return found


def pool_of_log(reading: Reading, settings: Mapping[str, Setting]) -> dict[str, Figure]:
    """The pool as printed; ``bytes_per_token`` is what is available by the tokens that it holds."""
    pool = reading.pool
    printed = {
        "num_blocks": pool.num_blocks,
        "tokens": pool.tokens,
        "max_concurrency": pool.max_concurrency,
        "needed_bytes": pool.needed_bytes,
    }
    found = {name: known(value) for name, value in printed.items() if value is not None}
    available = reading.size("available")
    fixed = settings.get("num_gpu_blocks_override", Setting(None)).value is not None
    if available and available > 0 and pool.tokens and not fixed:
        found["bytes_per_token"] = known(available / pool.tokens, "derived")
    return found


def pool_of_prediction(prediction: Prediction) -> dict[str, Figure]:
    """The predicted pool."""
    pool, ledger = prediction.pool, prediction.ledger
    if pool is None or ledger is None:
        return {}
    low, high = prediction.pool_low or pool, prediction.pool_high or pool
    found = {
        name: Figure(getattr(pool, name), getattr(low, name), getattr(high, name), "predicted")
        for name in ("num_blocks", "tokens", "max_concurrency", "needed_bytes")
    }
    if pool.tokens > 0 and pool.available_bytes > 0 and prediction.setup.args.num_gpu_blocks_override is None:
        found["bytes_per_token"] = known(pool.available_bytes / pool.tokens, "predicted")
    return found


def _requested(settings: Mapping[str, Setting], prediction: Prediction | None) -> Figure | None:
    """The share of the card that was asked for, where the log does not print it."""
    total, share = (settings.get(name, Setting(None)).value for name in ("total_bytes", "gpu_memory_utilization"))
    if isinstance(total, int) and isinstance(share, float | int) and 0 < share <= 1:
        return known(int(total * share), "derived")
    if prediction is None or prediction.ledger is None:
        return None
    return known(prediction.ledger.requested.expected, "derived")


def _graphs(reading: Reading, settings: Mapping[str, Setting]) -> Figure | None:
    """What was subtracted for CUDA graphs; None where nobody knows whether anything was."""
    counted = settings.get("graph_estimate")
    if counted is None:
        return None
    if not counted.value:
        return known(0, "derived")
    size = reading.size("graph_estimate")
    return None if size is None else known(size)


def _without_graphs(found: dict[str, Figure]) -> None:
    """Take the graph estimate out of the activation where the release prints it inside: the sum tells."""
    graphs, activation = found["cuda_graphs"].value, found.get("activation")
    others = [found.get(name) for name in ("requested", "weights", "other", "available")]
    if not graphs or activation is None or None in others:
        return
    requested, *parts = (figure.value for figure in others if figure is not None)
    left = requested - sum(parts) - activation.value
    if abs(left) < min(_ROUNDED, abs(left - graphs)) and activation.value >= graphs:
        found["activation"] = known(activation.value - graphs, "derived")


def _rest(found: Mapping[str, Figure]) -> Figure | None:
    if "activation" in found and "other" in found:
        return known(found["activation"].value + found["other"].value, "derived")
    parts = [found.get(name) for name in ("requested", "weights", "cuda_graphs", "available")]
    if any(part is None for part in parts):
        return None
    requested, *less = (part.value for part in parts if part is not None)
    return known(requested - sum(less), "derived")
