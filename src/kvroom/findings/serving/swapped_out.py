"""KVR315: V0 moves the KV cache of preempted requests to host memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvroom.findings.case import shown
from kvroom.findings.finding import Finding, Rule, Severity, explanation
from kvroom.findings.values import number_of

if TYPE_CHECKING:
    from kvroom.findings.case import Case

RULE = Rule(
    "KVR315",
    "swap-v0",
    Severity.NOTE,
    "The V0 engine preempts by swapping: the KV cache goes to host memory and back.",
    explanation(
        what="""
            Recognises V0's preemption in SWAP mode and compares it with `--swap-space`.
            """,
        why="""
            V0 recomputes a preempted request, unless it has several sequences (`n`, `best_of`, beam search) or
            `--preemption-mode swap` was given: then its blocks are copied to host memory, to `--swap-space` GiB on
            each GPU.
            If that has no room, the engine stops with "lack of CPU swap space".
            """,
        example="""
            `--swap-space 0` and requests with `n=4`: the first preemption ends the engine.
            """,
        cure="""
            Avoid preemptions (more KV room, fewer sequences); for requests with several sequences keep
            `--swap-space` at its default of 4 or above.
            """,
        since="V0 only, to 0.10.2. V1 always recomputes and ignores `--swap-space`, which is gone since 0.18.",
        references="`vllm/core/scheduler.py: _preempt, _preempt_by_swap`",
    ),
)


def find(case: Case) -> Iterator[Finding]:
    """The finding with the room that there is for swapping."""
    swapped = [fact for fact in case.reading.facts.all("preempted_v0") if fact.values.get("mode", "").upper() == "SWAP"]
    if not swapped:
        return
    space = number_of(case.asked("swap_space"))
    room = f"--swap-space is {space:g} GiB" if space is not None else "--swap-space is 4 GiB unless set"
    advice = ["--swap-space 4"] if space == 0 else []
    if case.asked("preemption_mode"):
        advice.append("--preemption-mode recompute")
    yield RULE.found(
        f"Preempted requests are swapped to host memory; {room}.",
        "Requests with several sequences cannot be recomputed in V0. A swapped request waits for the copy back, and"
        " the engine stops where the space is used up.",
        evidence=(shown(swapped[-1]),),
        advice=(*advice, "A lower --max-num-seqs, so that fewer are preempted."),
    )
