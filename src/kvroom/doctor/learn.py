"""What a diagnosed log teaches about its machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from kvroom.doctor.diagnose import diagnose_log, open_log
from kvroom.doctor.diagnosis import Diagnosis
from kvroom.doctor.ticket import Ticket
from kvroom.errors import UsageError, short
from kvroom.files import read_limited
from kvroom.learned.exchange import of_start
from kvroom.learned.key import fingerprint, kept_env, kept_words, world
from kvroom.learned.measurement import Measurement, cleaned
from kvroom.learned.store import Store, store_path
from kvroom.logs.reading import Reading
from kvroom.logs.stages import rank
from kvroom.vllm.args import EngineArgs
from kvroom.vllm.flags import flags_for
from kvroom.vllm.releases import Release

_VOID = {"profile-measured-nothing", "memory-freed-while-profiling", "neighbour-counted"}
"""Findings that say that what was measured is not what the launch takes."""
_TOLD = (
    "max_model_len gpu_memory_utilization max_num_seqs max_num_batched_tokens enforce_eager kv_cache_dtype"
    " tensor_parallel_size pipeline_parallel_size"
).split()
"""Settings that a log shows beside the command; what it resolved goes before what the rules would."""
_NO_NUMBER = Release(0, 2, 0)
"""Builds from source call themselves 0.1.dev."""
_LARGEST_LEDGER = 1_000_000
"""Bytes of a ledger that the plugin wrote."""
_FAR = 0.1
"""A total further from the card's, of it, is of another card, or was misread."""


def learn(
    log: str | bytes | os.PathLike[str] | BinaryIO,
    *,
    command: str | Sequence[str] | None = None,
    model: str | None = None,
    gpu: str | None = None,
    gpu_memory: str | None = None,
    vllm: str | None = None,
    env: Mapping[str, str] | None = None,
    offline: bool = False,
) -> Measurement:
    """Keep what the last start in ``log`` measured, for later plans; the keywords are those of ``diagnose``.

    A path may also be that of a ledger that KVROOM_LEDGER named. Raises UsageError for a log with nothing to learn,
    StoreError where it cannot be kept.
    """
    ticket = Ticket(command, model, gpu, gpu_memory, vllm, env or {}, bool(offline))
    found = written(log) if isinstance(log, os.PathLike) else None
    if found is None:
        found = lesson(diagnose_log(open_log(log), ticket)[0], datetime.now(UTC))
    if isinstance(found, str):
        raise UsageError(f"There is nothing to learn: {found}", "Say what the log leaves out: gpu, model, vllm.")
    Store(store_path()).add([found])
    return found


def written(path: os.PathLike[str]) -> Measurement | str | None:
    """What the ledger at ``path`` teaches, as ``of_start``; None for a file that is none, or that cannot be read."""
    try:
        data = read_limited(Path(path), _LARGEST_LEDGER)
    except (OSError, ValueError):
        return None  # a log may be a pipe, or have any length
    return of_start(data, short(str(Path(path))))


def lesson(diagnosis: Diagnosis, now: datetime) -> Measurement | str:
    """What the start measured, as it is kept; a sentence on why there is nothing to keep."""
    reading, known = diagnosis.reading, diagnosis.known
    if not reading.came_up and rank(reading.stage) < rank("kv_sizing"):
        return f"the start ends at stage {reading.stage}, before its memory is measured."
    void = next((finding for finding in diagnosis.findings if finding.name in _VOID), None)
    if void is not None:
        return f"the measurement is void ({void.code} {void.name})."
    if known.priced is None:
        return known.notes[-1] if known.notes else "the model or the card is not known."
    if known.release is None or known.release < _NO_NUMBER:
        return "the log names no release: give --vllm."
    prediction = known.priced.prediction
    setup = prediction.setup
    told = _told_by_people(reading)
    sizes = {name: size for name, size in setup.measured.items() if name not in told}
    if not {"weights", "activation", "available"} & sizes.keys():
        return "the log prints no size of a part."
    device = setup.machine.device
    total = _total(reading)
    if total and abs(total - device.total_bytes) <= _FAR * device.total_bytes:
        sizes["total"] = total
    taken = reading.size("graph_actual")
    if taken and taken > 0:  # other programs may free memory meanwhile
        sizes["graphs_taken"] = taken
    args = _as_told(setup.args, reading, known.release)
    measurement = Measurement(
        gpu=device.name,
        gpus=world(args),
        release=setup.release,
        model=_public_name(args.model),
        shape=fingerprint(setup.shape, setup.draft),
        words=kept_words(args, prediction.settings, setup.release),
        env=kept_env(args.env),
        backend=reading.attention_backend or (prediction.backend.name if prediction.backend else ""),
        sizes=sizes,
        learned=now.astimezone(UTC).isoformat(timespec="seconds"),
    )
    return cleaned(measurement)


def _told_by_people(reading: Reading) -> set[str]:
    """The sizes that somebody wrote in a ticket, rounded or from memory, and no engine printed."""
    lines = {fact.line for fact in reading.facts if fact.id.startswith("told_")}
    return {name for name, found in reading.measured.items() if found.line in lines}


def _total(reading: Reading) -> int | None:
    """The total that torch reported: as printed, else by the share of it that was requested."""
    printed = reading.size("total")
    if printed:
        return printed
    requested, share = reading.size("requested"), reading.settings.get("gpu_memory_utilization")
    return round(requested / share) if requested and isinstance(share, float) and 0 < share <= 1 else None


def _as_told(args: EngineArgs, reading: Reading, release: Release) -> EngineArgs:
    """``args`` with the settings that the log shows and the command leaves out."""
    table = flags_for(release)
    told: dict[str, Any] = {}
    for name in _TOLD:
        value = reading.settings.get(name)
        if name in args.given or name not in table.by_name or value in (None, False, "auto"):
            continue
        if name.endswith("_parallel_size") and value == 1:
            continue
        if isinstance(value, str) if name == "kv_cache_dtype" else isinstance(value, bool | int | float):
            told[name] = value
    return replace(args, given={**args.given, **told}, **told) if told else args


def _public_name(model: str) -> str:
    """The model's id; of a path its last part."""
    if model.count("/") <= 1 and not model.startswith((".", "/", "~")) and "\\" not in model:
        return model
    return model.replace("\\", "/").rstrip("/").rpartition("/")[2] or "a folder"
