"""Reading a log: from a stream to one reading for each start in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, BinaryIO

from kvroom.logs import errors, ledger, settings, stages
from kvroom.logs.extract import facts_of, with_joined
from kvroom.logs.facts import Fact, Facts
from kvroom.logs.names import backend_name
from kvroom.logs.peel import peel
from kvroom.logs.reading import Measured, Reading, State
from kvroom.logs.scan import Scan, Start, scan
from kvroom.logs.source import pieces
from kvroom.logs.timeline import timeline_of

_NO_BACKEND = re.compile(r"MoE|prefill|sampl|vit |GEMM|custom|NCCL|tokenizer|Mamba", re.IGNORECASE)
_V1_FILES = frozenset({"core.py", "gpu_worker.py", "gpu_model_runner.py", "kv_cache_utils.py", "kv_cache_manager.py"})
_V0_FILES = frozenset({"llm_engine.py", "worker.py", "model_runner.py", "executor_base.py", "gpu_executor.py"})
_FATAL = frozenset({"engine_fatal", "engine_dead", "engine_dead_v0", "engine_killed", "worker_died"})
_LEFT = ("available", "split_v0", "split_v0_part", "split_064")
_SHARES = ("budget_v0", "summary", "summary_consumed", "err_free", "graph_equivalent", "graph_restore", "free_v1_debug")
_DEAD = frozenset({"engine_fatal", "engine_dead", "engine_dead_v0"})
"""Only an engine that was up can be found dead."""
_FATAL_ERRORS = frozenset(
    "oom oom_old oom_driver host_killed host_killed_shell segfault illegal_access kernel_fault gpu_fault oom_os".split()
)
_WRAPPERS = ("err_engine", "err_worker", "err_ready")
"""How the ids of messages begin which say that a start failed, and not of what."""


@dataclass(frozen=True, slots=True)
class Log:
    """A whole log."""

    readings: tuple[Reading, ...]
    """The starts that were read, the last one first."""
    starts: int
    """How many there are, also those too far back to be read."""
    lines: int
    size: int
    """Bytes of text."""
    empty: bool
    """Whether no line of vLLM was recognised."""
    sample: str = ""
    """The beginning of the text."""


def read_log(stream: BinaryIO) -> Log:
    """The readings of ``stream``, in memory that does not grow with it.

    Raises UsageError for what is no text.
    """
    found = scan(pieces(stream))
    readings = [_reading(start, found) for start in found.starts]
    told = [reading for reading in readings if len(reading.facts) or reading.load.count]
    kept = told or readings[-1:]
    return Log(tuple(reversed(kept)), found.count, found.lines, found.size, not told, found.sample)


def _reading(start: Start, found: Scan) -> Reading:
    plain = facts_of(start.candidates())
    if found.text is not None:
        facts = with_joined(found.text, start.first_line, start.last_line, plain)
    else:
        facts = Facts(plain)
    given = settings.given_settings(facts)
    words = settings.command_words(facts)
    resolved = {**settings.engine_settings(facts), **_resolved(facts), **given}
    measured = ledger.measured_of(facts)
    marks = stages.marks_of(facts)
    error = errors.first_error(facts)
    state = _state(facts, start, error)
    mentioned = facts.last("mentioned")
    if state in {State.FAILED, State.DIED} and error is not None:
        stage = stages.stage_of_error(error, facts)
    elif state is State.UNFINISHED and mentioned is not None:
        stage = stages.stage_of_error(mentioned, facts)
    elif state is State.FAILED and _nothing_left(facts):
        stage = "kv_sizing"
    elif state is State.FAILED and (frame := _cut_traceback(facts)) is not None:
        stage = stages.stage_of_error(frame, facts)
    elif state is State.DIED:
        stage = "serving"
    else:
        stage = stages.furthest(marks) or ("serving" if start.load.count else "unknown")
    version = settings.version_of(facts)
    total = measured.get("total")
    free = measured.get("free")
    model = _model(facts, given, resolved)
    return Reading(
        first_line=start.first_line,
        last_line=start.last_line,
        version=version[1].removeprefix("v") if version else None,
        engine=_engine(facts),
        model=model,
        given=given,
        settings={name: value for name, value in resolved.items() if name not in {"model_tag", "subparser"}},
        words=tuple(words or settings.words_of(given, model)),
        device=_device(facts),
        gpus=_gpus(facts, resolved),
        total_bytes=total.value if total else ledger.total_from_equivalence(facts),
        free_bytes=free.value if free else None,
        attention_backend=_backend(facts),
        state=state,
        stage=stage,
        marks=marks,
        timeline=timeline_of(facts),
        measured=measured,
        pool=ledger.pool_of(facts, _whole(resolved.get("block_size")) or _hybrid_block(facts)),
        facts=facts,
        load=start.load,
        statuses=start.statuses,
        error=error if state in {State.FAILED, State.DIED} else None,
        contradictions=tuple(_contradictions(resolved, measured, facts)),
        ending=peel(start.ending).text if start.ending else "",
    )


def _state(facts: Facts, start: Start, error: Fact | None) -> State:
    served = start.load.count > 0 or any(fact.stage == "serving" and fact.role in {"", "reached"} for fact in facts)
    ready = served or facts.first("init_engine") is not None
    shutdown = facts.first("shutdown", "sigterm")
    fatal = next((fact for fact in facts if fact.id in _FATAL or fact.id in _FATAL_ERRORS), None)
    if fatal and shutdown and shutdown.line < fatal.line and fatal.id in _FATAL:
        fatal = None
    if error is not None and not ready:
        return State.DIED if fatal is not None and fatal.id in _DEAD else State.FAILED
    if not ready and _nothing_left(facts):
        return State.FAILED
    if error is not None and (fatal is not None or error.stage == "serving"):
        return State.DIED
    if fatal is not None:
        up = ready or fatal.stage == "serving" or facts.first("engine_fatal") is not None
        return State.DIED if up else State.FAILED
    if any(fact.role == "symptom" and fact.id.startswith(_WRAPPERS) for fact in facts) and not ready:
        return State.FAILED
    if not ready and _cut_traceback(facts) is not None:
        return State.FAILED
    if shutdown and ready:
        return State.STOPPED
    if served:
        return State.SERVING
    return State.STARTED if ready else State.UNFINISHED


def _cut_traceback(facts: Facts) -> Fact | None:
    """The last call of a traceback logged as an error after which nothing went on; its end may be missing."""
    frame = next((fact for fact in reversed(facts) if fact.id == "frame" and fact.level == "ERROR"), None)
    if frame is None or any(fact.line > frame.line and fact.role in {"reached", "passed"} for fact in facts):
        return None
    return frame


def _nothing_left(facts: Facts) -> bool:
    """Whether less than nothing is left for the KV cache, which no release starts with."""
    return any((fact.number("gib") or fact.number("available") or 1) < 0 for fact in facts.all(*_LEFT))


def _resolved(facts: Facts) -> dict[str, Any]:
    """Settings that single lines tell."""
    found: dict[str, Any] = {}
    for id_, name in (("batched_tokens", "max_num_batched_tokens"), ("max_model_len", "max_model_len")):
        fact = facts.last(id_)
        if fact is not None:
            found[name] = fact.whole(name)
    for fact in facts.all(*_SHARES):
        util = fact.number("util")
        if util is not None:
            found["gpu_memory_utilization"] = util
    kv_dtype = facts.last("kv_dtype")
    if kv_dtype is not None:
        found["kv_cache_dtype"] = kv_dtype.values["kv_cache_dtype"]
    return found


def _model(facts: Facts, given: dict[str, Any], resolved: dict[str, Any]) -> str | None:
    for value in (given.get("model_tag"), given.get("model"), resolved.get("model")):
        if isinstance(value, str) and value:
            return value
    fact = facts.first("banner_server", "load_start", "banner_logo_model")
    return fact.values["model"].strip() if fact else None


def _engine(facts: Facts) -> str | None:
    if facts.first("engine_v1"):
        return "V1"
    if facts.first("engine_v0", "split_v0", "split_v0_part", "blocks_v0", "err_tokens", "err_tokens_short"):
        return "V0"
    files = {fact.file for fact in facts}
    if files & _V1_FILES or any(fact.process.startswith("EngineCore") for fact in facts):
        return "V1"
    if files & _V0_FILES:
        return "V0"
    return "V1" if facts.first("available", "tokens", "err_bytes", "err_state_blocks", "reserved") else None


def _backend(facts: Facts) -> str | None:
    for fact in facts.all("backend"):
        if not _NO_BACKEND.search(fact.values["backend"]) and not _NO_BACKEND.search(fact.text[:200]):
            return backend_name(fact.values["backend"])
    return None


def _device(facts: Facts) -> str | None:
    fact = facts.first("device_name")
    if fact is not None:
        return fact.values["device"].replace("_", " ")
    for fact in facts.all("nvidia_smi", "collect_env_gpu"):
        return fact.values["device"].strip()
    fact = facts.first("err_bf16", "err_fp8_kv")
    return (fact.values.get("gpu") or fact.values.get("device")) if fact else None


def _gpus(facts: Facts, resolved: dict[str, Any]) -> int | None:
    sizes = [fact.whole("world_size") for fact in facts.all("world_size", "rank_assigned", "err_world")]
    known = [size for size in sizes if size]
    if known:
        return max(known)
    tensor, pipeline = (_whole(resolved.get(f"{kind}_parallel_size")) for kind in ("tensor", "pipeline"))
    if tensor or pipeline:
        return (tensor or 1) * (pipeline or 1)
    workers = {fact.process for fact in facts if fact.process.startswith(("Worker_", "VllmWorker_"))}
    return len(workers) or None


def _hybrid_block(facts: Facts) -> int | None:
    fact = facts.last("hybrid_block")
    return fact.whole("block_size") if fact else None


def _whole(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def _contradictions(resolved: dict[str, Any], measured: dict[str, Measured], facts: Facts) -> list[str]:
    """What does not agree within the log."""
    found: list[str] = []
    for id_, name, what in (("weights", "gib", "weights"), ("available", "gib", "available KV cache memory")):
        by_process: dict[str, list[Fact]] = {}
        for fact in facts.all(id_):
            by_process.setdefault(fact.process, []).append(fact)
        for printed in by_process.values():
            values = list(dict.fromkeys(fact.values[name] for fact in printed))
            if len(values) > 1 and printed[0].process:
                lines = ", ".join(str(fact.line) for fact in printed)
                found.append(f"One process prints {what} as {' and '.join(values)} GiB (lines {lines}).")
    total, requested = measured.get("total"), measured.get("requested")
    util = resolved.get("gpu_memory_utilization")
    if total and requested and isinstance(util, int | float) and abs(total.value * util - requested.value) > 2**27:
        found.append(
            f"{requested.printed} GiB is not {util:g} of {total.printed} GiB (lines {requested.line} and {total.line})."
        )
    return found
