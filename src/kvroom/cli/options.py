"""The options that ``plan`` and ``check`` share; everything else on the line is vLLM's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--gpu", help="The card, e.g. 'RTX 4090' or '2x H100'. Default: the GPUs here."),
    click.option("--gpu-memory", help="Total memory of one card, where it differs, e.g. 23.6GiB."),
    click.option("--free-memory", help="Free memory of one card before the launch."),
    click.option("--vllm", help="vLLM release whose rules to use. Default: the installed one, else the newest known."),
    click.option(
        "--assume-quantization", help="Price the model as if its weights were stored so: awq, fp8, w4a16, ..."
    ),
    click.option(
        "--measured",
        multiple=True,
        help="A ledger entry that a log of this machine printed, e.g. activation=1.42GiB.",
    ),
    click.option(
        "--measured-with",
        help="Flags under which available=SIZE was logged, if they differ: '--attention-backend FLASH_ATTN'.",
    ),
    click.option("--without", multiple=True, help="A package that the vLLM environment lacks, e.g. flashinfer."),
    click.option("--env", multiple=True, help="An environment variable of the launch, NAME=VALUE."),
    click.option("--offline", is_flag=True, help="Read nothing from the hub."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON (schema kvroom/1)."),
    click.option("--explain", is_flag=True, help="Show every rule used, with its source."),
)


def shared(command: F) -> F:
    """``command`` with the shared options, in the order in which help lists them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
