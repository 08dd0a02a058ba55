"""The stages of a start, which of them a log shows, and where it stopped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kvroom.logs.facts import Fact, Facts

_WORD = re.compile(r"\w{4,60}")
STAGES = (
    "config",
    "model_resolve",
    "engine_boot",
    "distributed_init",
    "device_memory_check",
    "weight_load",
    "compile",
    "profile",
    "kv_sizing",
    "kv_alloc",
    "graph_capture",
    "sampler_warmup",
    "api_bind",
    "serving",
    "shutdown",
)
"""In the order in which they pass; compilation happens inside the profiling pass."""
_RANK = {stage: rank for rank, stage in enumerate(STAGES)}
_FUNCTIONS = {
    "load_model": "weight_load",
    "load_weights": "weight_load",
    "initialize_model": "weight_load",
    "process_weights_after_loading": "weight_load",
    "create_weights": "weight_load",
    "make_layers": "weight_load",
    "_init_model": "weight_load",
    "_initialize_model": "weight_load",
    "safetensors_weights_iterator": "weight_load",
    "transform_w_q": "weight_load",
    "init_device": "device_memory_check",
    "request_memory": "device_memory_check",
    "init_worker_distributed_environment": "distributed_init",
    "init_distributed_environment": "distributed_init",
    "initialize_model_parallel": "distributed_init",
    "init_process_group": "distributed_init",
    "determine_available_memory": "profile",
    "determine_num_available_blocks": "profile",
    "profile_run": "profile",
    "profile_cudagraph_memory": "profile",
    "_dummy_run": "profile",
    "get_kv_cache_configs": "kv_sizing",
    "check_enough_kv_cache_memory": "kv_sizing",
    "_check_enough_kv_cache_memory": "kv_sizing",
    "raise_if_cache_size_invalid": "kv_sizing",
    "initialize_kv_cache": "kv_alloc",
    "initialize_kv_cache_tensors": "kv_alloc",
    "initialize_from_config": "kv_alloc",
    "_allocate_kv_cache": "kv_alloc",
    "_allocate_kv_cache_tensors": "kv_alloc",
    "initialize_cache": "kv_alloc",
    "capture_model": "graph_capture",
    "_capture_cudagraphs": "graph_capture",
    "capture_end": "graph_capture",
    "compile_or_warm_up_model": "sampler_warmup",
    "_dummy_sampler_run": "sampler_warmup",
    "_dummy_pooler_run": "sampler_warmup",
    "execute_model": "serving",
    "sample_tokens": "serving",
    "run_busy_loop": "serving",
    "_process_engine_step": "serving",
    "run_engine_loop": "serving",
    "engine_step": "serving",
    "step_async": "serving",
    "wake_up": "serving",
}
"""The function in a traceback that tells the stage."""
_UNDER_PROFILE = frozenset({"_dummy_run", "_dummy_sampler_run", "_dummy_pooler_run", "execute_model"})
"""Functions that run in several stages: the profiling pass wins where the traceback shows it."""
_TRACEBACK = 200
"""Lines that a traceback has at most."""
_NEXT = {"weight_load": "profile", "compile": "kv_sizing", "profile": "kv_sizing", "kv_sizing": "kv_alloc"}


@dataclass(frozen=True, slots=True)
class Mark:
    """A stage that a log shows."""

    stage: str
    line: int
    time: float | None
    passed: bool
    """Whether it is shown to be done, not only begun."""


def rank(stage: str) -> int:
    """The place of ``stage`` in the order, -1 for one that is none."""
    return _RANK.get(stage, -1)


def marks_of(facts: Iterable[Fact]) -> tuple[Mark, ...]:
    """The first sign of each stage, and the first sign that it is done, in the order of the log."""
    found: dict[tuple[str, bool], Mark] = {}
    for fact in facts:
        if fact.role in {"reached", "passed"} and fact.stage in _RANK:
            passed = fact.role == "passed"
            if (fact.stage, passed) not in found:
                found[fact.stage, passed] = Mark(fact.stage, fact.line, fact.time, passed)
    return tuple(sorted(found.values(), key=lambda mark: (mark.line, rank(mark.stage))))


def furthest(marks: Iterable[Mark]) -> str | None:
    """The stage that was under way when the marks end; None without marks."""
    best: tuple[int, bool, str] | None = None
    for mark in marks:
        this = (rank(mark.stage), mark.passed, mark.stage)
        if mark.stage != "shutdown" and (best is None or this > best):
            best = this
    if best is None:
        return None
    return after(best[2]) if best[1] else best[2]


def after(stage: str) -> str:
    """The stage that follows when ``stage`` is done."""
    if stage in _NEXT:
        return _NEXT[stage]
    return STAGES[min(rank(stage) + 1, rank("serving"))]


def stage_of_error(error: Fact, facts: Facts) -> str:
    """Where ``error`` happened: as the message itself says, the traceback, or the marks before it."""
    if error.stage in _RANK and error.stage != "shutdown":
        return _sampler_in_profile(error, facts) or error.stage
    from_frames = _stage_of_frames(error, facts)
    before = furthest(marks_of(facts[: facts.before(error.line)]))
    if from_frames:
        if from_frames == "serving" and before not in {None, "serving"} and not _died_of(error, facts):
            return str(before)
        return from_frames
    asked = _stage_of_method(error, facts)
    if asked is not None and rank(asked) > rank(before or ""):
        return asked
    if _died_of(error, facts):
        return "serving"
    later = [fact for fact in facts.all("err_sampler", "err_load_oom") if fact.line >= error.line]
    if later:
        return later[0].stage
    return before or _stage_of_company(error, facts) or furthest(marks_of(facts)) or "unknown"


_AROUND = {
    "run_engine_core": "engine_boot",
    "run_mp_engine": "engine_boot",
    "create_engine_config": "config",
    "create_model_config": "config",
    "make_arg_parser": "config",
    "_initialize_kv_caches": "profile",
}
"""Functions that stand around whole stages: looked at where nothing nearer tells."""


def _stage_of_method(error: Fact, facts: Facts) -> str | None:
    """The stage of the method that a worker was asked for when ``error`` came, as older releases say around it."""
    near = [
        fact.values["method"]
        for fact in facts.all("worker_method", "deadlock_warning")
        if abs(fact.line - error.line) <= _TRACEBACK and "method" in fact.values
    ]
    return next((_FUNCTIONS[name] for name in near if name in _FUNCTIONS), None)


def _died_of(error: Fact, facts: Facts) -> bool:
    """Whether ``error`` is what an engine died of that had been ready."""
    if error.id in {"oom", "oom_old", "oom_driver"}:
        return facts.first("engine_dead", "engine_fatal", "engine_dead_v0") is not None
    fatal = facts.first("engine_fatal")
    return fatal is not None and abs(fatal.line - error.line) <= _TRACEBACK


def _stage_of_company(error: Fact, facts: Facts) -> str | None:
    """Where an error happened that stands alone: after what else is said of it."""
    if facts.first("engine_dead", "engine_fatal", "engine_dead_v0", "cumem"):
        return "serving"
    if facts.first("oom_private"):
        return "sampler_warmup"
    frames = [fact for fact in facts.all("frame") if abs(fact.line - error.line) <= _TRACEBACK]
    for fact in frames:
        # the same traceback once more, as the process prints it that ends
        if fact.values["function"] in _FUNCTIONS:
            return _FUNCTIONS[fact.values["function"]]
    around = [_AROUND[name] for fact in frames if (name := fact.values["function"]) in _AROUND]
    if error.file == "registry.py" or facts.first("err_arch_inspect"):
        return "model_resolve"
    if facts.first("err_validation"):
        return "config"
    return around[-1] if around else None


def _sampler_in_profile(error: Fact, facts: Facts) -> str | None:
    """The sampler is tried twice; before the pool is sized it is part of the profiling pass."""
    if error.id != "err_sampler":
        return None
    sized = any(fact.line < error.line for fact in facts.all("available", "tokens", "reserved"))
    marked = any(fact.stage in {"weight_load", "profile", "compile"} and fact.role for fact in facts)
    return None if sized or not marked else "profile"


def _stage_of_frames(error: Fact, facts: Facts) -> str | None:
    """The stage of the traceback that ends in ``error``: the frames of its process shortly before it."""
    near = [
        fact
        for fact in facts.all("frame", "mentioned")
        if error.line - _TRACEBACK <= fact.line <= error.line and fact.process in {error.process, ""}
    ][-2 * _TRACEBACK :]
    frames = [name for fact in near if fact.id == "frame" for name in [fact.values["function"]]]
    known = [name for name in frames if name in _FUNCTIONS]
    known = known or [word for fact in near for word in _WORD.findall(fact.text) if word in _FUNCTIONS]
    if not known:
        # torch.utils._device: a device context, which stands around the making of a model
        return "weight_load" if "__torch_function__" in frames else None
    if known[-1] in _UNDER_PROFILE and {"profile_run", "determine_available_memory"} & set(known):
        return "profile"
    if "capture_model" in known:
        return "graph_capture"
    return _FUNCTIONS[known[-1]]
