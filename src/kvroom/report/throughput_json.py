"""How fast a launch serves, as JSON data of schema ``kvroom/1``: seconds, tokens a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvroom.report.as_json import cleaned
from kvroom.report.schema import SCHEMA
from kvroom.throughput.estimate import Estimate
from kvroom.throughput.tables import Tabled


def throughput_data(found: Estimate, notes: Sequence[str], tables: Tabled | None = None) -> dict[str, Any]:
    """``found`` ready for ``json.dumps``, with what ``tables`` of kernels say where they were asked."""
    setup = found.prediction.setup
    data = {
        "schema": SCHEMA,
        "kind": "throughput",
        "model": setup.args.model,
        "vllm_version": str(setup.release),
        "device": setup.machine.device.name,
        "count": setup.machine.count,
        "input_len": found.load.prompt,
        "output_len": found.load.answer,
        "rows": [
            {
                "concurrency": row.concurrency,
                "ttft": row.ttft,
                "tpot": row.tpot,
                "tpot_low": row.tpot * found.interval("tpot")[0],
                "tpot_high": row.tpot * found.interval("tpot")[1],
                "throughput": row.throughput,
                "throughput_low": row.throughput * found.interval("throughput")[0],
                "throughput_high": row.throughput * found.interval("throughput")[1],
                "bound_by": "memory" if row.memory_share >= 1 else "compute",
                "preemptions": row.preemptions,
            }
            for row in found.rows
        ],
        "compute_bound_from": found.turns_at,
        "pool_batch": found.pool_batch,
        "prompt_tokens_per_second": found.prompt_rate,
        "goodput": found.goodput,
        "basis": "measured" if found.scale.measured else "estimated",
        "runs": found.fit.runs,
        "cards": list(found.fit.cards),
        "card_basis": found.card.basis,
        "tables": None if tables is None else _tables(tables),
        "notes": list(notes),
    }
    return {key: cleaned(value) for key, value in data.items()}


def _tables(tables: Tabled) -> dict[str, Any]:
    return {
        "source": tables.source,
        "rows": [
            {"concurrency": row.concurrency, "ttft": row.ttft, "tpot": row.tpot, "throughput": row.throughput}
            for row in tables.rows
        ],
        "note": tables.note,
    }
