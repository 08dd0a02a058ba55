"""What of a diagnosis is right: stage, cause, numbers and cure of one case, and shares over many.

A figure counts only where there is something to judge:

- stage and cause: at least one line of the case shows where it stopped, that is, an error that is raised at one stage
  only, a function or a start-up line of vLLM from loading the weights on, or plain words for such a step. One
  "out of memory" without any of these shows no stage. ``diagnose_map.json`` names the exceptions.
- numbers: the observed numbers whose digits occur in the lines, equal at the precision printed there.
- cure: what fixed it names a setting, a variable or a deed; right where one of the first two remedies is that, or is
  one that the ledger shows to start.

A launch that came up with less than hoped has no stage where it failed: any stage from the one named on is right.
A cause is right where one of its codes is an error among the findings, or is one of the first two findings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.diagnose_cases import Case
from benchmarks.diagnose_cures import UTILIZATION, Cure, cured, cures_of, offered
from benchmarks.diagnose_numbers import equal, found_at, is_number, printed

STAGES = (
    "config model_resolve engine_boot distributed_init device_memory_check weight_load compile profile kv_sizing"
    " kv_alloc graph_capture sampler_warmup api_bind serving shutdown"
).split()
_SHARE = 0.9
"""The share of memory of a launch that names none."""

_SHOWS = re.compile(
    "|".join(
        (
            # errors of one stage only
            r"max seq len.{0,80}KV cache \(|KV (?:cache )?(?:is )?needed|needs .{0,20}of KV|KV check",
            r"memory for (?:the )?(?:cache blocks|KV cache)|available KV[- ]cache memory",
            r"Free memory on device|less than desired|% free|current free memory|Error in memory profiling",
            r"Mamba cache blocks|warming up (?:sampler|pooler)|Failed to load model|allocated in private pools",
            r"encoder cache size|maximum context length|EngineDead|background task failed|cumem_allocator",
            # functions
            r"\b(?:load_model|profile_run|profile_cudagraph_memory|determine_(?:num_)?available_(?:memory|blocks))\b",
            r"\b(?:initialize_(?:kv_)?cache|raise_if_cache_size_invalid|check_enough_kv_cache_memory)\b",
            r"\b(?:capture_model|capture_end|_dummy_sampler_run|execute_model)\b",
            # start-up lines
            r"model weights take|(?:model loading|loading weights)(?: took|: )|Loading safetensors",
            r"Loading model weights took|torch\.compile take|CUDA graph (?:pool )?memory|Encoder cache will be",
            r"# (?:GPU|cuda) blocks|KV cache size",
            r"Maximum concurrency|Setting attention block size|Capturing|CUDA graphs can take|Graph capturing finished",
            r"Running: \d+ reqs|preempt",
            # words
            r"warm-?up\b|batch size \d|never scheduled|saving KV|enforce.eager|\bcicc\b",
            r"\dK? tokens\b|\d of \d|context limit",
            r"KV (?:restricted|budget)|GiB (?:for|of)(?: available)? KV",
        )
    ),
    re.IGNORECASE,
)


def read_map() -> dict[str, Any]:
    """``diagnose_map.json``: the corpus's names in kvroom's, and the corrections."""
    names: dict[str, Any] = json.loads(Path(__file__).with_name("diagnose_map.json").read_text("utf-8"))
    return names


def shows_where(lines: Iterable[str]) -> bool:
    """Whether one of the lines shows where a launch stopped.

    >>> shows_where(["Tried to allocate 2.00 MiB. GPU 6 has a total capacity of 44.53 GiB"])
    False
    >>> shows_where(["Available KV cache memory: 13.69 GiB", "EngineCore failed to start."])
    True
    """
    return any(_SHOWS.search(line) for line in lines)


def stages_of(case: Case, names: Mapping[str, Any]) -> list[str] | None:
    """The stages that are right for a case, None where there is nothing to judge."""
    stage = names["corrections"].get(case.id, {}).get("stage", case.observed.get("stage"))
    right: list[str] = names["stages"].get(stage) or []
    if not right or not names["lines"].get(case.id, {}).get("stage", shows_where(case.lines)):
        return None
    if case.observed.get("error_id") in names["came_up"]:
        return STAGES[min(map(STAGES.index, right)) :]
    return right


def causes_of(case: Case, names: Mapping[str, Any]) -> list[str] | None:
    """The findings of which one is right, [] where none should be an error, None where there is nothing to judge."""
    if not names["lines"].get(case.id, {}).get("cause", shows_where(case.lines)):
        return None
    right: list[str] | None = names["corrections"].get(case.id, {}).get("causes")
    return names["causes"].get(case.observed.get("error_id")) if right is None else right


def names_cause(diagnosis: Mapping[str, Any], codes: Iterable[str]) -> bool:
    """Whether a finding with one of ``codes`` is an error, or one of the first two; with no codes: no error at all.

    >>> names_cause({"findings": [{"code": "KVR202", "severity": "error"}]}, ["KVR202", "KVR203"])
    True
    """
    findings = diagnosis.get("findings") or []
    codes = set(codes)
    if not codes:
        return not any(finding["severity"] == "error" for finding in findings)
    return any(
        finding["code"] in codes and (finding["severity"] == "error" or place < 2)
        for place, finding in enumerate(findings)
    )


def numbers_of(case: Case, names: Mapping[str, Any]) -> dict[str, str]:
    """The observed numbers to find, as the lines print them."""
    left_out = names["corrections"].get(case.id, {}).get("numbers_left_out", ())
    extra = {f"extra.{key}": value for key, value in (case.observed.get("extra") or {}).items()}
    wanted = {}
    for key, value in {**case.observed, **extra}.items():
        if key in names["numbers"] and key not in left_out and is_number(value):
            literal = printed(value, case.log)
            if literal is not None:
                wanted[key] = literal
    return wanted


def missed_numbers(case: Case, diagnosis: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, str]:
    """Those of ``numbers_of`` that the diagnosis does not hold."""
    missed = {}
    for key, literal in numbers_of(case, names).items():
        unit, *places = names["numbers"][key]
        if not any(equal(value, literal, unit, case.log) for value in found_at(diagnosis, places)):
            missed[key] = literal
    return missed


def wanted_cures(case: Case, names: Mapping[str, Any]) -> tuple[Cure, ...]:
    """What fixed the case, () where there is nothing to judge."""
    if case.id in names["cures"]:
        return tuple(Cure(name) for name in names["cures"][case.id]["names"])
    return cures_of(case.fix)


def remedies_of(diagnosis: Mapping[str, Any]) -> list[Mapping[str, Any] | str]:
    """The remedies in the order of reading: those of the launch, then those of its findings."""
    findings = diagnosis.get("findings") or []
    return [
        *(diagnosis.get("remedies") or []),
        *(each for finding in findings for each in finding.get("remedies") or []),
    ]


def share_of_memory(command: Iterable[str]) -> float:
    """The gpu_memory_utilization of a command.

    >>> share_of_memory(["vllm", "serve", "--gpu_memory_utilization=0.98"]), share_of_memory(["--port", "80"])
    (0.98, 0.9)
    """
    shares = (cure.value for cure in offered({"flags": list(command)}) if cure.name == UTILIZATION)
    return next((share for share in shares if share is not None), _SHARE)


def false_alarm(diagnosis: Mapping[str, Any]) -> bool:
    """Whether a healthy log was called a failure."""
    failed = any(finding["severity"] == "error" for finding in diagnosis.get("findings") or [])
    return failed or (diagnosis.get("verdict") or {}).get("status") == "fails"


def score(case: Case, diagnosis: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """One row: what was expected, what was said, and whether it is right (None: nothing to judge)."""
    row = judged(stages_of(case, names), causes_of(case, names), diagnosis)
    wanted, cures = numbers_of(case, names), wanted_cures(case, names)
    remedies = remedies_of(diagnosis)
    row["numbers"] = {"judged": len(wanted), "missed": missed_numbers(case, diagnosis, names)}
    row["cure"] = {
        "wanted": [cure.name for cure in cures],
        "offered": [[cure.name for cure in offered(remedy)] for remedy in remedies[:2]],
        "right": cured(cures, remedies, share_of_memory(case.asked.get("command", ()))) if cures else None,
    }
    return {"id": case.id, "stated": case.stated, "error_id": case.observed.get("error_id"), **row}


def judged(stages: list[str] | None, causes: list[str] | None, diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """Stage and cause of one log."""
    stage = (diagnosis.get("reading") or {}).get("stage")
    said = [finding["code"] for finding in diagnosis.get("findings") or []]
    return {
        "stage": {"wanted": stages, "said": stage, "right": None if stages is None else stage in stages},
        "cause": {
            "wanted": causes,
            "said": said,
            "right": None if causes is None else names_cause(diagnosis, causes),
        },
    }


def summary(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Shares of 1 over ``rows`` (None where nothing was to judge), and how many were judged for each."""
    rows = list(rows)
    figures: dict[str, Any] = {"cases": len(rows)}
    counts = {}
    for key, name in (("stage", "stage_right"), ("cause", "cause_right"), ("cure", "cure_in_first_two")):
        answers = [row[key]["right"] for row in rows if row.get(key) and row[key]["right"] is not None]
        figures[name], counts[key] = _share(sum(answers), len(answers)), len(answers)
    numbers = [row["numbers"] for row in rows if row.get("numbers")]
    total = sum(each["judged"] for each in numbers)
    figures["numbers_exact"] = _share(total - sum(len(each["missed"]) for each in numbers), total)
    counts["numbers"] = total
    return {**figures, "judged": counts}


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
