"""What the findings about contributors share: whether memory ran short, and what is known of the launch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvroom.findings.values import number_of
from kvroom.logs.reading import State
from kvroom.logs.stages import stage_of_error

if TYPE_CHECKING:
    from kvroom.findings.case import Case
    from kvroom.logs.facts import Fact

_NOTHING_LEFT = ("err_none", "err_metal", "told_none")
_TOO_LITTLE = (
    "err_bytes",
    "err_bytes_short",
    "err_tokens",
    "err_tokens_short",
    "err_autofit",
    "told_check",
    "told_only",
)
_LEFT = {"available": "gib", "split_v0": "available", "split_v0_part": "available", "split_064": "available"}
_OOM = ("oom", "oom_old", "oom_driver", "err_sampler", "told_oom", "told_serving_oom")
_SHORT_FLAGS = {"tensor_parallel_size": "-tp", "pipeline_parallel_size": "-pp", "data_parallel_size": "-dp"}
_MULTIMODAL = re.compile(
    r"[-_/ \d.](vl|vlm|vision|omni|ocr)(?![a-z])|(qwen\w*?|deepseek|kimi|intern|smol|ovis)[\d.]*[-_]?vlm?|"
    r"minicpm-?[vo]\b|llava|pixtral|mllama|gemma-?3n|gemma-?3-(4|12|27)b|gemma-?4-|paligemma|molmo|idefics|ovis\d|phi-4-multimodal|"
    r"forconditionalgeneration|llama4for|llama-4-"
)
_NOT_VISION = re.compile(r"whisper|t5for|bart|t5gemma")


@dataclass(frozen=True, slots=True)
class Shortage:
    """The KV cache has no room, or less than it should."""

    fact: Fact
    nothing: bool
    """Whether nothing at all was left for it."""
    missing: int | None = None
    """Bytes a GPU that one request of full length lacks, where the log says it."""


def shortage(case: Case) -> Shortage | None:
    """What says that the KV cache lacks room: an error, a negative remainder, or a context cut to fit."""
    facts = case.reading.facts
    if case.reading.state is not State.FAILED:
        fact = facts.first("autofit_reduced")
        return Shortage(fact, False) if fact else None
    fact = facts.first(*_NOTHING_LEFT)
    if fact:
        return Shortage(fact, True)
    for fact in facts.all(*_LEFT):
        left = fact.number(_LEFT[fact.id])
        if left is not None and left <= 0:
            return Shortage(fact, True)
    fact = facts.first(*_TOO_LITTLE)
    if fact is None:
        return None
    needed, available = fact.gib("needed"), fact.gib("available")
    return Shortage(fact, False, needed - available if needed and available is not None else None)


def overflow(case: Case, *stages: str) -> Fact | None:
    """The out-of-memory error of the GPU that ended a start or a server, in one of ``stages`` if given."""
    reading = case.reading
    if reading.state not in {State.FAILED, State.DIED}:
        return None
    for fact in reading.facts.all(*_OOM):
        stage = reading.stage if fact is reading.error else stage_of_error(fact, reading.facts)
        if not stages or stage in stages:
            return fact
    return None


def estimating_graphs(case: Case) -> Fact | None:
    """The frame of a traceback that shows the trial capture of CUDA graphs, part of the profile stage."""
    mentions = case.reading.facts.all("mentioned")
    return next((fact for fact in mentions if "profile_cudagraph_memory" in fact.text), None)


def argument(case: Case, name: str) -> Any:
    """What was given for vLLM's argument ``name``: by the log, by a command in it, or by the user; else None."""
    value = case.reading.settings.get(name)
    if value is None:
        value = in_words(case.reading.words, name)
    if value is None and case.prediction is not None:
        args = case.prediction.setup.args
        value = args.given.get(name) if args.given else getattr(args, name, None)
    return None if value in ("None", "") else value


def in_words(words: tuple[str, ...], name: str) -> str | bool | None:
    """The value of the option ``name`` in a command; True for one without a value.

    >>> in_words(("m", "--enable-lora", "-dp=8"), "data_parallel_size")
    '8'
    """
    options = {"--" + name, "--" + name.replace("_", "-"), _SHORT_FLAGS.get(name, "")}
    for number, word in enumerate(words):
        option, given, value = word.partition("=")
        if option not in options or not option:
            continue
        if given:
            return value
        after = words[number + 1] if number + 1 < len(words) else ""
        return after if after and not after.startswith("-") else True
    return None


def utilization(case: Case) -> float | None:
    """``gpu_memory_utilization`` as given, logged or resolved; None where nobody says."""
    found = number_of(argument(case, "gpu_memory_utilization"))
    return found if found is not None else number_of(case.setting("gpu_memory_utilization"))


def model_names(case: Case) -> str:
    """Everything that names the model, in lower case."""
    names = [case.reading.model or ""]
    if case.prediction is not None:
        setup = case.prediction.setup
        names += [setup.args.model, setup.shape.name, setup.shape.architecture]
    fact = case.reading.facts.first("architecture")
    return " ".join([*names, fact.values["architecture"] if fact else ""]).lower()


def multimodal(case: Case) -> bool:
    """Whether the model takes images, video or sound, by its encoder in the log, its config, or its name."""
    if case.reading.facts.first("encoder_budget") is not None:
        return True
    if case.prediction is not None and not case.prediction.setup.shape.assumptions:
        return case.prediction.setup.shape.vision is not None
    names = model_names(case)
    return bool(_MULTIMODAL.search(names)) and not _NOT_VISION.search(names)


def on_gpu(case: Case) -> bool:
    """Whether nothing says that the launch runs on a CPU."""
    facts = case.reading.facts
    platform = facts.first("platform")
    if platform is not None and platform.values["platform"].startswith("cpu"):
        return False
    tokens = facts.first("tokens")
    if tokens is not None and re.search(r"\bCPU (?:\+ host )?KV cache size", tokens.text):
        return False
    return facts.first("cpu_pool", "cpu_pool_default", "err_free_cpu", "err_cpu_pool", "err_cpu_worker") is None


def serves_text(case: Case) -> bool:
    """Whether the model is not known to be an embedding or reward model, which samples nothing."""
    settings = case.prediction.settings if case.prediction is not None else None
    kind = argument(case, "runner") or argument(case, "task")
    return not (settings is not None and settings.is_pooling) and str(kind) not in {"pooling", "embed", "score"}


def short(number: float) -> str:
    """A share without trailing zeros.

    >>> short(0.95), short(0.9325)
    ('0.95', '0.9325')
    """
    return f"{number:.4f}".rstrip("0").rstrip(".")
