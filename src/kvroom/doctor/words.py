"""A diagnosis in sentences, the same for every face."""

from __future__ import annotations

from kvroom.doctor.diagnosis import Diagnosis
from kvroom.ledger.predict import Prediction
from kvroom.ledger.verdict import Status
from kvroom.logs.reading import Reading, State
from kvroom.units import show_bytes

_USUAL = {
    "config": "a setting that vLLM refuses",
    "model_resolve": "a model or tokenizer that cannot be had",
    "engine_boot": "the engine's own process: look for its lines above",
    "distributed_init": "shared memory that is too small, or a rank that does not answer",
    "device_memory_check": "another process on the card",
    "weight_load": "main memory: the loader and the page cache against the container's limit",
    "compile": "main memory: compilers that run in parallel",
    "profile": "main memory during compilation, or the peak of the trial run",
    "kv_sizing": "too little room for the KV cache",
    "kv_alloc": "GPU memory outside of the budget",
    "graph_capture": "GPU memory outside of the budget",
    "sampler_warmup": "GPU memory outside of the budget",
    "api_bind": "the address or port",
    "serving": "the last requests before it",
}
"""What usually stops a start at a stage where the log shows no error."""


def identity(diagnosis: Diagnosis) -> str:
    """Which start this is about, one line."""
    reading = diagnosis.reading
    release = reading.version or (str(diagnosis.known.release) if diagnosis.known.release else "of an unknown release")
    kind = "a CPU node" if reading.facts.first("cpu_pool", "err_free_cpu", "err_cpu_pool") else "a card"
    card = reading.device or (f"{kind} of {show_bytes(reading.total_bytes)}" if reading.total_bytes else "")
    count = f"{reading.gpus} x " if reading.gpus and reading.gpus > 1 else ""
    where = f" on {count}{card}" if card else f" on {reading.gpus} GPUs" if count else ""
    backend = f", {reading.attention_backend}" if reading.attention_backend else ""
    engine = f" ({reading.engine})" if reading.engine else ""
    return f"{reading.model or 'unnamed model'}{where}, vLLM {release}{engine}{backend}"


def headline(diagnosis: Diagnosis) -> str:
    """What became of the start, one line."""
    reading = diagnosis.reading
    more = f" (the last of {diagnosis.log.starts} starts)" if diagnosis.log.starts > 1 else ""
    stage = reading.stage
    if diagnosis.verdict.status is Status.FAILS:
        if reading.state is State.DIED:
            return f"it was up and died at stage {stage}{more}"
        at = f"at stage {stage}" if stage != "unknown" else "at a stage that the lines do not show"
        return f"it did not start: stopped {at}{more}"
    if reading.state is State.UNFINISHED:
        if stage == "unknown":
            return f"the lines do not show where it stopped{more}"
        return f"the log ends at stage {stage} without an error; what usually stops there is {_USUAL[stage]}{more}"
    words = {
        State.SERVING: "it serves",
        State.STARTED: "the engine started",
        State.STOPPED: "it served and was shut down in order",
    }
    return words.get(reading.state, str(reading.state)) + more


def pool_lines(reading: Reading) -> list[str]:
    """The pool in sentences."""
    pool = reading.pool
    found = []
    if pool.tokens is not None:
        blocks = f" in {pool.num_blocks:,} blocks" if pool.num_blocks is not None else ""
        found.append(f"{pool.tokens:,} tokens{blocks}")
    elif pool.num_blocks is not None:
        found.append(f"{pool.num_blocks:,} blocks")
    if pool.max_concurrency is not None and pool.max_model_len:
        found.append(f"{pool.max_concurrency:.2f} requests of {pool.max_model_len:,} tokens at once")
    if pool.needed_bytes and pool.available_bytes is not None:
        short = pool.needed_bytes - pool.available_bytes
        found.append(
            f"one request needs {show_bytes(pool.needed_bytes)}, {show_bytes(pool.available_bytes)} are left:"
            f" {show_bytes(max(short, 0))} short"
        )
    if pool.estimated_max_len is not None:
        found.append(f"the engine estimates {pool.estimated_max_len:,} tokens as the longest that fits")
    return found


def serving_lines(reading: Reading) -> list[str]:
    """The load in sentences."""
    load = reading.load
    found = []
    if load.count:
        lines = "1 line" if load.count == 1 else f"{load.count:,} lines"
        found.append(
            f"{lines} of statistics: at most {load.most_running} running, {load.most_waiting} waiting,"
            f" {load.best_generation:,.1f} tokens/s generated"
        )
        if load.busiest is not None:
            found.append(f"KV cache at most {load.busiest.kv_percent:g} % full (line {load.busiest.line})")
        if load.preemptions:
            found.append(f"{load.preemptions:,} preemptions")
    refused = {status: count for status, count in reading.statuses.items() if status >= 400}
    if refused:
        counts = ", ".join(f"{count} x {status}" for status, count in sorted(refused.items()))
        found.append(f"refused or failed requests: {counts}")
    return found


def room_after(after: Prediction | None) -> str:
    """What the ledger says of the launch after a change; empty where it cannot say."""
    if after is None:
        return ""
    pool = after.pool
    room = f", {pool.tokens:,} tokens, {pool.max_concurrency:.2f} requests" if pool and pool.fits else ""
    return f"  ->  {after.verdict.status}{room}"
