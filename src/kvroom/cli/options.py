"""The options that several commands share; everything else on the line is vLLM's."""

from __future__ import annotations

from typing import Annotated

import typer

Gpu = Annotated[
    str | None,
    typer.Option("--gpu", help="The card, e.g. 'RTX 4090' or '2x H100'. Default: the GPUs here.", show_default=False),
]
GpuMemory = Annotated[
    str | None, typer.Option("--gpu-memory", help="Total memory of one card, where it differs, e.g. 23.6GiB.")
]
FreeMemory = Annotated[str | None, typer.Option("--free-memory", help="Free memory of one card before the launch.")]
Vllm = Annotated[
    str | None,
    typer.Option("--vllm", help="vLLM release whose rules to use. Default: the installed one, else the newest known."),
]
AssumeQuantization = Annotated[
    str | None,
    typer.Option(
        "--assume-quantization",
        help="Price the model as if its weights were stored so, e.g. awq, fp8, w4a16.",
    ),
]
Measured = Annotated[
    list[str] | None,
    typer.Option("--measured", help="A ledger entry that a log of this machine printed, e.g. activation=1.42GiB."),
]
MeasuredWith = Annotated[
    str | None,
    typer.Option(
        "--measured-with",
        help="Flags under which available=SIZE was logged, where they differ: '--attention-backend FLASH_ATTN'.",
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option("--without", help="A package that the vLLM environment lacks, e.g. flashinfer."),
]
Env = Annotated[list[str] | None, typer.Option("--env", help="An environment variable of the launch, NAME=VALUE.")]
Offline = Annotated[bool, typer.Option("--offline", help="Read nothing from the hub.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON (schema kvroom/1).")]
Explain = Annotated[bool, typer.Option("--explain", help="Show every rule used, with its source.")]
