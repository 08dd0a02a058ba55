"""What the findings about settings share: evidence from arguments, and the room outside the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvroom.findings.finding import Evidence
from kvroom.ledger.verdict import Status

if TYPE_CHECKING:
    from kvroom.ledger.predict import Prediction


def flag(name: str, value: object = None) -> Evidence:
    """The option ``name`` (vLLM's argument name) with its value as evidence.

    >>> flag("max_model_len", 32000).text
    '--max-model-len 32000'
    """
    option = "--" + name.replace("_", "-")
    return Evidence(option if value is None else f"{option} {_text(value)}")


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def free_bytes(prediction: Prediction) -> int:
    """Bytes free on the card before vLLM takes its share: as said, else the total less a CUDA context."""
    return prediction.setup.machine.free_before_launch()


def refused(prediction: Prediction) -> bool:
    """Whether vLLM stops at its configuration, before it touches the card."""
    return prediction.settings is None and prediction.verdict.status is Status.FAILS


def world_size(prediction: Prediction) -> int:
    """GPUs that the launch takes over all its data-parallel replicas."""
    args = prediction.setup.args
    return args.tensor_parallel_size * args.pipeline_parallel_size * args.data_parallel_size
