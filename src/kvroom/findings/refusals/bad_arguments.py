"""KVR252: an argument that vLLM does not know, or whose value it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.refusals.command_line import explained
from kvroom.findings.refusals.common import cause, short
from kvroom.findings.values import number_of, sentence

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

RULE = Rule(
    "KVR252",
    "bad-arguments",
    Severity.ERROR,
    "vLLM refuses the command line or the combination of settings before it starts.",
    explanation(
        what="""
            Reads the errors of the command line (unknown options, values that are not allowed) and of the
            configuration: a utilisation above 1, too much swap space, pipeline parallelism on a model without
            it, sleep mode with expandable segments, a `VLLM_PORT` that is an address, an adapter above the LoRA rank.
            The flags of 28 releases say whether an option was removed, came later, or is misspelt.
            """,
        why="""
            Guides outlive releases: `--swap-space` or `--device` of an older one stops a newer server at once.
            Since 0.9 configuration errors come wrapped as `validation error for ...`; only the words after
            `Value error,` matter.
            """,
        example="`--swap-space 16` on vLLM 0.20; the flag was removed after 0.17.",
        cure="Drop or rewrite what the finding names.",
        since="All releases.",
        references="`vllm/engine/arg_utils.py: EngineArgs.add_cli_args`, `vllm/config`",
    ),
)
_IDS = (
    "err_arguments",
    "err_util_range",
    "err_swap",
    "err_pipeline",
    "err_expandable",
    "err_port_uri",
    "err_lora_rank",
)
_TAIL = re.compile(r" \[type=.*$", re.DOTALL)
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM takes."""
_NEAR = 8
"""Lines after the head of a validation error in which its text stands."""
Parts = tuple[str, str, list[str]]


def find(case: Case) -> Iterator[Finding]:
    """The finding with what was refused."""
    fact = cause(case, *_IDS)
    if fact is None:
        yield from _validation(case)
        return
    kind = {
        "err_util_range": _utilization,
        "err_swap": _swap,
        "err_pipeline": _pipeline,
        "err_expandable": _expandable,
        "err_port_uri": _port,
        "err_lora_rank": _rank,
    }
    parts = kind[fact.id](case, fact) if fact.id in kind else explained(fact.values["problem"], case.release)
    title, why, advice = parts
    yield RULE.found(title, why, evidence=(shown(fact),), advice=advice[:4])


def _validation(case: Case) -> Iterator[Finding]:
    """A refusal without a finding of its own: the words of the check itself."""
    error = case.reading.error
    if error is None or error.id != "exception" or case.reading.facts.first("err_quant_deprecated"):
        return
    for fact in case.reading.facts.all("value_error", "value_input"):
        if not error.line <= fact.line <= error.line + _NEAR:
            continue
        if fact.id == "value_input":
            what = _named(case, fact.values["value"])
            text = f"{what} is out of range: it should be {fact.values['problem']}"
        else:
            text = _TAIL.sub("", fact.values["problem"])
        yield RULE.found(
            sentence(short(text)),
            "vLLM checks the settings together before it starts; this check failed.",
            evidence=(shown(fact),),
            advice=("Change the setting that the message names.",),
        )
        return


def _named(case: Case, value: str) -> str:
    """The argument with ``value`` where one alone has it."""
    names = [name for name, given in case.reading.given.items() if number_of(given) == number_of(value) is not None]
    return f"The value of {names[0]}, {value}," if len(names) == 1 else f"A value of {value}"


def _utilization(case: Case, fact: Fact) -> Parts:  # noqa: ARG001
    util = fact.number("util") or 0.0
    share = util / 100 if 1 < util <= 100 else 0.9
    return (
        f"gpu_memory_utilization {util:g} is above 1.",
        "It is a share of the card's memory between 0 and 1, not a percentage and not GiB.",
        [f"--gpu-memory-utilization {min(share, 0.95):g}"],
    )


def _swap(case: Case, fact: Fact) -> Parts:
    needed, total = fact.number("needed") or 0.0, fact.number("total") or 0.0
    advice = ["--swap-space 0"]
    if case.reading.engine != "V1":
        advice.append(f"--swap-space {int(total * 0.4 / max(case.reading.gpus or 1, 1))} (GiB per GPU)")
    return (
        f"--swap-space asks for {needed:.2f} GiB of host memory, and the machine has {total:.2f} GiB.",
        "The number counts for each GPU, and vLLM refuses more than 70% of the host's memory. V1 never swaps.",
        advice,
    )


def _pipeline(case: Case, fact: Fact) -> Parts:  # noqa: ARG001
    stages = case.whole("pipeline_parallel_size") or 1
    ranks = case.whole("tensor_parallel_size") or 1
    advice = ["Drop --pipeline-parallel-size."]
    if stages > 1:
        advice.insert(0, f"--tensor-parallel-size {ranks * stages} --pipeline-parallel-size 1")
    return "The model's class cannot be split into pipeline stages.", "It lacks what vLLM needs for that.", advice


def _expandable(case: Case, fact: Fact) -> Parts:  # noqa: ARG001
    return (
        "Sleep mode does not go with expandable segments of PyTorch's allocator.",
        "Sleep mode keeps weights and KV cache in a memory pool of its own, which needs fixed segments.",
        ["Take expandable_segments:True out of PYTORCH_CUDA_ALLOC_CONF.", "Drop --enable-sleep-mode."],
    )


def _rank(case: Case, fact: Fact) -> Parts:  # noqa: ARG001
    rank, most = fact.whole("rank") or 0, fact.whole("most") or 0
    allowed = next((size for size in _RANKS if size >= rank), rank)
    return (
        f"An adapter has LoRA rank {rank}, and the server allows {most}.",
        "vLLM sizes the buffers of adapters when it starts; larger ones take GPU memory from the KV cache.",
        [f"--max-lora-rank {allowed}"],
    )


def _port(case: Case, fact: Fact) -> Parts:  # noqa: ARG001
    return (
        f"VLLM_PORT is the address {short(fact.values['value'])}, and vLLM wants a number.",
        "Kubernetes sets <NAME>_PORT for every service; for a service named vllm that is VLLM_PORT.",
        ["Rename the service.", "enableServiceLinks: false in the pod's spec"],
    )
